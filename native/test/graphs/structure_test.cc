// Graphs as they are built: nodes, edges, copies, memory nodes. On both devices, by the rules of
// driver/graph.h.
#include <algorithm>

#include "test/graphs/support.h"

namespace braid::test {
namespace {

class Structure : public Graphs {};

TEST_P(Structure, NodesAndEdgesAreReadBack) {
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

TEST_P(Structure, WrongEdgesAreRefusedAndChangeNothing) {
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

TEST_P(Structure, ACycleIsRefusedByInstantiate) {
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

TEST_P(Structure, WrongParametersAreRefusedAndAddNothing) {
  const Graph made = graph();
  const DeviceAddress memory = words(4);
  GraphNode node = nullptr;
  for (const NodeParams& wrong :
       {NodeParams::fill(memory, 0, 3, 1), NodeParams::host(nullptr, nullptr), NodeParams::embed(nullptr)})
    EXPECT_NE(driver_->nodeAdd(&node, made, nullptr, 0, wrong), Status::ok) << nodeKindName(wrong.kind);
  EXPECT_TRUE(nodes(made).empty());
  driver_->graphDestroy(made);
}

TEST_P(Structure, FillsHaveElementsOf1And2And4BytesAndRows) {
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

TEST_P(Structure, AChildIsACopy) {
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

TEST_P(Structure, ACloneIsACopyWhoseNodesAreFound) {
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
TEST_P(Structure, AGraphThatAConditionWasMadeForIsNotCopied) {
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

TEST_P(Structure, MemoryLivesInsideEachLaunch) {
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

TEST_P(Structure, AGraphWithMemoryNodesIsARootWithOneExecutableThatLosesNothing) {
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

INSTANTIATE_TEST_SUITE_P(Devices, Structure, ::testing::Values("host", "cuda"), named);

}  // namespace
}  // namespace braid::test
