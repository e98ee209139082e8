// Planned storage: one arena for each session, addresses known before the first tick, and nothing allocated
// in any.
#include <cmath>

#include "test/executor/support.h"

namespace braid {
namespace {

using namespace test;

// The pipeline with w, dx and dy in an arena, one beside the other: each tick waits for the readers of the
// tick before.
ProgramSpec planned(std::uint32_t inFlight = 2) {
  ProgramSpec spec = pipeline(inFlight);
  spec.planned = true;
  spec.buffers[4].arenaOffset = 0;
  spec.buffers[1].arenaOffset = 512;
  spec.buffers[2].arenaOffset = 1024;
  spec.devices[0] = {3 * 512, 3 * 512};
  spec.commands = {4, 1, 0, -1, 2, 0, 0, 1, 1, 0, 1, 3, 0, 0, 4, 0, 1, 0, 4, 2, 1, -1, 2, 1,
                   1, 2, 1, 1,  4, 2, 3, 1, 1, 4, 1, 0, 0, 2, 2, 0, 1, 1, 2, 3, 3, 2,  0};
  return spec;
}

std::size_t freeBytes(Driver& driver) {
  std::size_t free = 0, total = 0;
  EXPECT_EQ(driver.memInfo(&free, &total), Status::ok);
  return free;
}

TEST(PlannedSession, RunsInOneArenaAndAllocatesNothingInATick) {
  for (const std::uint64_t seed : {0u, 1u, 2u, 3u}) {
    HostOptions options;
    options.jitterSeed = seed;
    options.poison = true;
    auto driver = hostDriver(options);
    const std::size_t before = freeBytes(*driver);
    Ends ends;
    auto session = opened(driver, planned(), ends);
    ASSERT_TRUE(session);
    EXPECT_EQ(before - freeBytes(*driver), std::size_t{2} << 20)
        << "one page for the arena, and nothing else";
    const std::vector<float> w(count, 10);
    ASSERT_FALSE(session->load(4, w.data()));
    runTicks(*session, ends, 100);
    const SessionStats stats = session->stats();
    EXPECT_EQ(stats.ticks, 100u);
    EXPECT_EQ(stats.reservedPeak, 3 * 512u);
    EXPECT_EQ(stats.allocatedPeak, 3 * 512u);
    EXPECT_EQ(stats.byOrder + stats.byGrowth + stats.byWait + stats.bySynchronize, 0u)
        << "nobody asked for memory";
    EXPECT_EQ(stats.eventsCreated, 0u);
    std::vector<float> back(count);
    EXPECT_FALSE(session->read(4, back.data()));
    EXPECT_EQ(back, w);
    session->close();
    EXPECT_EQ(session->stats().reserved, 0u);
    EXPECT_EQ(freeBytes(*driver), before);
  }
}

TEST(SessionOfEitherStorage, FaultsWhileOpeningLeaveNothingBehind) {
  for (const ProgramSpec& spec : {pipeline(), planned()}) {
    for (const char* call : {"pagesCreate", "pinnedAllocate", "streamCreate", "eventCreate", "prepare"}) {
      HostOptions options;
      options.faults = {{call, 1, Status::unknown}};
      auto driver = hostDriver(options);
      const std::size_t before = freeBytes(*driver);
      MaybeFailure failure;
      EXPECT_FALSE(Session::open(driver, spec, {}, &failure));
      ASSERT_TRUE(failure) << call;
      EXPECT_EQ(failure->code, "CUDA_ERROR_UNKNOWN") << call;
      EXPECT_EQ(freeBytes(*driver), before) << call;
    }
  }
}

// Poison stands in for the alloc that an arena's buffers do not have: a place that is taken while it is still
// another's shows.
TEST(PlannedSession, PoisonShowsBytesThatAreTakenTooEarly) {
  ProgramSpec spec = planned();
  spec.buffers[2].arenaOffset = 512;
  Ends ends;
  auto session = opened(hostDriver(), spec, ends);
  ASSERT_TRUE(session);
  const std::vector<float> w(count, 10);
  ASSERT_FALSE(session->load(4, w.data()));
  std::fill_n(static_cast<float*>(session->pinned(0, 0)), count, 1.0f);
  ASSERT_TRUE(session->submit(0));
  ends.await(1);
  const float y = static_cast<const float*>(session->pinned(3, 0))[7];
  EXPECT_NE(y, 11.0f) << "dy's first access overwrites dx, which the same run reads";
  EXPECT_TRUE(std::isnan(y));
}

TEST(PlannedSession, WhatIsNotInTheArenaIsRefused) {
  const auto refused = [](const ProgramSpec& spec, const char* why) {
    Decoded decoded;
    const MaybeFailure failure = decode(spec, &decoded);
    ASSERT_TRUE(failure) << why;
    EXPECT_NE(failure->detail.find(why), std::string::npos) << failure->detail;
  };
  ProgramSpec spec = planned();
  spec.buffers[2].arenaOffset = 1536;
  refused(spec, "reaches beyond the arena");
  spec.buffers[2].arenaOffset = std::int64_t{1} << 62;
  refused(spec, "reaches beyond the arena");
  spec.buffers[2].arenaOffset = 8;
  refused(spec, "multiple of 16");
  spec.buffers[2].arenaOffset = -1;
  refused(spec, "no place in the arena");
  spec = planned();
  spec.buffers[0].arenaOffset = 0;
  refused(spec, "only device buffers");
  for (const Life life : {Life::input, Life::output}) {
    spec = planned();
    spec.buffers[1].life = life;
    refused(spec, "an input or output has slots of its own");
    spec.buffers[1].arenaOffset = -1;
    if (life == Life::input) refused(spec, "inputs must be pinned");
  }
  spec = planned();
  spec.commands.insert(spec.commands.begin(), {0, 1, 0});
  refused(spec, "planned storage has no alloc");
  spec = pipeline();
  spec.buffers[1].arenaOffset = 0;
  refused(spec, "an offset without planned storage");

  // A promise smaller than the arena is not kept by taking more.
  spec = planned();
  spec.devices[0].boundBytes = 2 * 512;
  MaybeFailure failure;
  EXPECT_FALSE(Session::open(hostDriver(), spec, {}, &failure));
  ASSERT_TRUE(failure);
  EXPECT_NE((failure->op + failure->detail).find("bound.device"), std::string::npos)
      << failure->op << failure->detail;
}

}  // namespace
}  // namespace braid
