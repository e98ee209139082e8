// The biased lock excludes: for the first thread, for later threads, and while the bias is revoked.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "order/biased_lock.h"

namespace braid {
namespace {

struct Guarded {
  BiasedLock lock;
  std::uint64_t first = 0, second = 0;  // equal but while the lock is held
  bool touch() {
    lock.lock();
    const bool whole = change();
    lock.unlock();
    return whole;
  }
  // The same by `ifBiased` where that succeeds.
  bool touchIfBiased() {
    bool whole = true;
    return lock.ifBiased([&] { whole = change(); }) ? whole : touch();
  }

 private:
  bool change() {
    const bool whole = first == second;
    ++first;
    // Room for another to look in between.
    for (int i = 0; i < 4; ++i) std::atomic_signal_fence(std::memory_order_seq_cst);
    second = first;
    return whole;
  }
};

// Locks are biased only on systems with a barrier on all cores, and not under the thread sanitizer.
bool canBeBiased() {
  BiasedLock lock;
  lock.lock();
  lock.unlock();
  return lock.ifBiased([] {});
}

TEST(BiasedLock, ExcludesForOneThread) {
  Guarded guarded;
  for (int i = 0; i < 100000; ++i) ASSERT_TRUE(guarded.touch());
  EXPECT_EQ(guarded.first, 100000u);
}

TEST(BiasedLock, ExcludesForManyThreads) {
  Guarded guarded;
  constexpr std::uint64_t turns = 200000;
  std::atomic<bool> whole{true};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (std::uint64_t i = 0; i < turns; ++i)
        if (!guarded.touch()) whole = false;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(whole);
  EXPECT_EQ(guarded.second, 4 * turns);
}

// Revokes the bias over and over, while the first thread is taking the lock.
TEST(BiasedLock, ExcludesWhenASecondThreadComes) {
  std::uint64_t wrong = 0, total = 0, expected = 0;
  for (int round = 0; round < 3000; ++round) {
    auto guarded = std::make_unique<Guarded>();
    std::atomic<bool> going{false}, stop{false};
    std::atomic<std::uint64_t> torn{0};
    std::uint64_t mine = 0;
    std::thread first([&] {
      while (!stop.load(std::memory_order_relaxed)) {
        if (!(round % 2 ? guarded->touch() : guarded->touchIfBiased())) torn.fetch_add(1);
        ++mine;
        going.store(true, std::memory_order_relaxed);
      }
    });
    while (!going.load()) std::this_thread::yield();
    const int delay = round % 7;
    for (int i = 0; i < delay * 50; ++i) std::atomic_signal_fence(std::memory_order_seq_cst);
    for (int i = 0; i < 3; ++i)
      if (!guarded->touch()) torn.fetch_add(1);
    stop = true;
    first.join();
    wrong += torn.load();
    total += guarded->first;
    expected += mine + 3;
  }
  EXPECT_EQ(wrong, 0u);
  EXPECT_EQ(total, expected);
}

TEST(BiasedLock, IsBiasedTowardsItsFirstThreadAlone) {
  if (!canBeBiased()) GTEST_SKIP() << "no lock is biased here";
  BiasedLock lock;
  bool done = false;
  const auto work = [&] { done = true; };
  EXPECT_FALSE(lock.ifBiased(work)) << "not biased yet";
  lock.lock();
  lock.unlock();
  lock.lock();
  EXPECT_FALSE(lock.ifBiased(work)) << "held already, by this thread";
  lock.unlock();
  EXPECT_FALSE(done);
  std::thread([&] { EXPECT_FALSE(lock.ifBiased(work)) << "another thread"; }).join();
  EXPECT_TRUE(lock.ifBiased(work));
  EXPECT_TRUE(done);
  std::thread([&] {
    lock.lock();
    lock.unlock();
  }).join();
  EXPECT_FALSE(lock.ifBiased(work)) << "no longer alone";
}

TEST(BiasedLock, IsTheNextThreadsWhenTheFirstHasEnded) {
  for (int round = 0; round < 200; ++round) {
    Guarded guarded;
    std::thread([&] {
      for (int i = 0; i < 10; ++i) guarded.touch();
    }).join();
    std::thread([&] {
      for (int i = 0; i < 10; ++i) EXPECT_TRUE(guarded.touch());
    }).join();
    EXPECT_TRUE(guarded.touch());
    EXPECT_EQ(guarded.first, 21u);
  }
}

}  // namespace
}  // namespace braid
