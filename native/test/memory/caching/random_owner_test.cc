// The laws of the caching allocator, held against random owners. A failure names its seed; BRAID_SEED=N
// repeats it.
#include "test/memory/caching/random_owner.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <random>
#include <thread>

namespace braid::test {
namespace {

using namespace caching;

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr std::uint64_t share = 4;  // of the runs: the sanitizers are slow
#else
constexpr std::uint64_t share = 1;
#endif

std::uint64_t firstSeed() {
  if (const char* asked = std::getenv("BRAID_SEED")) return std::strtoull(asked, nullptr, 10);
  if (const char* ci = std::getenv("CI"); ci && std::string(ci) == "true") return 20'261'121;
  return std::random_device()();
}

// A number of runs, from the first seed on; or one with the seed of BRAID_SEED.
template <class Each>
void runs(std::uint64_t count, Each each) {
  const std::uint64_t seed = firstSeed();
  const bool one = std::getenv("BRAID_SEED") != nullptr;
  for (std::uint64_t i = 0; i < (one ? 1 : count / share); ++i) {
    ModelPlan plan = randomPlan(seed + i);
    SCOPED_TRACE("BRAID_SEED=" + std::to_string(plan.seed));
    each(plan);
    if (testing::Test::HasFatalFailure()) return;
  }
}

// No byte has two owners, no block is handed out too early, all statistics add up, and nothing is left at the
// end (checking_driver.h, invariants.h).
TEST(CachingRandomOwner, OneThread) {
  runs(400, [](ModelPlan plan) {
    const ModelReport report = runModel(plan);
    ASSERT_EQ(report.problem, "") << describe(plan);
    ASSERT_EQ(report.allocations, report.frees);
  });
}

TEST(CachingRandomOwner, LongRuns) {
  runs(20, [](ModelPlan plan) {
    plan.operations = 8000;
    plan.audit = 100;
    const ModelReport report = runModel(plan);
    ASSERT_EQ(report.problem, "") << describe(plan);
  });
}

TEST(CachingRandomOwner, SeveralThreads) {
  runs(60, [](ModelPlan plan) {
    plan.threads = 2 + plan.seed % 3;
    const ModelReport report = runModel(plan);
    ASSERT_EQ(report.problem, "") << describe(plan);
  });
}

// Owners write, readers on other lanes copy it out later: a block that is taken too soon shows as wrong data.
TEST(CachingRandomOwner, DataOnTheHostDevice) {
  std::uint64_t checked = 0;
  runs(8, [&](ModelPlan plan) {
    plan.host = true;
    plan.deviceBytes /= 3;
    const ModelReport report = runModel(plan);
    ASSERT_EQ(report.problem, "") << describe(plan);
    checked += report.checked;
  });
  EXPECT_GT(checked, 10u);
}

TEST(CachingRandomOwner, DataOfSeveralThreads) {
  runs(8, [](ModelPlan plan) {
    plan.host = true;
    plan.deviceBytes /= 2;
    plan.threads = 2 + plan.seed % 3;
    plan.watched =
        plan.seed % 2 == 0;  // else nothing but the allocator's own locks stands between the threads
    const ModelReport report = runModel(plan);
    ASSERT_EQ(report.problem, "") << describe(plan);
  });
}

// What order-then-wait hands out depends on the order of the calls alone, however the device goes on: up to
// where memory ends, and pages that move are those that are seen to be free.
TEST(CachingRandomOwner, OrderThenWaitIsDeterministic) {
  runs(40, [](ModelPlan plan) {
    plan.options.policy = &orderThenWait;
    plan.options.movePages = false;
    plan.options.cacheUpTo = unlimited;  // longer blocks go back at once where their lane is seen to be done
    plan.options.limit = unlimited;
    plan.deviceBytes = std::uint64_t{16} << 30;
    plan.changing = plan.asking = false;
    plan.audit = 0;
    plan.progress = 1;
    plan.behind = 2;
    const ModelReport first = runModel(plan);
    ASSERT_EQ(first.problem, "") << describe(plan);
    for (const std::uint64_t behind : std::array{3, 11, 0}) {
      plan.progress = 2 + behind;
      plan.behind = behind;
      const ModelReport other = runModel(plan);
      ASSERT_EQ(other.problem, "") << describe(plan);
      ASSERT_EQ(first.trace, other.trace) << describe(plan);
    }
  });
}

// A driver call fails on its nth use: an error or another way, and then all is as before.
TEST(CachingRandomOwner, EveryDriverCallMayFail) {
  constexpr const char* calls[] = {
      "memAllocate",    "memFree",     "memInfo",          "pinnedAllocate", "pinnedFree",   "addressReserve",
      "addressRelease", "pagesCreate", "pagesMap",         "pagesUnmap",     "pagesRelease", "eventCreate",
      "eventRecord",    "eventQuery",  "eventSynchronize", "streamWait",     "streamQuery"};
  std::uint64_t struck = 0;
  for (const char* call : calls) {
    runs(12, [&](ModelPlan plan) {
      plan.operations = 250;
      plan.fault = call;
      plan.failure = plan.seed % 2 == 0 ? Status::unknown : Status::outOfMemory;
      for (std::uint64_t nth = 1;; nth += 1 + nth / 3) {
        plan.nth = nth;
        const ModelReport report = runModel(plan);
        ASSERT_EQ(report.problem, "") << describe(plan);
        if (!report.struck) break;
        ++struck;
      }
    });
  }
  EXPECT_GT(struck, 10u);
}

}  // namespace
}  // namespace braid::test
