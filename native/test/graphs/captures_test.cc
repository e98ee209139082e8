// Captures of streams. On both devices, by the rules of driver/graph.h.
#include <thread>

#include "test/graphs/support.h"

namespace braid::test {
namespace {

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

INSTANTIATE_TEST_SUITE_P(Devices, Captures, ::testing::Values("host", "cuda"), named);

}  // namespace
}  // namespace braid::test
