#pragma once

#include <algorithm>
#include <chrono>
#include <thread>

namespace braid {

// How a thread waits for what a device does next. A thread that sleeps is woken 50 to 150 µs late on a
// virtual processor, and the device may stand still until then. So a thread that lately waited for less than
// `most` stays awake for so long; where its waits are longer, what it would win is not worth a processor.
class Patience {
 public:
  using Duration = std::chrono::steady_clock::duration;
  static constexpr Duration most = std::chrono::milliseconds{5};

  // Asks `isOver` again and again, for as long as it is worth it. False: the thread has to sleep, if at all.
  template <class IsOver>
  bool await(const IsOver& isOver) {
    if (lately_ >= most) return false;
    const auto until = std::chrono::steady_clock::now() + most;
    do {
      if (isOver()) return true;
      std::this_thread::yield();
    } while (std::chrono::steady_clock::now() < until);
    return false;
  }

  // Counts a wait, asleep or not. Ticks end in groups, so a short wait may come between long ones: one long
  // wait is forgotten after some short ones only.
  void waited(Duration wait) { lately_ = std::max(std::min(wait, 8 * most), lately_ / 2); }

 private:
  Duration lately_{};
};

}  // namespace braid
