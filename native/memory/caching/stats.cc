// Over 300 lines as one thing: where each thread counts so that none waits for another's cache lines, and
// what all of that comes to.
#include "memory/caching/stats.h"

#include <algorithm>
#include <mutex>
#include <vector>

namespace braid::caching {
namespace {

// Threads by number, the numbers of those that have ended first.
std::mutex& numbersMutex() {
  static auto* mutex = new std::mutex;
  return *mutex;
}

struct Numbers {
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
    std::lock_guard lock(numbersMutex());
    Numbers& all = numbers();
    if (all.spare.empty()) {
      value = all.next++;
    } else {
      value = all.spare.back();
      all.spare.pop_back();
    }
  }
  ~ThreadNumber() {
    std::lock_guard lock(numbersMutex());
    numbers().spare.push_back(value);
  }
};

// The stripe that the thread writes alone, from 1 on; `shared`: never one; `unknown`: none so far. Read
// without a guard, and a dying thread keeps its own.
constexpr std::uint32_t unknown = ~std::uint32_t{0}, shared = unknown - 1;
constinit thread_local std::uint32_t mine = unknown;

[[gnu::noinline, gnu::cold]] void number() {
  thread_local ThreadNumber my;
  mine = my.value < StatsCounters::alone ? my.value + 1 : shared;
}

template <class T>
T get(const std::atomic<T>& from) {
  return from.load(std::memory_order_relaxed);
}

// By the only thread that writes there, or by any.
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

// Of all sizes (0), small ones or large ones, with what other threads have taken away.
std::int64_t presentOf(const Stripe& stripe, int which, int kind) {
  std::int64_t sum = 0;
  for (int size = 0; size < 2; ++size)
    if (which == 0 || which == 1 + size)
      sum += get(stripe.sizes[size].level[kind]) - get(stripe.taken[size][kind]);
  return sum;
}

std::uint64_t allocatedEver(const Stripe::Sizes& sizes, int kind) {
  if (kind == Stripe::requested) return get(sizes.allocatedRequested);
  if (kind == Stripe::bytes || kind == Stripe::activeBytes) return get(sizes.allocatedBytes);
  std::uint64_t blocks = 0;
  for (const auto& served : sizes.served) blocks += get(served);
  return blocks;
}

template <class Atomics>
auto& peakOf(Atomics& stripe, int which, int kind) {
  return which == 0 ? stripe.peakOfAll[kind] : stripe.sizes[which - 1].peak[kind];
}

// Something may be higher than it ever was: what other threads have taken away is counted in first.
template <class How>
[[gnu::noinline, gnu::cold]] void raise(Stripe& stripe) {
  for (int size = 0; size < 2; ++size)
    for (int kind = 0; kind < Stripe::kinds; ++kind) {
      const std::int64_t taken = stripe.taken[size][kind].exchange(0, std::memory_order_relaxed);
      How::add(stripe.sizes[size].level[kind], -taken);
    }
  for (int kind = 0; kind < Stripe::kinds; ++kind) {
    const std::int64_t small = get(stripe.sizes[0].level[kind]), large = get(stripe.sizes[1].level[kind]);
    const std::int64_t levels[3] = {small + large, small, large};
    for (int which = 0; which < 3; ++which)
      if (levels[which] > get(peakOf(stripe, which, kind)))
        peakOf(stripe, which, kind).store(levels[which], std::memory_order_relaxed);
  }
}

// Written out, since every allocation comes by here. What was pending until now (`Resumed`) was active
// before.
template <class How, bool Resumed>
[[gnu::always_inline]] inline void count(Stripe& stripe, int size, std::int64_t bytes, std::int64_t requested,
                                         std::uint8_t rung) {
  Stripe::Sizes& sizes = stripe.sizes[size];
  const Stripe::Sizes& others = stripe.sizes[1 - size];
  How::add(sizes.served[rung], std::uint64_t{1});
  How::add(sizes.allocatedBytes, static_cast<std::uint64_t>(bytes));
  How::add(sizes.allocatedRequested, static_cast<std::uint64_t>(requested));
  const auto add = [&](int kind, std::int64_t by) { return How::add(sizes.level[kind], by); };
  const auto risen = [&](int kind, std::int64_t level) {
    return level > get(sizes.peak[kind]) || level + get(others.level[kind]) > get(stripe.peakOfAll[kind]);
  };
  const std::int64_t blocks = add(Stripe::blocks, 1), owned = add(Stripe::bytes, bytes);
  const std::int64_t asked = add(Stripe::requested, requested);
  bool over = false;
  if constexpr (!Resumed) {
    const std::int64_t active = add(Stripe::active, 1), activeBytes = add(Stripe::activeBytes, bytes);
    over = risen(Stripe::active, active) || risen(Stripe::activeBytes, activeBytes);
  }
  over =
      over || risen(Stripe::blocks, blocks) || risen(Stripe::bytes, owned) || risen(Stripe::requested, asked);
  if (over) [[unlikely]]
    raise<How>(stripe);
}

// By another thread than the one whose stripe it is.
[[gnu::noinline]] void takenAway(Stripe& stripe, int size, std::int64_t bytes, std::int64_t requested,
                                 bool pending) {
  auto& taken = stripe.taken[size];
  Shared::add(taken[Stripe::blocks], std::int64_t{1});
  Shared::add(taken[Stripe::bytes], bytes);
  Shared::add(taken[Stripe::requested], requested);
  if (pending) return;
  Shared::add(taken[Stripe::active], std::int64_t{1});
  Shared::add(taken[Stripe::activeBytes], bytes);
}

}  // namespace

StatsCounters::StatsCounters() {
  for (auto& stripe : stripes_) stripe.store(nullptr, std::memory_order_relaxed);
}

StatsCounters::~StatsCounters() {
  for (auto& stripe : stripes_) delete stripe.load();
}

Stripe& StatsCounters::make(std::size_t index) {
  auto fresh = std::make_unique<Stripe>();
  Stripe* stripe = nullptr;
  if (stripes_[index].compare_exchange_strong(stripe, fresh.get())) {
    stripe = fresh.release();
    made_.fetch_add(1, std::memory_order_relaxed);
  }
  return *stripe;
}

[[gnu::always_inline]] inline Stripe& StatsCounters::at(std::size_t index) {
  Stripe* const known = stripes_[index].load(std::memory_order_acquire);
  return known != nullptr ? *known : make(index);
}

std::uint8_t StatsCounters::allocated(int size, std::uint64_t bytes, std::uint64_t requested,
                                      std::uint8_t rung) {
  if (mine == unknown) [[unlikely]]
    number();
  const std::uint32_t index = mine;
  const auto signedBytes = static_cast<std::int64_t>(bytes),
             signedRequested = static_cast<std::int64_t>(requested);
  if (index == shared) [[unlikely]] {
    count<Shared, false>(at(0), size, signedBytes, signedRequested, rung);
    return 0;
  }
  count<Alone, false>(at(index), size, signedBytes, signedRequested, rung);
  return static_cast<std::uint8_t>(index);
}

void StatsCounters::freed(std::uint8_t index, int size, std::uint64_t bytes, std::uint64_t requested,
                          bool pending) {
  Stripe& stripe = *stripes_[index].load(std::memory_order_acquire);
  const auto signedBytes = static_cast<std::int64_t>(bytes),
             signedRequested = static_cast<std::int64_t>(requested);
  if (index == mine) [[likely]] {
    auto& level = stripe.sizes[size].level;
    Alone::add(level[Stripe::blocks], std::int64_t{-1});
    Alone::add(level[Stripe::bytes], -signedBytes);
    Alone::add(level[Stripe::requested], -signedRequested);
    if (pending) return;
    Alone::add(level[Stripe::active], std::int64_t{-1});
    Alone::add(level[Stripe::activeBytes], -signedBytes);
  } else {
    takenAway(stripe, size, signedBytes, signedRequested, pending);
  }
}

void StatsCounters::settled(std::uint8_t index, int size, std::uint64_t bytes) {
  Stripe& stripe = *stripes_[index].load(std::memory_order_acquire);
  const auto signedBytes = static_cast<std::int64_t>(bytes);
  if (index == mine) {
    Alone::add(stripe.sizes[size].level[Stripe::active], std::int64_t{-1});
    Alone::add(stripe.sizes[size].level[Stripe::activeBytes], -signedBytes);
  } else {
    Shared::add(stripe.taken[size][Stripe::active], std::int64_t{1});
    Shared::add(stripe.taken[size][Stripe::activeBytes], signedBytes);
  }
}

std::uint8_t StatsCounters::resumed(std::uint8_t index, int size, std::uint64_t bytes,
                                    std::uint64_t requested, std::uint8_t rung) {
  if (index != mine) [[unlikely]] {
    settled(index, size, bytes);
    return allocated(size, bytes, requested, rung);
  }
  Stripe& stripe = *stripes_[index].load(std::memory_order_acquire);
  count<Alone, true>(stripe, size, static_cast<std::int64_t>(bytes), static_cast<std::int64_t>(requested),
                     rung);
  return index;
}

void StatsCounters::sample(Stats* stats) {
  constexpr Figure SizeStats::*figures[Stripe::kinds] = {&SizeStats::allocation, &SizeStats::allocatedBytes,
                                                         &SizeStats::requestedBytes, &SizeStats::active,
                                                         &SizeStats::activeBytes};
  SizeStats* const out[3] = {&stats->all, &stats->small, &stats->large};
  SizeStats* const peaks[3] = {&peaks_.all, &peaks_.small, &peaks_.large};
  SizeStats* const bases[3] = {&base_.all, &base_.small, &base_.large};
  stats->served = served;
  for (const auto& slot : stripes_) {
    const Stripe* stripe = slot.load(std::memory_order_acquire);
    if (stripe == nullptr) continue;
    for (const Stripe::Sizes& sizes : stripe->sizes)
      for (int rung = 0; rung < slow; ++rung) stats->served[rung] += get(sizes.served[rung]);
    for (int which = 0; which < 3; ++which)
      for (int kind = 0; kind < Stripe::kinds; ++kind) {
        Figure& to = out[which]->*figures[kind];
        to.current += presentOf(*stripe, which, kind);
        for (int size = 0; size < 2; ++size)
          if (which == 0 || which == 1 + size) to.allocated += allocatedEver(stripe->sizes[size], kind);
        Figure& peak = peaks[which]->*figures[kind];
        peak.peak = std::max(peak.peak, get(peakOf(*stripe, which, kind)));
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
  stats->oversizeAllocations = oversizeAllocations;
  stats->oversizeSegments = oversizeSegments;
}

void StatsCounters::resetPeaks() {
  for (auto& slot : stripes_) {
    Stripe* stripe = slot.load();
    if (stripe == nullptr) continue;
    for (int which = 0; which < 3; ++which)
      for (int kind = 0; kind < Stripe::kinds; ++kind) {
        const std::int64_t now = presentOf(*stripe, which, kind);
        peakOf(*stripe, which, kind).store(now, std::memory_order_relaxed);
      }
  }
  peaks_ = {};
  for (Held& each : held) {
    each.segment.peak = each.segment.current;
    each.reservedBytes.peak = each.reservedBytes.current;
  }
}

void StatsCounters::resetAccumulated() {
  base_ = {};
  Stats all;
  sample(&all);
  base_ = all;
  for (Held& each : held)
    for (Figure* figure : {&each.segment, &each.reservedBytes}) figure->allocated = figure->freed = 0;
  // Those of the stripes stay, and are taken off.
  for (std::size_t rung = 0; rung < served.size(); ++rung) served[rung] -= all.served[rung];
  retries = outOfMemory = refusedEarly = sourceCalls = sourceReleases = 0;
  moves = pagesMoved = pagesMade = moveNanoseconds = oversizeAllocations = oversizeSegments = 0;
}

}  // namespace braid::caching
