#pragma once

#include <algorithm>
#include <chrono>
#include <thread>

namespace braid {

// How a thread waits for the end of a tick, or for the next tick to issue. A thread that sleeps is woken 50
// to 150 µs late on a virtual processor, and the device may stand still until then. So a thread whose recent
// waits were shorter than `most` stays awake for that long. Longer waits are not worth a processor.
class Patience {
 public:
  using Duration = std::chrono::steady_clock::duration;
  static constexpr Duration most = std::chrono::milliseconds{5};

  // Polls `isOver`, for `longest` at most. False: it is not over yet, and the thread should sleep.
  template <class IsOver>
  bool await(const IsOver& isOver, Duration longest = most) {
    if (lately_ >= most) return false;
    const auto until = std::chrono::steady_clock::now() + longest;
    do {
      if (isOver()) return true;
      std::this_thread::yield();
    } while (std::chrono::steady_clock::now() < until);
    return false;
  }

  // Records the length of a wait, asleep or not. Ticks end in groups, so short waits come between long ones:
  // a long wait counts until several short ones have followed it.
  void waited(Duration wait) { lately_ = std::max(std::min(wait, 8 * most), lately_ / 2); }

 private:
  Duration lately_{};
};

}  // namespace braid
