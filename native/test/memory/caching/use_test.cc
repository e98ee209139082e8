// Uses on other lanes: their cost in waits, queries and events, their failures, and several threads. The
// conformance suites test what recordUse, recordStream and keepUntil promise.
#include <thread>

#include "test/memory/caching/support.h"

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

// A wait that the home lane has issued for any reason, before the free or after it, orders it after the use.
TEST(CachingUse, AWaitForAnotherReasonCounts) {
  for (const Policy* policy : {&orderThenWait, &orderThenGrow, &neverWait}) {
    SCOPED_TRACE(policy->name);
    Caching c(with(*policy));
    Lane &home = c.lane(), &reader = c.lane();
    for (const bool before : {false, true, false}) {
      Block* block = c.malloc(size, home);
      c.use(block, reader);
      if (before) c.order(reader, home);
      c.free(block);
      if (!before) {
        EXPECT_EQ(block->state, BlockState::pending);
        c.order(reader, home);
      }
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
  EXPECT_EQ(c.violations({}), "");
}

// More marks are held, side by side in their ring, than one search looks at: the next one goes on behind
// them.
TEST(CachingUse, AMarkWithoutHoldersIsFoundBehindManyThatAreHeld) {
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

TEST(CachingUse, AnEventTwiceIsOneUse) {
  Caching c;
  Lane &home = c.lane(), &reader = c.lane();
  Block* block = c.malloc(size, home);
  c.work(reader);
  Mark* mark = nullptr;
  ASSERT_EQ(c.lanes.markTime(reader, &mark), Status::ok);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(c.allocator->keepUntil(block, *mark), Status::ok);
  EXPECT_EQ(block->uses.size(), 1u);
  EXPECT_EQ(mark->holders(), 2u);
  c.free(block);
  EXPECT_EQ(c.allocator->emptyCache(), Status::ok);
  EXPECT_EQ(mark->holders(), 1u);
  mark->release();
}

// Makes the home lane come after the marks that were taken, as what writes the block next does.
void waitFor(Caching& c, Lane& home, std::vector<Mark*>& marks) {
  for (Mark* const mark : marks) {
    {
      std::lock_guard guard(home.mutex);
      EXPECT_EQ(c.lanes.wait(home, *mark, nullptr), Status::ok);
    }
    mark->release();
  }
  marks.clear();
}

// A block that is lent again and again: each loan's uses are taken by whatever writes the block next.
TEST(CachingUse, TakesTheUsesOfALoanWithTheirHolds) {
  Caching c(with(orderThenGrow));
  Lane &home = c.lane(), &near = c.lane(), &far = c.lane();
  Block* block = c.malloc(size, home);
  std::vector<Mark*> marks;
  c.allocator->takeUses(block, &marks);
  EXPECT_TRUE(marks.empty());
  for (int loan = 0; loan < 3; ++loan) {
    c.use(block, near);
    c.use(block, far);
    c.use(block, far);
    c.use(block, home);
    c.allocator->takeUses(block, &marks);
    ASSERT_EQ(marks.size(), 2u) << "of one lane the later mark; none of the home lane's";
    EXPECT_TRUE(block->uses.empty());
    for (const Mark* const mark : marks) {
      EXPECT_GE(mark->holders(), 1u);
      EXPECT_TRUE(mark->lane == &near || mark->lane == &far);
      EXPECT_FALSE(home.isAfter(*mark));
    }
    std::vector<Mark*> again;
    c.allocator->takeUses(block, &again);
    EXPECT_TRUE(again.empty()) << "they are taken once";
    waitFor(c, home, marks);
  }
  c.free(block);
  EXPECT_TRUE(freeAtOnce(c, home, block)) << "the home lane is after every use";
  EXPECT_EQ(c.violations({}), "");
}

TEST(CachingUse, TheEndOfALoanMarksTheLanesThatWereNoted) {
  Caching c(with(orderThenGrow));
  Lane &home = c.lane(), &reader = c.lane();
  Block* block = c.malloc(size, home);
  std::vector<Mark*> marks;
  EXPECT_EQ(c.allocator->endLoan(block), Status::ok) << "nobody was noted";
  for (int loan = 0; loan < 3; ++loan) {
    EXPECT_EQ(c.allocator->recordStream(block, reader), Status::ok);
    c.work(reader);
    c.allocator->takeUses(block, &marks);
    EXPECT_TRUE(marks.empty()) << "a lane that is noted is marked at the end";
    c.work(reader);
    const Count present = reader.present();
    EXPECT_EQ(c.allocator->endLoan(block), Status::ok);
    EXPECT_EQ(c.allocator->endLoan(block), Status::ok);
    c.allocator->takeUses(block, &marks);
    ASSERT_EQ(marks.size(), 1u);
    EXPECT_EQ(marks[0]->lane, &reader);
    EXPECT_EQ(marks[0]->point, present) << "all that the lane was given before the end";
    waitFor(c, home, marks);
  }
  c.free(block);
  EXPECT_EQ(c.allocator->endLoan(block), Status::invalidHandle);
  EXPECT_TRUE(freeAtOnce(c, home, block));
}

// Lanes record uses while another thread takes them: each mark is with the block or with the thread.
TEST(CachingUse, TakesUsesWhileOthersRecordThem) {
  Caching c;
  Lane& home = c.lane();
  Lane* readers[3];
  for (Lane*& each : readers) each = &c.lane();
  Block* block = c.malloc(size, home);
  std::atomic<int> left{3};
  std::vector<std::thread> threads;
  for (Lane* const reader : readers)
    threads.emplace_back([&, reader] {
      for (int k = 0; k < 200; ++k) c.use(block, *reader);
      --left;
    });
  std::vector<Mark*> marks;
  while (left > 0) {
    c.allocator->takeUses(block, &marks);
    for (Mark* const mark : marks) mark->release();
    marks.clear();
    std::this_thread::yield();
  }
  for (std::thread& thread : threads) thread.join();
  c.allocator->takeUses(block, &marks);
  EXPECT_LE(marks.size(), 3u);
  for (Lane* const reader : readers) c.order(*reader, home);
  waitFor(c, home, marks);
  c.free(block);
  EXPECT_EQ(c.violations({}), "");
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
  EXPECT_EQ(c.violations({}), "");
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
    EXPECT_EQ(c.violations({}), "");
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
  EXPECT_EQ(c.violations({}), "");
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

}  // namespace
}  // namespace braid::test
