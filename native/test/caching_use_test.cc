// Uses on other lanes: what recordUse, recordStream and keepUntil promise, alone and together. Over 400 lines
// as one thing: the marks and points beneath them, and what other threads do meanwhile, are part of each
// promise.
#include <functional>
#include <thread>
#include <utility>

#include "test/caching_support.h"

namespace braid::test {
namespace {

using namespace caching;

constexpr std::uint64_t size = 4 * mebi;

// A later owner on the same lane must get the block, without new memory and without a wait.
bool freeAtOnce(Caching& c, Lane& home, const Block* block) {
  const std::uint64_t waits = c.stats().waits;
  const DeviceAddress was = block->address;
  Block* again = c.malloc(size, home);
  const bool same = again != nullptr && again->address == was && c.stats().waits == waits;
  if (again) c.free(again);
  return same;
}

TEST(CachingUse, IsRecordedNow) {
  Caching c(with(neverWait));
  Lane &home = c.lane(), &reader = c.lane();
  Block* block = c.malloc(size, home);
  c.use(block, reader);
  c.work(reader);  // later work of the lane has nothing to do with the block
  c.free(block);
  EXPECT_EQ(block->state, BlockState::pending);
  c.device.advance(reader.stream, 1);
  EXPECT_FALSE(c.device.idle(reader.stream));
  EXPECT_TRUE(freeAtOnce(c, home, block));
}

TEST(CachingUse, RecordStreamCountsUntilTheFree) {
  Caching c(with(neverWait));
  Lane &home = c.lane(), &reader = c.lane();
  Block* block = c.malloc(size, home);
  c.work(reader);
  EXPECT_EQ(c.allocator->recordStream(block, reader), Status::ok);
  EXPECT_EQ(c.allocator->recordStream(block, reader), Status::ok);
  EXPECT_EQ(c.stats().uses, 0u) << "nothing is recorded before the free";
  c.work(reader);
  c.free(block);
  EXPECT_EQ(c.stats().uses, 1u);
  c.work(reader);
  c.device.advance(reader.stream, 1);
  Block* other = c.malloc(size, home);
  EXPECT_NE(other->address, block->address);
  c.device.advance(reader.stream, 1);
  EXPECT_TRUE(freeAtOnce(c, home, block));
}

// What a lane waits for of its own accord it is after, also for what it freed before.
TEST(CachingUse, AWaitForAnotherReasonCounts) {
  for (const Policy* policy : {&orderThenWait, &orderThenGrow, &neverWait}) {
    SCOPED_TRACE(policy->name);
    Caching c(with(*policy));
    Lane &home = c.lane(), &reader = c.lane();
    for (int turn = 0; turn < 3; ++turn) {
      Block* block = c.malloc(size, home);
      c.use(block, reader);
      c.free(block);
      EXPECT_EQ(block->state, BlockState::pending);
      c.order(reader, home);
      const std::uint64_t queries = c.stats().queries;
      EXPECT_TRUE(freeAtOnce(c, home, block));
      EXPECT_EQ(c.stats().queries, queries);
    }
  }
}

TEST(CachingUse, OnlyWhatTheLaneIsNotAfterIsWaitedFor) {
  Caching c(with(orderThenWait));
  Lane &home = c.lane(), &early = c.lane(), &late = c.lane();
  Block* block = c.malloc(size, home);
  c.use(block, early);
  c.use(block, late);
  c.free(block);
  c.order(early, home);
  const Stats before = c.stats();
  Block* again = c.malloc(size, home);
  EXPECT_EQ(again->address, block->address);
  EXPECT_EQ(c.stats().waits, before.waits + 1);
  EXPECT_EQ(c.stats().waitsElided, before.waitsElided + 1);
  c.free(again);
}

TEST(CachingUse, OfTheHomeLaneIsNone) {
  Caching c;
  Lane& home = c.lane();
  Block* block = c.malloc(size, home);
  c.use(block, home);
  EXPECT_EQ(c.allocator->recordStream(block, home), Status::ok);
  Mark* mark = nullptr;
  ASSERT_EQ(c.lanes.mark(home, &mark), Status::ok);
  EXPECT_EQ(c.allocator->keepUntil(block, *mark), Status::ok);
  mark->release();
  EXPECT_TRUE(block->uses.empty());
  EXPECT_FALSE(block->noted);
  c.free(block);
  EXPECT_TRUE(freeAtOnce(c, home, block));
  EXPECT_EQ(c.stats().uses, 1u) << "the test's own mark";
}

TEST(CachingUse, Accumulates) {
  Caching c(with(neverWait));
  Lane &home = c.lane(), &first = c.lane(), &second = c.lane();
  Block* block = c.malloc(size, home);
  c.use(block, first);
  c.use(block, second);
  c.use(block, first);
  EXPECT_EQ(block->uses.size(), 2u) << "of one lane the last says it all";
  c.free(block);
  c.device.advance(second.stream, 1);
  c.device.advance(first.stream, 1);
  Block* other = c.malloc(size, home);
  EXPECT_NE(other->address, block->address) << "the second use of the first lane is outstanding";
  c.device.advance(first.stream, 1);
  EXPECT_TRUE(freeAtOnce(c, home, block));
}

TEST(CachingUse, ComposesWithRecordStreamAndKeepUntil) {
  Caching c(with(neverWait));
  Lane &home = c.lane(), &precise = c.lane(), &noted = c.lane();
  Stream foreign = nullptr;
  Event event = nullptr;
  ASSERT_EQ(c.driver.streamCreate(&foreign, 0), Status::ok);
  ASSERT_EQ(c.driver.eventCreate(&event, EventKind::order), Status::ok);
  Block* block = c.malloc(size, home);
  c.use(block, precise);
  c.work(noted);
  EXPECT_EQ(c.allocator->recordStream(block, noted), Status::ok);
  c.driver.fill32(0, 0, 1, foreign);
  c.driver.eventRecord(event, foreign);
  Mark* mark = c.lanes.adopt(event);
  EXPECT_EQ(c.allocator->keepUntil(block, *mark), Status::ok);
  mark->release();
  c.free(block);
  const Stream streams[] = {precise.stream, noted.stream, foreign};
  for (const Stream stream : streams) {
    Block* other = c.malloc(size, home);
    EXPECT_NE(other->address, block->address);
    c.free(other);
    c.device.advance(stream, 1);
  }
  c.device.finish();
  // Two free blocks by now: both are to be had.
  Block *one = c.malloc(size, home), *two = c.malloc(size, home);
  EXPECT_TRUE(one->address == block->address || two->address == block->address);
}

TEST(CachingUse, IsThreadSafe) {
  Caching c;
  Lane& home = c.lane();
  Lane* readers[4];
  for (Lane*& each : readers) each = &c.lane();
  Block* block = c.malloc(size, home);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < 4; ++i)
    threads.emplace_back([&, i] {
      for (int k = 0; k < 200; ++k) c.use(block, *readers[(i + static_cast<std::size_t>(k)) % 4]);
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(block->uses.size(), 4u);
  c.free(block);
  EXPECT_EQ(c.books({}), "");
}

TEST(CachingUse, ALoopDoesNotGrow) {
  Caching c;
  Lane &home = c.lane(), &reader = c.lane();
  Block* block = c.malloc(size, home);
  for (int i = 0; i < 10'000; ++i) c.use(block, reader);
  EXPECT_EQ(block->uses.size(), 1u);
  EXPECT_LE(c.stats().eventsCreated, 2u);
  EXPECT_EQ(c.stats().uses, 10'000u);
}

// More marks are held, side by side in their ring, than one search looks at: the next one goes on behind
// them.
TEST(CachingUse, AMarkThatNobodyHoldsIsFoundBehindManyThatAreHeld) {
  Caching c;
  Lane& reader = c.lane();
  const auto mark = [&] {
    Mark* made = nullptr;
    c.work(reader);
    EXPECT_EQ(c.lanes.mark(reader, &made), Status::ok);
    return made;
  };
  std::vector<Mark*> held, ahead;
  for (int i = 0; i < 32; ++i) held.push_back(mark());
  for (int i = 0; i < 1000; ++i) {
    ahead.push_back(mark());
    if (ahead.size() < 4) continue;
    ahead.front()->release();
    ahead.erase(ahead.begin());
  }
  EXPECT_LE(c.stats().eventsCreated, 150u);
  for (Mark* each : held) each->release();
  for (Mark* each : ahead) each->release();
}

TEST(CachingUse, AForeignEventTwiceIsOneUse) {
  Caching c;
  Lane& home = c.lane();
  Event event = nullptr;
  ASSERT_EQ(c.driver.eventCreate(&event, EventKind::order), Status::ok);
  Block* block = c.malloc(size, home);
  Mark* mark = c.lanes.adopt(event);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(c.allocator->keepUntil(block, *mark), Status::ok);
  EXPECT_EQ(block->uses.size(), 1u);
  EXPECT_EQ(mark->holders(), 2u);
  c.free(block);
  EXPECT_EQ(c.allocator->emptyCache(), Status::ok);
  EXPECT_EQ(mark->holders(), 1u);
  mark->release();
}

TEST(CachingUse, AQuietLaneSharesItsEvent) {
  Caching c;
  Lane &home = c.lane(), &reader = c.lane();
  Block* blocks[8];
  for (Block*& each : blocks) each = c.malloc(size, home);
  c.work(reader);
  for (Block* each : blocks) EXPECT_EQ(c.allocator->recordUse(each, reader), Status::ok);
  EXPECT_EQ(c.stats().uses, 1u);
  EXPECT_EQ(c.stats().usesShared, 7u);
  EXPECT_EQ(c.stats().eventsCreated, 1u);
  c.work(reader);
  EXPECT_EQ(c.allocator->recordUse(blocks[0], reader), Status::ok);
  EXPECT_EQ(c.stats().uses, 2u);
}

TEST(CachingUse, AnUntrackedLaneIsNeverQuiet) {
  Caching c;
  Lane &home = c.lane(), &reader = c.lane(false);
  Block* block = c.malloc(size, home);
  c.driver.fill32(0, 0, 1, reader.stream);  // nobody says so
  for (int i = 0; i < 3; ++i) EXPECT_EQ(c.allocator->recordUse(block, reader), Status::ok);
  EXPECT_EQ(c.stats().uses, 3u);
}

TEST(CachingUse, KnownOrderNeedsNoWait) {
  Caching c(with(orderThenWait));
  Lane &home = c.lane(), &reader = c.lane();
  Block* block = c.malloc(size, home);
  c.use(block, reader);
  c.order(reader, home);
  c.free(block);
  EXPECT_TRUE(freeAtOnce(c, home, block));
  EXPECT_EQ(c.stats().queries, 0u);
}

// The home lane is after the use by a wait of its own; another lane that is after the block's last work
// there, but not after that wait, may not have it.
TEST(CachingUse, WhatTheHomeLaneWaitedForBindsOtherLanesToo) {
  Caching c(with(orderThenGrow));
  Lane &home = c.lane(), &reader = c.lane(), &other = c.lane();
  Block* block = c.malloc(size, home);
  c.use(block, reader);
  c.order(home, other);
  c.order(reader, home);
  c.free(block);
  Block* taken = c.malloc(size, other);
  EXPECT_NE(taken->address, block->address);
  c.order(home, other);
  Block* later = c.malloc(size, other);
  EXPECT_EQ(later->address, block->address);
}

TEST(CachingUse, WaitAtReuseTakesTheBlockAtOnce) {
  Caching c(with(orderThenWait));
  Lane &home = c.lane(), &reader = c.lane();
  Block* block = c.malloc(size, home);
  const DeviceAddress was = block->address;
  for (int i = 0; i < 50; ++i) {
    c.use(block, reader);
    c.free(block);
    block = c.malloc(size, home);
    ASSERT_EQ(block->address, was);
    ASSERT_EQ(c.stats().waits, static_cast<std::uint64_t>(i) + 1) << "one wait for each use";
  }
  EXPECT_EQ(c.stats().synchronizations, 0u);
}

TEST(CachingUse, AfterTheFreeIsRefused) {
  Caching c;
  Lane &home = c.lane(), &reader = c.lane();
  Block* block = c.malloc(size, home);
  c.free(block);
  EXPECT_EQ(c.allocator->free(block), Status::invalidHandle);
  EXPECT_EQ(c.allocator->recordUse(block, reader), Status::invalidHandle);
  EXPECT_EQ(c.allocator->recordStream(block, reader), Status::invalidHandle);
  Mark* mark = nullptr;
  ASSERT_EQ(c.lanes.mark(reader, &mark), Status::ok);
  EXPECT_EQ(c.allocator->keepUntil(block, *mark), Status::invalidHandle);
  EXPECT_EQ(mark->holders(), 1u);
  mark->release();
  EXPECT_EQ(c.books({}), "");
}

TEST(CachingUse, WhatCannotBeRecordedIsWaitedFor) {
  Caching c;
  Lane &home = c.lane(), &reader = c.lane();
  for (const char* call : {"eventCreate", "eventRecord"}) {
    Block* block = c.malloc(size, home);
    c.work(reader);
    EXPECT_EQ(c.allocator->recordStream(block, reader), Status::ok);
    c.driver.fail(call, 1, Status::unknown);
    c.free(block);
    EXPECT_TRUE(c.driver.failed() || call == std::string("eventCreate"));
    EXPECT_TRUE(c.device.idle(reader.stream) || !c.driver.failed());
    c.driver.fail("", 0, Status::ok);
    EXPECT_EQ(c.books({}), "");
  }
  Block* block = c.malloc(size, home);
  c.work(reader);
  c.driver.fail("eventRecord", 1, Status::unknown);
  EXPECT_EQ(c.allocator->recordUse(block, reader), Status::unknown) << "the caller's to deal with";
  EXPECT_TRUE(block->uses.empty());
  c.free(block);
}

TEST(CachingUse, FreesFromOtherThreads) {
  Caching c;
  Lane &home = c.lane(), &reader = c.lane();
  for (int i = 0; i < 100; ++i) {
    Block* block = c.malloc(size, home);
    c.use(block, reader);
    std::thread([&] { c.free(block); }).join();
  }
  EXPECT_EQ(c.books({}), "");
  EXPECT_LE(c.stats().all.allocation.peak, 1) << "one block at a time, whoever freed it";
}

// One thread allocates, another frees: what was given back does not count as held.
TEST(CachingUse, PeaksAcrossThreads) {
  Caching c;
  Lane& home = c.lane();
  Block* block = nullptr;
  std::atomic<int> turn{0};
  std::thread freeing([&] {
    for (int i = 0; i < 500; ++i) {
      while (turn.load() != 2 * i + 1) std::this_thread::yield();
      c.free(block);
      turn = 2 * i + 2;
    }
  });
  for (int i = 0; i < 500; ++i) {
    while (turn.load() != 2 * i) std::this_thread::yield();
    block = c.malloc(size, home);
    turn = 2 * i + 1;
  }
  freeing.join();
  EXPECT_EQ(c.stats().all.allocation.peak, 1);
  EXPECT_EQ(c.stats().all.allocatedBytes.peak, static_cast<std::int64_t>(size));
}

// One thread queues work and asks for the point that it is before; another one records marks meanwhile. A
// mark at that point was never recorded before the work was queued.
TEST(CachingLanes, APresentPointIsNeverTooEarly) {
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
  std::vector<std::uint64_t> covered;  // by point: work that had been queued at most when it was marked
  std::thread marking([&] {
    while (!stop) {
      Mark* mark = nullptr;
      bool recorded = false;
      EXPECT_EQ(lanes.mark(*lane, &mark, &recorded), Status::ok);
      const std::uint64_t most = queued.load();
      if (recorded) {
        covered.resize(mark->point + 1, ~std::uint64_t{0});
        covered[mark->point] = most;
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
    if (points[i] >= covered.size()) break;  // no such mark was recorded any more
    ASSERT_LE(i, covered[points[i]]) << "point " << points[i];
  }
}

// A driver in whose calls, when they have taken effect, another thread comes first.
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

// A free while a mark is being recorded: the mark is after all that was queued, so the memory goes back when
// it is reached, though nothing is queued any more.
TEST(CachingLanes, AFreeWhileAMarkIsRecordedIsNotWaitedForForEver) {
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
      std::this_thread::sleep_for(std::chrono::milliseconds(5));  // it waits for the lane's mutex by then
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

// Work that is queued right behind a question, or behind a record, is after the point that these speak of.
TEST(CachingLanes, WhatIsQueuedBehindAQuestionIsNotItsAnswer) {
  for (const bool asks : {true, false}) {
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
      if (asks) device.finish();
      Count point = 0;
      device.between = [&] {
        queue();
        point = lane->present();
      };
      if (asks) {
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

TEST(CachingLanes, WhatARetiredLaneFreedServesOthers) {
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

TEST(CachingLanes, ABlockOutlivesItsLane) {
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

TEST(CachingLanes, AsManyAsWantedOneAfterTheOther) {
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

TEST(CachingLanes, TooManyAtOnceAreRefused) {
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

TEST(CachingLanes, ARetiredLaneIsRefused) {
  Caching c;
  Lane& gone = c.lane();
  ASSERT_EQ(c.lanes.retire(gone), Status::ok);
  EXPECT_EQ(c.malloc(size, gone), nullptr);
  EXPECT_EQ(c.status, Status::invalidValue);
}

}  // namespace
}  // namespace braid::test
