#include "order/tick_order.h"

#include <gtest/gtest.h>

namespace braid {
namespace {

TEST(TickOrder, AWaitBringsWhatPrecededTheRecord) {
  TickOrder order(3, 2);
  const auto a = order.addMarker(), b = order.addMarker();
  order.run(0);
  order.record(a, 0);
  order.run(0);
  order.wait(a, 1);
  order.record(b, 1);
  order.wait(b, 2);
  EXPECT_TRUE(happensBefore({0, 1}, order.frontier(2)));
  EXPECT_FALSE(happensBefore({0, 2}, order.frontier(2)));
  EXPECT_TRUE(happensBefore({1, 1}, order.frontier(2)));
}

TEST(TickOrder, EveryLaneIsAfterACompletedTick) {
  TickOrder order(2, 2);
  for (std::uint64_t tick = 0; tick < 3; ++tick) {
    order.beginTick(tick);
    EXPECT_EQ(happensBefore({0, 1}, order.frontier(1)), tick == 2);
    order.run(0);
    order.endTick(tick);
  }
  EXPECT_TRUE(happensBefore({0, 1}, order.frontier(1)));
  EXPECT_FALSE(happensBefore({0, 2}, order.frontier(1)));
}

TEST(TickOrder, FindsTheNearestMarkerAtOrAfterAPoint) {
  TickOrder order(1, 1);
  const auto early = order.addMarker(), late = order.addMarker();
  order.run(0);
  order.record(early, 0);
  order.run(0);
  order.run(0);
  order.record(late, 0);
  TickOrder::Marker found = 99;
  ASSERT_TRUE(order.markerAfter({0, 1}, &found));
  EXPECT_EQ(found, early);
  ASSERT_TRUE(order.markerAfter({0, 2}, &found));
  EXPECT_EQ(found, late);
  EXPECT_FALSE(order.markerAfter({0, 4}, &found));
}

}  // namespace
}  // namespace braid
