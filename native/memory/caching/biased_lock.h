#pragma once

#include <atomic>
#include <cstdint>

namespace braid::caching {

// A lock for a few dozen instructions. Whoever holds it calls no driver function but eventRecord, eventQuery
// and streamWait, and takes no other lock but that of a lane of a higher number.
//
// It leans towards the first thread that takes it, which then takes it again without an atomic
// read-modify-write: it says that it holds the lock, and looks whether the lock still leans its way. The
// first time that another thread comes, that one takes the leaning away, for good; a barrier on every core
// that runs a thread of this process (membarrier, Linux) makes sure that either the first thread sees so, or
// its hold is seen. Where there is no such barrier, the lock leans towards nobody.
class BiasedLock {
 public:
  BiasedLock() : favourite_(barrierEverywhere(true) ? nullptr : nobody()) {}

  void lock() { leaning_ = take(); }
  void unlock() { giveBack(leaning_); }

  // A std::lock_guard for what every allocation comes by: a call would be longer than what it calls.
  class Hold {
   public:
    [[gnu::always_inline]] explicit Hold(BiasedLock& lock) : lock_(lock), leaning_(lock.take()) {}
    [[gnu::always_inline]] ~Hold() { lock_.giveBack(leaning_); }
    Hold(const Hold&) = delete;

   private:
    BiasedLock& lock_;
    const bool leaning_;
  };

  // Does a few instructions' work that the lock guards, where this thread may without an atomic
  // read-modify-write and does not hold the lock already; false: not done. Takes no turn in the order of
  // locks, since it never waits.
  template <class Work>
  bool ifLeaning(Work work) {
    if (favourite_.load(std::memory_order_relaxed) != self() || held_.load(std::memory_order_relaxed))
      return false;
    held_.store(true, std::memory_order_relaxed);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    const bool mine = favourite_.load(std::memory_order_relaxed) == self();
    if (mine) work();
    held_.store(false, std::memory_order_release);
    return mine;
  }

 private:
  // Returns whether by its leaning.
  [[gnu::always_inline]] bool take() {
    if (favourite_.load(std::memory_order_relaxed) == self()) [[likely]] {
      held_.store(true, std::memory_order_relaxed);
      // The compiler keeps the order of the two; the other thread's barrier makes the processor keep it.
      std::atomic_signal_fence(std::memory_order_seq_cst);
      if (favourite_.load(std::memory_order_relaxed) == self()) [[likely]]
        return true;
      held_.store(false, std::memory_order_release);
    }
    takeShared();
    return false;
  }
  [[gnu::always_inline]] void giveBack(bool leaning) {
    if (leaning) [[likely]]
      held_.store(false, std::memory_order_release);
    else
      taken_.store(false, std::memory_order_release);
  }
  static void* self() { return __builtin_thread_pointer(); }
  static void* nobody() { return reinterpret_cast<void*>(std::uintptr_t{1}); }
  // With `ask`, whether there is one, got ready for this process.
  static bool barrierEverywhere(bool ask);
  [[gnu::noinline]] void takeShared();

  std::atomic<void*> favourite_;
  std::atomic<bool> held_{false};   // by the favourite, as that says
  std::atomic<bool> taken_{false};  // by whoever is not the favourite, or was not when it came
  bool leaning_ = false;            // how a holder that is no `Hold` came by it: its own
};

}  // namespace braid::caching
