#include "host/helpers.h"

#include <algorithm>
#include <system_error>
#include <thread>

namespace braid::host {

// Hazard: lifetime. The threads outlast every device, and are not waited for when the process ends, so what
// they wait on is never destroyed.
Helpers& Helpers::instance() {
  static auto* const helpers = new Helpers;
  return *helpers;
}

Helpers::Helpers() {
  const std::size_t cores = std::thread::hardware_concurrency();
  count_ = std::min(kMost, cores > 1 ? cores - 1 : 0);
}

Helpers::Helper* Helpers::claim() {
  for (std::size_t i = 0; i < count_; ++i)
    if (helpers_[i].claim()) return &helpers_[i];
  return nullptr;
}

void Helpers::Helper::start(Half* half) {
  {
    std::lock_guard lock(mutex_);
    half_ = half;
    if (!isStarted_) {
      try {
        std::thread([this] { serve(); }).detach();
        isStarted_ = true;
      } catch (const std::system_error&) {
        // The system has no more threads: `await` computes it.
      }
    }
  }
  given_.notify_one();
}

void Helpers::Helper::await(Half* half) {
  std::unique_lock lock(mutex_);
  if (!isStarted_) {
    half_ = nullptr;
    lock.unlock();
    Scratch scratch;
    half->succeeded = half->run(half, scratch);
  } else {
    done_.wait(lock, [half] { return half->done; });
    lock.unlock();
  }
  busy_.store(false, std::memory_order_release);
}

void Helpers::Helper::serve() {
  Scratch scratch;
  std::unique_lock lock(mutex_);
  for (;;) {
    given_.wait(lock, [this] { return half_ != nullptr; });
    Half* const half = half_;
    half_ = nullptr;
    lock.unlock();
    half->succeeded = half->run(half, scratch);
    lock.lock();
    half->done = true;
    done_.notify_one();
  }
}

}  // namespace braid::host
