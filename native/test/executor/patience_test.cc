#include "executor/patience.h"

#include <gtest/gtest.h>

namespace braid {
namespace {

using std::chrono::milliseconds;

// How often a wait for something that never happens asks.
int asked(Patience& patience) {
  int count = 0;
  EXPECT_FALSE(patience.await([&] { return ++count < 0; }));
  return count;
}

TEST(Patience, AsksUntilItIsOver) {
  // A thread that loses its core meanwhile is out of patience; not each time.
  bool isOver = false;
  for (int i = 0; i < 20 && !isOver; ++i) {
    Patience patience;
    int count = 0;
    isOver = patience.await([&] { return ++count == 3; }) && count == 3;
  }
  EXPECT_TRUE(isOver);
}

TEST(Patience, EndsWhereNothingHappens) {
  Patience patience;
  const auto began = std::chrono::steady_clock::now();
  EXPECT_GT(asked(patience), 0);
  EXPECT_GE(std::chrono::steady_clock::now() - began, Patience::most);
}

TEST(Patience, SleepsAtOnceAfterALongWait) {
  Patience patience;
  patience.waited(milliseconds{40});
  EXPECT_EQ(asked(patience), 0);
}

TEST(Patience, SleepsThoughTicksEndTogetherAfterALongWait) {
  Patience patience;
  for (const int wait : {40, 0, 0, 40, 0, 0}) {
    patience.waited(milliseconds{wait});
    EXPECT_EQ(asked(patience), 0);
  }
}

TEST(Patience, StaysAwakeAgainOnceWaitsAreShort) {
  Patience patience;
  patience.waited(std::chrono::hours{1});
  for (int i = 0; i < 4; ++i) patience.waited(milliseconds{1});
  EXPECT_GT(asked(patience), 0);
}

}  // namespace
}  // namespace braid
