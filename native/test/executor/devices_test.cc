// One program over several devices of the process: copies between them, waits across them, memory and
// failures of each.
#include <algorithm>
#include <thread>

#include "test/executor/support.h"

namespace braid {
namespace {

using namespace test;

std::shared_ptr<Driver> numbered(int ordinal, HostOptions options = {}) {
  options.ordinal = ordinal;
  return hostDriver(options);
}

std::vector<std::shared_ptr<Driver>> two(HostOptions options = {}) {
  return {numbered(0, options), numbered(1, options)};
}

BufferSpec buffer(const char* name, Space space, Life life, std::uint32_t home, std::uint32_t root,
                  std::uint32_t device) {
  BufferSpec made = test::buffer(name, space, life, home, root);
  made.device = device;
  return made;
}

// x (pinned) → up on `in` (device 0) → dx; over on `pull` (device 1) → px; add on `math` (device 1): py = px
// + w; back on `home` (device 0) → dy; down on `home` → y. Buffers: 0 x, 1 dx, 2 px, 3 py, 4 dy, 5 y, 6 w.
// Lanes: 0 in, 1 pull, 2 math, 3 home.
ProgramSpec roundTrip(std::uint32_t inFlight = 2) {
  ProgramSpec spec;
  spec.name = "round trip";
  spec.inFlight = inFlight;
  spec.lanes = {{"in", 0, 0}, {"pull", 0, 1}, {"math", 0, 1}, {"home", 0, 0}};
  spec.buffers = {
      buffer("x", Space::pinned, Life::input, 0, 0, 0), buffer("dx", Space::device, Life::tick, 0, 1, 0),
      buffer("px", Space::device, Life::tick, 1, 2, 1), buffer("py", Space::device, Life::tick, 2, 3, 1),
      buffer("dy", Space::device, Life::tick, 3, 4, 0), buffer("y", Space::pinned, Life::output, 3, 5, 0),
      buffer("w", Space::device, Life::param, 2, 6, 1)};
  const ProgramSpec simple = pipeline(inFlight);
  spec.kernels = simple.kernels;
  spec.nodes = {{"up", 0}, {"over", 0}, {"add", 1}, {"back", 0}, {"down", 0}};
  spec.events = 4;
  spec.devices = {{4 * 512, 0}, {5 * 512, 0}};
  spec.boundPinned = 2 * inFlight * 512;
  spec.commands = {0, 1, 0, 2, 0, 0, 1, 1, 0, 1, 3, 0, 0,  // alloc dx; up; record 0
                   4, 0, 1, 0, 0, 2, 1, 2, 1, 1, 1, 1, 1,
                   2, 3, 1, 1, 5, 1, 1, 1, 1, 1,  // wait 0; alloc px; over; record 1; use dx
                   4, 1, 2, 0, 0, 3, 2, 2, 2, 2, 2, 1, 2,
                   6, 3, 3, 2, 2, 5, 2, 2, 2, 1,
                   2,  // wait 1; alloc py; add; record 2; use px
                   4, 2, 3, 0, 0, 4, 3, 2, 3, 3, 1, 1, 3,
                   4, 3, 3, 3, 5, 3, 3, 3, 1, 3,  // wait 2; alloc dy; back; record 3; use py
                   2, 4, 3, 1, 1, 4, 5, 1, 4};    // down; free dy
  return spec;
}

void run(Session& session, Ends& ends, std::uint64_t ticks) {
  const std::vector<float> w(count, 10);
  ASSERT_FALSE(session.load(6, w.data()));
  const std::uint32_t inFlight = session.spec().inFlight;
  const auto check = [&](std::uint64_t tick) {
    ends.await(tick + 1);
    const MaybeFailure failure = ends.failure(tick);
    ASSERT_FALSE(failure) << failure->op << ": " << failure->detail;
    const float* y =
        static_cast<const float*>(session.pinned(5, static_cast<std::uint32_t>(tick % inFlight)));
    for (std::size_t i = 0; i < count; ++i)
      ASSERT_EQ(y[i], static_cast<float>(tick + i) + 10) << "tick " << tick;
  };
  for (std::uint64_t tick = 0; tick < ticks; ++tick) {
    if (tick >= inFlight) check(tick - inFlight);
    if (testing::Test::HasFatalFailure()) return;
    float* x = static_cast<float*>(session.pinned(0, static_cast<std::uint32_t>(tick % inFlight)));
    for (std::size_t i = 0; i < count; ++i) x[i] = static_cast<float>(tick + i);
    ASSERT_TRUE(session.submit(tick));
  }
  for (std::uint64_t tick = ticks - std::min<std::uint64_t>(ticks, inFlight); tick < ticks; ++tick)
    check(tick);
}

TEST(SeveralDevices, EachHasItsMemoryAndGivesItBack) {
  auto drivers = two();
  std::size_t before[2], during[2], after[2], total = 0;
  for (int d = 0; d < 2; ++d) drivers[static_cast<std::size_t>(d)]->memInfo(&before[d], &total);
  {
    Ends ends;
    auto session = opened(drivers, roundTrip(), ends);
    ASSERT_TRUE(session);
    for (int d = 0; d < 2; ++d) drivers[static_cast<std::size_t>(d)]->memInfo(&during[d], &total);
    run(*session, ends, 4);
  }
  for (int d = 0; d < 2; ++d) drivers[static_cast<std::size_t>(d)]->memInfo(&after[d], &total);
  // Some blocks of 512 bytes: a page of each device's heap holds them.
  constexpr std::size_t page = 2 << 20;
  EXPECT_EQ(before[0] - during[0], page);
  EXPECT_EQ(before[1] - during[1], page);
  EXPECT_EQ(before[0], after[0]);
  EXPECT_EQ(before[1], after[1]);
}

TEST(SeveralDevices, TracesHaveOneClock) {
  Ends ends;
  auto session = opened(two(), roundTrip(), ends, true);
  ASSERT_TRUE(session);
  run(*session, ends, 8);
  const TraceRows rows = session->trace();
  ASSERT_EQ(rows.tick.size(), 8 * 5u);
  // Within a tick every run waits for the one before it, on whichever device. The host device's clocks are
  // one.
  for (std::size_t i = 0; i < rows.tick.size(); ++i) {
    if (i % 5 == 0) continue;
    EXPECT_GE(rows.start[i], rows.end[i - 1] - 0.3) << "run " << i;
  }
  // The first of all begins at 0; what the clocks are tied by may make it the other device's.
  EXPECT_EQ(*std::min_element(rows.start.begin(), rows.start.end()), 0);
  EXPECT_LE(rows.start[0], 0.3);
}

TEST(SeveralDevices, AFailureNamesItsDevice) {
  for (const std::size_t culprit : {0u, 1u}) {
    HostOptions broken;
    broken.faults = {{"run", 6, Status::launchFailed}};
    auto drivers = two();
    drivers[culprit] = numbered(static_cast<int>(culprit), broken);
    Ends ends;
    auto session = opened(drivers, roundTrip(), ends, false, false);
    ASSERT_TRUE(session);
    for (std::uint64_t tick = 0; tick < 6; ++tick) ASSERT_TRUE(session->submit(tick));
    ends.await(6);
    ASSERT_TRUE(ends.failures[5]);
    EXPECT_EQ(ends.failures[5]->code, "CUDA_ERROR_LAUNCH_FAILED");
    EXPECT_EQ(ends.failures[5]->device, "host:" + std::to_string(culprit));
    EXPECT_GE(ends.failures[5]->node, 0);
    session->close();
  }
}

TEST(SeveralDevices, WhatOneOfThemIsDeniedLeavesNothingBehind) {
  for (const char* call : {"bind", "pagesCreate", "streamCreate", "eventCreate", "prepare"}) {
    for (const std::size_t culprit : {0u, 1u}) {
      HostOptions broken;
      broken.faults = {{call, 1, Status::unknown}};
      auto drivers = two();
      drivers[culprit] = numbered(static_cast<int>(culprit), broken);
      std::size_t before[2], after[2], total = 0;
      for (int d = 0; d < 2; ++d) drivers[static_cast<std::size_t>(d)]->memInfo(&before[d], &total);
      MaybeFailure failure;
      EXPECT_FALSE(Session::open(drivers, roundTrip(), {}, &failure)) << call;
      ASSERT_TRUE(failure) << call << " " << culprit;
      EXPECT_EQ(failure->device, "host:" + std::to_string(culprit)) << call;
      for (int d = 0; d < 2; ++d) drivers[static_cast<std::size_t>(d)]->memInfo(&after[d], &total);
      EXPECT_EQ(before[0], after[0]) << call;
      EXPECT_EQ(before[1], after[1]) << call;
    }
  }
}

TEST(SeveralDevices, WhatCannotBeIsRefused) {
  const auto refused = [](ProgramSpec spec, const char* words) {
    Decoded decoded;
    const MaybeFailure failure = decode(spec, &decoded);
    ASSERT_TRUE(failure) << words;
    EXPECT_NE(failure->detail.find(words), std::string::npos) << failure->detail;
  };
  ProgramSpec spec = roundTrip();
  spec.lanes[1].device = 2;
  refused(spec, "lanes[1] (pull): device names none");
  spec = roundTrip();
  spec.buffers[2].device = 7;
  refused(spec, "buffers[2] (px): device names none");
  spec = roundTrip();
  spec.buffers[2].device = 0;
  refused(spec, "home is a lane of another device");
  spec = roundTrip();
  spec.buffers[6].device = 0;
  spec.buffers[6].home = 0;
  refused(spec, "add touches w, which is on another device");
  spec.nodes[2].peerAccess = true;
  Decoded decoded;
  EXPECT_FALSE(decode(spec, &decoded));

  spec = roundTrip();
  spec.kernels.push_back(spec.kernels[0]);
  spec.kernels[2].parts = 2;
  spec.nodes[2].kernel = 2;  // px and w, half of each, gathered into py
  ASSERT_FALSE(decode(spec, &decoded));
  spec.buffers[6].device = 0;
  spec.buffers[6].home = 0;
  refused(spec, "gathers several parts, which must be on one device");

  MaybeFailure failure;
  EXPECT_FALSE(Session::open(numbered(0), roundTrip(), {}, &failure));
  ASSERT_TRUE(failure);
  EXPECT_NE(failure->detail.find("the program is for 2, and 1 are open"), std::string::npos)
      << failure->detail;
}

// The weights of the second device's kernel lie on the first device, and the kernel declares peer access.
ProgramSpec reachingAcross() {
  ProgramSpec spec = roundTrip();
  spec.buffers[6].device = 0;
  spec.buffers[6].home = 0;
  spec.nodes[2].peerAccess = true;
  spec.devices[0].boundBytes += 512;
  return spec;
}

TEST(SeveralDevices, AKernelWithPeerAccessReachesAcross) {
  Ends ends;
  auto session = opened(two(), reachingAcross(), ends);
  ASSERT_TRUE(session);
  run(*session, ends, 10);
}

// The same on GPUs: on two, and on one that stands for both devices.
TEST(SeveralGpus, AValueGoesThereAndBack) {
  for (const int second : {1, 0}) {
    std::vector<std::shared_ptr<Driver>> drivers;
    for (const int ordinal : {0, second}) {
      std::unique_ptr<Driver> driver;
      std::string detail;
      if (openCuda(&driver, ordinal, &detail) != Status::ok) continue;
      drivers.push_back(std::move(driver));
    }
    if (drivers.empty()) GTEST_SKIP() << "no GPU";
    if (drivers.size() < 2) continue;
    for (const bool trace : {false, true}) {
      Ends ends;
      auto session = opened(drivers, roundTrip(3), ends, trace);
      ASSERT_TRUE(session);
      run(*session, ends, 200);
      EXPECT_EQ(session->stats().eventsCreated, 0u);
      const TraceRows rows = session->trace();
      EXPECT_EQ(rows.tick.size(), trace ? 1000u : 0u);
      // Each run waits for the one before it, of which the next device's clock knows to some 20 µs.
      for (std::size_t i = 0; i < rows.tick.size(); ++i) {
        if (i % 5 == 0) continue;
        EXPECT_GE(rows.start[i], rows.end[i - 1] - 0.1) << "run " << i;
      }
    }
    Ends ends;
    SessionOptions options;
    options.onTick = ends.callback();
    MaybeFailure failure;
    auto session = Session::open(drivers, reachingAcross(), std::move(options), &failure);
    // Where the machine has no way, the program is refused, and not the tick.
    EXPECT_TRUE(session || failure->code == "CUDA_ERROR_NOT_SUPPORTED") << failure->detail;
    if (session) run(*session, ends, 20);
  }
}

// On the devices themselves: an event of one orders the work of the other, and goes on doing so when its
// device is gone.
TEST(SeveralDevices, AStreamWaitsForAnotherDevicesEvent) {
  HostOptions options;
  options.jitterSeed = 3;
  auto a = numbered(0, options), b = numbered(1, options);
  Stream on[2];
  Event event = nullptr, none = nullptr;
  ASSERT_EQ(a->streamCreate(&on[0], 0), Status::ok);
  ASSERT_EQ(b->streamCreate(&on[1], 0), Status::ok);
  ASSERT_EQ(a->eventCreate(&event, EventKind::order), Status::ok);
  std::atomic<int> step{0};
  std::atomic<bool> open{false};
  struct Shared {
    std::atomic<int>* step;
    std::atomic<bool>* open;
  } shared{&step, &open};
  const auto first = [](void* data) {
    auto* all = static_cast<Shared*>(data);
    while (!*all->open) std::this_thread::yield();
    *all->step = 1;
  };
  const auto second = [](void* data) {
    auto* all = static_cast<Shared*>(data);
    *all->step = *all->step == 1 ? 2 : -1;
  };
  ASSERT_EQ(a->hostFunction(on[0], first, &shared), Status::ok);
  ASSERT_EQ(a->eventRecord(event, on[0]), Status::ok);
  ASSERT_EQ(b->streamWait(on[1], event), Status::ok);
  ASSERT_EQ(b->hostFunction(on[1], second, &shared), Status::ok);
  EXPECT_EQ(step, 0);
  // Work and wait are queued: the device whose event it is may go.
  open = true;
  a.reset();
  ASSERT_EQ(b->streamSynchronize(on[1]), Status::ok);
  EXPECT_EQ(step, 2);
  EXPECT_EQ(b->streamWait(on[1], event), Status::invalidHandle) << "of a device that is gone";
  EXPECT_EQ(b->streamWait(on[1], none), Status::invalidHandle);
  EXPECT_EQ(b->eventRecord(event, on[1]), Status::invalidHandle)
      << "an event is recorded on its own device only";
}

}  // namespace
}  // namespace braid
