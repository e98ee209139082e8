#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <mutex>

#include "kernels/cpu.h"

namespace braid::host {

// Threads that compute the second half of large kernels beside the streams' own threads, one for each core
// beyond the first, for all host devices of the process. A kernel that finds all of them busy is computed as
// a whole.
class Helpers {
 public:
  // One half of a kernel: `run` is called with it on a helper's thread, with scratch memory of that thread.
  struct Half {
    bool (*run)(Half* half, Scratch& scratch) = nullptr;
    bool succeeded = false, done = false;
  };

  static Helpers& instance();

  // Runs both halves beside each other, `other` on a helper; false, and nothing was run, where none is free.
  template <class Own>
  bool beside(Half* other, Own own) {
    Helper* helper = claim();
    if (!helper) return false;
    helper->start(other);
    own();
    helper->await(other);
    return true;
  }

 private:
  class Helper {
   public:
    bool claim() { return !busy_.exchange(true, std::memory_order_acquire); }
    void start(Half* half);
    // Until the half is done; the helper is free then.
    void await(Half* half);
    void serve();

   private:
    bool startThread();

    std::atomic<bool> busy_{false};
    std::mutex mutex_;
    std::condition_variable given_, done_;
    Half* half_ = nullptr;
    bool isStarted_ = false;
    Scratch scratch_;  // of the thread
  };

  Helpers();
  Helper* claim();

  static constexpr std::size_t kMost = 8;
  std::array<Helper, kMost> helpers_;
  std::size_t count_ = 0;
};

}  // namespace braid::host
