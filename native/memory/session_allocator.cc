#include "memory/session_allocator.h"

namespace braid {

SessionAllocator::SessionAllocator(const std::vector<Driver*>& drivers, TickOrder& order, std::uint64_t limit,
                                   const std::vector<Stream>& streams, const std::vector<Event>& events,
                                   SessionAllocator::Policy policy)
    : drivers_(drivers),
      order_(order),
      streams_(streams),
      events_(events),
      policy_(policy),
      pool_(limit, order.lanes()),
      pending_(order.lanes()) {}

void SessionAllocator::reserve(std::size_t blocks) {
  blocks_.reserve(blocks);
  freeIds_.reserve(blocks);
  uses_.reserve(blocks * order_.lanes());
  pool_.reserve(2 * blocks + 16);
}

BlockId SessionAllocator::addBlock() {
  BlockId id;
  if (freeIds_.empty()) {
    id = static_cast<BlockId>(blocks_.size());
    blocks_.emplace_back();
    uses_.resize(blocks_.size() * order_.lanes());
  } else {
    id = freeIds_.back();
    freeIds_.pop_back();
  }
  std::fill(uses(id).begin(), uses(id).end(), 0);
  return id;
}

Status SessionAllocator::malloc(std::uint64_t bytes, LaneId lane, BlockId* block) {
  std::unique_lock lock(mutex_);
  const bool representable = bytes <= pool_.limit();
  const std::uint64_t size = representable ? RangePool::rounded(bytes) : bytes;
  std::optional<RangePool::Taken> taken;
  std::uint64_t* servedBy = &counters_.byOrder;
  if (representable) {
    taken = pool_.take(size, lane, order_.frontier(lane));
    if (taken && taken->grew) servedBy = &counters_.byGrowth;
    if (!taken && policy_.wait) {
      bool waited = false;
      if (const Status status = waitForPending(size, lane, &waited); status != Status::ok) return status;
      if (waited) taken = pool_.take(size, lane, order_.frontier(lane));
      servedBy = &counters_.byWait;
    }
    if (!taken && policy_.synchronize && pool_.longestFree() >= size) {
      if (const Status status = synchronizeAll(lock); status != Status::ok) return status;
      taken = pool_.take(size, lane, order_.frontier(lane));
      servedBy = &counters_.bySynchronize;
    }
  }
  if (!taken) {
    ++counters_.failures;
    shortage_ = {size, pool_.freeBytes(), pool_.longestFree(), pool_.limit()};
    return Status::outOfMemory;
  }
  ++*servedBy;
  counters_.allocatedBytes += size;
  counters_.allocatedPeak = std::max(counters_.allocatedPeak, counters_.allocatedBytes);
  *block = addBlock();
  blocks_[*block] = {taken->offset, bytes, size, lane, true};
  return Status::ok;
}

void SessionAllocator::free(BlockId id) {
  std::lock_guard lock(mutex_);
  Block& block = blocks_[id];
  if (!block.live) return;
  block.live = false;
  // The release frontier: the home lane's present point, joined with the points of the uses. A lane that is
  // after a point is also after all that the point's lane had waited for, so nothing more is kept.
  uses(id)[block.home] = order_.present(block.home).count;
  pool_.give(block.offset, block.size, uses(id));
  counters_.allocatedBytes -= block.size;
  freeIds_.push_back(id);
}

void SessionAllocator::recordUse(BlockId id, Point point) {
  std::lock_guard lock(mutex_);
  if (!blocks_[id].live || blocks_[id].home == point.lane) return;
  Count& last = uses(id)[point.lane];
  last = std::max(last, point.count);
}

// The thread is bound to the device of `current`, which may differ from that of `lane`. Other lanes may still
// wait for what the spare event marked before: a wait is for the record that was the newest when the wait was
// issued, so recording the event anew changes none of them.
Status SessionAllocator::recordSpare(TickOrder::Marker marker, LaneId lane, LaneId current) {
  Driver& driver = *drivers_[lane];
  const bool other = &driver != drivers_[current];
  Status status = other ? driver.bind() : Status::ok;
  if (status == Status::ok) status = driver.eventRecord(events_[marker], streams_[lane]);
  const Status back = other ? drivers_[current]->bind() : Status::ok;
  if (status != Status::ok || back != Status::ok) return status != Status::ok ? status : back;
  order_.record(marker, lane);
  return Status::ok;
}

// The points are those of frees and uses, so all work up to them is in its lane's queue: a marker at or after
// one exists already, or is recorded here behind that work. What is freed while this runs cannot be taken,
// since the issuing thread, which is here, does all frees. The lane's order joins each marker's frontier as
// it was when it was recorded, and `take` then asks that order again, so a range that another one happens to
// lie beside is given out only if the lane comes after its release too. Lanes that begin to repeat their
// addresses (SteadyState) have issued no such wait since the state was the same, so none is lost.
Status SessionAllocator::waitForPending(std::uint64_t size, LaneId lane, bool* waited) {
  if (!pool_.cheapestPending(size, lane, order_.frontier(lane), pending_)) return Status::ok;
  for (LaneId other = 0; other < order_.lanes(); ++other) {
    const Point point{other, pending_[other]};
    // Checked anew for each lane: the wait before may have ordered this point too.
    if (order_.lane(lane).isAfter(point)) continue;
    TickOrder::Marker marker = 0;
    if (!order_.markerAfter(point, &marker)) {
      if (spare_.empty()) return Status::ok;
      marker = spare_[other];
      if (const Status status = recordSpare(marker, other, lane); status != Status::ok) return status;
    }
    const Status status = drivers_[lane]->streamWait(streams_[lane], events_[marker]);
    if (status != Status::ok) return status;
    order_.wait(marker, lane);
    ++counters_.waitsIssued;
  }
  *waited = true;
  return Status::ok;
}

// Releases the mutex while it waits: the work may depend on a thread that reads the counters meanwhile. Only
// the issuing thread, which is here, changes anything else.
Status SessionAllocator::synchronizeAll(std::unique_lock<std::mutex>& lock) {
  lock.unlock();
  Status status = Status::ok;
  for (LaneId lane = 0; lane < streams_.size(); ++lane) {
    if (status == Status::ok) status = drivers_[lane]->streamSynchronize(streams_[lane]);
  }
  lock.lock();
  if (status != Status::ok) return status;
  order_.completeAll();
  return Status::ok;
}

void SessionAllocator::forgetCompleted() {
  std::lock_guard lock(mutex_);
  pool_.forgetCompleted(order_.completed());
}

void SessionAllocator::reset() {
  std::lock_guard lock(mutex_);
  for (BlockId id = 0; id < blocks_.size(); ++id) {
    if (blocks_[id].live) freeIds_.push_back(id);
    blocks_[id].live = false;
  }
  counters_.allocatedBytes = 0;
  peakBefore_ = std::max(peakBefore_, pool_.peak());
  pool_.reset();
}

void SessionAllocator::appendState(std::vector<Count>* state) const {
  std::lock_guard lock(mutex_);
  state->push_back(pool_.peak());
  state->push_back(pool_.ranges());
  const FreeRanges& free = pool_.free();
  for (FreeRanges::Row row = free.first(); row != FreeRanges::none; row = free.next(row)) {
    state->push_back(free.offset(row));
    state->push_back(free.size(row));
    for (LaneId lane = 0; lane < order_.lanes(); ++lane)
      state->push_back(order_.distance(lane, free.release(row)[lane]));
  }
}

void SessionAllocator::countRepeated(std::uint64_t blocks) {
  std::lock_guard lock(mutex_);
  counters_.byOrder += blocks;
}

SessionAllocator::Counters SessionAllocator::counters() const {
  std::lock_guard lock(mutex_);
  return counters_;
}

SessionAllocator::Shortage SessionAllocator::shortage() const {
  std::lock_guard lock(mutex_);
  return shortage_;
}

std::uint64_t SessionAllocator::peak() const {
  std::lock_guard lock(mutex_);
  return std::max(peakBefore_, pool_.peak());
}

std::string SessionAllocator::describe(const SessionAllocator::Shortage& shortage) const {
  return "wanted " + std::to_string(shortage.wanted) + " bytes; free " + std::to_string(shortage.free) +
         " of " + std::to_string(shortage.limit) + ", the longest run " +
         std::to_string(shortage.longestFree);
}

}  // namespace braid
