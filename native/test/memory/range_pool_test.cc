// The rule of the deterministic pool (docs/internals/decisions, 5 and 10), clause by clause and against a
// random model.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "memory/range_pool.h"
#include "order/tick_order.h"

namespace braid {
namespace {

constexpr std::uint64_t unit = RangePool::granule;

struct Pool {
  explicit Pool(std::uint64_t units, std::size_t lanes = 2) : pool(units * unit, lanes), lanes(lanes) {}
  // The offset in units, or -1.
  int take(std::uint64_t units, LaneId lane, std::vector<Count> frontier) {
    frontier.resize(lanes);
    const auto taken = pool.take(units * unit, lane, frontier);
    return taken ? static_cast<int>(taken->offset / unit) : -1;
  }
  void give(std::uint64_t offset, std::uint64_t units, std::vector<Count> release) {
    release.resize(lanes);
    pool.give(offset * unit, units * unit, release);
  }
  std::uint64_t peak() const { return pool.peak() / unit; }
  RangePool pool;
  std::size_t lanes;
};

TEST(RangePool, RoundsUpToTheGranule) {
  EXPECT_EQ(RangePool::rounded(0), 512u);
  EXPECT_EQ(RangePool::rounded(1), 512u);
  EXPECT_EQ(RangePool::rounded(512), 512u);
  EXPECT_EQ(RangePool::rounded(513), 1024u);
}

TEST(RangePool, GrowsFromTheBottomWithinItsLimit) {
  Pool pool(4);
  EXPECT_EQ(pool.take(1, 0, {}), 0);
  EXPECT_EQ(pool.take(3, 0, {}), 1);
  EXPECT_EQ(pool.take(1, 0, {}), -1);
  EXPECT_EQ(pool.peak(), 4u);
}

TEST(RangePool, ALaneTakesWhatItIsAfter) {
  Pool pool(8);
  pool.take(1, 0, {});
  pool.take(1, 0, {});
  pool.give(0, 1, {5, 3});
  EXPECT_EQ(pool.take(1, 0, {0, 2}), 2) << "lane 1's third point is not covered; its own always is";
  EXPECT_EQ(pool.take(1, 0, {0, 3}), 0);
}

TEST(RangePool, AnotherLaneNeedsTheHomePointToo) {
  Pool pool(8);
  pool.take(1, 0, {});
  pool.take(1, 0, {});
  pool.give(0, 1, {5, 0});
  EXPECT_EQ(pool.take(1, 1, {4, 9}), 2);
  EXPECT_EQ(pool.take(1, 1, {5, 9}), 0);
}

TEST(RangePool, TakesTheShortestRunThenTheLowest) {
  Pool pool(32);
  pool.take(20, 0, {});
  pool.give(0, 4, {});
  pool.give(6, 2, {});
  pool.give(10, 2, {});
  EXPECT_EQ(pool.take(2, 0, {}), 6);
  EXPECT_EQ(pool.take(1, 0, {}), 10);
  EXPECT_EQ(pool.take(1, 0, {}), 11);
  EXPECT_EQ(pool.take(1, 0, {}), 0);
}

TEST(RangePool, ARunSpansNeighboursOfDifferentFrontiers) {
  Pool pool(16);
  pool.take(8, 0, {});
  pool.give(0, 1, {1, 0});
  pool.give(1, 1, {2, 1});
  EXPECT_EQ(pool.take(2, 0, {0, 0}), 8) << "half of the run is not usable yet";
  EXPECT_EQ(pool.take(2, 0, {0, 1}), 0);
}

TEST(RangePool, TheRestOfARangeKeepsItsFrontier) {
  Pool pool(16);
  pool.take(8, 0, {});
  pool.give(0, 4, {0, 7});
  EXPECT_EQ(pool.take(1, 0, {0, 7}), 0);
  EXPECT_EQ(pool.take(1, 0, {0, 6}), 8);
  EXPECT_EQ(pool.take(1, 1, {0, 0}), 1) << "lane 1 is always after its own points";
}

TEST(RangePool, TheRangeAtTheEndIsOneLikeTheOthers) {
  Pool pool(16);
  pool.take(8, 0, {});
  pool.give(6, 2, {});
  pool.give(0, 4, {});
  EXPECT_EQ(pool.take(2, 0, {}), 6) << "the shortest, though it touches the untouched end";
  EXPECT_EQ(pool.take(3, 0, {}), 0);
  EXPECT_EQ(pool.peak(), 8u);
}

TEST(RangePool, TheTailAndAsMuchOfTheEndAsItNeeds) {
  Pool pool(16);
  pool.take(8, 0, {});
  pool.give(6, 2, {});
  EXPECT_EQ(pool.take(3, 0, {}), 6);
  EXPECT_EQ(pool.peak(), 9u);
}

TEST(RangePool, ASingleRangeComesBeforeAShorterRun) {
  Pool pool(32);
  pool.take(20, 0, {});
  pool.give(0, 1, {1, 0});
  pool.give(1, 1, {2, 0});
  pool.give(4, 8, {});
  EXPECT_EQ(pool.take(2, 0, {}), 4);
}

TEST(RangePool, TheTailAloneDoesNotRaiseThePeak) {
  Pool pool(16);
  pool.take(8, 0, {});
  pool.give(4, 4, {});
  EXPECT_EQ(pool.take(2, 0, {}), 4);
  EXPECT_EQ(pool.peak(), 8u);
}

TEST(RangePool, AnUnusableTailIsPassedOver) {
  Pool pool(16);
  pool.take(8, 0, {});
  pool.give(6, 2, {0, 1});
  EXPECT_EQ(pool.take(2, 0, {}), 8);
}

TEST(RangePool, RangesMergeOnceAllTheirPointsHaveCompleted) {
  Pool pool(16);
  pool.take(8, 0, {});
  pool.give(0, 1, {1, 0});
  pool.give(1, 1, {2, 0});
  pool.give(2, 1, {0, 9});
  EXPECT_EQ(pool.pool.ranges(), 3u);
  const std::vector<Count> all{2, 8};
  pool.pool.forgetCompleted(all);
  EXPECT_EQ(pool.pool.ranges(), 2u);
  EXPECT_EQ(pool.take(3, 0, {2, 8}), 8);
  EXPECT_EQ(pool.take(2, 1, {2, 0}), 0);
}

TEST(RangePool, TheCheapestPendingRunNeedsTheFewestLanes) {
  Pool pool(8, 3);
  pool.take(8, 0, {});
  pool.give(0, 2, {0, 4, 4});
  pool.give(3, 3, {0, 4, 0});
  std::vector<Count> pending(3);
  ASSERT_TRUE(pool.pool.cheapestPending(2 * unit, 0, std::vector<Count>{0, 0, 0}, pending));
  EXPECT_EQ(pending, (std::vector<Count>{0, 4, 0}));
  EXPECT_FALSE(pool.pool.cheapestPending(4 * unit, 0, std::vector<Count>{0, 0, 0}, pending));
}

// Random plans: lanes run, record, wait, take and give. Compared with a model that knows for every byte its
// last owner, and what each lane had issued when that owner gave it back.
TEST(RangePool, RandomModel) {
  for (std::uint32_t seed = 1; seed <= 300; ++seed) {
    std::mt19937 random(seed);
    const auto below = [&](std::uint32_t limit) { return static_cast<std::uint32_t>(random() % limit); };
    const std::uint32_t lanes = 1 + below(4), inFlight = 1 + below(3);
    constexpr std::uint64_t units = 64;
    // A pool with an index of its ranges, and one that looks at all of them, take the same.
    RangePool pool(units * unit, lanes, below(4)), looking(units * unit, lanes, units);
    TickOrder order(lanes, inFlight);
    std::vector<TickOrder::Marker> markers;
    for (int i = 0; i < 6; ++i) markers.push_back(order.addMarker());
    std::vector<std::vector<Count>> lastRelease(units, std::vector<Count>(lanes));  // by unit
    std::vector<bool> held(units);
    std::map<std::uint64_t, std::pair<std::uint64_t, LaneId>> live;  // offset → size, home; in units
    std::uint64_t peak = 0;
    for (std::uint64_t tick = 0; tick < 12; ++tick) {
      order.beginTick(tick);
      pool.forgetCompleted(order.completed());
      looking.forgetCompleted(order.completed());
      for (int step = 0; step < 60; ++step) {
        const LaneId lane = below(lanes);
        switch (below(5)) {
          case 0: order.run(lane); break;
          case 1: order.record(markers[below(6)], lane); break;
          case 2: order.wait(markers[below(6)], lane); break;
          case 3: {
            const std::uint64_t size = 1 + below(9);
            const auto taken = pool.take(size * unit, lane, order.frontier(lane));
            const auto looked = looking.take(size * unit, lane, order.frontier(lane));
            ASSERT_EQ(taken.has_value(), looked.has_value()) << "seed " << seed;
            if (!taken) break;
            ASSERT_EQ(taken->offset, looked->offset) << "seed " << seed;
            ASSERT_EQ(taken->grew, looked->grew) << "seed " << seed;
            const std::uint64_t offset = taken->offset / unit;
            ASSERT_LE(offset + size, units) << "seed " << seed;
            for (std::uint64_t at = offset; at < offset + size; ++at) {
              ASSERT_FALSE(held[at]) << "seed " << seed << ": two owners of unit " << at;
              for (LaneId other = 0; other < lanes; ++other) {
                if (other == lane) continue;
                ASSERT_LE(lastRelease[at][other], order.frontier(lane)[other])
                    << "seed " << seed << ": handed out before its release";
              }
              held[at] = true;
            }
            peak = std::max(peak, offset + size);
            live[offset] = {size, lane};
            break;
          }
          case 4: {
            if (live.empty()) break;
            auto it = live.begin();
            std::advance(it, below(static_cast<std::uint32_t>(live.size())));
            const auto [offset, block] = *it;
            std::vector<Count> release(lanes);
            release[block.second] = order.present(block.second).count;
            const LaneId user = below(lanes);
            release[user] = std::max(release[user], order.present(user).count);
            pool.give(offset * unit, block.first * unit, release);
            looking.give(offset * unit, block.first * unit, release);
            for (std::uint64_t at = offset; at < offset + block.first; ++at) {
              held[at] = false;
              lastRelease[at] = release;
            }
            live.erase(it);
            break;
          }
        }
      }
      order.endTick(tick);
      // What is not held is free, exactly once.
      std::uint64_t used = 0;
      for (const auto& [offset, block] : live) used += block.first;
      ASSERT_EQ(pool.freeBytes(), (units - used) * unit) << "seed " << seed;
      ASSERT_EQ(pool.peak(), peak * unit) << "seed " << seed;
      ASSERT_EQ(pool.ranges(), looking.ranges()) << "seed " << seed;
      const FreeRanges& free = pool.free();
      for (auto row = free.first(); row != FreeRanges::none && free.next(row) != FreeRanges::none;
           row = free.next(row))
        ASSERT_LE(free.end(row), free.offset(free.next(row)));
    }
  }
}

}  // namespace
}  // namespace braid
