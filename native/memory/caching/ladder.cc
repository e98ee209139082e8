// The rung `last` and all else that gives memory back. Over 300 lines, since each step looks again with all
// the others.
#include <algorithm>
#include <map>

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
  for (Heap* heap : heaps_) releaseSegments(*heap);
  for (auto& blocks : laneBlocks_) delete blocks.load();
}

LaneBlocks& Allocator::makeLaneBlocks(const Lane& lane) const {
  auto made = std::make_unique<LaneBlocks>();
  LaneBlocks* known = nullptr;
  if (laneBlocks_[lane.id].compare_exchange_strong(known, made.get(), std::memory_order_acq_rel))
    known = made.release();
  return *known;
}

// Whatever its blocks are: nobody may use them any more.
void Allocator::releaseSegments(Heap& heap) {
  Driver& driver = lanes_.driver();
  const std::uint64_t page = pages_.pageBytes();
  for (const auto& segment : heap.segments()) {
    if (!segment->expandable) {
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

// Frees unsplit segments that have lain unused for longer than the average, until what is reserved is below
// the threshold. As PyTorch does: expandable heaps are left alone, since their pages go where they are needed
// anyway.
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

// A plain segment that is one free block goes back to its source, and stays where that does not take it.
std::uint64_t Allocator::releaseWhole(Block* block) {
  Heap& heap = *block->heap;
  const int sizes = static_cast<int>(heap.config.sizes);
  const std::uint64_t bytes = block->size;
  if (block->segment->kept) return 0;
  if (heap.config.source->release(block->address, bytes, block->segment->lane->stream) != Status::ok)
    return 0;
  const std::unique_ptr<Segment> segment = heap.removeSegment(block);
  ++counters_.sourceReleases;
  plain_.fetch_sub(bytes, std::memory_order_relaxed);
  heap.addReserved(-static_cast<std::int64_t>(bytes));
  counters_.segments(sizes, -1);
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

// Free memory that nothing on the device can still touch goes back: of one pool, or of all. Returns its
// bytes.
std::uint64_t Allocator::releaseFree(const MemPool* pool) {
  std::uint64_t bytes = 0;
  for (Heap* heap : heaps_) {
    if (pool != nullptr && heap != pool->small.get() && heap != pool->large.get()) continue;
    heap->mergeComplete();
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
    for (Block* block : whole) bytes += releaseWhole(block);
  }
  return bytes + pages_.trim();
}

// The marks that a lane's pending blocks wait for, the oldest block's first, each held for the caller. Of one
// heap, where one is given.
std::vector<Mark*> Allocator::outstanding(Lane& home, const Heap* heap) {
  std::vector<Mark*> marks;
  std::lock_guard guard(home.mutex);
  for (Block* block = blocksOf(home).pending.first(); block != nullptr; block = block->next) {
    if (heap != nullptr && block->heap != heap) continue;
    for (Mark* const mark : block->uses) {
      mark->hold();
      marks.push_back(mark);
    }
  }
  return marks;
}

Status Allocator::settleAll(bool wait) {
  flushCaches();
  Status status = Status::ok;
  for (LaneId id = 0; id < lanes_.count(); ++id) {
    Lane& lane = lanes_.at(id);
    if (wait) {
      const Status failed = lanes_.synchronizeLane(lane);
      if (failed != Status::ok && failed != Status::invalidHandle) status = failed;
    } else {
      lanes_.pollLane(lane);
    }
  }
  for (LaneId id = 0; id < lanes_.count(); ++id) {
    Lane& lane = lanes_.at(id);
    settlePending(lane, true);
    if (!wait || blocksOf(lane).pending.empty()) continue;
    // What is left waits for events of the caller's, which no lane knows.
    for (Mark* mark : outstanding(lane, nullptr)) {
      const Status failed = lanes_.synchronize(*mark);
      mark->release();
      if (failed != Status::ok) status = failed;
    }
    settlePending(lane, true);
  }
  return status;
}

Status Allocator::emptyCache(MemPool* pool) {
  std::lock_guard lock(mutex_);
  const Status status = settleAll(true);
  releaseFree(pool);
  return status;
}

// Whether something of this heap is out of reach because of this lane: freed on it, or pending there.
bool Allocator::holdsBack(Lane& home, const Heap& heap) const {
  bool found = false;
  heap.eachFree(
      [&](const Block& block) { found = found || (block.lane == &home && !Heap::complete(block)); });
  if (found) return true;
  std::lock_guard guard(home.mutex);
  for (const Block* block = blocksOf(home).pending.first(); block != nullptr && !found; block = block->next)
    found = block->heap == &heap;
  return found;
}

// Makes the lane wait for what other lanes and uses still hold back, until something is long enough: its own
// pending blocks first, then the free blocks of other lanes, then theirs that are pending.
Block* Allocator::waitForOthers(const Request& request, Status* status) {
  Heap& heap = request.heap;
  Lane& lane = request.lane;
  const auto again = [&] {
    for (LaneId id = 0; id < lanes_.count(); ++id) settlePending(lanes_.at(id), false);
    heap.gather(lane);
    return heap.take(request.size, lane, true);
  };
  const auto waitFor = [&](Lane& home) {
    std::vector<Mark*> marks = outstanding(home, &heap);
    // The latest of each lane first: the earlier ones are covered then.
    std::stable_sort(marks.begin(), marks.end(),
                     [](const Mark* a, const Mark* b) { return a->point > b->point; });
    for (Mark* mark : marks) {
      if (*status == Status::ok) {
        std::lock_guard guard(lane.mutex);
        *status = lanes_.wait(lane, *mark, nullptr);
      }
      mark->release();
    }
  };
  waitFor(lane);
  if (*status != Status::ok) return nullptr;
  if (Block* block = again()) return block;
  for (LaneId id = 0; id < lanes_.count(); ++id) {
    Lane& other = lanes_.at(id);
    if (&other == &lane || !holdsBack(other, heap)) continue;
    waitFor(other);
    Mark* newest = nullptr;
    if (*status == Status::ok) *status = lanes_.mark(other, &newest);
    if (*status != Status::ok) return nullptr;
    {
      std::lock_guard guard(lane.mutex);
      *status = lanes_.wait(lane, *newest, nullptr);
    }
    newest->release();
    if (*status != Status::ok) return nullptr;
    adoptPending(other, lane);
    if (Block* block = again()) return block;
  }
  return nullptr;
}

// Pending blocks of `home` whose uses and home `lane` is after by now become its own.
void Allocator::adoptPending(Lane& home, Lane& lane) {
  if (blocksOf(home).pending.empty()) return;
  Block* moved = nullptr;
  {
    // The only place that holds two lanes: the lower number first.
    std::lock_guard lower((home.id < lane.id ? home : lane).mutex);
    std::lock_guard upper((home.id < lane.id ? lane : home).mutex);
    for (Block *block = blocksOf(home).pending.first(), *next; block != nullptr; block = next) {
      next = block->next;
      if (!covered(*block, lane) || !lane.isAfter(home, block->release)) continue;
      blocksOf(home).pending.remove(block);
      block->lane = &lane;
      block->release = 0;
      settle(*block);
      block->release = lane.present();
      block->next = moved;
      moved = block;
    }
  }
  flush(moved);
}

Block* Allocator::lastResort(const Request& request, Status* status) {
  Heap& heap = request.heap;
  const Policy& policy = *options_.policy;
  if (!possible(request)) return nullptr;
  if (options_.refuseEarly && !mayGrow(request.size)) {
    ++counters_.refusedEarly;
    return nullptr;
  }
  Block* found = nullptr;
  if (policy.waitLast) {
    found = waitForOthers(request, status);
    if (found || *status != Status::ok) return found;
  }
  const auto lent = [&]() -> Block* {
    for (MemPool* pool : pools_) {
      if (!pool->useOnOutOfMemory || pool == request.pool) continue;
      Heap& from = heapFor(request.size, pool);
      from.mergeComplete();
      if (policy.order) from.gather(request.lane);
      if (Block* block = from.take(request.size, request.lane, policy.order)) return block;
    }
    return nullptr;
  };
  if ((found = lent())) return found;
  ++counters_.retries;
  // What this heap needs may lie free in another, or in pieces that the source could give back whole.
  const auto retry = [&]() -> Block* {
    heap.mergeComplete();
    if (policy.order) heap.gather(request.lane);
    if (Block* block = heap.take(request.size, request.lane, policy.order)) return block;
    if (Block* block = lent()) return block;
    releaseFree(nullptr);
    Rung rung = Rung::last;
    Status grown = Status::ok;
    Block* block = grow(request, &grown, &rung);
    if (grown != Status::ok && grown != Status::outOfMemory) *status = grown;
    return block;
  };
  settleAll(false);
  if ((found = retry()) || *status != Status::ok) return found;
  // One outstanding use after the other, and a look after each: no longer a wait than is needed.
  for (LaneId id = 0; id < lanes_.count(); ++id) {
    Lane& home = lanes_.at(id);
    for (Mark* mark : outstanding(home, nullptr)) {
      if (found == nullptr && *status == Status::ok && !Lanes::complete(*mark)) {
        *status = lanes_.synchronize(*mark);
        if (*status == Status::ok && settlePending(home, true)) found = retry();
      }
      mark->release();
    }
    if (found || *status != Status::ok) return found;
  }
  // And what was freed on lanes that still run: its pages cannot go anywhere before they have.
  *status = settleAll(true);
  return *status == Status::ok ? retry() : nullptr;
}

}  // namespace braid::caching
