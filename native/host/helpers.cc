#include "host/helpers.h"

#include <pthread.h>

#include <algorithm>
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
    // Where the system has no more threads, `await` computes it.
    if (!isStarted_) isStarted_ = startThread();
  }
  given_.notify_one();
}

// Not a std::thread: what that allocates is referred to from the thread's stack alone, and LeakSanitizer,
// which looks while the thread waits, takes it for lost wherever it cannot read that stack.
bool Helpers::Helper::startThread() {
  pthread_t thread;
  const auto run = [](void* helper) -> void* {
    static_cast<Helper*>(helper)->serve();
    return nullptr;
  };
  if (pthread_create(&thread, nullptr, run, this) != 0) return false;
  pthread_detach(thread);
  return true;
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
  std::unique_lock lock(mutex_);
  for (;;) {
    given_.wait(lock, [this] { return half_ != nullptr; });
    Half* const half = half_;
    half_ = nullptr;
    lock.unlock();
    half->succeeded = half->run(half, scratch_);
    lock.lock();
    half->done = true;
    done_.notify_one();
  }
}

}  // namespace braid::host
