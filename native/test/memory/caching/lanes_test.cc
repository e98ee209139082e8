// Lanes and their marks, alone and under the allocator.
#include <functional>
#include <thread>
#include <utility>

#include "test/memory/caching/support.h"

namespace braid::test {
namespace {

using namespace caching;

constexpr std::uint64_t size = 4 * mebi;

// Whoever has the stream may queue work that the lane does not see, so marks at one point are not shared. A
// lane of a capture, and other lanes over the stream, are like that too.
TEST(Lanes, ALentStreamEndsTheTrackingOfItsLanes) {
  Caching c;
  Driver& driver = c.driver;
  Lanes& lanes = c.lanes;
  Stream stream = nullptr, apart = nullptr;
  ASSERT_EQ(driver.streamCreate(&stream, 0), Status::ok);
  ASSERT_EQ(driver.streamCreate(&apart, 0), Status::ok);
  Lane *lane = nullptr, *other = nullptr, *captured = nullptr, *external = nullptr;
  ASSERT_EQ(lanes.add(stream, true, "lane", &lane), Status::ok);
  ASSERT_EQ(lanes.add(apart, true, "other", &other), Status::ok);
  const auto recorded = [&](Lane& on) {
    Mark *first = nullptr, *second = nullptr;
    EXPECT_EQ(lanes.mark(on, &first), Status::ok);
    EXPECT_EQ(lanes.mark(on, &second), Status::ok);
    const bool anew = second->point > first->point;
    first->release();
    second->release();
    return anew;
  };
  EXPECT_FALSE(recorded(*lane));
  EXPECT_EQ(lanes.lend(*lane), stream);
  EXPECT_TRUE(recorded(*lane));
  ASSERT_EQ(lanes.beginCapture(*lane, &captured), Status::ok);
  EXPECT_TRUE(recorded(*captured));
  lanes.endCapture(*lane, *captured);
  EXPECT_FALSE(recorded(*other));
  ASSERT_EQ(lanes.add(apart, false, "external", &external), Status::ok);
  EXPECT_TRUE(recorded(*other)) << "a stream that the caller has, too";
  EXPECT_TRUE(recorded(*external));
}

// One thread queues work and reads the present point; another thread records marks meanwhile. A mark at that
// point must never have been recorded before the work was queued.
TEST(Lanes, APresentPointIsNeverTooEarly) {
  SimulatedDevice device({});
  Lanes lanes(device);
  Stream stream = nullptr;
  Lane* lane = nullptr;
  ASSERT_EQ(device.streamCreate(&stream, 0), Status::ok);
  ASSERT_EQ(lanes.add(stream, true, "", &lane), Status::ok);
  constexpr std::uint64_t count = 400'000;
  std::atomic<std::uint64_t> queued{0};
  std::atomic<bool> started{false}, stop{false};
  std::vector<Count> points(count + 1);
  std::vector<std::uint64_t> queuedAtMark;  // by point: the most work that was queued when it was marked
  std::thread marking([&] {
    while (!stop) {
      Mark* mark = nullptr;
      bool recorded = false;
      EXPECT_EQ(lanes.mark(*lane, &mark, &recorded), Status::ok);
      const std::uint64_t most = queued.load();
      if (recorded) {
        queuedAtMark.resize(mark->point + 1, ~std::uint64_t{0});
        queuedAtMark[mark->point] = most;
      }
      mark->release();
      started = true;
    }
  });
  while (!started) std::this_thread::yield();
  for (std::uint64_t i = 1; i <= count; ++i) {
    queued.store(i);
    lane->queued();
    points[i] = lane->present();
  }
  stop = true;
  marking.join();
  for (std::uint64_t i = 1; i <= count; ++i) {
    if (points[i] >= queuedAtMark.size()) break;  // no such mark was recorded any more
    ASSERT_LE(i, queuedAtMark[points[i]]) << "point " << points[i];
  }
}

// A driver that runs `between` once, after a call has taken effect and before it returns.
struct Interrupted final : SimulatedDevice {
  using SimulatedDevice::SimulatedDevice;
  Status streamQuery(Stream stream) override { return then(SimulatedDevice::streamQuery(stream)); }
  Status eventRecord(Event event, Stream stream) override {
    return then(SimulatedDevice::eventRecord(event, stream));
  }
  Status then(Status status) {
    if (const auto once = std::exchange(between, nullptr)) once();
    return status;
  }
  std::function<void()> between;
};

// A free while a mark is being recorded: the mark is after all queued work, so the memory goes back once it
// has completed, even if no work is queued any more.
TEST(Lanes, AFreeWhileAMarkIsRecordedIsNotWaitedForForEver) {
  for (const bool retires : {false, true}) {
    Interrupted device{SimulatedDevice::Config{}};
    Lanes lanes(device);
    Allocator allocator(lanes, std::make_unique<DeviceSource>(device), {});
    Stream stream = nullptr;
    Lane* home = nullptr;
    ASSERT_EQ(device.streamCreate(&stream, 0), Status::ok);
    ASSERT_EQ(lanes.add(stream, true, "", &home), Status::ok);
    Block* block = nullptr;
    Shortage shortage;
    ASSERT_EQ(allocator.malloc(size, *home, &block, &shortage), Status::ok);
    ASSERT_EQ(device.fill32(0, 0, 1, stream), Status::ok);
    home->queued();
    std::thread freeing;
    std::atomic<bool> begun{false};
    device.between = [&] {
      freeing = std::thread([&] {
        begun = true;
        EXPECT_EQ(allocator.free(block), Status::ok);
      });
      while (!begun) std::this_thread::yield();
      std::this_thread::sleep_for(std::chrono::milliseconds(5));  // by now it waits for the lane's lock
    };
    if (retires) {
      EXPECT_EQ(lanes.retire(*home), Status::ok);
    } else {
      Mark* mark = nullptr;
      EXPECT_EQ(lanes.mark(*home, &mark), Status::ok);
      mark->release();
    }
    freeing.join();
    device.finish();
    EXPECT_EQ(allocator.emptyCache(), Status::ok);
    EXPECT_EQ(allocator.reserved(), 0u) << (retires ? "retired" : "alive");
  }
}

// Work that is queued right after a query or a record has a later point than they report.
TEST(Lanes, WorkQueuedAfterAQueryIsNotPartOfItsAnswer) {
  for (const bool queries : {true, false}) {
    for (const bool marked : {true, false}) {
      Interrupted device{SimulatedDevice::Config{}};
      Lanes lanes(device);
      Stream stream = nullptr;
      Lane* lane = nullptr;
      ASSERT_EQ(device.streamCreate(&stream, 0), Status::ok);
      ASSERT_EQ(lanes.add(stream, true, "", &lane), Status::ok);
      const auto queue = [&] {
        EXPECT_EQ(device.fill32(0, 0, 1, stream), Status::ok);
        lane->queued();
      };
      Mark* mark = nullptr;
      queue();
      if (marked) {
        ASSERT_EQ(lanes.mark(*lane, &mark), Status::ok);
        mark->release();
      }
      if (queries) device.finish();
      Count point = 0;
      device.between = [&] {
        queue();
        point = lane->present();
      };
      if (queries) {
        EXPECT_EQ(lanes.pollLane(*lane), Status::ok);
        EXPECT_LT(lane->completed(), point);
      } else if (!marked) {
        ASSERT_EQ(lanes.mark(*lane, &mark), Status::ok);
        EXPECT_LT(mark->point, point);
        mark->release();
      }
    }
  }
}

TEST(Lanes, WhatARetiredLaneFreedServesOthers) {
  Caching c;
  Lane &gone = c.lane(), &other = c.lane();
  Block* block = c.malloc(size, gone);
  c.work(gone);
  c.free(block);
  const Stream stream = gone.stream;
  ASSERT_EQ(c.lanes.retire(gone), Status::ok);
  c.driver.streamDestroy(stream);
  Block* early = c.malloc(size, other);
  EXPECT_NE(early->address, block->address) << "its work may still run";
  c.device.finish();
  Block* later = c.malloc(size, other);
  EXPECT_EQ(later->address, block->address);
}

TEST(Lanes, ABlockOutlivesItsLane) {
  Caching c;
  Lane &gone = c.lane(), &other = c.lane();
  Block* block = c.malloc(size, gone);
  c.work(gone);
  const Stream stream = gone.stream;
  c.driver.released(block->address, block->size, {c.driver.reached(stream)});
  ASSERT_EQ(c.lanes.retire(gone), Status::ok);
  c.driver.streamDestroy(stream);
  Block* copy = block;
  c.work(other);
  EXPECT_EQ(c.allocator->recordUse(copy, other), Status::ok);
  EXPECT_EQ(c.allocator->free(copy), Status::ok);
  c.device.finish();
  EXPECT_EQ(c.allocator->emptyCache(), Status::ok);
  EXPECT_EQ(c.allocator->reserved(), 0u);
}

TEST(Lanes, AsManyAsWantedOneAfterTheOther) {
  Caching c;
  for (int i = 0; i < 2000; ++i) {
    Lane& lane = c.lane();
    Block* block = c.malloc(size, lane);
    c.work(lane);
    c.free(block);
    const Stream stream = lane.stream;
    ASSERT_EQ(c.lanes.retire(lane), Status::ok);
    c.driver.streamDestroy(stream);
    c.device.advance(stream == nullptr ? 0 : 3);
  }
  EXPECT_LE(c.lanes.count(), 64u);
  EXPECT_LE(c.allocator->reserved(), 32 * mebi);
}

TEST(Lanes, TooManyAtOnceAreRefused) {
  Caching c;
  std::vector<Lane*> all;
  for (std::size_t i = 0; i < Lanes::most; ++i) all.push_back(&c.lane());
  Stream stream = nullptr;
  Lane* more = nullptr;
  ASSERT_EQ(c.driver.streamCreate(&stream, 0), Status::ok);
  EXPECT_EQ(c.lanes.add(stream, true, "", &more), Status::outOfMemory);
  c.work(*all[7]);
  const Stream gone = all[7]->stream;
  ASSERT_EQ(c.lanes.retire(*all[7]), Status::ok);
  c.driver.streamDestroy(gone);
  EXPECT_EQ(c.lanes.add(stream, true, "", &more), Status::outOfMemory) << "it has not completed";
  c.device.finish();
  EXPECT_EQ(c.lanes.add(stream, true, "", &more), Status::ok);
  EXPECT_EQ(more, all[7]);
}

TEST(Lanes, ARetiredLaneIsRefused) {
  Caching c;
  Lane& gone = c.lane();
  ASSERT_EQ(c.lanes.retire(gone), Status::ok);
  EXPECT_EQ(c.malloc(size, gone), nullptr);
  EXPECT_EQ(c.status, Status::invalidValue);
}

}  // namespace
}  // namespace braid::test
