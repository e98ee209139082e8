// Executables: launches and updates. On both devices, by the rules of driver/graph.h.
#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>

#include "test/graphs/support.h"

namespace braid::test {
namespace {

class Executables : public Graphs {};

TEST_P(Executables, AGraphWithConditionalNodesHasOneExecutableAtATime) {
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

TEST_P(Executables, AnExecutableIsACopy) {
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

TEST_P(Executables, ALaunchIsOnePieceOfItsStream) {
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

TEST_P(Executables, LaunchesOfOneExecutableRunOneAfterTheOther) {
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

TEST_P(Executables, AQueuedLaunchKeepsItsExecutable) {
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

TEST_P(Executables, AnUpdateOfTheWholeReachesLaterLaunches) {
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

TEST_P(Executables, AKindCannotBeUpdatedToAnother) {
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

TEST_P(Executables, AnUpdateOfANodeReachesItsExecutableOnly) {
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

TEST_P(Executables, ANodeThatIsUpdatedWhileALaunchIsQueuedKeepsItsParametersThere) {
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

TEST_P(Executables, ADisabledNodeDoesNothingAndItsEdgesHold) {
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
TEST_P(Executables, NodesInsideAreUpdatedAndDisabledInTheExecutable) {
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

TEST_P(Executables, EventNodesOrderALaunchWithOtherStreams) {
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

TEST_P(Executables, KernelsAreNodesOrAreCaptured) {
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

INSTANTIATE_TEST_SUITE_P(Devices, Executables, ::testing::Values("host", "cuda"), named);

}  // namespace
}  // namespace braid::test
