#pragma once

#include <atomic>
#include <cstdint>

namespace braid {

// A lock for critical sections of a few dozen instructions. Its holder calls no driver functions but
// eventRecord, eventQuery and streamWait, and takes no other lock but that of a lane with a higher id.
//
// The lock is biased towards the first thread that takes it. That thread takes and releases it with plain
// loads and stores: it announces that it holds the lock, then checks that the bias is still its own. The
// first time another thread comes, that thread revokes the bias for good. A barrier on every core that runs
// a thread of this process (Linux: membarrier) makes sure that either the biased thread sees the
// revocation, or the revoking thread sees its hold. Without such a barrier no lock is biased.
//
// Kept for its speed: without the bias a turn of allocate, recordUse and free takes 1.6 to 2 times as long
// (braid_allocator_bench --device none cross-lane: 55 to 75 ns instead of 30 to 40).
class BiasedLock {
 public:
  BiasedLock() : biasedTo_(processBarrier(true) ? nullptr : noThread()) {}

  void lock() { heldByBias_ = take(); }
  void unlock() { drop(heldByBias_); }

  // std::lock_guard for the paths that every allocation takes: inlined, since a call would cost more than
  // the lock.
  class Hold {
   public:
    [[gnu::always_inline]] explicit Hold(BiasedLock& lock) : lock_(lock), byBias_(lock.take()) {}
    [[gnu::always_inline]] ~Hold() { lock_.drop(byBias_); }
    Hold(const Hold&) = delete;

   private:
    BiasedLock& lock_;
    const bool byBias_;
  };

  // Does a few instructions' work under the lock if this thread has the bias and does not hold the lock.
  // Returns false, having done nothing, otherwise. It never waits, so it may run under any other lock.
  template <class Work>
  bool ifBiased(Work work) {
    if (biasedTo_.load(std::memory_order_relaxed) != thisThread() || held_.load(std::memory_order_relaxed))
      return false;
    held_.store(true, std::memory_order_relaxed);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    const bool mine = biasedTo_.load(std::memory_order_relaxed) == thisThread();
    if (mine) work();
    held_.store(false, std::memory_order_release);
    return mine;
  }

 private:
  // Returns whether it took the lock by its bias.
  [[gnu::always_inline]] bool take() {
    if (biasedTo_.load(std::memory_order_relaxed) == thisThread()) [[likely]] {
      held_.store(true, std::memory_order_relaxed);
      // The fence keeps the compiler from reordering; the revoking thread's barrier stops the processor.
      std::atomic_signal_fence(std::memory_order_seq_cst);
      if (biasedTo_.load(std::memory_order_relaxed) == thisThread()) [[likely]]
        return true;
      held_.store(false, std::memory_order_release);
    }
    takeShared();
    return false;
  }
  [[gnu::always_inline]] void drop(bool byBias) {
    if (byBias) [[likely]]
      held_.store(false, std::memory_order_release);
    else
      taken_.store(false, std::memory_order_release);
  }
  static void* thisThread() { return __builtin_thread_pointer(); }
  static void* noThread() { return reinterpret_cast<void*>(std::uintptr_t{1}); }
  // A barrier on every core that runs a thread of this process. With `prepare` it only registers the process
  // for such barriers and returns whether the system has them.
  static bool processBarrier(bool prepare);
  [[gnu::noinline]] void takeShared();

  std::atomic<void*> biasedTo_;     // null: towards the next thread; noThread(): none any more
  std::atomic<bool> held_{false};   // by the biased thread
  std::atomic<bool> taken_{false};  // by any other thread
  bool heldByBias_ = false;         // how the holder took the lock, where it used `lock`; the holder's own
};

}  // namespace braid
