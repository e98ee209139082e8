// The default heaps, and private pools.
#include <algorithm>

#include "memory/caching/allocator.h"

namespace braid::caching {

void Allocator::makeDefaultHeaps() {
  const bool expandable = options_.expandable && source_->expandable();
  const auto heap = [&](SizeClass sizes) {
    return std::make_unique<Heap>(lanes_, blocks_, options_,
                                  HeapConfig{0, sizes, false, expandable, source_.get(), SegmentSize::usual});
  };
  small_ = heap(SizeClass::small);
  large_ = heap(SizeClass::large);
  heaps_.insert(heaps_.begin(), {small_.get(), large_.get()});
}

MemPool* Allocator::makePool(bool useOnOutOfMemory, bool noSplit, std::unique_ptr<Source> source,
                             SegmentSize segments) {
  std::lock_guard lock(mutex_);
  auto pool =
      std::unique_ptr<MemPool>(new MemPool(++poolCounter_, useOnOutOfMemory, noSplit, std::move(source)));
  const bool own = pool->source != nullptr;
  Source* const from = own ? pool->source.get() : source_.get();
  const bool expandable = !own && !noSplit && options_.expandable && from->expandable();
  const auto heap = [&](SizeClass sizes) {
    return std::make_unique<Heap>(lanes_, blocks_, options_,
                                  HeapConfig{pool->id, sizes, noSplit, expandable, from, segments});
  };
  pool->small = heap(SizeClass::small);
  pool->large = heap(SizeClass::large);
  heaps_.push_back(pool->small.get());
  heaps_.push_back(pool->large.get());
  pools_.push_back(pool.get());
  poolStore_.push_back(std::move(pool));
  return poolStore_.back().get();
}

void Allocator::keepPool(MemPool* pool, bool kept) {
  std::lock_guard lock(mutex_);
  pool->small->kept = kept;
  pool->large->kept = kept;
}

void Allocator::closePool(MemPool* pool) {
  std::lock_guard lock(mutex_);
  if (pool->closed) return;
  pool->closed = true;
  pool->small->closed.store(true, std::memory_order_relaxed);
  pool->large->closed.store(true, std::memory_order_relaxed);
  pools_.erase(std::find(pools_.begin(), pools_.end(), pool));
  drainCaches();
  sweepPools();
}

bool Allocator::empty(const Heap& heap) const {
  return std::all_of(heap.segments().begin(), heap.segments().end(), [](const auto& segment) {
    return segment->first->state == BlockState::unmapped && segment->first->nextInSegment == nullptr;
  });
}

// Gives back the address ranges of a heap that has no memory left. False where the driver refuses one.
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

// Closed pools give back what has become free, and are destroyed when nothing is left.
void Allocator::sweepPools() {
  if (poolStore_.size() == pools_.size()) return;
  for (std::size_t i = 0; i < poolStore_.size();) {
    MemPool& pool = *poolStore_[i];
    if (pool.closed) {
      for (LaneId id = 0; id < lanes_.count(); ++id) {
        releasePending(lanes_.at(id), true);
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

}  // namespace braid::caching
