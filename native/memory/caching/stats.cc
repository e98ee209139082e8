#include "memory/caching/stats.h"

#include <algorithm>
#include <mutex>
#include <vector>

namespace braid::caching {
namespace {

// Numbers for threads; those of ended threads are given out again first. Never destroyed, since threads may
// end after static destructors have run.
struct Numbers {
  std::mutex mutex;
  std::vector<std::uint32_t> spare;
  std::uint32_t next = 0;
};

Numbers& numbers() {
  static auto* all = new Numbers;
  return *all;
}

struct ThreadNumber {
  std::uint32_t value;
  ThreadNumber() {
    Numbers& all = numbers();
    std::lock_guard lock(all.mutex);
    if (all.spare.empty()) {
      value = all.next++;
    } else {
      value = all.spare.back();
      all.spare.pop_back();
    }
  }
  ~ThreadNumber() {
    std::lock_guard lock(numbers().mutex);
    numbers().spare.push_back(value);
  }
};

// The index of the calling thread's counters, from 1; `shared`: it has none of its own; `unknown`: not
// assigned yet. Read without a guard, and still valid while the thread ends.
constexpr std::uint32_t unknown = ~std::uint32_t{0}, shared = unknown - 1;
constinit thread_local std::uint32_t mine = unknown;

[[gnu::noinline, gnu::cold]] void assignIndex() {
  thread_local ThreadNumber my;
  mine = my.value < StatsCounters::threads ? my.value + 1 : shared;
}

template <class T>
T get(const std::atomic<T>& from) {
  return from.load(std::memory_order_relaxed);
}

// How a counter is written: by the only thread that writes it, or by any thread.
struct Alone {
  template <class T>
  static T add(std::atomic<T>& to, T by) {
    const T sum = get(to) + by;
    to.store(sum, std::memory_order_relaxed);
    return sum;
  }
};
struct Shared {
  template <class T>
  static T add(std::atomic<T>& to, T by) {
    return to.fetch_add(by, std::memory_order_relaxed) + by;
  }
};

// Of all sizes (0), small ones (1) or large ones (2), less what other threads have freed.
std::int64_t presentOf(const ThreadCounters& counters, int which, int kind) {
  std::int64_t sum = 0;
  for (int size = 0; size < 2; ++size)
    if (which == 0 || which == 1 + size)
      sum += get(counters.sizes[size].level[kind]) - get(counters.freedByOthers[size][kind]);
  return sum;
}

std::uint64_t allocatedEver(const ThreadCounters::Sizes& sizes, int kind) {
  if (kind == ThreadCounters::requested) return get(sizes.allocatedRequested);
  if (kind == ThreadCounters::bytes || kind == ThreadCounters::activeBytes) return get(sizes.allocatedBytes);
  std::uint64_t blocks = 0;
  for (const auto& served : sizes.served) blocks += get(served);
  return blocks;
}

template <class Atomics>
auto& peakOf(Atomics& counters, int which, int kind) {
  return which == 0 ? counters.peakOfAll[kind] : counters.sizes[which - 1].peak[kind];
}

// Raises the peaks, after subtracting what other threads have freed.
template <class How>
[[gnu::noinline, gnu::cold]] void raise(ThreadCounters& counters) {
  for (int size = 0; size < 2; ++size)
    for (int kind = 0; kind < ThreadCounters::kinds; ++kind) {
      const std::int64_t freedByOthers =
          counters.freedByOthers[size][kind].exchange(0, std::memory_order_relaxed);
      How::add(counters.sizes[size].level[kind], -freedByOthers);
    }
  for (int kind = 0; kind < ThreadCounters::kinds; ++kind) {
    const std::int64_t small = get(counters.sizes[0].level[kind]), large = get(counters.sizes[1].level[kind]);
    const std::int64_t levels[3] = {small + large, small, large};
    for (int which = 0; which < 3; ++which)
      if (levels[which] > get(peakOf(counters, which, kind)))
        peakOf(counters, which, kind).store(levels[which], std::memory_order_relaxed);
  }
}

// Written out, since every allocation runs it.
template <class How>
[[gnu::always_inline]] inline void count(ThreadCounters& counters, int size, std::int64_t bytes,
                                         std::int64_t requested, std::uint8_t fallback) {
  ThreadCounters::Sizes& sizes = counters.sizes[size];
  const ThreadCounters::Sizes& others = counters.sizes[1 - size];
  How::add(sizes.served[fallback], std::uint64_t{1});
  How::add(sizes.allocatedBytes, static_cast<std::uint64_t>(bytes));
  How::add(sizes.allocatedRequested, static_cast<std::uint64_t>(requested));
  const auto add = [&](int kind, std::int64_t by) { return How::add(sizes.level[kind], by); };
  const auto risen = [&](int kind, std::int64_t level) {
    return level > get(sizes.peak[kind]) || level + get(others.level[kind]) > get(counters.peakOfAll[kind]);
  };
  const std::int64_t blocks = add(ThreadCounters::blocks, 1), owned = add(ThreadCounters::bytes, bytes);
  const std::int64_t requestedBytes = add(ThreadCounters::requested, requested);
  const std::int64_t active = add(ThreadCounters::active, 1);
  const std::int64_t activeBytes = add(ThreadCounters::activeBytes, bytes);
  const bool over = risen(ThreadCounters::active, active) ||
                    risen(ThreadCounters::activeBytes, activeBytes) ||
                    risen(ThreadCounters::blocks, blocks) || risen(ThreadCounters::bytes, owned) ||
                    risen(ThreadCounters::requested, requestedBytes);
  if (over) [[unlikely]]
    raise<How>(counters);
}

// By another thread than the one whose counters it is.
[[gnu::noinline]] void freeOnOtherThread(ThreadCounters& counters, int size, std::int64_t bytes,
                                         std::int64_t requested, bool pending) {
  auto& freed = counters.freedByOthers[size];
  Shared::add(freed[ThreadCounters::blocks], std::int64_t{1});
  Shared::add(freed[ThreadCounters::bytes], bytes);
  Shared::add(freed[ThreadCounters::requested], requested);
  if (pending) return;
  Shared::add(freed[ThreadCounters::active], std::int64_t{1});
  Shared::add(freed[ThreadCounters::activeBytes], bytes);
}

}  // namespace

StatsCounters::StatsCounters() {
  for (auto& counters : threads_) counters.store(nullptr, std::memory_order_relaxed);
}

StatsCounters::~StatsCounters() {
  for (auto& counters : threads_) delete counters.load();
}

ThreadCounters& StatsCounters::make(std::size_t index) {
  auto fresh = std::make_unique<ThreadCounters>();
  ThreadCounters* counters = nullptr;
  if (threads_[index].compare_exchange_strong(counters, fresh.get())) {
    counters = fresh.release();
    made_.fetch_add(1, std::memory_order_relaxed);
  }
  return *counters;
}

[[gnu::always_inline]] inline ThreadCounters& StatsCounters::at(std::size_t index) {
  ThreadCounters* const known = threads_[index].load(std::memory_order_acquire);
  return known != nullptr ? *known : make(index);
}

std::uint8_t StatsCounters::allocated(int size, std::uint64_t bytes, std::uint64_t requested,
                                      std::uint8_t fallback) {
  if (mine == unknown) [[unlikely]]
    assignIndex();
  const std::uint32_t index = mine;
  const auto signedBytes = static_cast<std::int64_t>(bytes),
             signedRequested = static_cast<std::int64_t>(requested);
  if (index == shared) [[unlikely]] {
    count<Shared>(at(0), size, signedBytes, signedRequested, fallback);
    return 0;
  }
  count<Alone>(at(index), size, signedBytes, signedRequested, fallback);
  return static_cast<std::uint8_t>(index);
}

void StatsCounters::freed(std::uint8_t index, int size, std::uint64_t bytes, std::uint64_t requested,
                          bool pending) {
  ThreadCounters& counters = *threads_[index].load(std::memory_order_acquire);
  const auto signedBytes = static_cast<std::int64_t>(bytes),
             signedRequested = static_cast<std::int64_t>(requested);
  if (index == mine) [[likely]] {
    auto& level = counters.sizes[size].level;
    Alone::add(level[ThreadCounters::blocks], std::int64_t{-1});
    Alone::add(level[ThreadCounters::bytes], -signedBytes);
    Alone::add(level[ThreadCounters::requested], -signedRequested);
    if (pending) return;
    Alone::add(level[ThreadCounters::active], std::int64_t{-1});
    Alone::add(level[ThreadCounters::activeBytes], -signedBytes);
  } else {
    freeOnOtherThread(counters, size, signedBytes, signedRequested, pending);
  }
}

void StatsCounters::finished(std::uint8_t index, int size, std::uint64_t bytes) {
  ThreadCounters& counters = *threads_[index].load(std::memory_order_acquire);
  const auto signedBytes = static_cast<std::int64_t>(bytes);
  if (index == mine) {
    Alone::add(counters.sizes[size].level[ThreadCounters::active], std::int64_t{-1});
    Alone::add(counters.sizes[size].level[ThreadCounters::activeBytes], -signedBytes);
  } else {
    Shared::add(counters.freedByOthers[size][ThreadCounters::active], std::int64_t{1});
    Shared::add(counters.freedByOthers[size][ThreadCounters::activeBytes], signedBytes);
  }
}

void StatsCounters::add(Figure& figure, std::int64_t by) {
  figure.current += by;
  (by > 0 ? figure.allocated : figure.freed) += static_cast<std::uint64_t>(by > 0 ? by : -by);
  figure.peak = std::max(figure.peak, figure.current);
}

void StatsCounters::split(const std::array<std::int64_t, 3>& pieces,
                          const std::array<std::int64_t, 3>& bytes) {
  for (std::size_t which = 0; which < 3; ++which) {
    add(held[which].split, pieces[which] - held[which].split.current);
    add(held[which].splitBytes, bytes[which] - held[which].splitBytes.current);
  }
}

void StatsCounters::oversize(std::int64_t by) {
  if (by > 0) oversizeAllocated_.fetch_add(1, std::memory_order_relaxed);
  const std::int64_t now = oversize_.fetch_add(by, std::memory_order_relaxed) + by;
  std::int64_t peak = oversizePeak_.load(std::memory_order_relaxed);
  while (now > peak && !oversizePeak_.compare_exchange_weak(peak, now, std::memory_order_relaxed)) {
  }
}

void StatsCounters::sample(Stats* stats) {
  constexpr Figure SizeStats::*figures[ThreadCounters::kinds] = {
      &SizeStats::allocation, &SizeStats::allocatedBytes, &SizeStats::requestedBytes, &SizeStats::active,
      &SizeStats::activeBytes};
  SizeStats* const out[3] = {&stats->all, &stats->small, &stats->large};
  SizeStats* const peaks[3] = {&peaks_.all, &peaks_.small, &peaks_.large};
  SizeStats* const bases[3] = {&base_.all, &base_.small, &base_.large};
  stats->served = served;
  for (const auto& slot : threads_) {
    const ThreadCounters* counters = slot.load(std::memory_order_acquire);
    if (counters == nullptr) continue;
    for (const ThreadCounters::Sizes& sizes : counters->sizes)
      for (int fallback = 0; fallback < slow; ++fallback)
        stats->served[fallback] += get(sizes.served[fallback]);
    for (int which = 0; which < 3; ++which)
      for (int kind = 0; kind < ThreadCounters::kinds; ++kind) {
        Figure& to = out[which]->*figures[kind];
        to.current += presentOf(*counters, which, kind);
        for (int size = 0; size < 2; ++size)
          if (which == 0 || which == 1 + size) to.allocated += allocatedEver(counters->sizes[size], kind);
        Figure& peak = peaks[which]->*figures[kind];
        peak.peak = std::max(peak.peak, get(peakOf(*counters, which, kind)));
      }
  }
  for (int which = 0; which < 3; ++which) {
    for (const auto figure : figures) {
      Figure& to = out[which]->*figure;
      Figure& peak = peaks[which]->*figure;
      to.freed = to.allocated - static_cast<std::uint64_t>(to.current);
      to.peak = peak.peak = std::max(peak.peak, to.current);
      to.allocated -= (bases[which]->*figure).allocated;
      to.freed -= (bases[which]->*figure).freed;
    }
    out[which]->segment = held[which].segment;
    out[which]->reservedBytes = held[which].reservedBytes;
    out[which]->inactiveSplit = held[which].split;
    out[which]->inactiveSplitBytes = held[which].splitBytes;
  }
  stats->retries = retries;
  stats->outOfMemory = outOfMemory;
  stats->refusedEarly = refusedEarly;
  stats->sourceCalls = sourceCalls;
  stats->sourceReleases = sourceReleases;
  stats->moves = moves;
  stats->pagesMoved = pagesMoved;
  stats->pagesMade = pagesMade;
  stats->moveNanoseconds = moveNanoseconds;
  Figure& oversize = stats->oversizeAllocations;
  oversize = {get(oversize_), get(oversizePeak_), get(oversizeAllocated_), 0};
  oversize.freed = oversize.allocated - static_cast<std::uint64_t>(oversize.current);
  oversize.allocated -= base_.oversizeAllocations.allocated;
  oversize.freed -= base_.oversizeAllocations.freed;
  stats->oversizeSegments = oversizeSegments;
}

void StatsCounters::resetPeaks() {
  for (auto& slot : threads_) {
    ThreadCounters* counters = slot.load();
    if (counters == nullptr) continue;
    for (int which = 0; which < 3; ++which)
      for (int kind = 0; kind < ThreadCounters::kinds; ++kind) {
        const std::int64_t now = presentOf(*counters, which, kind);
        peakOf(*counters, which, kind).store(now, std::memory_order_relaxed);
      }
  }
  peaks_ = {};
  for (Held& each : held)
    for (Figure* figure : {&each.segment, &each.reservedBytes, &each.split, &each.splitBytes})
      figure->peak = figure->current;
  oversizeSegments.peak = oversizeSegments.current;
  oversizePeak_.store(get(oversize_), std::memory_order_relaxed);
}

void StatsCounters::resetAccumulated() {
  base_ = {};
  Stats all;
  sample(&all);
  base_ = all;
  for (Held& each : held)
    for (Figure* figure : {&each.segment, &each.reservedBytes, &each.split, &each.splitBytes})
      figure->allocated = figure->freed = 0;
  oversizeSegments.allocated = oversizeSegments.freed = 0;
  // The threads' own counters stay, so what they hold now is subtracted from here on.
  for (std::size_t fallback = 0; fallback < served.size(); ++fallback)
    served[fallback] -= all.served[fallback];
  retries = outOfMemory = refusedEarly = sourceCalls = sourceReleases = 0;
  moves = pagesMoved = pagesMade = moveNanoseconds = 0;
}

}  // namespace braid::caching
