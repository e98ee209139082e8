// Statistics, observers, and what is reported of an allocation that failed.
#include <algorithm>
#include <map>

#include "memory/caching/allocator.h"

namespace braid::caching {

void Allocator::observe(Observer observer, std::shared_ptr<void> data) {
  std::lock_guard lock(mutex_);
  observers_.emplace_back(observer, std::move(data));
}

void Allocator::unobserve(const void* data) {
  std::lock_guard lock(mutex_);
  std::erase_if(observers_, [&](const auto& each) { return each.second.get() == data; });
}

// Looks at what is split now: a lane's cache changes that without the mutex, so nobody counts it. As PyTorch
// counts, which merges all free neighbours of a segment: a segment without live and pending blocks is whole.
void Allocator::lookAtSplits() const {
  std::array<std::int64_t, 3> pieces{}, bytes{};
  for (const Heap* heap : heaps_)
    for (const auto& segment : heap->segments()) {
      if (segment->expandable) continue;
      std::int64_t runs = 0, free = 0;
      bool used = false, running = false;
      for (const Block* block = segment->first; block != nullptr; block = block->nextInSegment) {
        const BlockState state = block->state;
        const bool active = state == BlockState::live || state == BlockState::pending;
        used = used || active;
        if (!active) free += static_cast<std::int64_t>(block->size);
        if (!active && !running) ++runs;
        running = !active;
      }
      if (!used) continue;
      for (const std::size_t which : {std::size_t{0}, 1 + static_cast<std::size_t>(heap->config.sizes)}) {
        pieces[which] += runs;
        bytes[which] += free;
      }
    }
  counters_.split(pieces, bytes);
}

Stats Allocator::stats() const {
  std::lock_guard lock(mutex_);
  Stats stats;
  lookAtSplits();
  counters_.sample(&stats);
  const Lanes::Counters lanes = lanes_.counters();
  stats.uses = lanes.recorded;
  stats.usesShared = lanes.shared;
  stats.waits = lanes.waits;
  stats.waitsElided = lanes.waitsElided;
  stats.queries = lanes.queries;
  stats.synchronizations = lanes.synchronizations;
  stats.eventsCreated = lanes.created;
  return stats;
}

void Allocator::resetPeaks() {
  std::lock_guard lock(mutex_);
  lookAtSplits();
  counters_.resetPeaks();
}

void Allocator::resetAccumulated() {
  std::lock_guard lock(mutex_);
  lookAtSplits();
  counters_.resetAccumulated();
}

Shortage Allocator::shortageOf(const Request& request, Status status) const {
  Shortage found;
  found.status = status;
  found.wanted = request.bytes;
  found.size = request.size;
  found.reserved = reserved();
  found.limit = options_.limit;
  found.asked = asked_;
  std::map<std::uint32_t, Shortage::Holder> holders;
  for (const Heap* heap : heaps_) {
    const bool own = heap->config.pool == request.heap.config.pool;
    if (!own) found.otherPools += heap->reserved();
    for (const auto& segment : heap->segments())
      for (const Block* block = segment->first; block != nullptr; block = block->nextInSegment) {
        if (block->state == BlockState::live) {
          found.live += block->size;
          Shortage::Holder& holder = holders[block->site];
          holder.site = block->site;
          holder.bytes += block->size;
          ++holder.count;
        } else if (block->state == BlockState::pending) {
          found.pending += block->size;
        } else if (block->state == BlockState::free || block->state == BlockState::cached) {
          found.free += block->size;
          if (own) found.longestFree = std::max(found.longestFree, block->size);
        }
      }
  }
  for (const auto& [site, holder] : holders) found.holders.push_back(holder);
  std::sort(found.holders.begin(), found.holders.end(), [](const auto& a, const auto& b) {
    return a.bytes != b.bytes ? a.bytes > b.bytes : a.site < b.site;
  });
  if (found.holders.size() > 8) found.holders.resize(8);
  std::size_t free = 0, total = 0;
  if (lanes_.driver().memInfo(&free, &total) == Status::ok) {
    found.deviceFree = free;
    found.deviceTotal = total;
  }
  return found;
}

}  // namespace braid::caching
