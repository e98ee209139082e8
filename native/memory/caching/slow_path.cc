// The slow path of an allocation: the fallback chain for a request that the lane's cache cannot serve.
#include <algorithm>

#include "memory/caching/allocator.h"

namespace braid::caching {

Status Allocator::slow(const Request& request, Block* evicted, Block** block, Shortage* shortage) {
  std::unique_lock lock(mutex_);
  asked_ = 0;
  ++request.heap.clock;
  ++slowCalls_;
  if (request.size >= longRequest) longBytes_ += request.size;
  returnAllToHeaps(evicted);
  sweepPools();
  Status status = Status::ok;
  Fallback fallback = Fallback::order;
  Block* found = tryFallbacks(request, &fallback, &status);
  // Out of memory: observers may free blocks, so the end of the chain is tried again after each of them.
  for (std::size_t i = 0; i < observers_.size() && found == nullptr && status == Status::ok; ++i) {
    const auto [observer, data] = observers_[i];
    *shortage = shortageOf(request, Status::outOfMemory);
    lock.unlock();
    const bool again = observer(data.get(), *shortage);
    lock.lock();
    if (!again) continue;
    drainCaches();
    fallback = Fallback::lastResort;
    found = request.heap.take(request.size, request.lane, options_.policy->order);
    if (found == nullptr) found = grow(request, &status, &fallback);
    if (status == Status::outOfMemory) status = Status::ok;
    if (found == nullptr) found = lastResort(request, &status);
  }
  if (found != nullptr) {
    ++counters_.served[static_cast<std::size_t>(fallback)];
    *block = found;
    return Status::ok;
  }
  if (status == Status::ok) status = Status::outOfMemory;
  *shortage = shortageOf(request, status);
  if (status == Status::outOfMemory) ++counters_.outOfMemory;
  if (history_.on())
    history_.add({.action = Action::outOfMemory,
                  .lane = request.lane.id,
                  .address = shortage->deviceFree,
                  .size = request.size,
                  .pool = request.heap.config.pool});
  return status;
}

// The fallback chain, in the order that `Allocator` lists. *fallback is the one that found the block.
Block* Allocator::tryFallbacks(const Request& request, Fallback* fallback, Status* status) {
  Heap& heap = request.heap;
  Lane& lane = request.lane;
  const Policy& policy = *options_.policy;
  // In a capture a wait would be one more edge, in every launch.
  const bool waitFirst = policy.waitFirst && !lane.inGraph;
  Block* found = nullptr;
  const auto attempt = [&](Fallback next, auto&& step) {
    if (found != nullptr || *status != Status::ok) return;
    *fallback = next;
    found = step();
  };
  const auto take = [&] { return heap.take(request.size, lane, policy.order); };
  const auto growing = [&] {
    Block* block = grow(request, status, fallback);
    // What to do when the driver has no more memory is for the fallbacks that follow.
    if (*status == Status::outOfMemory) *status = Status::ok;
    return block;
  };

  if (policy.poll && !blocksOf(lane).pending.empty()) releasePending(lane, true, request.refused);
  attempt(Fallback::order, take);
  if (!blocksOf(lane).pending.empty() && policy.order) {
    attempt(Fallback::order, [&] { return fromPending(request, false, false, status); });
    if (waitFirst) attempt(Fallback::wait, [&] { return fromPending(request, true, false, status); });
  }
  // With several threads, other threads' lanes keep their caches until memory would grow, and a lane whose
  // own cache is small keeps that too: it would soon need the same blocks again, and each request on the
  // slow path holds up every thread. With one thread, searching all caches at once needs less memory.
  if (counters_.several()) {
    if (request.size <= keptPerThread && holdsLittle(lane)) attempt(Fallback::grow, growing);
    attempt(Fallback::coalesce, [&] {
      drainCache(lane);
      return take();
    });
  }
  attempt(Fallback::coalesce, [&] {
    drainCaches();
    if (policy.order) {
      for (LaneId id = 0; id < lanes_.count(); ++id) {
        releasePending(lanes_.at(id), policy.poll);
        // This lane may be after all uses of a block whose home lane is not.
        if (id != lane.id) adoptPending(lanes_.at(id), lane);
      }
      // Without polling, the block that is found must not depend on time.
      if (policy.poll) pollHomes(heap, lane);
      heap.coalesce(lane);
    }
    return take();
  });
  if (waitFirst) {
    attempt(Fallback::wait, [&] { return fromPending(request, true, true, status); });
    attempt(Fallback::wait, [&] { return fromPendingRun(request, status); });
  }
  attempt(Fallback::grow, growing);
  attempt(Fallback::lastResort, [&] { return lastResort(request, status); });
  return found;
}

// The lane's own pending block of exactly this size: one whose uses it is after, else (`mayWait`) one that
// it is made to wait for, oldest first. With `longer`, the shortest block that is long enough.
Block* Allocator::fromPending(const Request& request, bool mayWait, bool longer, Status* status) {
  constexpr int most = 256;
  Lane& lane = request.lane;
  Block* best = nullptr;
  {
    std::lock_guard guard(lane.mutex);
    bool bestOrdered = false;
    int looked = 0;
    for (Block* block = blocksOf(lane).pending.first(); block != nullptr && looked < most;
         block = block->next, ++looked) {
      if (block->heap != &request.heap || block->size < request.size ||
          (!longer && block->size != request.size))
        continue;
      if (best != nullptr && block->size > best->size) continue;
      const bool ordered = isAfterUses(lane, *block);
      if (!ordered && !mayWait) continue;
      if (best != nullptr && block->size == best->size && (bestOrdered || !ordered)) continue;
      best = block;
      bestOrdered = ordered;
    }
    if (best == nullptr) return nullptr;
    if (!bestOrdered) {
      *status = waitForUses(*best, lane);
      if (*status != Status::ok) return nullptr;
    }
    blocksOf(lane).pending.remove(best);
    retirePending(*best);
  }
  return request.heap.carve(best, request.size, lane);
}

// The shortest run of neighbours that are free, or pending on this lane, which is made to wait for their
// uses.
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
      retirePending(*part);
    } else {
      heap.extract(part);
    }
  }
  for (std::size_t i = 1; i < parts.size(); ++i) heap.join(best, parts[i]);
  best->lane = &lane;
  best->anyLane = false;
  best->release = lane.present();
  best->state = BlockState::free;
  return heap.carve(best, request.size, lane);
}

// From pools that lend their memory when it runs out elsewhere.
Block* Allocator::fromLendingPools(const Request& request) {
  const bool order = options_.policy->order;
  for (MemPool* pool : pools_) {
    if (!pool->useOnOutOfMemory || pool == request.pool || pool->kept()) continue;
    Heap& from = heapFor(request.size, pool);
    from.coalesceCompleted();
    if (order) from.coalesce(request.lane);
    if (Block* block = from.take(request.size, request.lane, order)) return block;
  }
  return nullptr;
}

// Makes the lane wait for what other lanes and uses hold back, until a block is long enough: first for its
// own pending blocks, then lane by lane for the other lanes' free and pending ones.
Block* Allocator::waitForOthers(const Request& request, Status* status) {
  Heap& heap = request.heap;
  Lane& lane = request.lane;
  const auto takeAgain = [&] {
    for (LaneId id = 0; id < lanes_.count(); ++id) releasePending(lanes_.at(id), false);
    heap.coalesce(lane);
    return heap.take(request.size, lane, true);
  };
  const auto wait = [&](Mark* mark) {
    if (*status == Status::ok) {
      std::lock_guard guard(lane.mutex);
      *status = lanes_.wait(lane, *mark, nullptr);
    }
    mark->release();
    return *status == Status::ok;
  };
  const auto waitForPending = [&](Lane& home) {
    std::vector<Mark*> marks = outstanding(home, &heap);
    // The latest mark of each lane first: the wait for it makes those for the earlier ones redundant.
    std::stable_sort(marks.begin(), marks.end(),
                     [](const Mark* a, const Mark* b) { return a->point > b->point; });
    for (Mark* mark : marks) wait(mark);
  };
  waitForPending(lane);
  if (*status != Status::ok) return nullptr;
  if (Block* block = takeAgain()) return block;
  for (LaneId id = 0; id < lanes_.count(); ++id) {
    Lane& other = lanes_.at(id);
    if (&other == &lane || !holdsBack(other, heap)) continue;
    waitForPending(other);
    Mark* newest = nullptr;
    if (*status == Status::ok) *status = lanes_.mark(other, &newest);
    if (*status != Status::ok) return nullptr;
    if (!wait(newest)) return nullptr;
    adoptPending(other, lane);
    if (Block* block = takeAgain()) return block;
  }
  return nullptr;
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
  if (policy.waitLast && !request.lane.inGraph && lanes_.mayBlock()) {
    found = waitForOthers(request, status);
    if (found || *status != Status::ok) return found;
  }
  if ((found = fromLendingPools(request))) return found;
  ++counters_.retries;
  // What this heap needs may be free in another heap, or in pieces that together can go back to the source.
  const auto retry = [&]() -> Block* {
    heap.coalesceCompleted();
    if (policy.order) heap.coalesce(request.lane);
    if (Block* block = heap.take(request.size, request.lane, policy.order)) return block;
    if (Block* block = fromLendingPools(request)) return block;
    releaseFree(nullptr);
    Fallback fallback = Fallback::lastResort;
    Status grown = Status::ok;
    Block* block = grow(request, &grown, &fallback);
    if (grown != Status::ok && grown != Status::outOfMemory) *status = grown;
    return block;
  };
  releaseAllPending(false);
  if ((found = retry()) || *status != Status::ok) return found;
  // Work that waits for the host may be what the uses wait for.
  if (!lanes_.mayBlock()) {
    *status = Status::notPermitted;
    return nullptr;
  }
  // The caller waits for one outstanding use at a time and tries again after each, so that it waits no longer
  // than it has to.
  for (LaneId id = 0; id < lanes_.count(); ++id) {
    Lane& home = lanes_.at(id);
    for (Mark* mark : outstanding(home, nullptr)) {
      if (found == nullptr && *status == Status::ok && !Lanes::complete(*mark)) {
        *status = lanes_.synchronize(*mark);
        if (*status == Status::ok && releasePending(home, true)) found = retry();
      }
      mark->release();
    }
    if (found || *status != Status::ok) return found;
  }
  // At last it waits for all lanes: pages of blocks that were freed on a running lane cannot move before.
  *status = releaseAllPending(true);
  return *status == Status::ok ? retry() : nullptr;
}

}  // namespace braid::caching
