// The rules of driver/graph.h, each once, on both devices.
#include <algorithm>
#include <bit>

#include "test/graphs/support.h"

namespace braid::test {
namespace {

class Graphs : public GraphDevice {
 protected:
  Status edge(Graph graph, GraphNode from, GraphNode to) {
    const GraphEdge edge{from, to};
    return driver_->graphAddEdges(graph, &edge, 1);
  }
  Status removeEdge(Graph graph, GraphNode from, GraphNode to) {
    const GraphEdge edge{from, to};
    return driver_->graphRemoveEdges(graph, &edge, 1);
  }
  std::vector<GraphEdge> edges(Graph graph) {
    std::vector<GraphEdge> found;
    EXPECT_EQ(driver_->graphEdges(graph, &found), Status::ok);
    return found;
  }
  std::vector<GraphNode> nodes(Graph graph) {
    std::vector<GraphNode> found;
    EXPECT_EQ(driver_->graphNodes(graph, &found), Status::ok);
    return found;
  }
  UserObject owned(Destructions& destructions, unsigned count = 1) {
    UserObject made = nullptr;
    EXPECT_EQ(driver_->userObjectCreate(&made, Destructions::one, &destructions, count), Status::ok);
    return made;
  }
  // A graph of one host node that passes the gate, and holds the object.
  Graph gated(GraphGate& gate, UserObject object) {
    const Graph made = graph();
    add(made, NodeParams::host(GraphGate::pass, &gate));
    EXPECT_EQ(driver_->graphRetain(made, object, 1, true), Status::ok);
    return made;
  }
};

// Structure.

TEST_P(Graphs, NodesAndEdgesAreReadBack) {
  const Graph made = graph();
  const GraphNode a = add(made, NodeParams::empty()), b = add(made, NodeParams::empty(), {a});
  const GraphNode c = add(made, NodeParams::fill(words(1), 0, 4, 1), {a});
  ASSERT_EQ(edge(made, b, c), Status::ok);
  EXPECT_EQ(nodes(made).size(), 3u);
  std::vector<GraphEdge> wanted{{a, b}, {a, c}, {b, c}};
  std::vector<GraphEdge> found = edges(made);
  EXPECT_TRUE(std::is_permutation(found.begin(), found.end(), wanted.begin(), wanted.end()));
  ASSERT_EQ(removeEdge(made, a, c), Status::ok);
  EXPECT_EQ(edges(made).size(), 2u);
  NodeKind kind = NodeKind::other;
  ASSERT_EQ(driver_->nodeKind(c, &kind), Status::ok);
  EXPECT_EQ(kind, NodeKind::fill);
  ASSERT_EQ(driver_->nodeDestroy(b), Status::ok);
  EXPECT_EQ(nodes(made).size(), 2u);
  EXPECT_EQ(edges(made).size(), 0u);
  std::string dot;
  ASSERT_EQ(driver_->graphDot(made, &dot), Status::ok) << driver_->lastDetail();
  EXPECT_NE(dot.find("digraph"), std::string::npos);
  driver_->graphDestroy(made);
}

TEST_P(Graphs, WrongEdgesAreRefusedAndChangeNothing) {
  const Graph made = graph(), other = graph();
  const GraphNode a = add(made, NodeParams::empty()), b = add(made, NodeParams::empty(), {a});
  const GraphNode far = add(other, NodeParams::empty());
  EXPECT_EQ(edge(made, a, a), Status::invalidValue);
  EXPECT_EQ(edge(made, a, b), Status::invalidValue);
  EXPECT_EQ(edge(made, a, far), Status::invalidValue);
  EXPECT_EQ(removeEdge(made, b, a), Status::invalidValue);
  GraphNode node = nullptr;
  EXPECT_EQ(driver_->nodeAdd(&node, made, &far, 1, NodeParams::empty()), Status::invalidValue);
  EXPECT_EQ(nodes(made).size(), 2u);
  EXPECT_EQ(edges(made), (std::vector<GraphEdge>{{a, b}}));
  driver_->graphDestroy(made);
  driver_->graphDestroy(other);
}

TEST_P(Graphs, ACycleIsRefusedByInstantiate) {
  const Graph made = graph();
  const GraphNode a = add(made, NodeParams::empty()), b = add(made, NodeParams::empty(), {a});
  if (edge(made, b, a) == Status::ok) {
    GraphExec exec = nullptr;
    InstantiateResult result = InstantiateResult::success;
    EXPECT_NE(driver_->graphInstantiate(&exec, made, {}, &result), Status::ok);
    EXPECT_EQ(result, InstantiateResult::invalidStructure);
  }
  driver_->graphDestroy(made);
}

TEST_P(Graphs, WrongParametersAreRefusedAndAddNothing) {
  const Graph made = graph();
  const DeviceAddress memory = words(4);
  GraphNode node = nullptr;
  for (const NodeParams& wrong :
       {NodeParams::fill(memory, 0, 3, 1), NodeParams::host(nullptr, nullptr), NodeParams::embed(nullptr)})
    EXPECT_NE(driver_->nodeAdd(&node, made, nullptr, 0, wrong), Status::ok) << nodeKindName(wrong.kind);
  EXPECT_TRUE(nodes(made).empty());
  driver_->graphDestroy(made);
}

TEST_P(Graphs, FillsHaveElementsOf1And2And4BytesAndRows) {
  const DeviceAddress memory = words(16);
  write(memory, std::vector<std::uint32_t>(16, 0));
  const Graph made = graph();
  add(made, NodeParams::fill(memory, 0xab, 1, 3));
  add(made, NodeParams::fill(memory + 4, 0xabcd, 2, 1));
  add(made, NodeParams::fill(memory + 16, 7, 4, 2, 3, 16));
  runOnce(made);
  EXPECT_EQ(read(memory, 16),
            (std::vector<std::uint32_t>{0xababab, 0xabcd, 0, 0, 7, 7, 0, 0, 7, 7, 0, 0, 7, 7, 0, 0}));
  driver_->graphDestroy(made);
}

TEST_P(Graphs, AChildIsACopy) {
  const DeviceAddress memory = words(2);
  write(memory, {0, 0});
  const Graph child = graph(), made = graph();
  add(child, NodeParams::fill(memory, 1, 4, 1));
  const GraphNode node = add(made, NodeParams::embed(child));
  add(child, NodeParams::fill(memory + 4, 1, 4, 1));
  Graph inside = nullptr;
  ASSERT_EQ(driver_->nodeChild(node, &inside), Status::ok);
  EXPECT_NE(inside, child);
  EXPECT_EQ(nodes(inside).size(), 1u);
  runOnce(made);
  EXPECT_EQ(read(memory, 2), (std::vector<std::uint32_t>{1, 0}));
  driver_->graphDestroy(child);
  driver_->graphDestroy(made);
}

TEST_P(Graphs, ACloneIsACopyWhoseNodesAreFound) {
  const DeviceAddress memory = words(1);
  write(memory, {0});
  const Graph made = graph();
  const GraphNode node = add(made, NodeParams::fill(memory, 1, 4, 1));
  Graph clone = nullptr;
  ASSERT_EQ(driver_->graphClone(&clone, made), Status::ok);
  GraphNode found = nullptr;
  ASSERT_EQ(driver_->graphFindInClone(&found, node, clone), Status::ok);
  EXPECT_EQ(nodes(clone), std::vector<GraphNode>{found});
  ASSERT_EQ(driver_->nodeUpdate(found, NodeParams::fill(memory, 2, 4, 1)), Status::ok);
  runOnce(made);
  EXPECT_EQ(read(memory, 1), std::vector<std::uint32_t>{1});
  driver_->graphDestroy(made);
  runOnce(clone);
  EXPECT_EQ(read(memory, 1), std::vector<std::uint32_t>{2});
  driver_->graphDestroy(clone);
}

// Although no node reads the condition any more.
TEST_P(Graphs, AGraphThatAConditionWasMadeForIsNotCopied) {
  const Graph made = graph(), parent = graph();
  add(made, NodeParams::empty());
  Condition condition = 0;
  GraphNode node = nullptr, refused = nullptr;
  Graph body = nullptr, clone = nullptr;
  const auto expectRefused = [&] {
    EXPECT_EQ(driver_->graphClone(&clone, made), Status::notSupported);
    EXPECT_EQ(driver_->nodeAdd(&refused, parent, nullptr, 0, NodeParams::embed(made)), Status::notSupported);
  };
  ASSERT_EQ(driver_->conditionCreate(&condition, made, true, 1), Status::ok);
  expectRefused();
  ASSERT_EQ(
      driver_->nodeAddConditional(&node, made, nullptr, 0, condition, ConditionalKind::branch, &body, 1),
      Status::ok);
  expectRefused();
  // Nor is what is inside: it runs with the graph around it.
  add(body, NodeParams::empty());
  EXPECT_EQ(driver_->graphClone(&clone, body), Status::notSupported);
  EXPECT_EQ(driver_->nodeAdd(&refused, parent, nullptr, 0, NodeParams::embed(body)), Status::notSupported);
  GraphExec none = nullptr;
  InstantiateResult result = InstantiateResult::success;
  EXPECT_EQ(driver_->graphInstantiate(&none, body, {}, &result), Status::notSupported);
  ASSERT_EQ(driver_->nodeDestroy(node), Status::ok);
  expectRefused();
  for (const Graph each : {made, parent}) driver_->graphDestroy(each);
}

// Memory nodes.

TEST_P(Graphs, MemoryLivesInsideEachLaunch) {
  std::uint32_t* result = pinned(8);
  const Graph made = graph();
  GraphNode first = nullptr, second = nullptr;
  DeviceAddress one = 0, other = 0;
  ASSERT_EQ(driver_->nodeAddAllocation(&first, made, nullptr, 0, 64, &one), Status::ok)
      << driver_->lastDetail();
  ASSERT_EQ(driver_->nodeAddAllocation(&second, made, &first, 1, 1 << 20, &other), Status::ok);
  const GraphNode filled = add(made, NodeParams::fill(one, 5, 4, 16), {first});
  const GraphNode copied =
      add(made, NodeParams::copy(CopyKind::deviceToDevice, other, one, 64), {filled, second});
  const GraphNode freed = add(made, NodeParams::memFree(one), {copied});
  const GraphNode out =
      add(made, NodeParams::copy(CopyKind::deviceToHost, at(result), other, 32), {copied, freed});
  add(made, NodeParams::memFree(other), {out});
  const GraphExec exec = instantiate(made);
  for (const Stream on : {stream(), stream()})
    for (int turn = 0; turn < 2; ++turn) {
      std::memset(result, 0, 32);
      ASSERT_EQ(driver_->execLaunch(exec, on), Status::ok) << driver_->lastDetail();
      ASSERT_EQ(driver_->streamSynchronize(on), Status::ok) << driver_->lastDetail();
      EXPECT_EQ(result[7], 5u);
    }
  std::size_t used = 0, reserved = 0;
  ASSERT_EQ(driver_->graphMemory(&used, &reserved), Status::ok);
  EXPECT_GE(used, std::size_t{1} << 20);
  EXPECT_GE(reserved, used);
  driver_->execDestroy(exec);
  driver_->graphDestroy(made);
  ASSERT_EQ(driver_->graphMemoryTrim(), Status::ok);
}

TEST_P(Graphs, AGraphWithMemoryNodesIsARootWithOneExecutableThatLosesNothing) {
  const Graph made = graph(), parent = graph();
  GraphNode node = nullptr, refused = nullptr;
  DeviceAddress memory = 0;
  ASSERT_EQ(driver_->nodeAddAllocation(&node, made, nullptr, 0, 64, &memory), Status::ok);
  const GraphNode freed = add(made, NodeParams::memFree(memory), {node});
  const GraphNode empty = add(made, NodeParams::empty(), {freed});
  const auto expectRefused = [](const char* call, Status status) { EXPECT_NE(status, Status::ok) << call; };
  Graph clone = nullptr;
  expectRefused("clone", driver_->graphClone(&clone, made));
  expectRefused("embed", driver_->nodeAdd(&refused, parent, nullptr, 0, NodeParams::embed(made)));
  expectRefused("destroy a node", driver_->nodeDestroy(empty));
  expectRefused("remove an edge", removeEdge(made, freed, empty));
  expectRefused("free twice", driver_->nodeAdd(&refused, made, &node, 1, NodeParams::memFree(memory)));
  expectRefused("update a free node", driver_->nodeUpdate(freed, NodeParams::memFree(memory)));
  const GraphExec first = instantiate(made);
  GraphExec second = nullptr;
  InstantiateResult result = InstantiateResult::success;
  expectRefused("instantiate twice", driver_->graphInstantiate(&second, made, {}, &result));
  expectRefused("update a free node of an executable",
                driver_->execNodeUpdate(first, freed, NodeParams::memFree(memory)));
  launch(first);
  UpdateResult updated = UpdateResult::error;
  EXPECT_EQ(driver_->execUpdate(first, made, &updated), Status::ok) << driver_->lastDetail();
  launch(first);
  ASSERT_EQ(driver_->execDestroy(first), Status::ok);
  runOnce(made);
  for (const Graph each : {made, parent}) driver_->graphDestroy(each);
}

// Executables.

TEST_P(Graphs, AGraphWithConditionalNodesHasOneExecutableAtATime) {
  const Graph made = graph();
  Condition condition = 0;
  GraphNode node = nullptr;
  Graph body = nullptr;
  ASSERT_EQ(driver_->conditionCreate(&condition, made, true, 1), Status::ok);
  ASSERT_EQ(
      driver_->nodeAddConditional(&node, made, nullptr, 0, condition, ConditionalKind::branch, &body, 1),
      Status::ok);
  add(body, NodeParams::empty());
  const GraphExec first = instantiate(made);
  GraphExec second = nullptr;
  InstantiateResult result = InstantiateResult::success;
  EXPECT_EQ(driver_->graphInstantiate(&second, made, {}, &result), Status::notSupported);
  ASSERT_EQ(driver_->execDestroy(first), Status::ok);
  runOnce(made);
  driver_->graphDestroy(made);
}

TEST_P(Graphs, AnExecutableIsACopy) {
  const DeviceAddress memory = words(2);
  write(memory, {0, 0});
  const Graph made = graph();
  const GraphNode first = add(made, NodeParams::fill(memory, 1, 4, 1));
  add(made, NodeParams::fill(memory + 4, 1, 4, 1));
  const GraphExec before = instantiate(made);
  ASSERT_EQ(driver_->nodeDestroy(first), Status::ok);
  ASSERT_EQ(driver_->nodeUpdate(nodes(made)[0], NodeParams::fill(memory + 4, 2, 4, 1)), Status::ok);
  launch(before);
  EXPECT_EQ(read(memory, 2), (std::vector<std::uint32_t>{1, 1}));
  const GraphExec after = instantiate(made);
  write(memory, {0, 0});
  launch(after);
  EXPECT_EQ(read(memory, 2), (std::vector<std::uint32_t>{0, 2}));
  driver_->execDestroy(before);
  driver_->execDestroy(after);
  driver_->graphDestroy(made);
}

TEST_P(Graphs, ALaunchIsOnePieceOfItsStream) {
  const DeviceAddress memory = words(1);
  const Graph made = graph();
  add(made, NodeParams::fill(memory, 2, 4, 1));
  const GraphExec exec = instantiate(made);
  const Stream on = stream();
  std::uint32_t* before = pinned(1);
  std::uint32_t* after = pinned(1);
  GraphGate gate;
  ASSERT_EQ(driver_->hostFunction(on, GraphGate::pass, &gate), Status::ok);
  ASSERT_EQ(driver_->fill32(memory, 1, 1, on), Status::ok);
  ASSERT_EQ(driver_->copy(CopyKind::deviceToHost, at(before), memory, 4, on), Status::ok);
  ASSERT_EQ(driver_->execLaunch(exec, on), Status::ok);
  ASSERT_EQ(driver_->copy(CopyKind::deviceToHost, at(after), memory, 4, on), Status::ok);
  EXPECT_EQ(driver_->streamQuery(on), Status::notReady);
  gate.open = true;
  ASSERT_EQ(driver_->streamSynchronize(on), Status::ok);
  EXPECT_EQ(*before, 1u);
  EXPECT_EQ(*after, 2u);
  driver_->execDestroy(exec);
  driver_->graphDestroy(made);
}

TEST_P(Graphs, LaunchesOfOneExecutableRunOneAfterTheOther) {
  struct Counter {
    std::atomic<int> inside{0}, most{0}, runs{0};
    static void enter(void* data) {
      auto* counter = static_cast<Counter*>(data);
      const int now = ++counter->inside;
      counter->most = std::max(counter->most.load(), now);
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      --counter->inside;
      ++counter->runs;
    }
  } counter;
  const Graph made = graph();
  add(made, NodeParams::host(Counter::enter, &counter));
  const GraphExec exec = instantiate(made);
  const std::vector<Stream> on{stream(), stream(), stream()};
  for (int i = 0; i < 12; ++i)
    ASSERT_EQ(driver_->execLaunch(exec, on[static_cast<std::size_t>(i % 3)]), Status::ok);
  for (Stream each : on) ASSERT_EQ(driver_->streamSynchronize(each), Status::ok);
  EXPECT_EQ(counter.runs, 12);
  EXPECT_EQ(counter.most, 1);
  driver_->execDestroy(exec);
  driver_->graphDestroy(made);
}

TEST_P(Graphs, AQueuedLaunchKeepsItsExecutable) {
  const DeviceAddress memory = words(1);
  const Graph made = graph();
  add(made, NodeParams::fill(memory, 5, 4, 1));
  const GraphExec exec = instantiate(made);
  const Stream on = stream();
  GraphGate gate;
  ASSERT_EQ(driver_->hostFunction(on, GraphGate::pass, &gate), Status::ok);
  ASSERT_EQ(driver_->execLaunch(exec, on), Status::ok);
  ASSERT_EQ(driver_->execDestroy(exec), Status::ok);
  ASSERT_EQ(driver_->graphDestroy(made), Status::ok);
  gate.open = true;
  ASSERT_EQ(driver_->streamSynchronize(on), Status::ok);
  EXPECT_EQ(read(memory, 1), std::vector<std::uint32_t>{5});
}

TEST_P(Graphs, AnUpdateOfTheWholeReachesLaterLaunches) {
  const DeviceAddress memory = words(1);
  const Graph one = graph(), two = graph(), longer = graph();
  add(one, NodeParams::fill(memory, 1, 4, 1));
  add(two, NodeParams::fill(memory, 2, 4, 1));
  add(longer, NodeParams::empty(), {add(longer, NodeParams::fill(memory, 3, 4, 1))});
  const GraphExec exec = instantiate(one);
  UpdateResult result = UpdateResult::error;
  ASSERT_EQ(driver_->execUpdate(exec, two, &result), Status::ok) << driver_->lastDetail();
  EXPECT_EQ(result, UpdateResult::success);
  launch(exec);
  EXPECT_EQ(read(memory, 1), std::vector<std::uint32_t>{2});
  EXPECT_EQ(driver_->execUpdate(exec, longer, &result), Status::graphExecUpdateFailure);
  EXPECT_EQ(result, UpdateResult::topologyChanged);
  write(memory, {0});
  launch(exec);
  EXPECT_EQ(read(memory, 1), std::vector<std::uint32_t>{2});
  driver_->execDestroy(exec);
  for (Graph each : {one, two, longer}) driver_->graphDestroy(each);
}

TEST_P(Graphs, AKindCannotBeUpdatedToAnother) {
  GraphGate gate;
  gate.open = true;
  const DeviceAddress memory = words(1);
  const Graph fills = graph(), calls = graph();
  const GraphNode fill = add(fills, NodeParams::fill(memory, 1, 4, 1));
  add(calls, NodeParams::host(GraphGate::pass, &gate));
  const GraphExec exec = instantiate(fills);
  UpdateResult result = UpdateResult::success;
  EXPECT_EQ(driver_->execUpdate(exec, calls, &result), Status::graphExecUpdateFailure);
  EXPECT_EQ(result, UpdateResult::nodeKindChanged);
  EXPECT_NE(driver_->nodeUpdate(fill, NodeParams::host(GraphGate::pass, &gate)), Status::ok);
  EXPECT_NE(driver_->execNodeUpdate(exec, fill, NodeParams::host(GraphGate::pass, &gate)), Status::ok);
  launch(exec);
  EXPECT_EQ(read(memory, 1), std::vector<std::uint32_t>{1});
  driver_->execDestroy(exec);
  driver_->graphDestroy(fills);
  driver_->graphDestroy(calls);
}

TEST_P(Graphs, AnUpdateOfANodeReachesItsExecutableOnly) {
  const DeviceAddress memory = words(1);
  const Graph made = graph(), other = graph();
  const GraphNode node = add(made, NodeParams::fill(memory, 1, 4, 1));
  const GraphNode far = add(other, NodeParams::fill(memory, 1, 4, 1));
  const GraphExec first = instantiate(made), second = instantiate(made);
  ASSERT_EQ(driver_->execNodeUpdate(first, node, NodeParams::fill(memory, 2, 4, 1)), Status::ok)
      << driver_->lastDetail();
  EXPECT_NE(driver_->execNodeUpdate(first, far, NodeParams::fill(memory, 3, 4, 1)), Status::ok);
  launch(first);
  EXPECT_EQ(read(memory, 1), std::vector<std::uint32_t>{2});
  launch(second);
  EXPECT_EQ(read(memory, 1), std::vector<std::uint32_t>{1});
  runOnce(made);
  EXPECT_EQ(read(memory, 1), std::vector<std::uint32_t>{1});
  driver_->execDestroy(first);
  driver_->execDestroy(second);
  driver_->graphDestroy(made);
  driver_->graphDestroy(other);
}

TEST_P(Graphs, ANodeThatIsUpdatedWhileALaunchIsQueuedKeepsItsParametersThere) {
  const DeviceAddress memory = words(1);
  std::uint32_t* first = pinned(1);
  const Graph made = graph();
  const GraphNode node = add(made, NodeParams::fill(memory, 1, 4, 1));
  const GraphExec exec = instantiate(made);
  const Stream on = stream();
  GraphGate gate;
  ASSERT_EQ(driver_->hostFunction(on, GraphGate::pass, &gate), Status::ok);
  ASSERT_EQ(driver_->execLaunch(exec, on), Status::ok);
  ASSERT_EQ(driver_->copy(CopyKind::deviceToHost, at(first), memory, 4, on), Status::ok);
  ASSERT_EQ(driver_->execNodeUpdate(exec, node, NodeParams::fill(memory, 2, 4, 1)), Status::ok);
  ASSERT_EQ(driver_->execLaunch(exec, on), Status::ok);
  gate.open = true;
  ASSERT_EQ(driver_->streamSynchronize(on), Status::ok);
  EXPECT_EQ(*first, 1u);
  EXPECT_EQ(read(memory, 1), std::vector<std::uint32_t>{2});
  driver_->execDestroy(exec);
  driver_->graphDestroy(made);
}

TEST_P(Graphs, ADisabledNodeDoesNothingAndItsEdgesHold) {
  const DeviceAddress memory = words(2);
  write(memory, {0, 0});
  const Graph made = graph();
  const GraphNode node = add(made, NodeParams::fill(memory, 1, 4, 1));
  const GraphNode none = add(made, NodeParams::empty(), {node});
  add(made, NodeParams::fill(memory + 4, 1, 4, 1), {none});
  const GraphExec exec = instantiate(made);
  bool enabled = false;
  ASSERT_EQ(driver_->execNodeEnabled(exec, node, &enabled), Status::ok);
  EXPECT_TRUE(enabled);
  ASSERT_EQ(driver_->execNodeEnable(exec, node, false), Status::ok);
  ASSERT_EQ(driver_->execNodeEnabled(exec, node, &enabled), Status::ok);
  EXPECT_FALSE(enabled);
  EXPECT_NE(driver_->execNodeEnable(exec, none, false), Status::ok);
  launch(exec);
  EXPECT_EQ(read(memory, 2), (std::vector<std::uint32_t>{0, 1}));
  ASSERT_EQ(driver_->execNodeEnable(exec, node, true), Status::ok);
  launch(exec);
  EXPECT_EQ(read(memory, 2), (std::vector<std::uint32_t>{1, 1}));
  driver_->execDestroy(exec);
  driver_->graphDestroy(made);
}

// Through two children, and through the body of a conditional node.
TEST_P(Graphs, NodesInsideAreUpdatedAndDisabledInTheExecutable) {
  const DeviceAddress memory = words(1);
  const auto fill = [&](std::uint32_t value) { return NodeParams::fill(memory, value, 4, 1); };
  const Graph leaf = graph(), middle = graph(), made = graph(), conditional = graph();
  add(leaf, fill(1));
  add(middle, NodeParams::embed(leaf));
  const GraphNode outer = add(made, NodeParams::embed(middle));
  Graph inside = nullptr, deep = nullptr, body = nullptr;
  ASSERT_EQ(driver_->nodeChild(outer, &inside), Status::ok);
  const GraphNode inner = nodes(inside)[0];
  ASSERT_EQ(driver_->nodeChild(inner, &deep), Status::ok);
  Condition condition = 0;
  GraphNode branch = nullptr;
  ASSERT_EQ(driver_->conditionCreate(&condition, conditional, true, 1), Status::ok);
  ASSERT_EQ(driver_->nodeAddConditional(&branch, conditional, nullptr, 0, condition, ConditionalKind::branch,
                                        &body, 1),
            Status::ok)
      << driver_->lastDetail();
  for (const auto& [root, node] :
       {std::pair{made, nodes(deep)[0]}, std::pair{conditional, add(body, fill(1))}}) {
    write(memory, {0});
    const GraphExec exec = instantiate(root);
    const Stream on = stream();
    GraphGate gate;
    std::uint32_t* queued = pinned(1);
    ASSERT_EQ(driver_->hostFunction(on, GraphGate::pass, &gate), Status::ok);
    ASSERT_EQ(driver_->execLaunch(exec, on), Status::ok);
    ASSERT_EQ(driver_->copy(CopyKind::deviceToHost, at(queued), memory, 4, on), Status::ok);
    ASSERT_EQ(driver_->execNodeUpdate(exec, node, fill(2)), Status::ok) << driver_->lastDetail();
    gate.open = true;
    ASSERT_EQ(driver_->streamSynchronize(on), Status::ok);
    EXPECT_EQ(*queued, 1u);
    launch(exec);
    EXPECT_EQ(read(memory, 1), std::vector<std::uint32_t>{2});
    bool enabled = true;
    ASSERT_EQ(driver_->execNodeEnable(exec, node, false), Status::ok) << driver_->lastDetail();
    ASSERT_EQ(driver_->execNodeEnabled(exec, node, &enabled), Status::ok);
    EXPECT_FALSE(enabled);
    write(memory, {9});
    launch(exec);
    // It stays disabled when what is around it is updated.
    if (root == made) {
      ASSERT_EQ(driver_->execNodeUpdate(exec, outer, NodeParams::embed(middle)), Status::ok);
    }
    launch(exec);
    EXPECT_EQ(read(memory, 1), std::vector<std::uint32_t>{9});
    driver_->execDestroy(exec);
    runOnce(root);
    EXPECT_EQ(read(memory, 1), std::vector<std::uint32_t>{1});
  }
  for (const Graph each : {leaf, middle, made, conditional}) driver_->graphDestroy(each);
}

TEST_P(Graphs, EventNodesOrderALaunchWithOtherStreams) {
  const DeviceAddress memory = words(1);
  std::uint32_t* seen = pinned(1);
  const Event begin = event(), end = event();
  GraphGate before, after;
  const Graph made = graph();
  const GraphNode waited = add(made, NodeParams::wait(begin));
  const GraphNode copied = add(made, NodeParams::copy(CopyKind::deviceToHost, at(seen), memory, 4), {waited});
  const GraphNode marked = add(made, NodeParams::record(end), {copied});
  add(made, NodeParams::host(GraphGate::pass, &after), {marked});
  const GraphExec exec = instantiate(made);
  const Stream first = stream(), second = stream(), third = stream();
  ASSERT_EQ(driver_->hostFunction(first, GraphGate::pass, &before), Status::ok);
  ASSERT_EQ(driver_->fill32(memory, 9, 1, first), Status::ok);
  ASSERT_EQ(driver_->eventRecord(begin, first), Status::ok);
  ASSERT_EQ(driver_->execLaunch(exec, second), Status::ok);
  before.open = true;
  // The event is reached inside the launch, before its end.
  after.awaitReached();
  ASSERT_EQ(driver_->streamWait(third, end), Status::ok);
  ASSERT_EQ(driver_->streamSynchronize(third), Status::ok);
  EXPECT_EQ(*seen, 9u);
  EXPECT_EQ(driver_->eventQuery(end), Status::ok);
  EXPECT_EQ(driver_->streamQuery(second), Status::notReady);
  after.open = true;
  ASSERT_EQ(driver_->streamSynchronize(second), Status::ok);
  driver_->execDestroy(exec);
  driver_->graphDestroy(made);
}

TEST_P(Graphs, KernelsAreNodesOrAreCaptured) {
  KernelSpec twice;
  twice.kind = KernelSpec::Kind::map;
  twice.shape = {4};
  twice.operands = {{DType::f32, 0, {1}}};
  twice.code = {{MapOp::operand, 0}, {MapOp::constant, 0, 0, 0, 2}, {MapOp::mul, 0, 1}};
  twice.results = {{2, DType::f32}};
  twice.readCount = twice.writeCount = 1;
  std::unique_ptr<Kernel> kernel;
  ASSERT_EQ(driver_->prepare(&kernel, twice, {}), Status::ok) << driver_->lastDetail();
  ASSERT_EQ(kernel->form(nullptr, nullptr), Kernel::Form::node);
  const DeviceAddress memory = words(12);
  const auto bits = [](float value) { return std::bit_cast<std::uint32_t>(value); };
  write(memory, std::vector<std::uint32_t>(12, bits(1.5f)));
  const Stream on = stream();
  const DeviceAddress from = memory + 16, to = memory + 32;
  ASSERT_EQ(driver_->captureBegin(on, CaptureMode::relaxed), Status::ok);
  ASSERT_EQ(driver_->launch(*kernel, &from, &to, on), Status::ok);
  Graph captured = nullptr;
  ASSERT_EQ(driver_->captureEnd(on, &captured), Status::ok);
  const Graph made = graph();
  const GraphNode first = add(made, NodeParams::launch(*kernel, {memory}, {from}));
  add(made, NodeParams::embed(captured), {first});
  runOnce(made);
  EXPECT_EQ(read(to, 4), std::vector<std::uint32_t>(4, bits(6.0f)));
  driver_->graphDestroy(captured);
  driver_->graphDestroy(made);
}

// Conditions.

class Conditions : public Graphs {
 protected:
  void SetUp() override {
    Graphs::SetUp();
    if (IsSkipped()) return;
    value_ = words(1);
    marks_ = words(4);
    ASSERT_EQ(driver_->prepareCondition(&set_), Status::ok) << driver_->lastDetail();
  }
  // A graph that sets its condition from memory, and the node that sets it.
  GraphNode setter(Graph graph, Condition condition, const std::vector<GraphNode>& after = {}) {
    return add(graph, NodeParams::launch(*set_, {value_}, {condition}), after);
  }
  std::vector<std::uint32_t> runWith(GraphExec exec, std::uint32_t value) {
    write(value_, {value});
    write(marks_, {0, 0, 0, 0});
    launch(exec);
    return read(marks_, 4);
  }
  NodeParams mark(std::size_t index) { return NodeParams::fill(marks_ + 4 * index, 1, 4, 1); }

  DeviceAddress value_ = 0, marks_ = 0;
  std::unique_ptr<Kernel> set_;
};

TEST_P(Conditions, ChooseABranch) {
  const Graph made = graph();
  Condition condition = 0;
  ASSERT_EQ(driver_->conditionCreate(&condition, made, false, 0), Status::ok);
  const GraphNode set = setter(made, condition);
  Graph bodies[2];
  GraphNode node = nullptr;
  ASSERT_EQ(driver_->nodeAddConditional(&node, made, &set, 1, condition, ConditionalKind::branch, bodies, 2),
            Status::ok)
      << driver_->lastDetail();
  add(bodies[0], mark(0));
  add(bodies[1], mark(1));
  add(made, mark(3), {node});
  const GraphExec exec = instantiate(made);
  EXPECT_EQ(runWith(exec, 1), (std::vector<std::uint32_t>{1, 0, 0, 1}));
  EXPECT_EQ(runWith(exec, 0), (std::vector<std::uint32_t>{0, 1, 0, 1}));
  driver_->execDestroy(exec);
  driver_->graphDestroy(made);
}

TEST_P(Conditions, SelectABodyOrNone) {
  const Graph made = graph();
  Condition condition = 0;
  ASSERT_EQ(driver_->conditionCreate(&condition, made, false, 0), Status::ok);
  const GraphNode set = setter(made, condition);
  Graph bodies[3];
  GraphNode node = nullptr;
  ASSERT_EQ(
      driver_->nodeAddConditional(&node, made, &set, 1, condition, ConditionalKind::selection, bodies, 3),
      Status::ok)
      << driver_->lastDetail();
  for (std::size_t i = 0; i < 3; ++i) add(bodies[i], mark(i));
  const GraphExec exec = instantiate(made);
  EXPECT_EQ(runWith(exec, 0), (std::vector<std::uint32_t>{1, 0, 0, 0}));
  EXPECT_EQ(runWith(exec, 2), (std::vector<std::uint32_t>{0, 0, 1, 0}));
  EXPECT_EQ(runWith(exec, 3), (std::vector<std::uint32_t>{0, 0, 0, 0}));
  driver_->execDestroy(exec);
  driver_->graphDestroy(made);
}

TEST_P(Conditions, LoopWhileTheyHold) {
  // Each turn takes the next of a row of values, which ends with 0.
  const DeviceAddress row = words(5);
  const Graph made = graph();
  Condition condition = 0;
  ASSERT_EQ(driver_->conditionCreate(&condition, made, true, 1), Status::ok);
  Graph body = nullptr;
  GraphNode node = nullptr;
  ASSERT_EQ(driver_->nodeAddConditional(&node, made, nullptr, 0, condition, ConditionalKind::loop, &body, 1),
            Status::ok)
      << driver_->lastDetail();
  const GraphNode aside = add(body, NodeParams::copy(CopyKind::deviceToDevice, marks_, row + 4, 16));
  const GraphNode back = add(body, NodeParams::copy(CopyKind::deviceToDevice, row, marks_, 16), {aside});
  add(body, NodeParams::launch(*set_, {row}, {condition}), {back});
  const GraphExec exec = instantiate(made);
  write(row, {1, 1, 1, 0, 77});
  launch(exec);
  EXPECT_EQ(read(row, 2), (std::vector<std::uint32_t>{0, 77}));
  write(row, {1, 0, 3, 4, 5});
  launch(exec);
  EXPECT_EQ(read(row, 2), (std::vector<std::uint32_t>{0, 3}));
  driver_->execDestroy(exec);
  driver_->graphDestroy(made);
}

TEST_P(Conditions, AreOfOneGraphAndTakeSomeKindsOnly) {
  const Graph made = graph(), other = graph();
  Condition condition = 0;
  ASSERT_EQ(driver_->conditionCreate(&condition, made, true, 0), Status::ok);
  Graph bodies[3];
  GraphNode node = nullptr;
  EXPECT_NE(
      driver_->nodeAddConditional(&node, other, nullptr, 0, condition, ConditionalKind::loop, bodies, 1),
      Status::ok);
  EXPECT_NE(
      driver_->nodeAddConditional(&node, made, nullptr, 0, condition, ConditionalKind::selection, bodies, 0),
      Status::ok);
  EXPECT_NE(
      driver_->nodeAddConditional(&node, made, nullptr, 0, condition, ConditionalKind::branch, bodies, 3),
      Status::ok);
  ASSERT_EQ(
      driver_->nodeAddConditional(&node, made, nullptr, 0, condition, ConditionalKind::branch, bodies, 1),
      Status::ok);
  GraphGate gate;
  gate.open = true;
  GraphNode host = nullptr;
  bool refused =
      driver_->nodeAdd(&host, bodies[0], nullptr, 0, NodeParams::host(GraphGate::pass, &gate)) != Status::ok;
  GraphExec exec = nullptr;
  InstantiateResult result = InstantiateResult::success;
  refused = refused || driver_->graphInstantiate(&exec, made, {}, &result) != Status::ok;
  EXPECT_TRUE(refused);
  driver_->graphDestroy(made);
  driver_->graphDestroy(other);
}

// Capture.

class Captures : public Graphs {
 protected:
  CaptureStatus status(Stream on) {
    CaptureInfo info;
    EXPECT_EQ(driver_->captureInfo(on, &info), Status::ok);
    return info.status;
  }
  // An invalidated capture can only be ended; then the stream is an ordinary one again.
  void expectInvalidated(Stream on) {
    EXPECT_EQ(status(on), CaptureStatus::invalidated);
    const DeviceAddress memory = words(1);
    EXPECT_EQ(driver_->fill32(memory, 1, 1, on), Status::captureInvalidated);
    Graph made = nullptr;
    EXPECT_EQ(driver_->captureEnd(on, &made), Status::captureInvalidated);
    EXPECT_EQ(made, nullptr);
    EXPECT_EQ(status(on), CaptureStatus::none);
    EXPECT_EQ(driver_->fill32(memory, 4, 1, on), Status::ok);
    EXPECT_EQ(driver_->streamSynchronize(on), Status::ok);
    EXPECT_EQ(read(memory, 1), std::vector<std::uint32_t>{4});
  }
};

TEST_P(Captures, RunNothingUntilTheyAreLaunched) {
  const DeviceAddress memory = words(1);
  write(memory, {0});
  const Stream on = stream();
  EXPECT_EQ(status(on), CaptureStatus::none);
  ASSERT_EQ(driver_->captureBegin(on, CaptureMode::threadLocal), Status::ok);
  EXPECT_EQ(status(on), CaptureStatus::active);
  EXPECT_NE(driver_->captureBegin(on, CaptureMode::threadLocal), Status::ok);
  EXPECT_EQ(status(on), CaptureStatus::active);
  ASSERT_EQ(driver_->fill32(memory, 3, 1, on), Status::ok);
  CaptureInfo info;
  ASSERT_EQ(driver_->captureInfo(on, &info), Status::ok);
  EXPECT_NE(info.id, 0u);
  EXPECT_EQ(info.dependencies.size(), 1u);
  EXPECT_EQ(nodes(info.graph), info.dependencies);
  Graph made = nullptr;
  ASSERT_EQ(driver_->captureEnd(on, &made), Status::ok);
  EXPECT_EQ(status(on), CaptureStatus::none);
  EXPECT_EQ(read(memory, 1), std::vector<std::uint32_t>{0});
  runOnce(made);
  EXPECT_EQ(read(memory, 1), std::vector<std::uint32_t>{3});
  driver_->graphDestroy(made);
  EXPECT_NE(driver_->captureEnd(on, &made), Status::ok);
}

TEST_P(Captures, ForkAndJoinByEvents) {
  const DeviceAddress memory = words(1);
  const Stream first = stream(), second = stream();
  const Event fork = event(), join = event();
  ASSERT_EQ(driver_->captureBegin(first, CaptureMode::relaxed), Status::ok);
  ASSERT_EQ(driver_->fill32(memory, 1, 1, first), Status::ok);
  ASSERT_EQ(driver_->eventRecord(fork, first), Status::ok);
  EXPECT_EQ(status(second), CaptureStatus::none);
  ASSERT_EQ(driver_->streamWait(second, fork), Status::ok);
  EXPECT_EQ(status(second), CaptureStatus::active);
  ASSERT_EQ(driver_->fill32(memory, 2, 1, second), Status::ok);
  ASSERT_EQ(driver_->eventRecord(join, second), Status::ok);
  ASSERT_EQ(driver_->streamWait(first, join), Status::ok);
  ASSERT_EQ(driver_->fill32(memory, 3, 1, first), Status::ok);
  Graph made = nullptr;
  ASSERT_EQ(driver_->captureEnd(first, &made), Status::ok) << driver_->lastDetail();
  EXPECT_EQ(status(second), CaptureStatus::none);
  EXPECT_EQ(nodes(made).size(), 3u);
  // The third fill comes after both, though one of the edges says no more than the other.
  EXPECT_GE(edges(made).size(), 2u);
  runOnce(made);
  EXPECT_EQ(read(memory, 1), std::vector<std::uint32_t>{3});
  driver_->graphDestroy(made);
}

TEST_P(Captures, AStreamThatIsNotJoinedIsAnError) {
  const DeviceAddress memory = words(1);
  const Stream first = stream(), second = stream();
  const Event fork = event();
  ASSERT_EQ(driver_->captureBegin(first, CaptureMode::relaxed), Status::ok);
  ASSERT_EQ(driver_->eventRecord(fork, first), Status::ok);
  ASSERT_EQ(driver_->streamWait(second, fork), Status::ok);
  ASSERT_EQ(driver_->fill32(memory, 2, 1, second), Status::ok);
  Graph made = nullptr;
  EXPECT_EQ(driver_->captureEnd(first, &made), Status::captureUnjoined);
  EXPECT_EQ(made, nullptr);
  for (Stream each : {first, second}) {
    EXPECT_EQ(status(each), CaptureStatus::none);
    EXPECT_EQ(driver_->streamSynchronize(each), Status::ok);
  }
}

TEST_P(Captures, EndOnTheStreamTheyBeganOn) {
  const Stream first = stream(), second = stream();
  const Event fork = event();
  ASSERT_EQ(driver_->captureBegin(first, CaptureMode::relaxed), Status::ok);
  ASSERT_EQ(driver_->eventRecord(fork, first), Status::ok);
  ASSERT_EQ(driver_->streamWait(second, fork), Status::ok);
  Graph made = nullptr;
  EXPECT_EQ(driver_->captureEnd(second, &made), Status::captureUnmatched);
  driver_->captureEnd(first, &made);
  EXPECT_EQ(status(first), CaptureStatus::none);
  if (made) driver_->graphDestroy(made);
}

TEST_P(Captures, SynchronisingTheStreamInvalidates) {
  const Stream on = stream();
  ASSERT_EQ(driver_->captureBegin(on, CaptureMode::relaxed), Status::ok);
  EXPECT_EQ(driver_->streamSynchronize(on), Status::captureUnsupported);
  expectInvalidated(on);
}

TEST_P(Captures, QueryingTheStreamInvalidates) {
  const Stream on = stream();
  ASSERT_EQ(driver_->captureBegin(on, CaptureMode::relaxed), Status::ok);
  EXPECT_EQ(driver_->streamQuery(on), Status::captureUnsupported);
  expectInvalidated(on);
}

TEST_P(Captures, QueryingACapturedEventInvalidates) {
  const Stream on = stream();
  const Event mark = event();
  ASSERT_EQ(driver_->captureBegin(on, CaptureMode::relaxed), Status::ok);
  ASSERT_EQ(driver_->eventRecord(mark, on), Status::ok);
  EXPECT_EQ(driver_->eventQuery(mark), Status::capturedEvent);
  expectInvalidated(on);
}

TEST_P(Captures, WaitingForAnEventFromOutsideInvalidates) {
  const Stream on = stream(), outside = stream();
  const Event mark = event();
  ASSERT_EQ(driver_->eventRecord(mark, outside), Status::ok);
  ASSERT_EQ(driver_->captureBegin(on, CaptureMode::relaxed), Status::ok);
  EXPECT_EQ(driver_->streamWait(on, mark), Status::captureIsolation);
  expectInvalidated(on);
}

TEST_P(Captures, TwoCannotMerge) {
  const Stream first = stream(), second = stream();
  const Event mark = event();
  ASSERT_EQ(driver_->captureBegin(first, CaptureMode::relaxed), Status::ok);
  ASSERT_EQ(driver_->captureBegin(second, CaptureMode::relaxed), Status::ok);
  ASSERT_EQ(driver_->eventRecord(mark, first), Status::ok);
  EXPECT_EQ(driver_->streamWait(second, mark), Status::captureMerge);
  expectInvalidated(second);
  Graph made = nullptr;
  driver_->captureEnd(first, &made);
  if (made) driver_->graphDestroy(made);
}

TEST_P(Captures, ForbidAllocationUnlessTheyAreRelaxed) {
  const auto allocate = [&] {
    DeviceAddress memory = 0;
    const Status status = driver_->memAllocate(&memory, 4);
    if (status == Status::ok) driver_->memFree(memory);
    return status;
  };
  const Stream on = stream();
  Graph made = nullptr;
  ASSERT_EQ(driver_->captureBegin(on, CaptureMode::relaxed), Status::ok);
  EXPECT_EQ(allocate(), Status::ok);
  ASSERT_EQ(driver_->captureEnd(on, &made), Status::ok);
  driver_->graphDestroy(made);
  // The thread's own mode decides too.
  ASSERT_EQ(driver_->captureBegin(on, CaptureMode::global), Status::ok);
  CaptureMode mode = CaptureMode::relaxed;
  ASSERT_EQ(driver_->captureModeExchange(&mode), Status::ok);
  EXPECT_EQ(mode, CaptureMode::global);
  EXPECT_EQ(allocate(), Status::ok);
  ASSERT_EQ(driver_->captureModeExchange(&mode), Status::ok);
  EXPECT_EQ(mode, CaptureMode::relaxed);
  EXPECT_EQ(allocate(), Status::captureUnsupported);
  EXPECT_EQ(driver_->captureEnd(on, &made), Status::captureInvalidated);
}

TEST_P(Captures, ForbidAllocationByOtherThreadsWhereTheyAreGlobal) {
  const auto elsewhere = [&] {
    Status status = Status::unknown;
    std::thread([&] {
      ASSERT_EQ(driver_->bind(), Status::ok);
      DeviceAddress memory = 0;
      status = driver_->memAllocate(&memory, 4);
      if (status == Status::ok) driver_->memFree(memory);
    }).join();
    return status;
  };
  for (const auto& [mode, wanted, ended] :
       {std::tuple{CaptureMode::relaxed, Status::ok, Status::ok},
        std::tuple{CaptureMode::threadLocal, Status::ok, Status::ok},
        std::tuple{CaptureMode::global, Status::captureUnsupported, Status::captureInvalidated}}) {
    const Stream on = stream();
    Graph made = nullptr;
    ASSERT_EQ(driver_->captureBegin(on, mode), Status::ok);
    EXPECT_EQ(elsewhere(), wanted);
    EXPECT_EQ(driver_->captureEnd(on, &made), ended);
    if (made) driver_->graphDestroy(made);
  }
}

TEST_P(Captures, EndOnTheirThreadUnlessTheyAreRelaxed) {
  const Stream on = stream();
  const auto endElsewhere = [&](Graph* made) {
    Status status = Status::ok;
    std::thread([&] {
      driver_->bind();
      status = driver_->captureEnd(on, made);
    }).join();
    return status;
  };
  Graph made = nullptr;
  ASSERT_EQ(driver_->captureBegin(on, CaptureMode::relaxed), Status::ok);
  EXPECT_EQ(endElsewhere(&made), Status::ok);
  driver_->graphDestroy(made);
  ASSERT_EQ(driver_->captureBegin(on, CaptureMode::threadLocal), Status::ok);
  EXPECT_EQ(endElsewhere(&made), Status::captureWrongThread);
  driver_->captureEnd(on, &made);
  EXPECT_EQ(status(on), CaptureStatus::none);
  if (made) driver_->graphDestroy(made);
}

TEST_P(Captures, GoOntoAGraphThatExists) {
  const DeviceAddress memory = words(1);
  const Graph made = graph();
  const GraphNode first = add(made, NodeParams::fill(memory, 1, 4, 1));
  const Stream on = stream();
  ASSERT_EQ(driver_->captureBeginOnto(on, made, &first, 1, CaptureMode::relaxed), Status::ok)
      << driver_->lastDetail();
  ASSERT_EQ(driver_->fill32(memory, 2, 1, on), Status::ok);
  Graph ended = nullptr;
  ASSERT_EQ(driver_->captureEnd(on, &ended), Status::ok);
  EXPECT_EQ(ended, made);
  ASSERT_EQ(nodes(made).size(), 2u);
  EXPECT_EQ(edges(made).size(), 1u);
  runOnce(made);
  EXPECT_EQ(read(memory, 1), std::vector<std::uint32_t>{2});
  driver_->graphDestroy(made);
}

TEST_P(Captures, TakeTheDependenciesThatTheyAreGiven) {
  const DeviceAddress memory = words(2);
  const Stream on = stream();
  ASSERT_EQ(driver_->captureBegin(on, CaptureMode::relaxed), Status::ok);
  ASSERT_EQ(driver_->fill32(memory, 1, 1, on), Status::ok);
  CaptureInfo info;
  ASSERT_EQ(driver_->captureInfo(on, &info), Status::ok);
  const GraphNode extra = add(info.graph, NodeParams::empty());
  ASSERT_EQ(driver_->captureDependencies(on, &extra, 1, true), Status::ok);
  ASSERT_EQ(driver_->captureInfo(on, &info), Status::ok);
  EXPECT_EQ(info.dependencies.size(), 2u);
  ASSERT_EQ(driver_->captureDependencies(on, &extra, 1, false), Status::ok);
  ASSERT_EQ(driver_->captureInfo(on, &info), Status::ok);
  EXPECT_EQ(info.dependencies, std::vector<GraphNode>{extra});
  ASSERT_EQ(driver_->fill32(memory + 4, 1, 1, on), Status::ok);
  Graph made = nullptr;
  ASSERT_EQ(driver_->captureEnd(on, &made), Status::ok) << driver_->lastDetail();
  EXPECT_EQ(nodes(made).size(), 3u);
  EXPECT_EQ(edges(made).size(), 1u);
  driver_->graphDestroy(made);
}

// User objects.

class UserObjects : public Graphs {};

TEST_P(UserObjects, GoWithTheirLastReference) {
  Destructions gone;
  const UserObject object = owned(gone, 2);
  ASSERT_EQ(driver_->userObjectRetain(object, 1), Status::ok);
  ASSERT_EQ(driver_->userObjectRelease(object, 2), Status::ok);
  EXPECT_EQ(gone.afterAWhile(), 0);
  ASSERT_EQ(driver_->userObjectRelease(object, 1), Status::ok);
  EXPECT_TRUE(gone.await(1));
}

TEST_P(UserObjects, AreHeldByGraphsClonesAndChildren) {
  Destructions gone;
  const Graph made = graph(), parent = graph();
  ASSERT_EQ(driver_->graphRetain(made, owned(gone), 1, true), Status::ok);
  Graph clone = nullptr;
  ASSERT_EQ(driver_->graphClone(&clone, made), Status::ok);
  add(parent, NodeParams::embed(clone));
  driver_->graphDestroy(made);
  EXPECT_EQ(gone.afterAWhile(), 0);
  driver_->graphDestroy(clone);
  EXPECT_EQ(gone.afterAWhile(), 0);
  driver_->graphDestroy(parent);
  EXPECT_TRUE(gone.await(1));
}

TEST_P(UserObjects, AreReleasedByTheGraphOnRequest) {
  Destructions gone;
  const Graph made = graph();
  const UserObject object = owned(gone);
  ASSERT_EQ(driver_->graphRetain(made, object, 1, true), Status::ok);
  const GraphExec exec = instantiate(made);
  ASSERT_EQ(driver_->graphRelease(made, object, 1), Status::ok);
  EXPECT_EQ(gone.afterAWhile(), 0) << "the executable holds it";
  driver_->execDestroy(exec);
  EXPECT_TRUE(gone.await(1));
  driver_->graphDestroy(made);
}

TEST_P(UserObjects, AreHeldByALaunchUntilItHasCompleted) {
  Destructions gone;
  GraphGate gate;
  const Graph made = gated(gate, owned(gone));
  const GraphExec exec = instantiate(made);
  driver_->graphDestroy(made);
  const Stream on = stream();
  ASSERT_EQ(driver_->execLaunch(exec, on), Status::ok);
  gate.awaitReached();
  ASSERT_EQ(driver_->execDestroy(exec), Status::ok);
  EXPECT_EQ(gone.afterAWhile(), 0);
  gate.open = true;
  ASSERT_EQ(driver_->streamSynchronize(on), Status::ok);
  EXPECT_TRUE(gone.await(1));
}

TEST_P(UserObjects, AreReplacedByAnUpdateOfTheWhole) {
  Destructions before, after;
  GraphGate gate;
  gate.open = true;
  const Graph first = gated(gate, owned(before)), second = gated(gate, owned(after));
  const GraphExec exec = instantiate(first);
  driver_->graphDestroy(first);
  UpdateResult result = UpdateResult::error;
  ASSERT_EQ(driver_->execUpdate(exec, second, &result), Status::ok);
  driver_->graphDestroy(second);
  launch(exec);
  EXPECT_TRUE(before.await(1));
  EXPECT_EQ(after.afterAWhile(), 0);
  driver_->execDestroy(exec);
  EXPECT_TRUE(after.await(1));
}

TEST_P(UserObjects, AreKeptByAnUpdateThatFails) {
  Destructions before, after;
  GraphGate gate;
  gate.open = true;
  const Graph first = gated(gate, owned(before)), second = gated(gate, owned(after));
  add(second, NodeParams::empty());
  const GraphExec exec = instantiate(first);
  driver_->graphDestroy(first);
  UpdateResult result = UpdateResult::error;
  ASSERT_EQ(driver_->execUpdate(exec, second, &result), Status::graphExecUpdateFailure);
  driver_->graphDestroy(second);
  EXPECT_TRUE(after.await(1));
  EXPECT_EQ(before.afterAWhile(), 0);
  driver_->execDestroy(exec);
  EXPECT_TRUE(before.await(1));
}

const auto named = [](const auto& info) { return std::string(info.param); };
INSTANTIATE_TEST_SUITE_P(Devices, Graphs, ::testing::Values("host", "cuda"), named);
INSTANTIATE_TEST_SUITE_P(Devices, Conditions, ::testing::Values("host", "cuda"), named);
INSTANTIATE_TEST_SUITE_P(Devices, Captures, ::testing::Values("host", "cuda"), named);
INSTANTIATE_TEST_SUITE_P(Devices, UserObjects, ::testing::Values("host", "cuda"), named);

}  // namespace
}  // namespace braid::test
