// Over 300 lines as one thing: where each thread counts so that none waits for another's cache lines, and what all of
// that comes to.
#include "allocator/caching/stats.h"

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

// Number + 1, or 0 where the thread has none yet: read without a guard, and a dying thread keeps its own.
constinit thread_local std::uint32_t threadNumber = 0;

std::uint32_t firstNumber() {
  thread_local ThreadNumber mine;
  threadNumber = mine.value + 1;
  return mine.value;
}

inline std::uint32_t number() {
  const std::uint32_t known = threadNumber;
  return known != 0 ? known - 1 : firstNumber();
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

// Of small ones or large ones: what somebody owns, and what is active.
std::int64_t levelOf(const Stripe& stripe, int size, int kind) {
  if (kind < Stripe::owned) return get(stripe.level[size][kind]);
  return get(stripe.level[size][kind - Stripe::owned]) + get(stripe.pending[size][kind - Stripe::owned]);
}

// Of all sizes (0), small ones or large ones, with what other threads have taken away.
std::int64_t presentOf(const Stripe& stripe, int which, int kind) {
  std::int64_t sum = 0;
  for (int size = 0; size < 2; ++size) {
    if (which != 0 && which != 1 + size) continue;
    sum += levelOf(stripe, size, kind) - get(stripe.taken[size][kind]);
    if (kind >= Stripe::owned) sum -= get(stripe.taken[size][kind - Stripe::owned]);
  }
  return sum;
}

// Something may be higher than it ever was: what other threads have taken away is counted in first.
template <class How>
void raise(Stripe& stripe) {
  for (int size = 0; size < 2; ++size)
    for (int kind = 0; kind < Stripe::owned + Stripe::pendingKinds; ++kind) {
      const std::int64_t taken = stripe.taken[size][kind].exchange(0, std::memory_order_relaxed);
      How::add(kind < Stripe::owned ? stripe.level[size][kind] : stripe.pending[size][kind - Stripe::owned], -taken);
    }
  for (int kind = 0; kind < Stripe::kinds; ++kind) {
    const std::int64_t small = levelOf(stripe, 0, kind), large = levelOf(stripe, 1, kind);
    const std::int64_t levels[3] = {small + large, small, large};
    for (int which = 0; which < 3; ++which)
      if (levels[which] > get(stripe.peak[which][kind]))
        stripe.peak[which][kind].store(levels[which], std::memory_order_relaxed);
  }
}

// Written out, since every allocation comes by here. Returns whether some level is above its peak. What was pending
// until now (`Resumed`) was active before.
template <class How, bool Resumed>
inline bool rise(Stripe& stripe, int size, std::int64_t bytes, std::int64_t requested) {
  const auto *const peak = stripe.peak[1 + size], *const peakOfAll = stripe.peak[0];
  const auto* const other = stripe.level[1 - size];
  bool over = false;
  const auto raised = [&](int kind, std::int64_t by) {
    const std::int64_t level = How::add(stripe.level[size][kind], by);
    over |= level > get(peak[kind]);
    over |= level + get(other[kind]) > get(peakOfAll[kind]);
    return level;
  };
  const std::int64_t levels[2] = {raised(Stripe::blocks, 1), raised(Stripe::bytes, bytes)};
  raised(Stripe::requested, requested);
  if constexpr (!Resumed)
    for (int kind = 0; kind < Stripe::pendingKinds; ++kind) {
      const std::int64_t level = levels[kind] + get(stripe.pending[size][kind]);
      over |= level > get(peak[Stripe::owned + kind]);
      over |= level + get(other[kind]) + get(stripe.pending[1 - size][kind]) > get(peakOfAll[Stripe::owned + kind]);
    }
  return over;
}

template <class How, bool Resumed>
inline void count(Stripe& stripe, int size, std::int64_t bytes, std::int64_t requested, std::uint8_t rung) {
  How::add(stripe.total[size][0], std::uint64_t{1});
  How::add(stripe.total[size][1], static_cast<std::uint64_t>(bytes));
  How::add(stripe.total[size][2], static_cast<std::uint64_t>(requested));
  if (rung < StatsCounters::slow) How::add(stripe.served[rung], std::uint64_t{1});
  if (rise<How, Resumed>(stripe, size, bytes, requested)) [[unlikely]]
    raise<How>(stripe);
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

std::uint8_t StatsCounters::allocated(int size, std::uint64_t bytes, std::uint64_t requested, std::uint8_t rung) {
  const std::size_t index = std::min<std::size_t>(number(), own);
  Stripe* known = stripes_[index].load(std::memory_order_acquire);
  Stripe& stripe = known != nullptr ? *known : make(index);
  const auto signedBytes = static_cast<std::int64_t>(bytes), signedRequested = static_cast<std::int64_t>(requested);
  if (index != own)
    count<Alone, false>(stripe, size, signedBytes, signedRequested, rung);
  else
    count<Shared, false>(stripe, size, signedBytes, signedRequested, rung);
  return static_cast<std::uint8_t>(index);
}

void StatsCounters::freed(std::uint8_t index, int size, std::uint64_t bytes, std::uint64_t requested, bool pending) {
  Stripe& stripe = *stripes_[index].load(std::memory_order_acquire);
  const auto signedBytes = static_cast<std::int64_t>(bytes), signedRequested = static_cast<std::int64_t>(requested);
  if (index == number() && index != own) {
    Alone::add(stripe.level[size][Stripe::blocks], std::int64_t{-1});
    Alone::add(stripe.level[size][Stripe::bytes], -signedBytes);
    Alone::add(stripe.level[size][Stripe::requested], -signedRequested);
    if (!pending) return;
    Alone::add(stripe.pending[size][0], std::int64_t{1});
    Alone::add(stripe.pending[size][1], signedBytes);
  } else {
    Shared::add(stripe.taken[size][Stripe::blocks], std::int64_t{1});
    Shared::add(stripe.taken[size][Stripe::bytes], signedBytes);
    Shared::add(stripe.taken[size][Stripe::requested], signedRequested);
    if (!pending) return;
    Shared::add(stripe.taken[size][Stripe::owned], std::int64_t{-1});
    Shared::add(stripe.taken[size][Stripe::owned + 1], -signedBytes);
  }
}

void StatsCounters::settled(std::uint8_t index, int size, std::uint64_t bytes) {
  Stripe& stripe = *stripes_[index].load(std::memory_order_acquire);
  const auto signedBytes = static_cast<std::int64_t>(bytes);
  if (index == number() && index != own) {
    Alone::add(stripe.pending[size][0], std::int64_t{-1});
    Alone::add(stripe.pending[size][1], -signedBytes);
  } else {
    Shared::add(stripe.taken[size][Stripe::owned], std::int64_t{1});
    Shared::add(stripe.taken[size][Stripe::owned + 1], signedBytes);
  }
}

std::uint8_t StatsCounters::resumed(std::uint8_t index, int size, std::uint64_t bytes, std::uint64_t requested,
                                    std::uint8_t rung) {
  if (index != number() || index == own) {
    settled(index, size, bytes);
    return allocated(size, bytes, requested, rung);
  }
  Stripe& stripe = *stripes_[index].load(std::memory_order_acquire);
  const auto signedBytes = static_cast<std::int64_t>(bytes);
  Alone::add(stripe.pending[size][0], std::int64_t{-1});
  Alone::add(stripe.pending[size][1], -signedBytes);
  count<Alone, true>(stripe, size, signedBytes, static_cast<std::int64_t>(requested), rung);
  return index;
}

void StatsCounters::sample(Stats* stats) {
  constexpr Figure SizeStats::*figures[Stripe::kinds] = {&SizeStats::allocation, &SizeStats::allocatedBytes,
                                                         &SizeStats::requestedBytes, &SizeStats::active,
                                                         &SizeStats::activeBytes};
  constexpr int totals[Stripe::kinds] = {0, 1, 2, 0, 1};
  SizeStats* const out[3] = {&stats->all, &stats->small, &stats->large};
  SizeStats* const peaks[3] = {&peaks_.all, &peaks_.small, &peaks_.large};
  SizeStats* const bases[3] = {&base_.all, &base_.small, &base_.large};
  stats->served = served;
  for (const auto& slot : stripes_) {
    const Stripe* stripe = slot.load(std::memory_order_acquire);
    if (stripe == nullptr) continue;
    for (int rung = 0; rung < slow; ++rung) stats->served[rung] += get(stripe->served[rung]);
    for (int which = 0; which < 3; ++which)
      for (int kind = 0; kind < Stripe::kinds; ++kind) {
        Figure& to = out[which]->*figures[kind];
        to.current += presentOf(*stripe, which, kind);
        for (int size = 0; size < 2; ++size)
          if (which == 0 || which == 1 + size) to.allocated += get(stripe->total[size][totals[kind]]);
        Figure& peak = peaks[which]->*figures[kind];
        peak.peak = std::max(peak.peak, get(stripe->peak[which][kind]));
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
        stripe->peak[which][kind].store(now, std::memory_order_relaxed);
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
