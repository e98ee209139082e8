#pragma once

#include <chrono>
#include <mutex>

namespace braid::host {

using Clock = std::chrono::steady_clock;
using Time = Clock::time_point;
using Duration = Clock::duration;

// A part of the device that all streams share and that does one piece of work at a time, at a given rate: the
// copy engine of one direction, that of copies between devices, or compute. Its time is virtual: a piece
// begins when it is ready and the engine is free, not when a thread wakes. So a sleep that takes too long
// does not delay later pieces, and rates are exact over many pieces.
class Engine {
 public:
  // The time at which a piece that is ready at `ready` and takes `duration` is done.
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

// The time that a piece of work takes on a slowed device.
struct Cost {
  EngineKind engine = EngineKind::none;
  Duration duration{};
};

}  // namespace braid::host
