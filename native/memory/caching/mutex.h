#pragma once

#include <atomic>
#include <cstdint>

namespace braid::caching {

// A mutex that is mostly held for less time than a system call takes: a thread that finds it taken spins for
// a while before it sleeps. Two atomic operations where there is no contention.
class Mutex {
 public:
  bool try_lock() {
    std::uint32_t found = open;
    return state_.compare_exchange_strong(found, taken, std::memory_order_acquire, std::memory_order_relaxed);
  }
  void lock() {
    for (int turn = 0; turn < 256; ++turn) {
      if (state_.load(std::memory_order_relaxed) == open && try_lock()) return;
      pause();
    }
    while (state_.exchange(wanted, std::memory_order_acquire) != open)
      state_.wait(wanted, std::memory_order_relaxed);
  }
  void unlock() {
    if (state_.exchange(open, std::memory_order_release) == wanted) state_.notify_one();
  }

 private:
  static constexpr std::uint32_t open = 0, taken = 1, wanted = 2;  // wanted: a thread may sleep
  static void pause() {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
  }

  std::atomic<std::uint32_t> state_{open};
};

}  // namespace braid::caching
