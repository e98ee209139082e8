#include "memory/caching/biased_lock.h"

#include <cstdlib>
#include <thread>

#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace braid::caching {

bool BiasedLock::barrierEverywhere(bool ask) {
#if defined(__SANITIZE_THREAD__) || !defined(__linux__) || !defined(SYS_membarrier)
  // The thread sanitizer knows nothing of such barriers.
  (void)ask;
  return false;
#else
  constexpr int privateExpedited = 1 << 3, registerPrivateExpedited = 1 << 4;
  if (ask) {
    static const bool ready = syscall(SYS_membarrier, registerPrivateExpedited, 0, 0) == 0;
    return ready;
  }
  if (syscall(SYS_membarrier, privateExpedited, 0, 0) == 0) return true;
  // A process made by fork has not asked yet.
  if (syscall(SYS_membarrier, registerPrivateExpedited, 0, 0) == 0 &&
      syscall(SYS_membarrier, privateExpedited, 0, 0) == 0)
    return true;
  std::abort();  // without it the lock would not exclude
#endif
}

void BiasedLock::takeShared() {
  for (unsigned turn = 0; taken_.exchange(true, std::memory_order_acquire); ++turn) {
    while (taken_.load(std::memory_order_relaxed))
      if (++turn % 64 == 0) std::this_thread::yield();
  }
  void* const favourite = favourite_.load(std::memory_order_relaxed);
  if (favourite == nobody()) return;
  if (favourite == nullptr) {
    // The first one: from its next time on.
    favourite_.store(self(), std::memory_order_relaxed);
    return;
  }
  favourite_.store(nobody(), std::memory_order_relaxed);
  barrierEverywhere(false);
  for (unsigned turn = 1; held_.load(std::memory_order_acquire); ++turn)
    if (turn % 64 == 0) std::this_thread::yield();
}

}  // namespace braid::caching
