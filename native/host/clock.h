#pragma once

#include <chrono>
#include <mutex>

namespace braid::host {

using Clock = std::chrono::steady_clock;
using Time = Clock::time_point;
using Duration = Clock::duration;

// A part of the device that does one piece of work at a time at a given rate, and that all streams share: the
// copy engine of one direction, that of copies between devices, or compute. Its time is virtual: a piece
// begins when it was ready and the engine free, not when a thread happened to wake, so that what a sleep
// overshoots is not paid again by the next piece, and rates are exact over many pieces.
class Engine {
 public:
  // When a piece that is ready at `ready` and takes `duration` is done.
  Time reserve(Time ready, Duration duration) {
    std::lock_guard lock(mutex_);
    busyUntil_ = (ready > busyUntil_ ? ready : busyUntil_) + duration;
    return busyUntil_;
  }

 private:
  std::mutex mutex_;
  Time busyUntil_{};
};

enum class EngineKind : unsigned char { none, upload, download, compute, peer };

// What a piece of work costs on a slowed device.
struct Cost {
  EngineKind engine = EngineKind::none;
  Duration duration{};
};

}  // namespace braid::host
