// How a session's allocations wait when reuse by order and growth have failed; how failures name their work;
// and the length of a trace.
#include <gtest/gtest.h>

#include "test/executor/support.h"

namespace braid {
namespace {

constexpr std::size_t count = 4096, bytes = count * 4;

using test::Ends;
using test::hostDriver;

HostOptions shaken(std::uint64_t seed) {
  HostOptions options;
  options.jitterSeed = seed;
  options.poison = true;
  return options;
}

BufferSpec buffer(const char* name, Space space, Life life, std::uint32_t home, std::uint32_t root) {
  return {name, bytes, space, home, life, root, 0, -1};
}

// Each buffer goes up on one lane and down on another; nothing but the allocator orders one tick's buffer
// after the last one's. Buffers: 0 x, 1 d, 2 y.
ProgramSpec across(std::uint32_t inFlight) {
  ProgramSpec spec;
  spec.name = "across";
  spec.inFlight = inFlight;
  spec.lanes = {{"up", 0}, {"down", 0}};
  spec.buffers = {buffer("x", Space::pinned, Life::input, 0, 0), buffer("d", Space::device, Life::tick, 0, 1),
                  buffer("y", Space::pinned, Life::output, 1, 2)};
  spec.kernels.resize(1);
  spec.kernels[0].bytes = bytes;
  spec.nodes = {{"up", 0}, {"down", 0}};
  spec.events = 2;
  spec.devices[0].boundBytes = bytes;  // one d, and so no room for the next tick's beside it
  spec.boundPinned = 2 * inFlight * bytes;
  spec.commands = {0, 1, 0, 2, 0, 0, 1, 1, 0, 1, 3, 0, 0, 4, 0, 1, 0,
                   2, 1, 1, 1, 1, 1, 2, 3, 1, 1, 5, 1, 1, 1, 1, 1};
  return spec;
}

// Two lanes that share one block and not one event: x → a → y on the first, x → b → z on the second. Buffers:
// 0 x, 1 a, 2 y, 3 b, 4 z.
ProgramSpec apart(std::uint32_t inFlight) {
  ProgramSpec spec = across(inFlight);
  spec.buffers = {buffer("x", Space::pinned, Life::input, 0, 0), buffer("a", Space::device, Life::tick, 0, 1),
                  buffer("y", Space::pinned, Life::output, 0, 2),
                  buffer("b", Space::device, Life::tick, 1, 3),
                  buffer("z", Space::pinned, Life::output, 1, 4)};
  spec.nodes = {{"a up", 0}, {"a down", 0}, {"b up", 0}, {"b down", 0}};
  spec.events = 0;
  spec.boundPinned = 3 * inFlight * bytes;
  spec.commands = {0, 1, 0, 2, 0, 0, 1, 1, 0, 1, 2, 1, 0, 1, 1, 1, 2, 1, 1,
                   0, 3, 1, 2, 2, 1, 1, 1, 0, 3, 2, 3, 1, 1, 1, 3, 4, 1, 3};
  return spec;
}

std::unique_ptr<Session> openedWith(std::shared_ptr<Driver> driver, ProgramSpec spec, Ends& ends,
                                    SessionOptions options = {}) {
  options.onTick = ends.callback();
  options.poison = true;
  MaybeFailure failure;
  auto session = Session::open(std::move(driver), std::move(spec), std::move(options), &failure);
  EXPECT_FALSE(failure) << failure->op << " " << failure->detail;
  return session;
}

// Every value of every tick comes down as it went up.
void runTicks(Session& session, Ends& ends, std::uint64_t ticks, const std::vector<std::uint32_t>& outputs) {
  const std::uint32_t inFlight = session.spec().inFlight;
  const auto value = [](std::uint64_t tick, std::size_t i) { return static_cast<float>(tick * 7 + i % 13); };
  const auto check = [&](std::uint64_t tick) {
    ends.await(tick + 1);
    for (const std::uint32_t output : outputs) {
      const float* y =
          static_cast<const float*>(session.pinned(output, static_cast<std::uint32_t>(tick % inFlight)));
      for (std::size_t i = 0; i < count; ++i)
        ASSERT_EQ(y[i], value(tick, i)) << "tick " << tick << " output " << output << " at " << i;
    }
  };
  for (std::uint64_t tick = 0; tick < ticks; ++tick) {
    if (tick >= inFlight) check(tick - inFlight);
    float* x = static_cast<float*>(session.pinned(0, static_cast<std::uint32_t>(tick % inFlight)));
    for (std::size_t i = 0; i < count; ++i) x[i] = value(tick, i);
    ASSERT_TRUE(session.submit(tick));
  }
  for (std::uint64_t tick = ticks - std::min<std::uint64_t>(ticks, inFlight); tick < ticks; ++tick)
    check(tick);
}

TEST(SessionAllocation, TheLaneWaitsForTheReaderOfTheBlockItTakes) {
  for (const std::uint64_t seed : {0u, 1u, 2u, 3u, 4u, 5u}) {
    Ends ends;
    auto session = openedWith(hostDriver(shaken(seed)), across(4), ends);
    ASSERT_TRUE(session);
    runTicks(*session, ends, 60, {2});
    const SessionStats stats = session->stats();
    EXPECT_EQ(stats.byGrowth, 1u);
    EXPECT_EQ(stats.byWait, 59u) << "whatever the timing: order decides, not completion";
    EXPECT_EQ(stats.byOrder + stats.bySynchronize, 0u);
    EXPECT_EQ(stats.eventsCreated, 0u);
    EXPECT_EQ(stats.poolPeak, bytes);
  }
}

TEST(SessionAllocation, WhereNoEventMarksThePointASpareOneDoes) {
  for (const std::uint64_t seed : {0u, 1u, 2u, 3u, 4u, 5u}) {
    Ends ends;
    auto session = openedWith(hostDriver(shaken(seed)), apart(3), ends);
    ASSERT_TRUE(session);
    runTicks(*session, ends, 60, {2, 4});
    const SessionStats stats = session->stats();
    EXPECT_EQ(stats.byGrowth, 1u);
    EXPECT_EQ(stats.byWait, 119u);
    EXPECT_EQ(stats.byOrder + stats.bySynchronize, 0u);
    EXPECT_EQ(stats.eventsCreated, 0u);
    EXPECT_EQ(stats.poolPeak, bytes);
  }
}

TEST(SessionAllocation, WithRoomForAllNoLaneWaits) {
  ProgramSpec spec = across(4);
  spec.devices[0].boundBytes = 5 * bytes;
  Ends ends;
  auto session = openedWith(hostDriver(shaken(1)), spec, ends);
  ASSERT_TRUE(session);
  runTicks(*session, ends, 60, {2});
  EXPECT_EQ(session->stats().byWait, 0u);
  EXPECT_EQ(session->stats().byGrowth + session->stats().byOrder, 60u);
}

// Ticks overlap nowhere, so each has the blocks of the first, and no lane waits for a block.
TEST(SessionAllocation, AnEnforcedBoundIsThatOfEveryTick) {
  for (const std::uint64_t seed : {0u, 1u, 2u, 3u, 4u, 5u}) {
    for (const bool isAcross : {true, false}) {
      ProgramSpec spec = isAcross ? across(4) : apart(3);
      spec.enforced = true;
      // Of two blocks in one tick that no event orders, each has bytes of its own.
      spec.devices[0].boundBytes = isAcross ? bytes : 2 * bytes;
      Ends ends;
      auto session = openedWith(hostDriver(shaken(seed)), spec, ends);
      ASSERT_TRUE(session);
      runTicks(*session, ends, 60,
               isAcross ? std::vector<std::uint32_t>{2} : std::vector<std::uint32_t>{2, 4});
      const SessionStats stats = session->stats();
      EXPECT_EQ(stats.byGrowth, isAcross ? 1u : 2u);
      EXPECT_EQ(stats.byOrder, isAcross ? 59u : 118u);
      EXPECT_EQ(stats.byWait + stats.bySynchronize, 0u);
      EXPECT_EQ(stats.poolPeak, spec.devices[0].boundBytes);
      EXPECT_EQ(stats.eventsCreated, 0u);
    }
  }
}

// Pieces of a tick in order of issue: the poison of d, up, down.
TEST(Failures, NameThePieceOfWorkThatFailed) {
  struct Case {
    std::uint64_t nth, tick;
    const char *op, *lane;
    int node;
  };
  for (const Case& one :
       {Case{1, 0, "fill32 d", "up", -1}, Case{2, 0, "run up", "up", 0}, Case{3, 0, "run down", "down", 1},
        Case{5, 1, "run up", "up", 0}, Case{9, 2, "run down", "down", 1}}) {
    HostOptions options = shaken(3);
    options.faults = {{"run", one.nth, Status::illegalAddress}};
    Ends ends;
    auto session = openedWith(hostDriver(options), across(2), ends);
    ASSERT_TRUE(session);
    for (std::uint64_t tick = 0; tick < 6; ++tick) ASSERT_TRUE(session->submit(tick));
    ends.await(6);
    const MaybeFailure& failure = ends.failures[5];
    ASSERT_TRUE(failure);
    EXPECT_EQ(failure->code, "CUDA_ERROR_ILLEGAL_ADDRESS");
    EXPECT_EQ(failure->op, one.op);
    EXPECT_EQ(failure->lane, one.lane);
    EXPECT_EQ(failure->node, one.node);
    EXPECT_NE(failure->detail.find("in tick " + std::to_string(one.tick)), std::string::npos)
        << failure->detail;
    EXPECT_EQ(failure->detail.find("likely"), std::string::npos);
  }
}

TEST(Failures, AGuessIsCalledOne) {
  HostOptions options;
  options.faults = {{"eventSynchronize", 1, Status::launchFailed}};
  Ends ends;
  auto session = openedWith(hostDriver(options), apart(2), ends);
  ASSERT_TRUE(session);
  ASSERT_TRUE(session->submit(0));
  ends.await(1);
  ASSERT_TRUE(ends.failures[0]);
  EXPECT_EQ(ends.failures[0]->op, "run, likely one of a up, a down");
  EXPECT_EQ(ends.failures[0]->lane, "up");
  EXPECT_EQ(ends.failures[0]->node, 0);
}

TEST(Failures, AreNotBlamedOnAnotherProgramOfTheDevice) {
  HostOptions options;
  options.faults = {{"run", 4, Status::launchFailed}};
  const auto driver = hostDriver(options);
  Ends ends, bystanders;
  auto session = openedWith(driver, across(2), ends);
  auto bystander = openedWith(driver, across(2), bystanders);
  ASSERT_TRUE(session && bystander);
  for (std::uint64_t tick = 0; tick < 2; ++tick) ASSERT_TRUE(session->submit(tick));
  ends.await(2);
  ASSERT_TRUE(ends.failures[1]);
  EXPECT_EQ(ends.failures[1]->op, "fill32 d");
  ASSERT_TRUE(bystander->submit(0));
  bystanders.await(1);
  ASSERT_TRUE(bystanders.failures[0]);
  EXPECT_EQ(bystanders.failures[0]->node, -1);
  EXPECT_NE(bystanders.failures[0]->detail.find("another program on this device failed"), std::string::npos)
      << bystanders.failures[0]->detail;
}

TEST(Trace, KeepsTheNewestRows) {
  SessionOptions options;
  options.trace = true;
  options.traceRows = 7;
  Ends ends;
  auto session = openedWith(hostDriver(), across(2), ends, std::move(options));
  ASSERT_TRUE(session);
  runTicks(*session, ends, 3, {2});
  EXPECT_EQ(session->trace().dropped, 0u);
  EXPECT_EQ(session->trace().tick, (std::vector<double>{0, 0, 1, 1, 2, 2}));
  for (std::uint64_t tick = 3; tick < 20; ++tick) ASSERT_TRUE(session->submit(tick));
  ends.await(20);
  session->close();
  const TraceRows rows = session->trace();
  EXPECT_EQ(rows.tick, (std::vector<double>{16, 17, 17, 18, 18, 19, 19}));
  EXPECT_EQ(rows.node, (std::vector<std::int32_t>{1, 0, 1, 0, 1, 0, 1}));
  EXPECT_EQ(rows.dropped, 33u);
  for (std::size_t i = 0; i < 7; ++i) EXPECT_LE(rows.start[i], rows.end[i]);
}

TEST(Memory, PinnedMemoryOutlivesItsSessionWhileItIsRead) {
  Ends ends;
  auto session = openedWith(hostDriver(), across(2), ends);
  ASSERT_TRUE(session);
  const auto block = session->pinnedBlock(0, 0);
  auto* const memory = static_cast<float*>(session->pinned(0, 0));
  std::fill_n(memory, count, 3.0f);
  session->close();
  session.reset();
  EXPECT_EQ(memory[count - 1], 3.0f);
}

}  // namespace
}  // namespace braid
