// The rungs of an allocation that finds nothing at hand, one by one, and what lies where on the way: caches,
// pending blocks, heaps.
#include <algorithm>

#include "memory/caching/allocator.h"

namespace braid::caching {

Status Allocator::slow(const Request& request, Block* evicted, Block** block, Shortage* shortage) {
  std::unique_lock lock(mutex_);
  Heap& heap = request.heap;
  const Policy& policy = *options_.policy;
  ++heap.clock;
  ++climbs_;
  if (request.size >= longRequest) longBytes_ += request.size;
  flush(evicted);
  sweepPools();
  Status status = Status::ok;
  Rung rung = Rung::order;
  Block* found = nullptr;
  const auto try_ = [&](Rung next, auto&& step) {
    if (found != nullptr || status != Status::ok) return;
    rung = next;
    found = step();
  };
  if (policy.poll && !blocksOf(request.lane).pending.empty())
    settlePending(request.lane, true, request.refused);
  try_(Rung::order, [&] { return heap.take(request.size, request.lane, policy.order); });
  if (!blocksOf(request.lane).pending.empty() && policy.order) {
    try_(Rung::order, [&] { return fromPending(request, false, false, &status); });
    if (policy.waitFirst) try_(Rung::wait, [&] { return fromPending(request, true, false, &status); });
  }
  // Other threads keep what their lanes have at hand until memory would grow. Where all lanes are one
  // thread's, what fits best is looked for in all of them at once, which holds less. A lane that has little
  // at hand keeps that too, and memory grows: what it gives up it asks for again, and every such question
  // holds up all threads.
  if (counters_.several()) {
    if (request.size <= keptByThread && keepsLittle(request.lane))
      try_(Rung::grow, [&] { return grow(request, &status, &rung); });
    if (status == Status::outOfMemory) status = Status::ok;
    try_(Rung::gather, [&] {
      flushCache(request.lane);
      return heap.take(request.size, request.lane, policy.order);
    });
  }
  try_(Rung::gather, [&] {
    flushCaches();
    if (policy.order) {
      for (LaneId id = 0; id < lanes_.count(); ++id) {
        settlePending(lanes_.at(id), policy.poll);
        // What another lane freed, and this one is after all uses of, though its home is not.
        if (id != request.lane.id) adoptPending(lanes_.at(id), request.lane);
      }
      // A policy that asks nothing lets no clock decide which block this is.
      if (policy.poll) pollHomes(heap, request.lane);
      heap.gather(request.lane);
    }
    return heap.take(request.size, request.lane, policy.order);
  });
  if (policy.waitFirst) {
    try_(Rung::wait, [&] { return fromPending(request, true, true, &status); });
    try_(Rung::wait, [&] { return fromPendingRun(request, &status); });
  }
  try_(Rung::grow, [&] { return grow(request, &status, &rung); });
  // A driver that has no more memory is the ladder's to deal with; any other failure is the caller's.
  if (status == Status::outOfMemory) status = Status::ok;
  try_(Rung::last, [&] { return lastResort(request, &status); });
  if (found == nullptr && status == Status::ok) {
    // Out of memory: what the observers give back is looked for once more, by all rungs.
    for (std::size_t i = 0; i < observers_.size() && found == nullptr; ++i) {
      const auto [observer, data] = observers_[i];
      *shortage = shortageOf(request, Status::outOfMemory);
      lock.unlock();
      const bool again = observer(data, *shortage);
      lock.lock();
      if (!again) continue;
      flushCaches();
      rung = Rung::last;
      found = heap.take(request.size, request.lane, policy.order);
      if (found == nullptr) found = grow(request, &status, &rung);
      if (status == Status::outOfMemory) status = Status::ok;
      if (found == nullptr) found = lastResort(request, &status);
    }
  }
  if (found == nullptr) {
    if (status == Status::ok) status = Status::outOfMemory;
    *shortage = shortageOf(request, status);
    if (status == Status::outOfMemory) ++counters_.outOfMemory;
    if (history_.on())
      history_.add({.action = Action::outOfMemory,
                    .lane = request.lane.id,
                    .address = shortage->deviceFree,
                    .size = request.size,
                    .pool = heap.config.pool});
    return status;
  }
  ++counters_.served[static_cast<std::size_t>(rung)];
  *block = found;
  return Status::ok;
}

// Into its heap; what is too long to keep goes on to its source where nothing can still touch it.
void Allocator::giveBack(Block* block) {
  const bool goes = block->size > options_.cacheUpTo;
  Block* whole = block->heap->give(block);
  if (!goes || whole->segment->expandable || whole->size != whole->segment->size) return;
  if (!Heap::complete(*whole)) lanes_.pollLane(*whole->lane);
  if (Heap::complete(*whole)) releaseWhole(whole);
}

void Allocator::flush(Block* list) {
  while (list != nullptr) {
    Block* block = list;
    list = block->next;
    giveBack(block);
  }
}

void Allocator::flushCache(Lane& lane) {
  Block* all = nullptr;
  {
    std::lock_guard guard(lane.mutex);
    all = blocksOf(lane).cache.flush();
  }
  flush(all);
}

bool Allocator::keepsLittle(Lane& lane) const {
  std::lock_guard guard(lane.mutex);
  return blocksOf(lane).cache.within(keptByThread);
}

void Allocator::flushCaches() {
  for (LaneId id = 0; id < lanes_.count(); ++id) flushCache(lanes_.at(id));
}
// Pending blocks of one home lane that it is after by now, into their heaps. With `ask`, the driver is asked
// once for each lane whose uses are still outstanding, and not again after it has said no. Returns whether
// there were any.
bool Allocator::settlePending(Lane& lane, bool ask, const Lane* refusedAlready) {
  if (blocksOf(lane).pending.empty()) return false;
  Block* settled = nullptr;
  {
    std::lock_guard guard(lane.mutex);
    bool refused[Lanes::most] = {};
    if (refusedAlready != nullptr) refused[refusedAlready->id] = true;
    for (Block *block = blocksOf(lane).pending.first(), *next; block != nullptr; block = next) {
      next = block->next;
      bool ready = true;
      for (Mark* const each : block->uses) {
        if (!ready) break;
        Mark& mark = *each;
        ready = options_.policy->order ? lane.isAfter(mark) : Lanes::complete(mark);
        if (ready || !ask || (mark.lane != nullptr && refused[mark.lane->id])) continue;
        ready = lanes_.poll(mark, &lane) == Status::ok;
        if (!ready && mark.lane != nullptr) refused[mark.lane->id] = true;
      }
      if (!ready) continue;
      blocksOf(lane).pending.remove(block);
      block->next = settled;
      settled = block;
    }
    for (Block* block = settled; block != nullptr; block = block->next) settle(*block);
  }
  flush(settled);
  return settled != nullptr;
}

// One question to each lane that has freed what this one is not after.
void Allocator::pollHomes(const Heap& heap, const Lane& lane) {
  if (heap.ownOnly(lane)) return;
  bool asked[Lanes::most] = {};
  heap.eachFree([&](const Block& block) {
    if (block.lane == &lane || Heap::complete(block) || asked[block.lane->id]) return;
    asked[block.lane->id] = true;
    lanes_.pollLane(*block.lane);
  });
}
// The lane's own pending block of exactly this size that it is after, else one that it may be made to wait
// for, oldest first; where `longer` is set, the shortest that is long enough.
Block* Allocator::fromPending(const Request& request, bool mayWait, bool longer, Status* status) {
  constexpr int most = 256;
  Lane& lane = request.lane;
  Block* best = nullptr;
  {
    std::lock_guard guard(lane.mutex);
    bool bestCovered = false;
    int looked = 0;
    for (Block* block = blocksOf(lane).pending.first(); block != nullptr && looked < most;
         block = block->next, ++looked) {
      if (block->heap != &request.heap || block->size < request.size ||
          (!longer && block->size != request.size))
        continue;
      if (best != nullptr && block->size > best->size) continue;
      const bool after = covered(*block, lane);
      if (!after && !mayWait) continue;
      if (best != nullptr && block->size == best->size && (bestCovered || !after)) continue;
      best = block;
      bestCovered = after;
    }
    if (best == nullptr) return nullptr;
    if (!bestCovered) {
      *status = waitForUses(*best, lane);
      if (*status != Status::ok) return nullptr;
    }
    blocksOf(lane).pending.remove(best);
    settle(*best);
  }
  return request.heap.carve(best, request.size, lane);
}

// The shortest run of neighbours that are free or the lane's own pending ones: the lane waits for the uses of
// those.
Block* Allocator::fromPendingRun(const Request& request, Status* status) {
  Lane& lane = request.lane;
  Heap& heap = request.heap;
  if (blocksOf(lane).pending.empty()) return nullptr;
  std::lock_guard guard(lane.mutex);
  const auto usable = [&](const Block& block) {
    return (block.state == BlockState::pending && block.lane == &lane) ||
           (block.state == BlockState::free && heap.before(block, lane));
  };
  Block* best = nullptr;
  std::uint64_t shortest = unlimited;
  for (const auto& segment : heap.segments()) {
    for (Block* block = segment->first; block != nullptr;) {
      std::uint64_t length = 0;
      bool pending = false;
      Block* const first = block;
      for (; block != nullptr && usable(*block); block = block->nextInSegment) {
        length += block->size;
        pending = pending || block->state == BlockState::pending;
      }
      if (pending && length >= request.size && length < shortest) {
        best = first;
        shortest = length;
      }
      if (block == first) block = block->nextInSegment;
    }
  }
  if (best == nullptr) return nullptr;
  std::uint64_t length = 0;
  std::vector<Block*> parts;
  for (Block* block = best; length < request.size; block = block->nextInSegment) {
    parts.push_back(block);
    length += block->size;
    if (block->state != BlockState::pending) continue;
    *status = waitForUses(*block, lane);
    if (*status != Status::ok) return nullptr;
  }
  for (Block* part : parts) {
    if (part->state == BlockState::pending) {
      blocksOf(lane).pending.remove(part);
      settle(*part);
    } else {
      heap.extract(part);
    }
  }
  for (std::size_t i = 1; i < parts.size(); ++i) heap.join(best, parts[i]);
  best->lane = &lane;
  best->settled = false;
  best->release = lane.present();
  best->state = BlockState::free;
  return heap.carve(best, request.size, lane);
}

}  // namespace braid::caching
