// Blocks on their way back into the heaps: those in the lanes' caches, and those that are pending because
// their home lane is not known to be after their uses.
#include <algorithm>

#include "memory/caching/allocator.h"

namespace braid::caching {

LaneBlocks& Allocator::makeLaneBlocks(const Lane& lane) const {
  auto made = std::make_unique<LaneBlocks>();
  LaneBlocks* known = nullptr;
  if (laneBlocks_[lane.id].compare_exchange_strong(known, made.get(), std::memory_order_acq_rel))
    known = made.release();
  return *known;
}

// Puts a block into its heap. Under a limit on what is kept (`cacheUpTo`) a segment that becomes free as a
// whole goes back to its source; where nothing is kept, once its lane has run, as cuMemFree would wait too.
void Allocator::returnToHeap(Block* block) {
  const bool tooLong = block->size > options_.cacheUpTo;
  Block* whole = block->heap->give(block);
  if (!tooLong || whole->segment->expandable || whole->size != whole->segment->size) return;
  if (!Heap::complete(*whole)) lanes_.pollLane(*whole->lane);
  if (!Heap::complete(*whole) && options_.cacheUpTo == 0) lanes_.synchronizeLane(*whole->lane);
  if (Heap::complete(*whole)) releaseWhole(whole);
}

void Allocator::returnAllToHeaps(Block* list) {
  while (list != nullptr) {
    Block* block = list;
    list = block->next;
    returnToHeap(block);
  }
}

void Allocator::drainCache(Lane& lane) {
  Block* all = nullptr;
  {
    std::lock_guard guard(lane.mutex);
    all = blocksOf(lane).cache.drain();
  }
  returnAllToHeaps(all);
}

void Allocator::drainCaches() {
  for (LaneId id = 0; id < lanes_.count(); ++id) drainCache(lanes_.at(id));
}

bool Allocator::holdsLittle(Lane& lane) const {
  std::lock_guard guard(lane.mutex);
  return blocksOf(lane).cache.within(keptPerThread);
}

// Moves the pending blocks whose uses the home lane is after into their heaps; returns whether there were
// any. With `poll`, the driver is queried once for each lane with outstanding uses, and not again once it
// has answered that they are. `notComplete` is a lane that has answered so already.
bool Allocator::releasePending(Lane& home, bool poll, const Lane* notComplete) {
  if (blocksOf(home).pending.empty()) return false;
  Block* released = nullptr;
  {
    std::lock_guard guard(home.mutex);
    bool outstanding[Lanes::most] = {};
    if (notComplete != nullptr) outstanding[notComplete->id] = true;
    for (Block *block = blocksOf(home).pending.first(), *next; block != nullptr; block = next) {
      next = block->next;
      bool ready = true;
      for (Mark* const each : block->uses) {
        if (!ready) break;
        Mark& mark = *each;
        ready = options_.policy->order ? home.isAfter(mark) : Lanes::complete(mark);
        if (ready || !poll || outstanding[mark.lane->id]) continue;
        ready = lanes_.poll(mark, &home) == Status::ok;
        if (!ready) outstanding[mark.lane->id] = true;
      }
      if (!ready) continue;
      blocksOf(home).pending.remove(block);
      block->next = released;
      released = block;
    }
    for (Block* block = released; block != nullptr; block = block->next) retirePending(*block);
  }
  returnAllToHeaps(released);
  return released != nullptr;
}

// Queries each lane that has freed blocks of the heap that this lane is not after, once.
void Allocator::pollHomes(const Heap& heap, const Lane& lane) {
  if (heap.ownOnly(lane)) return;
  bool polled[Lanes::most] = {};
  heap.eachFree([&](const Block& block) {
    if (block.lane == &lane || Heap::complete(block) || polled[block.lane->id]) return;
    polled[block.lane->id] = true;
    lanes_.pollLane(*block.lane);
  });
}

// Pending blocks of `home` become `lane`'s own where `lane` is after their uses and their free.
void Allocator::adoptPending(Lane& home, Lane& lane) {
  if (blocksOf(home).pending.empty()) return;
  Block* adopted = nullptr;
  {
    // The only place that holds two lanes' locks: the lower id first.
    std::lock_guard lower((home.id < lane.id ? home : lane).mutex);
    std::lock_guard upper((home.id < lane.id ? lane : home).mutex);
    for (Block *block = blocksOf(home).pending.first(), *next; block != nullptr; block = next) {
      next = block->next;
      if (!isAfterUses(lane, *block) || !lane.isAfter(home, block->release)) continue;
      blocksOf(home).pending.remove(block);
      block->lane = &lane;
      block->release = 0;
      retirePending(*block);
      block->release = lane.present();
      block->next = adopted;
      adopted = block;
    }
  }
  returnAllToHeaps(adopted);
}

// The marks that a lane's pending blocks wait for, the oldest block's first, each held for the caller. With
// `heap`, of its blocks alone.
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

// Whether this lane keeps blocks of the heap from others: blocks that it freed, or that are pending on it.
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

// Empties all caches, and moves all pending blocks into their heaps whose uses have completed; with `wait`,
// waits until all have.
Status Allocator::releaseAllPending(bool wait) {
  if (wait && !lanes_.mayBlock()) return Status::notPermitted;
  drainCaches();
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
    releasePending(lane, true);
    if (!wait || blocksOf(lane).pending.empty()) continue;
    // What is still pending waits for events of the caller's, which belong to no lane.
    for (Mark* mark : outstanding(lane, nullptr)) {
      const Status failed = lanes_.synchronize(*mark);
      mark->release();
      if (failed != Status::ok) status = failed;
    }
    releasePending(lane, true);
  }
  return status;
}

}  // namespace braid::caching
