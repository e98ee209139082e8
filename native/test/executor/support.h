#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "executor/session.h"

// Shared by the tests of the executor: a small program, and a wait for the ends of its ticks.
namespace braid::test {

constexpr std::size_t count = 64, bytes = count * 4;

inline std::shared_ptr<Driver> hostDriver(HostOptions options = {}) {
  std::unique_ptr<Driver> driver;
  std::string detail;
  EXPECT_EQ(openHost(&driver, options, &detail), Status::ok) << detail;
  return driver;
}

inline BufferSpec buffer(const char* name, Space space, Life life, std::uint32_t home, std::uint32_t root) {
  return {name, bytes, space, home, life, root, 0, -1};
}

// x (pinned) → up on lane 0 → dx; add on lane 1: dy = dx + w; down on lane 0 → y. Buffers: 0 x, 1 dx, 2 dy, 3
// y, 4 w.
inline ProgramSpec pipeline(std::uint32_t inFlight = 2) {
  ProgramSpec spec;
  spec.name = "pipeline";
  spec.inFlight = inFlight;
  spec.lanes = {{"copy", 0}, {"math", 0}};
  spec.buffers = {
      buffer("x", Space::pinned, Life::input, 0, 0), buffer("dx", Space::device, Life::tick, 0, 1),
      buffer("dy", Space::device, Life::tick, 1, 2), buffer("y", Space::pinned, Life::output, 0, 3),
      buffer("w", Space::device, Life::param, 0, 4)};
  KernelSpec copy;
  copy.bytes = bytes;
  KernelSpec add;
  add.kind = KernelSpec::Kind::map;
  add.shape = {static_cast<std::int64_t>(count)};
  add.operands = {{DType::f32, 0, {1}}, {DType::f32, 0, {1}}};
  add.code = {{MapOp::operand, 0, 0, 0, 0}, {MapOp::operand, 1, 0, 0, 0}, {MapOp::add, 0, 1, 0, 0}};
  add.results = {{2, DType::f32}};
  spec.kernels = {copy, add};
  spec.nodes = {{"up", 0}, {"add", 1}, {"down", 0}};
  spec.events = 3;
  spec.devices[0].boundBytes = 4 * 512;
  spec.boundPinned = 2 * inFlight * 512;
  spec.commands = {0, 1, 0, 2, 0, 0, 1, 1, 0, 1, 3, 0, 0, 4, 0, 1, 0, 0, 2, 1, 2, 1, 1, 2, 1, 1, 4, 2, 3,
                   1, 1, 5, 1, 1, 1, 1, 1, 4, 1, 0, 0, 2, 2, 0, 1, 1, 2, 3, 3, 2, 0, 5, 2, 0, 2, 1, 2};
  return spec;
}
constexpr std::size_t runsPerTick = 3;

struct Ends {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::uint64_t> ticks;
  std::vector<MaybeFailure> failures;

  std::function<void(std::uint64_t, const Failure*)> callback() {
    return [this](std::uint64_t tick, const Failure* failure) {
      std::lock_guard lock(mutex);
      ticks.push_back(tick);
      failures.push_back(failure ? MaybeFailure(*failure) : std::nullopt);
      changed.notify_all();
    };
  }
  void await(std::size_t ended) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return ticks.size() >= ended; });
  }
  std::size_t size() {
    std::lock_guard lock(mutex);
    return ticks.size();
  }
  // While more ticks may end.
  MaybeFailure failure(std::size_t ended) {
    std::lock_guard lock(mutex);
    return failures[ended];
  }
  std::size_t failed() {
    std::lock_guard lock(mutex);
    std::size_t found = 0;
    for (const MaybeFailure& failure : failures) found += failure ? 1 : 0;
    return found;
  }
};

// Lets through as many as it was given permits for.
class Gate {
 public:
  void pass() {
    std::unique_lock lock(mutex_);
    ++arrived_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return permits_ > 0; });
    --permits_;
  }
  void give(std::uint64_t permits) {
    std::lock_guard lock(mutex_);
    permits_ += permits;
    changed_.notify_all();
  }
  void awaitArrival(std::uint64_t arrivals) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return arrived_ >= arrivals; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t arrived_ = 0, permits_ = 0;
};

inline std::unique_ptr<Session> opened(std::vector<std::shared_ptr<Driver>> drivers, ProgramSpec spec,
                                       Ends& ends, bool trace = false, bool poison = true) {
  SessionOptions options;
  options.onTick = ends.callback();
  options.poison = poison;
  options.trace = trace;
  MaybeFailure failure;
  auto session = Session::open(std::move(drivers), std::move(spec), std::move(options), &failure);
  EXPECT_TRUE(session) << (failure ? failure->op + ": " + failure->detail : "");
  return session;
}
inline std::unique_ptr<Session> opened(std::shared_ptr<Driver> driver, ProgramSpec spec, Ends& ends,
                                       bool trace = false) {
  return opened(std::vector<std::shared_ptr<Driver>>{std::move(driver)}, std::move(spec), ends, trace);
}

// With w = 10: checks every answer but the last two ticks'.
inline void runTicks(Session& session, Ends& ends, std::uint64_t ticks) {
  for (std::uint64_t tick = 0; tick < ticks; ++tick) {
    const auto slot = static_cast<std::uint32_t>(tick % 2);
    if (tick >= 2) {
      ends.await(tick - 1);
      const float* y = static_cast<const float*>(session.pinned(3, slot));
      ASSERT_EQ(y[7], static_cast<float>(tick - 2) + 10);
    }
    std::fill_n(static_cast<float*>(session.pinned(0, slot)), count, static_cast<float>(tick));
    ASSERT_TRUE(session.submit(tick));
  }
  ends.await(ticks);
}

}  // namespace braid::test
