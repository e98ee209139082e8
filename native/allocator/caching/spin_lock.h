#pragma once

#include <atomic>
#include <thread>

namespace braid::caching {

// A lock for a few dozen instructions, taken without a system call. Whoever holds it calls no driver function but
// eventRecord, eventQuery and streamWait, and takes no other lock.
class SpinLock {
 public:
  void lock() {
    for (unsigned turn = 0; taken_.exchange(true, std::memory_order_acquire); ++turn) {
      while (taken_.load(std::memory_order_relaxed)) {
        if (++turn % 64 == 0) std::this_thread::yield();
      }
    }
  }
  void unlock() { taken_.store(false, std::memory_order_release); }

 private:
  std::atomic<bool> taken_{false};
};

}  // namespace braid::caching
