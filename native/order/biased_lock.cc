#include "order/biased_lock.h"

#include <cstdlib>
#include <thread>

#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace braid {

bool BiasedLock::processBarrier(bool prepare) {
#if defined(__SANITIZE_THREAD__) || !defined(__linux__) || !defined(SYS_membarrier)
  // The thread sanitizer does not model such barriers.
  (void)prepare;
  return false;
#else
  constexpr int privateExpedited = 1 << 3, registerPrivateExpedited = 1 << 4;
  if (prepare) {
    static const bool ready = syscall(SYS_membarrier, registerPrivateExpedited, 0, 0) == 0;
    return ready;
  }
  if (syscall(SYS_membarrier, privateExpedited, 0, 0) == 0) return true;
  // A forked process has not registered yet.
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
  void* const biased = biasedTo_.load(std::memory_order_relaxed);
  if (biased == noThread()) return;
  if (biased == nullptr) {
    // The first thread has the bias from its next time on.
    biasedTo_.store(thisThread(), std::memory_order_relaxed);
    return;
  }
  biasedTo_.store(noThread(), std::memory_order_relaxed);
  processBarrier(false);
  for (unsigned turn = 1; held_.load(std::memory_order_acquire); ++turn)
    if (turn % 64 == 0) std::this_thread::yield();
}

}  // namespace braid
