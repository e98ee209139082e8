// User objects, which go with what refers to them. On both devices, by the rules of driver/graph.h.
#include "test/graphs/support.h"

namespace braid::test {
namespace {

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

INSTANTIATE_TEST_SUITE_P(Devices, UserObjects, ::testing::Values("host", "cuda"), named);

}  // namespace
}  // namespace braid::test
