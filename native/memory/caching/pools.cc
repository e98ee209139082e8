// Pools of their own, and what an allocator tells about itself.
#include <algorithm>
#include <map>

#include "memory/caching/allocator.h"

namespace braid::caching {

MemPool* Allocator::makePool(bool useOnOutOfMemory, bool noSplit, std::unique_ptr<Source> source) {
  std::lock_guard lock(mutex_);
  auto pool =
      std::unique_ptr<MemPool>(new MemPool(++poolCounter_, useOnOutOfMemory, noSplit, std::move(source)));
  const bool own = pool->source != nullptr;
  Source* const from = own ? pool->source.get() : source_.get();
  const bool expandable = !own && !noSplit && options_.expandable && from->expandable();
  const auto heap = [&](SizeClass sizes) {
    return std::make_unique<Heap>(lanes_, blocks_, options_,
                                  HeapConfig{pool->id, sizes, noSplit, expandable, from});
  };
  pool->small = heap(SizeClass::small);
  pool->large = heap(SizeClass::large);
  heaps_.push_back(pool->small.get());
  heaps_.push_back(pool->large.get());
  pools_.push_back(pool.get());
  poolStore_.push_back(std::move(pool));
  return poolStore_.back().get();
}

void Allocator::closePool(MemPool* pool) {
  std::lock_guard lock(mutex_);
  if (pool->closed) return;
  pool->closed = true;
  pool->small->closed.store(true, std::memory_order_relaxed);
  pool->large->closed.store(true, std::memory_order_relaxed);
  pools_.erase(std::find(pools_.begin(), pools_.end(), pool));
  flushCaches();
  sweepPools();
}

bool Allocator::empty(const Heap& heap) const {
  return std::all_of(heap.segments().begin(), heap.segments().end(), [](const auto& segment) {
    return segment->first->state == BlockState::unmapped && segment->first->nextInSegment == nullptr;
  });
}

// The addresses of a heap without memory. False where the driver has not taken all of them.
bool Allocator::releaseRanges(Heap& heap) {
  while (!heap.segments().empty()) {
    Segment* segment = heap.segments().front().get();
    if (lanes_.driver().addressRelease(segment->base, segment->size) != Status::ok) return false;
    heap.removeUnmapped(segment->first);
    blocks_.drop(segment->first);
    heap.removeRange(segment);
    counters_.segments(static_cast<int>(heap.config.sizes), -1);
  }
  return true;
}

// Closed pools give back what has become free, and go when nothing is left.
void Allocator::sweepPools() {
  if (poolStore_.size() == pools_.size()) return;
  for (std::size_t i = 0; i < poolStore_.size();) {
    MemPool& pool = *poolStore_[i];
    if (pool.closed) {
      for (LaneId id = 0; id < lanes_.count(); ++id) {
        settlePending(lanes_.at(id), true);
        lanes_.pollLane(lanes_.at(id));
      }
      releaseFree(&pool);
    }
    if (!pool.closed || !empty(*pool.small) || !empty(*pool.large) || !releaseRanges(*pool.small) ||
        !releaseRanges(*pool.large)) {
      ++i;
      continue;
    }
    for (const Heap* heap : {pool.small.get(), pool.large.get()})
      heaps_.erase(std::find(heaps_.begin(), heaps_.end(), heap));
    poolStore_.erase(poolStore_.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

Status Allocator::configure(const Options& options) {
  std::lock_guard lock(mutex_);
  const bool expandable = options.expandable && source_->expandable();
  const bool held =
      std::any_of(heaps_.begin(), heaps_.end(), [](const Heap* heap) { return !heap->segments().empty(); });
  if ((expandable != small_->config.expandable && held) || reserved() > options.limit)
    return Status::invalidValue;
  setOptions(options);
  if (expandable == small_->config.expandable) return Status::ok;
  heaps_.erase(heaps_.begin(), heaps_.begin() + 2);
  const auto heap = [&](SizeClass sizes) {
    return std::make_unique<Heap>(lanes_, blocks_, options_,
                                  HeapConfig{0, sizes, false, expandable, source_.get()});
  };
  small_ = heap(SizeClass::small);
  large_ = heap(SizeClass::large);
  heaps_.insert(heaps_.begin(), {small_.get(), large_.get()});
  return Status::ok;
}

void Allocator::observe(Observer observer, void* data) {
  std::lock_guard lock(mutex_);
  observers_.emplace_back(observer, data);
}

Stats Allocator::stats() const {
  std::lock_guard lock(mutex_);
  Stats stats;
  counters_.sample(&stats);
  SizeStats* const sizes[3] = {&stats.all, &stats.small, &stats.large};
  for (const Heap* heap : heaps_)
    heap->eachFree([&](const Block& block) {
      if (block.size == block.segment->size || block.segment->expandable) return;
      for (SizeStats* to : {sizes[0], sizes[1 + static_cast<int>(heap->config.sizes)]}) {
        ++to->inactiveSplit.current;
        to->inactiveSplitBytes.current += static_cast<std::int64_t>(block.size);
      }
    });
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
  counters_.resetPeaks();
}

void Allocator::resetAccumulated() {
  std::lock_guard lock(mutex_);
  counters_.resetAccumulated();
}

Shortage Allocator::shortageOf(const Request& request, Status status) const {
  Shortage found;
  found.status = status;
  found.wanted = request.bytes;
  found.size = request.size;
  found.reserved = reserved();
  found.limit = options_.limit;
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
