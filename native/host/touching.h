#pragma once

#include <atomic>
#include <mutex>

namespace braid::host {

// Work that touches memory, on every device of the process, since devices reach each other's memory. Memory
// is unmapped only when no work that may have checked its range before is still touching it: otherwise a
// program that frees what a copy reads would crash instead of making its device fail.
class Touching {
 public:
  static Touching& all() {
    static Touching touching;
    return touching;
  }

  // Work holds one from before it checks its ranges until it has touched them.
  class Scope {
   public:
    explicit Scope(Touching& touching) : count_(touching.begin()) {}
    ~Scope() {
      if (count_.fetch_sub(1) == 1) count_.notify_all();
    }
    Scope(const Scope&) = delete;

   private:
    std::atomic<int>& count_;
  };

  // Waits for the work that began before this call. Work that begins later sees which ranges are gone.
  void settle() {
    std::lock_guard lock(mutex_);
    std::atomic<int>& before = counts_[turn_.fetch_xor(1)];
    for (int count = before.load(); count != 0; count = before.load()) before.wait(count);
  }

 private:
  std::atomic<int>& begin() {
    for (;;) {
      const unsigned turn = turn_.load();
      counts_[turn].fetch_add(1);
      if (turn_.load() == turn) return counts_[turn];
      if (counts_[turn].fetch_sub(1) == 1) counts_[turn].notify_all();
    }
  }

  std::mutex mutex_;  // of settle
  std::atomic<unsigned> turn_{0};
  std::atomic<int> counts_[2] = {0, 0};
};

}  // namespace braid::host
