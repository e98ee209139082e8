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

std::uint32_t number() {
  if (threadNumber == 0) {
    thread_local ThreadNumber mine;
    threadNumber = mine.value + 1;
  }
  return threadNumber - 1;
}

template <class T, class U>
void add(std::atomic<T>& to, U by, bool shared) {
  if (shared)
    to.fetch_add(static_cast<T>(by), std::memory_order_relaxed);
  else
    to.store(to.load(std::memory_order_relaxed) + static_cast<T>(by), std::memory_order_relaxed);
}

template <class T>
T get(const std::atomic<T>& from) {
  return from.load(std::memory_order_relaxed);
}

void raise(std::atomic<std::int64_t>& peak, std::int64_t to) {
  if (to > get(peak)) peak.store(to, std::memory_order_relaxed);
}

struct Now {
  std::int64_t blocks, bytes, requested, pendingBlocks, pendingBytes;
};

Now now(const Stripe::Sizes& s) {
  const auto difference = [](std::uint64_t a, std::uint64_t b) { return static_cast<std::int64_t>(a - b); };
  return {difference(get(s.blocks), get(s.blocksFreed) + get(s.blocksFreedByOthers)),
          difference(get(s.bytes), get(s.bytesFreed) + get(s.bytesFreedByOthers)),
          difference(get(s.requested), get(s.requestedFreed) + get(s.requestedFreedByOthers)),
          get(s.pendingBlocks) + get(s.pendingBlocksByOthers), get(s.pendingBytes) + get(s.pendingBytesByOthers)};
}

void raise(Stripe::Peaks& peaks, const Now& at) {
  raise(peaks.blocks, at.blocks);
  raise(peaks.bytes, at.bytes);
  raise(peaks.requested, at.requested);
  raise(peaks.active, at.blocks + at.pendingBlocks);
  raise(peaks.activeBytes, at.bytes + at.pendingBytes);
}

}  // namespace

StatsCounters::StatsCounters() {
  for (auto& stripe : stripes_) stripe.store(nullptr, std::memory_order_relaxed);
}

StatsCounters::~StatsCounters() {
  for (auto& stripe : stripes_) delete stripe.load();
}

Stripe& StatsCounters::mine(bool* shared) {
  const std::size_t index = std::min<std::size_t>(number(), own);
  *shared = index == own;
  Stripe* stripe = stripes_[index].load(std::memory_order_acquire);
  if (stripe == nullptr) {
    auto fresh = std::make_unique<Stripe>();
    if (stripes_[index].compare_exchange_strong(stripe, fresh.get())) stripe = fresh.release();
  }
  return *stripe;
}

std::uint8_t StatsCounters::allocated(int size, std::uint64_t bytes, std::uint64_t requested, bool cached) {
  bool shared = false;
  const std::size_t index = std::min<std::size_t>(number(), own);
  Stripe& stripe = mine(&shared);
  Stripe::Sizes& mineNow = stripe.sizes[size];
  add(mineNow.blocks, 1, shared);
  add(mineNow.bytes, bytes, shared);
  add(mineNow.requested, requested, shared);
  if (cached) add(stripe.cacheHits, 1, shared);
  const Now here = now(mineNow);
  const Now other = now(stripe.sizes[1 - size]);
  raise(stripe.peaks[1 + size], here);
  raise(stripe.peaks[0], {here.blocks + other.blocks, here.bytes + other.bytes, here.requested + other.requested,
                          here.pendingBlocks + other.pendingBlocks, here.pendingBytes + other.pendingBytes});
  return static_cast<std::uint8_t>(index);
}

void StatsCounters::freed(std::uint8_t stripe, int size, std::uint64_t bytes, std::uint64_t requested) {
  Stripe::Sizes& sizes = stripes_[stripe].load(std::memory_order_acquire)->sizes[size];
  if (stripe == number() && stripe != own) {
    add(sizes.blocksFreed, 1, false);
    add(sizes.bytesFreed, bytes, false);
    add(sizes.requestedFreed, requested, false);
  } else {
    add(sizes.blocksFreedByOthers, 1, true);
    add(sizes.bytesFreedByOthers, bytes, true);
    add(sizes.requestedFreedByOthers, requested, true);
  }
}

void StatsCounters::pending(std::uint8_t stripe, int size, std::int64_t bytes) {
  Stripe::Sizes& sizes = stripes_[stripe].load(std::memory_order_acquire)->sizes[size];
  const std::int64_t blocks = bytes > 0 ? 1 : -1;
  if (stripe == number() && stripe != own) {
    add(sizes.pendingBlocks, blocks, false);
    add(sizes.pendingBytes, bytes, false);
  } else {
    add(sizes.pendingBlocksByOthers, blocks, true);
    add(sizes.pendingBytesByOthers, bytes, true);
  }
}

void StatsCounters::sample(Stats* stats) {
  Stats sum;
  const auto fill = [](Figure& figure, std::uint64_t allocated, std::uint64_t freed, std::int64_t more = 0) {
    figure.allocated += allocated;
    figure.freed += freed;
    figure.current += static_cast<std::int64_t>(allocated - freed) + more;
  };
  const auto atLeast = [](Figure& figure, std::int64_t value) { figure.peak = std::max(figure.peak, value); };
  SizeStats* const sums[3] = {&sum.all, &sum.small, &sum.large};
  SizeStats* const peaks[3] = {&peaks_.all, &peaks_.small, &peaks_.large};
  for (const auto& slot : stripes_) {
    const Stripe* stripe = slot.load(std::memory_order_acquire);
    if (stripe == nullptr) continue;
    sum.served[0] += get(stripe->cacheHits);
    for (int size = 0; size < 2; ++size) {
      const Stripe::Sizes& s = stripe->sizes[size];
      for (SizeStats* to : {sums[0], sums[1 + size]}) {
        const Now at = now(s);
        const std::uint64_t blocks = get(s.blocks), bytes = get(s.bytes), requested = get(s.requested);
        const auto freed = [](std::uint64_t all, std::int64_t left) { return all - static_cast<std::uint64_t>(left); };
        fill(to->allocation, blocks, freed(blocks, at.blocks));
        fill(to->allocatedBytes, bytes, freed(bytes, at.bytes));
        fill(to->requestedBytes, requested, freed(requested, at.requested));
        fill(to->active, blocks, freed(blocks, at.blocks), at.pendingBlocks);
        fill(to->activeBytes, bytes, freed(bytes, at.bytes), at.pendingBytes);
      }
    }
    for (int which = 0; which < 3; ++which) {
      const Stripe::Peaks& peak = stripe->peaks[which];
      atLeast(peaks[which]->allocation, get(peak.blocks));
      atLeast(peaks[which]->allocatedBytes, get(peak.bytes));
      atLeast(peaks[which]->requestedBytes, get(peak.requested));
      atLeast(peaks[which]->active, get(peak.active));
      atLeast(peaks[which]->activeBytes, get(peak.activeBytes));
    }
  }
  SizeStats* const bases[3] = {&base_.all, &base_.small, &base_.large};
  SizeStats* const out[3] = {&stats->all, &stats->small, &stats->large};
  for (int which = 0; which < 3; ++which) {
    for (Figure SizeStats::*figure : {&SizeStats::allocation, &SizeStats::allocatedBytes, &SizeStats::requestedBytes,
                                      &SizeStats::active, &SizeStats::activeBytes}) {
      Figure& to = out[which]->*figure;
      to = sums[which]->*figure;
      atLeast(peaks[which]->*figure, to.current);
      to.peak = (peaks[which]->*figure).peak;
      to.allocated -= (bases[which]->*figure).allocated;
      to.freed -= (bases[which]->*figure).freed;
    }
    out[which]->segment = held[which].segment;
    out[which]->reservedBytes = held[which].reservedBytes;
  }
  stats->served = served;
  stats->served[0] += sum.served[0];
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
    const Now small = now(stripe->sizes[0]), large = now(stripe->sizes[1]);
    for (Stripe::Peaks& peaks : stripe->peaks)
      for (auto* peak : {&peaks.blocks, &peaks.bytes, &peaks.requested, &peaks.active, &peaks.activeBytes})
        peak->store(0, std::memory_order_relaxed);
    raise(stripe->peaks[1], small);
    raise(stripe->peaks[2], large);
    raise(stripe->peaks[0], {small.blocks + large.blocks, small.bytes + large.bytes, small.requested + large.requested,
                             small.pendingBlocks + large.pendingBlocks, small.pendingBytes + large.pendingBytes});
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
  served = {};
  served[0] -= all.served[0];  // those of the stripes stay
  retries = outOfMemory = refusedEarly = sourceCalls = sourceReleases = 0;
  moves = pagesMoved = pagesMade = moveNanoseconds = oversizeAllocations = oversizeSegments = 0;
}

}  // namespace braid::caching
