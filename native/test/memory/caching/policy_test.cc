// What each policy does before memory grows and at its end, fallback by fallback; and that no wait is longer
// than needed.
#include "test/memory/caching/support.h"

namespace braid::test {
namespace {

using namespace caching;

constexpr std::uint64_t size = 4 * mebi;
enum Fallback { cache, order, completed, wait, coalesce, transfer, grow, lastResort };

Options plain(Options options) {
  options.expandable = false;
  return options;
}

Options limited(Options options, std::uint64_t limit) {
  options.limit = limit;
  return options;
}

// A block is allocated, read on another lane and freed, over and over, the device standing still. Reserved at
// the end.
std::uint64_t streaming(Caching& c, int times) {
  Lane &home = c.lane(), &reader = c.lane();
  for (int i = 0; i < times; ++i) {
    Block* block = c.malloc(size, home);
    if (block == nullptr) return 0;
    c.use(block, reader);
    c.free(block);
  }
  return c.allocator->reserved();
}

TEST(CachingPolicy, OrderThenWaitHoldsOneBlock) {
  Caching c(with(orderThenWait));
  EXPECT_EQ(streaming(c, 30), size);
  EXPECT_EQ(c.stats().served[wait], 29u);
  EXPECT_EQ(c.stats().waits, 29u);
  EXPECT_EQ(c.stats().queries, 0u);
}

TEST(CachingPolicy, OrderThenGrowGrowsAndThenWaits) {
  Caching c(limited(with(orderThenGrow), 8 * size));
  EXPECT_EQ(streaming(c, 8), 8 * size);
  EXPECT_EQ(c.stats().waits, 0u);
  EXPECT_EQ(c.stats().served[grow], 8u);
  EXPECT_EQ(streaming(c, 2), 8 * size);
  EXPECT_GT(c.stats().waits, 0u);
  EXPECT_EQ(c.stats().synchronizations, 0u) << "the lane waits, the host does not";
}

TEST(CachingPolicy, NeverWaitPutsNoWaitOnALane) {
  Caching c(limited(with(neverWait), 4 * size));
  EXPECT_EQ(streaming(c, 12), 4 * size);
  EXPECT_EQ(c.stats().waits, 0u);
  EXPECT_GT(c.stats().synchronizations, 0u);
}

TEST(CachingPolicy, PollHoldsWhatHasNotBeenSeenToComplete) {
  Caching c(with(pollOnly));
  EXPECT_EQ(streaming(c, 12), 12 * size);
  c.device.finish();
  EXPECT_EQ(streaming(c, 1), 13 * size) << "another lane's memory is another's";
  EXPECT_EQ(c.stats().waits, 0u);
}

TEST(CachingPolicy, PollReusesWhatHasCompleted) {
  Caching c(with(pollOnly));
  Lane &home = c.lane(), &reader = c.lane();
  for (int i = 0; i < 12; ++i) {
    Block* block = c.malloc(size, home);
    c.use(block, reader);
    c.free(block);
    c.device.finish();
  }
  EXPECT_EQ(c.allocator->reserved(), size);
}

TEST(CachingPolicy, OnlyOrderCarriesMemoryFromLaneToLane) {
  for (const Policy* policy : policies) {
    Caching c(plain(with(*policy)));
    Lane &first = c.lane(), &second = c.lane();
    Block* block = c.malloc(size, first);
    c.work(first);
    c.free(block);
    c.order(first, second);
    Block* taken = c.malloc(size, second);
    EXPECT_EQ(taken->segment == block->segment, policy->order) << policy->name;
    EXPECT_EQ(c.stats().all.segment.current, policy->order ? 1 : 2) << policy->name;
  }
}

TEST(CachingFallbacks, OrderSplitsAFreeBlock) {
  Caching c;
  Lane& home = c.lane();
  c.free(c.malloc(8 * mebi, home));
  EXPECT_EQ(c.allocator->emptyCache(), Status::ok);
  Block* big = c.malloc(8 * mebi, home);
  Block* between = c.malloc(mebi + 512, home);
  c.free(big);
  ASSERT_NE(c.malloc(600 * kibi, home), nullptr);
  const std::uint64_t before = c.stats().served[order] + c.stats().served[coalesce];
  ASSERT_NE(c.malloc(2 * mebi, home), nullptr);
  EXPECT_EQ(c.stats().served[order] + c.stats().served[coalesce], before + 1);
  EXPECT_NE(between, nullptr);
  EXPECT_EQ(c.violations({3, 2 * mebi + 600 * kibi + mebi + 512}), "");
}

// The block of this size that was freed the longest ago is taken without a search of the heaps: by order, or
// after one query.
TEST(CachingFallbacks, APendingBlockOfTheSameSizeIsTakenAtOnce) {
  Caching c(with(orderThenGrow));
  Lane &home = c.lane(), &reader = c.lane();
  const auto again = [&](auto between) {
    Block* block = c.malloc(size, home);
    c.use(block, reader);
    c.free(block);
    between();
    Block* next = c.malloc(size, home);
    EXPECT_EQ(next->address, block->address);
    c.free(next);
  };
  again([&] { c.device.finish(); });
  EXPECT_EQ(c.stats().served[completed], 1u);
  EXPECT_EQ(c.stats().served[order], 0u);
  EXPECT_EQ(c.stats().queries, 1u);
  again([&] { c.order(reader, home); });
  EXPECT_EQ(c.stats().served[completed], 1u);
  EXPECT_EQ(c.stats().served[order], 1u);
  EXPECT_EQ(c.stats().queries, 1u);
}

TEST(CachingFallbacks, NoLaneWaitsWhileAnythingLongEnoughIsFree) {
  Options options = with(orderThenWait);
  options.cacheUpTo = size;
  Caching c(options);
  Lane &home = c.lane(), &reader = c.lane();
  Block *block = c.malloc(size, home), *longer = c.malloc(2 * size, home);
  c.use(block, reader);
  c.free(block);
  c.free(longer);
  EXPECT_NE(c.malloc(size, home)->address, block->address);
  EXPECT_EQ(c.stats().waits, 0u);
  EXPECT_NE(c.malloc(size, home)->address, block->address);
  EXPECT_EQ(c.malloc(size, home)->address, block->address) << "nothing else is left";
  EXPECT_EQ(c.stats().waits, 1u);
}

// Two neighbouring blocks of different lanes serve one lane that is after both.
TEST(CachingFallbacks, CoalescingMergesWhatOrderAllows) {
  Caching c;
  Lane &first = c.lane(), &second = c.lane(), &third = c.lane();
  Block *low = c.malloc(size, first), *high = c.malloc(size, second);
  ASSERT_EQ(low->address + size, high->address);
  c.work(first);
  c.work(second);
  c.free(low);
  c.free(high);
  c.order(first, third);
  c.order(second, third);
  Block* both = c.malloc(2 * size, third);
  EXPECT_EQ(both->address, low->address);
  EXPECT_EQ(c.stats().served[coalesce], 1u);
  EXPECT_EQ(c.allocator->reserved(), 2 * size);
}

// A run of pending neighbours: the lane waits for their uses, and what is left of them is behind those waits.
TEST(CachingFallbacks, TheRestOfAPendingRunIsBehindItsWaits) {
  Caching c(with(orderThenWait));
  Lane &home = c.lane(), &reader = c.lane(), &other = c.lane();
  Block *low = c.malloc(size, home), *high = c.malloc(size, home);
  ASSERT_EQ(low->address + size, high->address);
  c.use(low, reader);
  c.work(reader);
  c.use(high, reader);
  c.free(low);
  c.free(high);
  Block* both = c.malloc(size + 2 * mebi, home);
  EXPECT_EQ(both->address, low->address);
  EXPECT_EQ(c.stats().served[wait], 1u);
  EXPECT_EQ(c.allocator->reserved(), 2 * size);
  c.order(reader, other);
  Block* rest = c.malloc(2 * mebi, other);
  EXPECT_NE(rest->address, both->address + both->size)
      << "the home lane freed it, and this one is not after that";
  Block* own = c.malloc(2 * mebi, home);
  EXPECT_EQ(own->address, both->address + both->size);
  EXPECT_EQ(c.driver.problem(), "");
}

// In pages of 2 MiB: a hole of 2½ pages gives up its end, and keeps a whole one that may move; of one that
// begins in the middle of a page, what begins where a page does.
TEST(CachingFallbacks, AHoleIsTakenFromTheEndThatLeavesTheBetterRest) {
  Caching c;
  Lane& lane = c.lane();
  Block *half = c.malloc(3 * mebi / 2, lane), *hole = c.malloc(9 * mebi / 2, lane);
  Block *whole = c.malloc(5 * mebi, lane), *end = c.malloc(3 * mebi, lane);
  ASSERT_EQ(end->address, half->address + 11 * mebi) << "one after the other";
  const DeviceAddress base = half->address;
  c.free(whole);
  EXPECT_EQ(c.malloc(3 * mebi, lane)->address, base + 8 * mebi);
  c.free(hole);  // and one with the page that was kept
  EXPECT_EQ(c.malloc(4 * mebi, lane)->address, base + 4 * mebi);
}

TEST(CachingFallbacks, TransferMapsFreePagesWhereTheyAreNeeded) {
  Caching c;
  Lane& home = c.lane();
  Block* blocks[8];
  for (Block*& each : blocks) each = c.malloc(size, home);
  for (int i = 0; i < 8; i += 2) c.free(blocks[i]);
  Block* big = c.malloc(4 * size, home);
  ASSERT_NE(big, nullptr);
  EXPECT_EQ(c.allocator->reserved(), 8 * size);
  EXPECT_EQ(c.stats().served[transfer], 1u);
  EXPECT_EQ(c.stats().moves, 1u);
  EXPECT_GT(c.stats().pagesMoved, 0u);
}

TEST(CachingFallbacks, NothingMovesThatTheDeviceMayStillTouch) {
  Caching c;
  Lane &home = c.lane(), &other = c.lane();
  Block* blocks[8];
  for (Block*& each : blocks) each = c.malloc(size, home);
  c.work(home);
  for (int i = 0; i < 8; i += 2) c.free(blocks[i]);
  ASSERT_NE(c.malloc(4 * size, other), nullptr);
  EXPECT_EQ(c.stats().moves, 0u);
  EXPECT_EQ(c.allocator->reserved(), 12 * size);
  c.device.finish();
  ASSERT_NE(c.malloc(3 * size, other), nullptr);
  EXPECT_EQ(c.stats().moves, 1u);
  EXPECT_EQ(c.allocator->reserved(), 12 * size);
}

TEST(CachingFallbacks, MovingCanBeTurnedOff) {
  Options options;
  options.movePages = false;
  Caching c(options);
  Lane& home = c.lane();
  Block* blocks[8];
  for (Block*& each : blocks) each = c.malloc(size, home);
  for (int i = 0; i < 8; i += 2) c.free(blocks[i]);
  ASSERT_NE(c.malloc(4 * size, home), nullptr);
  EXPECT_EQ(c.stats().moves, 0u);
  EXPECT_EQ(c.allocator->reserved(), 12 * size);
}

TEST(CachingFallbacks, MovedPagesServeTheOtherSizeClass) {
  Caching c(limited({}, 8 * mebi));
  Lane& home = c.lane();
  Block* big = c.malloc(8 * mebi, home);
  c.free(big);
  ASSERT_NE(c.malloc(100 * kibi, home), nullptr);
  EXPECT_EQ(c.allocator->reserved(), 8 * mebi);
  EXPECT_EQ(c.stats().small.reservedBytes.current, static_cast<std::int64_t>(2 * mebi));
  EXPECT_EQ(c.stats().large.reservedBytes.current, static_cast<std::int64_t>(6 * mebi));
}

// Where memory ends.

TEST(CachingLastResort, ALaneThatHoldsNothingBackIsNotWaitedFor) {
  Caching c(limited(with(orderThenGrow), 2 * size));
  Lane &home = c.lane(), &busy = c.lane(), &reader = c.lane();
  c.work(busy);
  Block *one = c.malloc(size, home), *two = c.malloc(size, home);
  c.use(one, reader);
  c.free(one);
  Block* taken = c.malloc(size, home);
  ASSERT_NE(taken, nullptr);
  EXPECT_EQ(c.stats().waits, 1u);
  EXPECT_NE(two, nullptr);
  EXPECT_EQ(c.malloc(size, home), nullptr);
  EXPECT_EQ(c.stats().waits, 1u) << "nothing of the busy lane's could help";
}

// Lanes over streams of the caller's are waited for too, however many there are.
TEST(CachingLastResort, ExternalLanesAreWaitedFor) {
  for (const Policy* policy : policies) {
    Caching c(limited(with(*policy), size));
    Lane& home = c.lane();
    Block* block = c.malloc(size, home);
    Lane* external[2] = {&c.lane(false), &c.lane(false)};
    for (Lane* each : external) {
      c.driver.fill32(0, 0, 1, each->stream);
      EXPECT_EQ(c.allocator->recordUse(block, *each), Status::ok);
    }
    c.driver.released(block->address, block->size,
                      {c.driver.reached(external[0]->stream), c.driver.reached(external[1]->stream),
                       c.driver.reached(home.stream)});
    ASSERT_EQ(c.allocator->free(block), Status::ok);
    EXPECT_NE(c.malloc(size, home), nullptr) << policy->name;
  }
}

TEST(CachingLastResort, EmptyCacheWaitsForExternalLanes) {
  Caching c;
  Lane &home = c.lane(), &external = c.lane(false);
  Block* block = c.malloc(size, home);
  c.driver.fill32(0, 0, 1, external.stream);
  EXPECT_EQ(c.allocator->recordUse(block, external), Status::ok);
  c.free(block);
  EXPECT_EQ(c.allocator->emptyCache(), Status::ok);
  EXPECT_EQ(c.allocator->reserved(), 0u);
  EXPECT_TRUE(c.device.idle(external.stream));
}

TEST(CachingLastResort, OtherHeapsGiveUpWhatTheyDoNotNeed) {
  Caching c(limited(plain({}), 24 * mebi));
  Lane& home = c.lane();
  Block* small[8];
  for (Block*& each : small) each = c.malloc(mebi, home);  // four segments of 2 MiB
  for (Block* each : small) c.free(each);
  EXPECT_EQ(c.allocator->reserved(), 8 * mebi);
  EXPECT_NE(c.malloc(22 * mebi, home), nullptr);
  EXPECT_EQ(c.allocator->reserved(), 22 * mebi);
  EXPECT_EQ(c.stats().retries, 1u);
}

TEST(CachingLastResort, AShortageReportsWhatHoldsTheMemory) {
  Caching c(limited({}, 16 * mebi));
  Lane &home = c.lane(), &reader = c.lane();
  Block* blocks[3] = {c.malloc(4 * mebi, home, nullptr, 7), c.malloc(4 * mebi, home, nullptr, 7),
                      c.malloc(2 * mebi, home, nullptr, 9)};
  Block* freed = c.malloc(4 * mebi, home, nullptr, 3);
  c.use(freed, reader);
  c.free(freed);
  EXPECT_EQ(c.malloc(10 * mebi - 100, home), nullptr);
  const Shortage& s = c.shortage;
  EXPECT_EQ(s.wanted, 10 * mebi - 100);
  EXPECT_EQ(s.size, 10 * mebi);
  EXPECT_EQ(s.limit, 16 * mebi);
  EXPECT_EQ(s.live, 10 * mebi);
  EXPECT_EQ(s.reserved, s.live + s.pending + s.free);
  EXPECT_EQ(s.deviceTotal, 256 * mebi);
  ASSERT_EQ(s.holders.size(), 2u);
  EXPECT_EQ(s.holders[0].site, 7u);
  EXPECT_EQ(s.holders[0].bytes, 8 * mebi);
  EXPECT_EQ(s.holders[0].count, 2u);
  EXPECT_EQ(s.holders[1].site, 9u);
  EXPECT_NE(blocks[0], nullptr);
}

TEST(CachingLastResort, AbsurdSizesAreRefusedAtOnce) {
  Caching c;
  Lane& home = c.lane();
  EXPECT_EQ(c.malloc((std::uint64_t{1} << 60) + 1, home), nullptr);
  EXPECT_EQ(c.status, Status::outOfMemory);
  EXPECT_EQ(c.malloc(~std::uint64_t{0}, home), nullptr);
  EXPECT_EQ(c.malloc(std::uint64_t{1} << 50, home), nullptr);
  EXPECT_EQ(c.status, Status::outOfMemory);
  EXPECT_EQ(c.malloc(0, home), nullptr);
  EXPECT_EQ(c.status, Status::invalidValue);
  Block* block = c.malloc(size, home);
  Lane& reader = c.lane();
  c.use(block, reader);
  c.free(block);
  EXPECT_EQ(c.malloc(c.device.info().totalBytes + 1, home), nullptr);
  EXPECT_EQ(c.status, Status::outOfMemory);
  EXPECT_FALSE(c.device.idle(reader.stream)) << "nothing is waited for that cannot help";
  EXPECT_EQ(c.violations({}), "");
}

}  // namespace
}  // namespace braid::test
