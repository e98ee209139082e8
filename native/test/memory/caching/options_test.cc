// Options, as far as JavaScript cannot see what they do: lengths of segments, splitting, collection, pinned
// memory. The conformance suites test the rest on every device.
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

TEST(CachingOptions, RoundsAsAsked) {
  Caching fine;
  EXPECT_EQ(given(fine, 4 * mebi + 1), 4 * mebi + 512);
  Options options;
  options.divisions.fill(4);
  Caching coarse(options);
  EXPECT_EQ(given(coarse, 4 * mebi + 1), 5 * mebi);
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

TEST(CachingOptions, ALimitIsOfWholePages) {
  Options options;
  options.limit = 10 * mebi;
  Caching c(options);
  Lane& lane = c.lane();
  EXPECT_EQ(c.malloc(11 * mebi, lane), nullptr);
  EXPECT_NE(c.malloc(10 * mebi, lane), nullptr);
}

// Under each policy: what was anybody's can still be used and given back.
TEST(CachingOptions, BlocksOfSeveralLanesComeBackUnderEachPolicy) {
  for (const bool expandable : {false, true}) {
    for (const Policy* policy : policies) {
      Options options;
      options.expandable = expandable;
      options.policy = policy;
      Caching c(options);
      Lane* lanes[3] = {&c.lane(), &c.lane(), &c.lane()};
      for (int round = 0; round < 10; ++round) {
        std::vector<Block*> blocks;
        for (int i = 0; i < 12; ++i) {
          blocks.push_back(
              c.malloc((512 + 700 * static_cast<std::uint64_t>(i * round % 17)) * kibi, *lanes[i % 3]));
          c.use(blocks.back(), *lanes[(i + round) % 3]);
        }
        for (Block* each : blocks) c.free(each);
        c.device.advance(static_cast<std::uint64_t>(round) % 5);
        ASSERT_EQ(c.violations({}), "") << policy->name << " " << round;
      }
      EXPECT_EQ(c.allocator->emptyCache(), Status::ok);
      EXPECT_EQ(c.allocator->reserved(), 0u);
    }
  }
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
  EXPECT_EQ(c.stats().retries, 0u) << "before the fallback chain, not in it";
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
  EXPECT_EQ(c.stats().oversizeSegments.current, 2) << "its segment has 24 MiB";
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

}  // namespace
}  // namespace braid::test
