// Threads that each allocate and free on a lane of their own: allocations a second, of all of them together.
#include <atomic>
#include <thread>

#include "tools/bench/bench.h"

#if defined(__linux__)
#include <pthread.h>
#include <sched.h>
#endif

namespace braid::bench {
namespace {

// To one core each, where there are enough: the scheduler's choices are no part of what is measured.
void pin(std::thread& thread, unsigned core) {
#if defined(__linux__)
  if (core >= std::thread::hardware_concurrency()) return;
  cpu_set_t cores;
  CPU_ZERO(&cores);
  CPU_SET(core, &cores);
  pthread_setaffinity_np(thread.native_handle(), sizeof cores, &cores);
#else
  (void)thread, (void)core;
#endif
}

constexpr std::uint32_t live = 32;

// Runs `body(thread, turns)` on `count` threads at once, each so many cores `apart` from the next. Returns
// millions of turns a second of all threads together, for several periods in which all ran. The threads stay
// the same, as in a program: a lane's lock is biased towards the first thread that takes it.
template <class Body>
Spread together(const Run& run, unsigned count, unsigned apart, std::uint64_t turns, Body body) {
  const auto lasting = std::chrono::duration<double, std::milli>(2 * run.repeatMs);
  struct alignas(128) Counted {
    std::atomic<std::uint64_t> turns{0};
  };
  std::vector<Counted> done(count);
  std::atomic<unsigned> ready{0};
  std::atomic<bool> stop{false};
  std::vector<std::thread> all;
  for (unsigned i = 0; i < count; ++i) {
    all.emplace_back([&, i] {
      run.driver.bind();
      body(i, turns);
      ready.fetch_add(1);
      while (!stop.load(std::memory_order_relaxed)) {
        body(i, turns);
        done[i].turns.store(done[i].turns.load(std::memory_order_relaxed) + turns, std::memory_order_relaxed);
      }
    });
    pin(all.back(), i * apart);
  }
  const auto sum = [&] {
    std::uint64_t all = 0;
    for (const Counted& each : done) all += each.turns.load(std::memory_order_relaxed);
    return static_cast<double>(all);
  };
  while (ready.load() < count) std::this_thread::yield();
  std::vector<double> rates;
  for (int repeat = 0; repeat < run.repeats; ++repeat) {
    const double before = sum();
    const auto began = Clock::now();
    std::this_thread::sleep_for(lasting);
    const double after = sum();
    rates.push_back((after - before) * 1e3 / nanoseconds(Clock::now() - began));
  }
  stop.store(true, std::memory_order_relaxed);
  for (std::thread& thread : all) thread.join();
  return spread(rates);
}

}  // namespace

void threads(const Run& run) {
  const auto sweep = [&](const std::string& what, std::uint64_t turns, auto makeBody) {
    double alone = 0;
    for (const unsigned count : {1u, 2u, 4u, 8u}) {
      // A virtual machine does not report which of its cores share a physical core: adjacent ones, or none.
      Spread rate;
      unsigned apart = 1;
      for (const unsigned tried : {1u, 2u}) {
        if (tried > 1 && (count == 1 || count * tried > std::thread::hardware_concurrency())) continue;
        Bed bed(run);
        std::vector<Lane*> lanes;
        for (unsigned i = 0; i < count; ++i) lanes.push_back(&bed.lane());
        const Spread found = together(run, count, tried, turns, makeBody(bed, lanes));
        if (found.median > rate.median) rate = found, apart = tried;
      }
      if (count == 1) alone = rate.median;
      Line("threads", what + ", " + std::to_string(count) + (count == 1 ? " thread" : " threads"))
          .add(rate, "million/s")
          .add("threads", count)
          .add("apart", apart)
          .add("overOne", rate.median / alone);
    }
  };
  // What the machine itself does with more threads: their cores slow each other down, and are not this
  // program's alone.
  sweep("arithmetic alone", 1000, [](Bed&, std::vector<Lane*>&) {
    return [](unsigned thread, std::uint64_t turns) {
      Random random{thread + 1};
      std::uint64_t sum = 0;
      for (turns *= 16; turns > 0; --turns) sum ^= random.next();
      asm volatile("" : : "r"(sum));
    };
  });
  sweep("1 MiB", 1000, [](Bed& bed, std::vector<Lane*>& lanes) {
    return [&](unsigned thread, std::uint64_t turns) {
      for (; turns > 0; --turns) bed.free(bed.malloc(1 << 20, *lanes[thread]));
    };
  });
  // Sixteen sizes, as a program with layers has them.
  sweep("16 sizes, 32 live", 20'000, [](Bed& bed, std::vector<Lane*>& lanes) {
    return [&](unsigned thread, std::uint64_t turns) {
      Random random{thread + 1};
      caching::Block* held[live] = {};
      for (; turns > 0; --turns) {
        const std::uint64_t drawn = random.next();
        caching::Block*& place = held[drawn % live];
        if (place != nullptr) bed.free(place);
        place = bed.malloc(4096 * ((drawn >> 32) % 16 + 1), *lanes[thread]);
      }
      for (caching::Block* block : held)
        if (block != nullptr) bed.free(block);
    };
  });
}

}  // namespace braid::bench
