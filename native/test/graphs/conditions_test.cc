// Conditional nodes. On both devices, by the rules of driver/graph.h.
#include "test/graphs/support.h"

namespace braid::test {
namespace {

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

INSTANTIATE_TEST_SUITE_P(Devices, Conditions, ::testing::Values("host", "cuda"), named);

}  // namespace
}  // namespace braid::test
