// Options and pools: roundings to PyTorch's numbers, segments, splitting, collection, limits, pools of their
// own, pinned memory.
#include <array>

#include "test/memory/caching/support.h"

namespace braid::test {
namespace {

using namespace caching;

Options plain() {
  Options options;
  options.expandable = false;
  return options;
}

std::uint64_t given(Caching& c, std::uint64_t bytes) {
  Lane& lane = c.lane();
  Block* block = c.malloc(bytes, lane);
  if (block == nullptr) return 0;
  const std::uint64_t size = block->size;
  c.free(block);
  EXPECT_EQ(c.allocator->emptyCache(), Status::ok);
  return size;
}

TEST(CachingOptions, RoundsTo512) {
  Caching c;
  const std::array<std::array<std::uint64_t, 2>, 7> cases = {{{1, 512},
                                                              {511, 512},
                                                              {512, 512},
                                                              {513, 1024},
                                                              {1200, 1536},
                                                              {mebi, mebi},
                                                              {3 * mebi + 1, 3 * mebi + 512}}};
  for (const auto& [bytes, size] : cases) EXPECT_EQ(given(c, bytes), size) << bytes;
}

// roundup_power2_divisions: up to the next of so many equal steps between two powers of two, above 512 B ·
// steps.
TEST(CachingOptions, RoundsUpInDivisions) {
  Options options;
  options.divisions.fill(4);
  Caching c(options);
  const std::array<std::array<std::uint64_t, 2>, 9> cases = {{{1200, 1536},
                                                              {2048, 2048},
                                                              {2049, 2560},
                                                              {2561, 3072},
                                                              {5000, 5120},
                                                              {4 * mebi, 4 * mebi},
                                                              {4 * mebi + 1, 5 * mebi},
                                                              {7 * mebi + 1, 8 * mebi},
                                                              {9 * mebi, 10 * mebi}}};
  for (const auto& [bytes, size] : cases) EXPECT_EQ(given(c, bytes), size) << bytes;
}

// [1:1,2:2,4:4,>:8]: by the power of two, from 1 MiB on; what is smaller goes with the first.
TEST(CachingOptions, RoundsUpInDivisionsBySize) {
  Options options;
  options.divisions.fill(8);
  options.divisions[0] = 1;
  options.divisions[1] = 2;
  options.divisions[2] = 4;
  Caching c(options);
  const std::array<std::array<std::uint64_t, 2>, 6> cases = {{{5000, 5120},
                                                              {mebi + 1, mebi + 512},
                                                              {2 * mebi + 1, 3 * mebi},
                                                              {4 * mebi + 1, 5 * mebi},
                                                              {8 * mebi + 1, 9 * mebi},
                                                              {17 * mebi, 18 * mebi}}};
  for (const auto& [bytes, size] : cases) EXPECT_EQ(given(c, bytes), size) << bytes;
}

TEST(CachingOptions, RoundingsMayChange) {
  Caching c;
  EXPECT_EQ(given(c, 4 * mebi + 1), 4 * mebi + 512);
  Options options;
  options.divisions.fill(4);
  EXPECT_EQ(c.allocator->configure(options), Status::ok);
  EXPECT_EQ(given(c, 4 * mebi + 1), 5 * mebi);
  EXPECT_EQ(c.allocator->configure({}), Status::ok);
  EXPECT_EQ(given(c, 4 * mebi + 1), 4 * mebi + 512);
}

TEST(CachingOptions, SegmentsArePyTorchs) {
  const std::array<std::array<std::uint64_t, 2>, 6> cases = {{{512, 2 * mebi},
                                                              {mebi, 2 * mebi},
                                                              {mebi + 1, 20 * mebi},
                                                              {10 * mebi - 512, 20 * mebi},
                                                              {10 * mebi, 10 * mebi},
                                                              {11 * mebi + 1, 12 * mebi}}};
  for (const auto& [bytes, segment] : cases) {
    Caching c(plain());
    Lane& lane = c.lane();
    Block* block = c.malloc(bytes, lane);
    EXPECT_EQ(c.allocator->reserved(), segment) << bytes;
    EXPECT_EQ(c.stats().sourceCalls, 1u);
    // A small heap splits at 512 bytes, a large one leaves up to 1 MiB unused.
    EXPECT_EQ(block->size, segment - bytes <= mebi && bytes > mebi ? segment : (bytes + 511) / 512 * 512)
        << bytes;
  }
}

TEST(CachingOptions, ExpandableSegmentsHoldWhatIsNeeded) {
  Caching c;
  Lane& lane = c.lane();
  c.malloc(512, lane);
  EXPECT_EQ(c.allocator->reserved(), 2 * mebi);
  c.malloc(mebi + 512, lane);
  EXPECT_EQ(c.allocator->reserved(), 4 * mebi);
  c.malloc(mebi - 512, lane);
  EXPECT_EQ(c.allocator->reserved(), 4 * mebi) << "what the page has left";
  EXPECT_EQ(c.stats().all.segment.current, 2);
  EXPECT_EQ(c.stats().sourceCalls, 0u);
}

TEST(CachingOptions, WithoutVirtualMemorySegmentsArePlain) {
  SimulatedDevice::Config config;
  config.pageBytes = 0;
  Caching c({}, config);
  Lane& lane = c.lane();
  Block* block = c.malloc(4 * mebi, lane);
  ASSERT_NE(block, nullptr);
  EXPECT_FALSE(block->segment->expandable);
  EXPECT_EQ(c.allocator->reserved(), 20 * mebi);
  c.free(block);
  EXPECT_EQ(c.allocator->emptyCache(), Status::ok);
  EXPECT_EQ(c.allocator->reserved(), 0u);
}

TEST(CachingOptions, LargeSegmentsHaveTheirOptionsSize) {
  Options options = plain();
  options.largeSegment = 32 * mebi;
  Caching c(options);
  Lane& lane = c.lane();
  c.malloc(2 * mebi, lane);
  EXPECT_EQ(c.allocator->reserved(), 32 * mebi);
}

TEST(CachingOptions, ALimitIsExact) {
  for (const bool expandable : {false, true}) {
    Options options;
    options.expandable = expandable;
    options.limit = 40 * mebi;
    Caching c(options);
    Lane& lane = c.lane();
    Block *first = c.malloc(20 * mebi, lane), *second = c.malloc(20 * mebi, lane);
    ASSERT_NE(second, nullptr);
    EXPECT_EQ(c.malloc(512, lane), nullptr);
    EXPECT_EQ(c.malloc(41 * mebi, lane), nullptr);
    c.free(first);
    EXPECT_NE(c.malloc(512, lane), nullptr);
    EXPECT_LE(c.allocator->reserved(), 40 * mebi);
  }
}

TEST(CachingOptions, ALimitBelowWhatIsHeldIsRefused) {
  Caching c;
  Lane& lane = c.lane();
  Block* block = c.malloc(20 * mebi, lane);
  Options options;
  options.limit = 10 * mebi;
  EXPECT_EQ(c.allocator->configure(options), Status::invalidValue);
  EXPECT_EQ(c.allocator->options().limit, unlimited);
  c.free(block);
  EXPECT_EQ(c.allocator->emptyCache(), Status::ok);
  EXPECT_EQ(c.allocator->configure(options), Status::ok);
  EXPECT_EQ(c.malloc(11 * mebi, lane), nullptr);
  EXPECT_NE(c.malloc(10 * mebi, lane), nullptr);
}

TEST(CachingOptions, ExpandableChangesWhereNothingIsHeld) {
  Caching c;
  Lane& lane = c.lane();
  EXPECT_EQ(c.allocator->configure(plain()), Status::ok);
  Block* block = c.malloc(4 * mebi, lane);
  EXPECT_FALSE(block->segment->expandable);
  EXPECT_EQ(c.allocator->configure({}), Status::invalidValue);
  c.free(block);
  EXPECT_EQ(c.allocator->emptyCache(), Status::ok);
  EXPECT_EQ(c.allocator->configure({}), Status::ok);
  EXPECT_TRUE(c.malloc(4 * mebi, lane)->segment->expandable);
}

// A policy that shares nothing takes over from one that does: what was anybody's can still be used and given
// back.
TEST(CachingOptions, ThePolicyMayChangeAtAnyTime) {
  for (const bool expandable : {false, true}) {
    Options options;
    options.expandable = expandable;
    Caching c(options);
    Lane* lanes[3] = {&c.lane(), &c.lane(), &c.lane()};
    for (int round = 0; round < 40; ++round) {
      options.policy = policies[static_cast<std::size_t>(round) % std::size(policies)];
      ASSERT_EQ(c.allocator->configure(options), Status::ok);
      std::vector<Block*> blocks;
      for (int i = 0; i < 12; ++i) {
        blocks.push_back(
            c.malloc((512 + 700 * static_cast<std::uint64_t>(i * round % 17)) * kibi, *lanes[i % 3]));
        c.use(blocks.back(), *lanes[(i + round) % 3]);
      }
      for (Block* each : blocks) c.free(each);
      c.device.advance(static_cast<std::uint64_t>(round) % 5);
      ASSERT_EQ(c.violations({}), "") << round;
    }
    EXPECT_EQ(c.allocator->emptyCache(), Status::ok);
    EXPECT_EQ(c.allocator->reserved(), 0u);
  }
}

TEST(CachingOptions, RefusesEarlyWithTheOption) {
  Options options;
  options.limit = 16 * mebi;
  options.refuseEarly = true;
  Caching c(options);
  Lane &lane = c.lane(), &reader = c.lane();
  Block* block = c.malloc(16 * mebi, lane);
  c.use(block, reader);
  c.free(block);
  EXPECT_EQ(c.malloc(12 * mebi, lane), nullptr);
  EXPECT_EQ(c.stats().refusedEarly, 1u);
  EXPECT_EQ(c.stats().retries, 0u);
  EXPECT_EQ(c.stats().synchronizations, 0u);
}

// garbage_collection_threshold: whole segments that have lain unused for longer than the average go first.
TEST(CachingOptions, CollectsWhatHasLainUnused) {
  Options options = plain();
  options.limit = 200 * mebi;
  options.collectAbove = 0.5;
  options.maxSplit = 38 * mebi;  // so that a request of 36 MiB finds no use for a segment of 40
  Caching c(options);
  Lane& lane = c.lane();
  ASSERT_NE(c.malloc(40 * mebi, lane), nullptr);
  Block *old = c.malloc(40 * mebi, lane), *recent = c.malloc(24 * mebi, lane);
  const DeviceAddress oldAt = old->address, recentAt = recent->address;
  c.free(old);
  for (std::uint64_t i = 0; i < 10; ++i) c.malloc(mebi + 512 + i * 512, lane);
  c.free(recent);
  ASSERT_NE(c.malloc(36 * mebi, lane), nullptr);
  bool foundOld = false, foundRecent = false;
  c.allocator->eachSegment([&](const Segment& segment) {
    foundOld = foundOld || segment.base == oldAt;
    foundRecent = foundRecent || segment.base == recentAt;
  });
  EXPECT_FALSE(foundOld);
  EXPECT_TRUE(foundRecent);
  EXPECT_EQ(c.stats().sourceReleases, 1u);
  EXPECT_EQ(c.stats().retries, 0u) << "before the ladder, not on it";
}

TEST(CachingOptions, CollectionLeavesExpandableSegmentsAlone) {
  Options options;
  options.limit = 100 * mebi;
  options.collectAbove = 0.2;
  Caching c(options);
  Lane& lane = c.lane();
  c.free(c.malloc(40 * mebi, lane));
  ASSERT_NE(c.malloc(42 * mebi, lane), nullptr);
  EXPECT_EQ(c.stats().sourceReleases, 0u);
}

// max_split_size: longer blocks are never split, and serve only requests that are about as long.
TEST(CachingOptions, LongBlocksAreNotSplit) {
  Options options = plain();
  options.maxSplit = 24 * mebi;
  Caching c(options);
  Lane& lane = c.lane();
  Block* big = c.malloc(40 * mebi, lane);
  const DeviceAddress at = big->address;
  c.free(big);
  Block* small = c.malloc(12 * mebi, lane);
  EXPECT_NE(small->address, at) << "a short request takes no long block";
  Block* near = c.malloc(30 * mebi, lane);
  EXPECT_EQ(near->address, at);
  EXPECT_EQ(near->size, 40 * mebi) << "whole";
  c.free(near);
  Block* far = c.malloc(24 * mebi - 512, lane);
  EXPECT_NE(far->address, at);
  EXPECT_EQ(c.stats().oversizeSegments, 1u);
}

TEST(CachingOptions, ALongBlockServesWhatIsAboutAsLong) {
  Options options = plain();
  options.maxSplit = 24 * mebi;
  Caching c(options);
  Lane& lane = c.lane();
  c.free(c.malloc(60 * mebi, lane));
  c.malloc(30 * mebi, lane);
  EXPECT_EQ(c.stats().all.segment.current, 2) << "30 MiB would leave more than max_non_split_rounding unused";
}

// Pools.

TEST(CachingPools, KeepApart) {
  for (const bool expandable : {false, true}) {
    Options options;
    options.expandable = expandable;
    Caching c(options);
    Lane& lane = c.lane();
    MemPool *one = c.allocator->makePool(false, false), *two = c.allocator->makePool(false, false);
    EXPECT_LT(one->id, two->id);
    Block* block = c.malloc(4 * mebi, lane, one);
    const DeviceAddress at = block->address;
    c.free(block);
    EXPECT_NE(c.malloc(4 * mebi, lane)->address, at);
    EXPECT_NE(c.malloc(4 * mebi, lane, two)->address, at);
    EXPECT_EQ(c.malloc(4 * mebi, lane, one)->address, at);
    EXPECT_EQ(c.violations({3, 12 * mebi}), "");
  }
}

TEST(CachingPools, NoSplitGivesWholeSegments) {
  Caching c;
  Lane& lane = c.lane();
  MemPool* pool = c.allocator->makePool(false, true);
  Block* blocks[4];
  for (Block*& each : blocks) {
    each = c.malloc(mebi, lane, pool);
    EXPECT_EQ(each->size, 2 * mebi);
    EXPECT_EQ(each->segment->size, 2 * mebi);
  }
  EXPECT_EQ(c.stats().all.segment.current, 4);
  c.free(blocks[1]);
  EXPECT_EQ(c.malloc(512 * kibi, lane, pool)->address, blocks[1]->address);
  EXPECT_EQ(c.stats().all.segment.current, 4);
}

TEST(CachingPools, LendWhereMemoryEnds) {
  Options options;
  options.limit = 16 * mebi;
  Caching c(options);
  Lane& lane = c.lane();
  MemPool *lends = c.allocator->makePool(true, false), *keeps = c.allocator->makePool(false, false);
  Block *lent = c.malloc(8 * mebi, lane, lends), *kept = c.malloc(8 * mebi, lane, keeps);
  const DeviceAddress at = lent->address;
  c.work(lane);
  c.free(lent);
  Block* taken = c.malloc(8 * mebi, lane);
  ASSERT_NE(taken, nullptr);
  EXPECT_EQ(taken->address, at);
  EXPECT_NE(kept, nullptr);
  c.free(taken);
  EXPECT_EQ(c.violations({1, 8 * mebi}), "");
}

TEST(CachingPools, AClosedPoolLivesUntilItsLastBlock) {
  for (const bool expandable : {false, true}) {
    Options options;
    options.expandable = expandable;
    Caching c(options);
    Lane &lane = c.lane(), &reader = c.lane();
    MemPool* pool = c.allocator->makePool(true, false);
    Block *freed = c.malloc(12 * mebi, lane, pool), *live = c.malloc(14 * mebi, lane, pool);
    c.free(freed);
    c.allocator->closePool(pool);
    EXPECT_EQ(c.allocator->reserved(), 14 * mebi);
    c.use(live, reader);
    EXPECT_EQ(c.violations({1, 14 * mebi}), "");
    c.free(live);
    c.device.finish();
    Block* other = c.malloc(512, lane);
    EXPECT_LE(c.allocator->reserved(), 2 * mebi) << "the pool went when it could";
    c.free(other);
    EXPECT_EQ(c.violations({}), "");
    EXPECT_EQ(c.driver.out().ranges, expandable ? 1u : 0u);
  }
}

TEST(CachingPools, ASourceOfItsOwn) {
  struct Counting final : Source {
    Counting(Driver& driver, int* calls) : driver(driver), calls(calls) {}
    const char* name() const override { return "counting"; }
    Status allocate(DeviceAddress* address, std::size_t bytes, Stream stream) override {
      EXPECT_NE(stream, nullptr);
      ++calls[0];
      return driver.memAllocate(address, bytes);
    }
    Status release(DeviceAddress address, std::size_t, Stream) override {
      ++calls[1];
      return driver.memFree(address);
    }
    Driver& driver;
    int* calls;
  };
  int calls[2] = {};
  Caching c;
  Lane& lane = c.lane();
  MemPool* pool = c.allocator->makePool(false, false, std::make_unique<Counting>(c.driver, calls));
  Block* blocks[3] = {c.malloc(3 * mebi, lane, pool), c.malloc(100 * kibi, lane, pool),
                      c.malloc(mebi, lane, pool)};
  EXPECT_FALSE(blocks[0]->segment->expandable);
  EXPECT_EQ(blocks[0]->segment->size, 4 * mebi) << "its segments are as long as is needed, in steps of 2 MiB";
  EXPECT_EQ(calls[0], 2);
  for (Block* each : blocks) c.free(each);
  c.allocator->closePool(pool);
  EXPECT_EQ(calls[1], 2);
  EXPECT_EQ(c.allocator->reserved(), 0u);
}

TEST(CachingPools, EmptyCacheOfOnePool) {
  Caching c;
  Lane& lane = c.lane();
  MemPool* pool = c.allocator->makePool(false, false);
  c.free(c.malloc(12 * mebi, lane, pool));
  c.free(c.malloc(14 * mebi, lane));
  EXPECT_EQ(c.allocator->emptyCache(pool), Status::ok);
  EXPECT_EQ(c.allocator->reserved(), 14 * mebi);
}

// Pinned memory.

struct Pinned : Caching {
  explicit Pinned(const Options& options) {
    allocator = std::make_unique<Allocator>(lanes, std::make_unique<PinnedSource>(driver), options);
  }
};

TEST(CachingPinned, IsRoundedToPowersOfTwo) {
  Options options;
  options.roundToPowerOfTwoUpTo = 8 * mebi;
  Pinned c(options);
  Lane& lane = c.lane();
  EXPECT_EQ(c.malloc(3 * mebi, lane)->requested, 3 * mebi);
  EXPECT_EQ(c.allocator->reserved(), 4 * mebi);
  EXPECT_EQ(c.malloc(9 * mebi, lane)->size, 10 * mebi) << "longer ones in steps of 2 MiB, unsplit";
  EXPECT_EQ(c.driver.out().pinned, 14 * mebi);
}

TEST(CachingPinned, IsNotReusedWhileACopyMayReadIt) {
  Options options;
  options.policy = &neverWait;
  Pinned c(options);
  Lane &lane = c.lane(), &upload = c.lane();
  Block* block = c.malloc(4 * mebi, lane);
  const DeviceAddress at = block->address;
  c.use(block, upload);
  c.free(block);
  EXPECT_NE(c.malloc(4 * mebi, lane)->address, at);
  c.device.finish();
  EXPECT_EQ(c.malloc(4 * mebi, lane)->address, at);
}

TEST(CachingPinned, LongBlocksAreNotKept) {
  Options options;
  options.cacheUpTo = 4 * mebi;
  Pinned c(options);
  Lane& lane = c.lane();
  Block *small = c.malloc(11 * mebi, lane), *kept = c.malloc(mebi, lane);
  c.free(kept);
  EXPECT_EQ(c.driver.out().pinned, 14 * mebi);
  c.free(small);
  EXPECT_EQ(c.driver.out().pinned, 2 * mebi) << "that one alone";
  EXPECT_EQ(c.violations({}), "");
}

TEST(CachingPinned, CanBeReservedBeforehand) {
  Options options;
  options.reserveFirst = 64 * mebi;
  Pinned c(options);
  Lane& lane = c.lane();
  c.malloc(4 * mebi, lane);
  EXPECT_EQ(c.driver.out().pinned, 64 * mebi);
  c.malloc(30 * mebi, lane);
  EXPECT_EQ(c.driver.out().pinned, 64 * mebi);
  EXPECT_EQ(c.stats().sourceCalls, 1u);
}

}  // namespace
}  // namespace braid::test
