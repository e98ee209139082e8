#pragma once

#include <atomic>

namespace braid {

// A value that one thread at a time writes, under a lock, and that other threads read without the lock.
template <class T>
class Published {
 public:
  Published(T value) : value_(value) {}
  operator T() const { return value_.load(std::memory_order_acquire); }
  Published& operator=(T value) {
    value_.store(value, std::memory_order_release);
    return *this;
  }

 private:
  std::atomic<T> value_;
};

}  // namespace braid
