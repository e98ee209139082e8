// A program opened, run, failed and closed on the host device.
#include <array>

#include "test/executor/support.h"

namespace braid {
namespace {

using namespace test;

TEST(Session, RunsTicksInOrderAndCreatesNothingOnTheWay) {
  for (const std::uint64_t seed : {0u, 1u, 2u, 3u}) {
    HostOptions options;
    options.jitterSeed = seed;
    options.poison = true;
    Ends ends;
    auto session = opened(hostDriver(options), pipeline(), ends, true);
    ASSERT_TRUE(session);
    const std::vector<float> w(count, 10);
    ASSERT_FALSE(session->load(4, w.data()));
    runTicks(*session, ends, 100);
    const SessionStats stats = session->stats();
    EXPECT_EQ(stats.ticks, 100u);
    EXPECT_EQ(stats.eventsCreated, 0u);
    EXPECT_EQ(stats.byOrder + stats.byGrowth, 200u);
    EXPECT_EQ(stats.poolPeak, 3 * 512u) << "w and two tick buffers, whatever the timing";
    EXPECT_EQ(stats.allocated, 512u);
    EXPECT_EQ(session->trace().tick.size(), 300u);
    for (std::uint64_t tick = 0; tick < 100; ++tick) ASSERT_EQ(ends.ticks[tick], tick);
    std::vector<float> back(count);
    EXPECT_FALSE(session->read(4, back.data()));
    EXPECT_EQ(back, w);
    session->close();
    EXPECT_EQ(session->stats().reserved, 0u);
    EXPECT_FALSE(session->submit(100));
  }
}

TEST(Session, EachFaultEndsInOneFailureThatEveryLaterTickRepeats) {
  for (const char* call : {"run", "launch", "streamWait", "eventRecord", "eventSynchronize"}) {
    for (const std::uint64_t nth : {1u, 2u, 5u, 9u}) {
      HostOptions options;
      options.faults = {{call, nth, Status::launchFailed}};
      auto driver = hostDriver(options);
      Ends ends;
      auto session = opened(driver, pipeline(), ends);
      ASSERT_TRUE(session);
      for (std::uint64_t tick = 0; tick < 12; ++tick) ASSERT_TRUE(session->submit(tick));
      ends.await(12);
      bool failed = false;
      std::string op;
      for (std::size_t i = 0; i < 12; ++i) {
        EXPECT_EQ(ends.ticks[i], i);
        ASSERT_TRUE(!failed || ends.failures[i]) << call << " " << nth;
        if (!ends.failures[i]) continue;
        EXPECT_EQ(ends.failures[i]->code, "CUDA_ERROR_LAUNCH_FAILED");
        EXPECT_FALSE(ends.failures[i]->op.empty());
        EXPECT_TRUE(!failed || ends.failures[i]->op == op);
        op = ends.failures[i]->op;
        failed = true;
      }
      EXPECT_TRUE(failed) << call << " " << nth;
      session->close();
    }
  }
}

// A bound that is too tight for reuse by order alone: the copy lane must be made to wait for the reader of
// the tick before.
TEST(Session, WaitsAtReuseInsideATightBound) {
  ProgramSpec spec = pipeline();
  spec.devices[0].boundBytes = 3 * 512;
  Ends ends;
  HostOptions options;
  options.jitterSeed = 7;
  auto session = opened(hostDriver(options), spec, ends);
  ASSERT_TRUE(session);
  const std::vector<float> w(count, 10);
  ASSERT_FALSE(session->load(4, w.data()));
  runTicks(*session, ends, 50);
  EXPECT_LE(session->stats().poolPeak, 3 * 512u);

  spec.devices[0].boundBytes = 2 * 512;
  Ends none;
  auto tooTight = opened(hostDriver(), spec, none);
  ASSERT_TRUE(tooTight);
  ASSERT_TRUE(tooTight->submit(0));
  none.await(1);
  ASSERT_TRUE(none.failures[0]);
  EXPECT_EQ(none.failures[0]->code, "CUDA_ERROR_OUT_OF_MEMORY");
  EXPECT_EQ(none.failures[0]->wantedBytes, 512u);
  EXPECT_EQ(none.failures[0]->freeBytes, 0u);
  EXPECT_EQ(none.failures[0]->lane, "math");
}

// Of ticks in flight none sees what is loaded after them, and all later ones do.
TEST(Session, LoadsAndReadsBetweenTicks) {
  for (const std::uint64_t seed : {0u, 1u, 2u, 3u}) {
    HostOptions options;
    options.jitterSeed = seed;
    Ends ends;
    auto session = opened(hostDriver(options), pipeline(), ends);
    ASSERT_TRUE(session);
    for (std::uint64_t tick = 0; tick < 40; tick += 2) {
      const std::vector<float> w(count, static_cast<float>(100 * tick));
      ASSERT_FALSE(session->load(4, w.data()));
      for (std::uint32_t slot = 0; slot < 2; ++slot) {
        std::fill_n(static_cast<float*>(session->pinned(0, slot)), count, static_cast<float>(slot));
        ASSERT_TRUE(session->submit(tick + slot));
      }
      std::vector<float> back(count);
      ASSERT_FALSE(session->read(4, back.data()));
      EXPECT_EQ(back, w);
      for (std::uint32_t slot = 0; slot < 2; ++slot)
        EXPECT_EQ(static_cast<const float*>(session->pinned(3, slot))[7], w[7] + static_cast<float>(slot));
    }
    ends.await(40);
    session->close();
    const std::vector<float> w(count, 1);
    EXPECT_TRUE(session->load(4, w.data())) << "it is closed";
  }
}

// A second session of the same device takes a parameter over while the first one's ticks are in flight.
TEST(Session, TakesBuffersOfAnotherSessionAfterItsTicks) {
  for (const std::uint64_t seed : {0u, 1u, 2u, 3u}) {
    HostOptions options;
    options.jitterSeed = seed;
    options.poison = true;
    const std::vector memory = {DeviceMemory::alone(hostDriver(options))};
    std::array<Ends, 2> ends;
    std::array<std::unique_ptr<Session>, 2> sessions;
    for (std::size_t i = 0; i < 2; ++i) {
      SessionOptions opening;
      opening.onTick = ends[i].callback();
      MaybeFailure failure;
      sessions[i] = Session::open(memory, pipeline(), std::move(opening), &failure);
      ASSERT_TRUE(sessions[i]);
    }
    const std::vector<float> w(count, 10);
    ASSERT_FALSE(sessions[0]->load(4, w.data()));
    for (std::uint64_t tick = 0; tick < 8; ++tick) ASSERT_TRUE(sessions[0]->submit(tick));
    ASSERT_FALSE(sessions[1]->take(*sessions[0], {{4, 4}}));
    EXPECT_EQ(ends[0].size(), 8u) << "the ticks that were submitted before";
    sessions[0]->close();
    runTicks(*sessions[1], ends[1], 20);
    const MaybeFailure closed = sessions[1]->take(*sessions[0], {{4, 4}});
    ASSERT_TRUE(closed);
    EXPECT_EQ(closed->code, "CUDA_ERROR_INVALID_VALUE");
  }
}

TEST(Session, TakesNothingThatIsNotKeptOrLiesElsewhere) {
  Ends ends, other;
  const auto driver = hostDriver();
  auto session = opened(driver, pipeline(), ends);
  auto elsewhere = opened(driver, pipeline(), other);
  ASSERT_TRUE(session && elsewhere);
  EXPECT_TRUE(session->take(*session, {{4, 4}})) << "its own";
  EXPECT_TRUE(session->take(*elsewhere, {{4, 4}})) << "another memory";
  EXPECT_TRUE(session->take(*elsewhere, {}));
  const std::vector memory = {DeviceMemory::alone(hostDriver())};
  MaybeFailure failure;
  auto a = Session::open(memory, pipeline(), {}, &failure);
  auto b = Session::open(memory, pipeline(), {}, &failure);
  ASSERT_TRUE(a && b);
  EXPECT_FALSE(b->take(*a, {}));
  for (const auto& pair : {std::pair{1u, 4u}, std::pair{4u, 1u}, std::pair{4u, 99u}, std::pair{99u, 4u}}) {
    failure = b->take(*a, {pair});
    ASSERT_TRUE(failure);
    EXPECT_EQ(failure->detail.find("neither state nor parameter") == std::string::npos, false);
  }
}

// A wait for the tick before that stands after this tick's record needs a second event.
TEST(Session, AWaitForTheTickBeforeMayFollowThisTicksRecord) {
  ProgramSpec spec = pipeline();
  spec.commands.insert(spec.commands.end(), {4, 2, 1, -1});
  Decoded decoded;
  ASSERT_FALSE(decode(spec, &decoded));
  EXPECT_TRUE(decoded.alternating[2]);
  EXPECT_FALSE(decoded.alternating[0]);
  Ends ends;
  auto session = opened(hostDriver(), spec, ends);
  ASSERT_TRUE(session);
  const std::vector<float> w(count, 10);
  ASSERT_FALSE(session->load(4, w.data()));
  runTicks(*session, ends, 20);
}

TEST(Decode, EveryMutationIsRefusedOrHarmless) {
  const ProgramSpec good = pipeline();
  std::size_t refused = 0;
  for (std::size_t at = 0; at < good.commands.size(); ++at) {
    for (const std::int32_t word : {-1, 0, 1, 5, 6, 1 << 30, INT32_MIN}) {
      ProgramSpec spec = good;
      spec.commands[at] = word;
      Decoded decoded;
      const MaybeFailure failure = decode(spec, &decoded);
      if (!failure) continue;
      ++refused;
      EXPECT_EQ(failure->code, "CUDA_ERROR_INVALID_VALUE");
      EXPECT_FALSE(failure->detail.empty());
    }
    ProgramSpec cut = good;
    cut.commands.resize(at);
    Decoded decoded;
    decode(cut, &decoded);
  }
  EXPECT_GT(refused, good.commands.size());
}

TEST(Decode, NoKernelReachesBeyondItsBuffers) {
  ProgramSpec spec = pipeline();
  spec.kernels[0].bytes = bytes + 1;
  Decoded decoded;
  MaybeFailure failure = decode(spec, &decoded);
  ASSERT_TRUE(failure);
  EXPECT_NE(failure->detail.find("up reaches 257 bytes into x, which has 256"), std::string::npos)
      << failure->detail;
  spec = pipeline();
  spec.kernels[1].operands[1].offset = 1;
  EXPECT_TRUE(decode(spec, &decoded));
  spec = pipeline();
  spec.kernels[1].operands[0].strides = {-1};
  EXPECT_TRUE(decode(spec, &decoded));
  spec = pipeline();
  spec.kernels[1].shape = {INT64_MAX};
  EXPECT_TRUE(decode(spec, &decoded));
}

}  // namespace
}  // namespace braid
