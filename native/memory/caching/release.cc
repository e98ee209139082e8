// Memory that goes back to its source.
#include <algorithm>

#include "memory/caching/allocator.h"

namespace braid::caching {

Allocator::~Allocator() {
  std::lock_guard lock(mutex_);
  for (LaneId id = 0; id < lanes_.count(); ++id) {
    Lane& lane = lanes_.at(id);
    std::lock_guard guard(lane.mutex);
    for (Block* block = blocksOf(lane).pending.first(); block != nullptr; block = block->next)
      dropUses(*block);
  }
  for (auto& blocks : laneBlocks_) delete blocks.load();
  for (Heap* heap : heaps_) releaseSegments(*heap);
}

// Whatever state its blocks are in.
void Allocator::releaseSegments(Heap& heap) {
  Driver& driver = lanes_.driver();
  const std::uint64_t page = pages_.pageBytes();
  for (const auto& segment : heap.segments()) {
    if (!segment->expandable) {
      if (heap.config.source->callable())
        heap.config.source->release(segment->base, segment->size, segment->lane->stream);
      plain_.fetch_sub(segment->size, std::memory_order_relaxed);
      continue;
    }
    for (std::size_t i = 0; i < segment->pages.size();) {
      std::size_t end = i;
      while (end < segment->pages.size() && segment->pages[end] != nullptr) ++end;
      if (end > i) pages_.unmap(segment->base + i * page, end - i, &segment->pages[i]);
      i = end > i ? end : i + 1;
    }
    driver.addressRelease(segment->base, segment->size);
  }
}

// Releases unsplit segments that have been unused for longer than the average, until what is reserved is
// below the threshold. As in PyTorch, expandable heaps are left alone: their pages can move anyway.
void Allocator::collectGarbage(std::uint64_t wanted) {
  const double threshold = options_.collectAbove * static_cast<double>(options_.limit);
  if (static_cast<double>(reserved()) <= threshold) return;
  const double surplus = static_cast<double>(reserved()) - threshold;
  std::uint64_t target = std::max(static_cast<std::uint64_t>(surplus), wanted), freed = 0;
  for (bool found = true; found && freed < target;) {
    found = false;
    double age = 0;
    std::vector<Block*> whole;
    for (Heap* heap : heaps_) {
      if (heap->config.expandable || heap->config.sizes != SizeClass::large) continue;
      heap->eachFree([&](Block& block) {
        if (block.size != block.segment->size || !Heap::complete(block)) return;
        whole.push_back(&block);
        age += static_cast<double>(heap->clock - block.age);
      });
    }
    if (whole.empty()) return;
    age /= static_cast<double>(whole.size());
    for (Block* block : whole) {
      if (static_cast<double>(block->heap->clock - block->age) < age || freed >= target) continue;
      const std::uint64_t bytes = releaseWhole(block);
      freed += bytes;
      found = found || bytes > 0;
    }
  }
}

// Gives a plain segment that is one free block back to its source. Returns its bytes, or 0 where it stays:
// where the driver may wait for all work before it frees memory, and some of it waits for the host; or where
// the source refuses, which *refused then says.
std::uint64_t Allocator::releaseWhole(Block* block, Status* refused) {
  Heap& heap = *block->heap;
  const int sizes = static_cast<int>(heap.config.sizes);
  const std::uint64_t bytes = block->size;
  if (block->segment->kept || heap.kept || !heap.config.source->callable() || !lanes_.mayBlock()) return 0;
  Source& source = *heap.config.source;
  const Status released = source.release(block->address, bytes, streamFor(source, *block->segment->lane));
  if (released != Status::ok) {
    if (refused) *refused = released;
    return 0;
  }
  const std::unique_ptr<Segment> segment = heap.removeSegment(block);
  ++counters_.sourceReleases;
  plain_.fetch_sub(bytes, std::memory_order_relaxed);
  heap.addReserved(-static_cast<std::int64_t>(bytes));
  counters_.segments(sizes, -1);
  if (bytes >= options_.maxSplit) counters_.add(counters_.oversizeSegments, -1);
  counters_.reserved(sizes, -static_cast<std::int64_t>(bytes));
  if (history_.on())
    history_.add({.action = Action::segmentFree,
                  .lane = segment->lane->id,
                  .address = segment->base,
                  .size = bytes,
                  .pool = heap.config.pool,
                  .id = segment->counter});
  return bytes;
}

// Gives back all free memory that nothing on the device can still touch, of one pool or of all. Returns its
// bytes. *refused says where some stays because its source refuses to take it.
std::uint64_t Allocator::releaseFree(const MemPool* pool, Status* refused) {
  std::uint64_t bytes = 0;
  for (Heap* heap : heaps_) {
    if (pool != nullptr && heap != pool->small.get() && heap != pool->large.get()) continue;
    if (heap->kept) continue;
    heap->coalesceCompleted();
    std::vector<Block*> whole;
    Status status = Status::ok;
    for (const auto& segment : heap->segments()) {
      for (Block *block = segment->first, *next; block != nullptr && status == Status::ok; block = next) {
        next = block->nextInSegment;
        if (block->state != BlockState::free || !Heap::complete(*block)) continue;
        if (!segment->expandable) {
          if (block->size == segment->size) whole.push_back(block);
        } else if (hasPage(*block)) {
          Block* hole = nullptr;
          heap->extract(block);
          unmapPages(block, segment->pages.size(), &status, &hole);
          if (hole) next = hole->nextInSegment;
        }
      }
    }
    for (Block* block : whole) bytes += releaseWhole(block, refused);
    if (refused && status != Status::ok) *refused = status;
  }
  return bytes + pages_.trim();
}

Status Allocator::emptyCache(MemPool* pool) {
  std::lock_guard lock(mutex_);
  const Status status = releaseAllPending(true);
  if (status == Status::notPermitted) return status;
  Status refused = Status::ok;
  releaseFree(pool, &refused);
  return status == Status::ok ? refused : status;
}

}  // namespace braid::caching
