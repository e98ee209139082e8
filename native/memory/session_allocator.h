#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "driver/driver.h"
#include "memory/range_pool.h"
#include "memory/session_block.h"
#include "order/tick_order.h"

namespace braid {

// Which rungs of the ladder an allocation may climb after reuse by order and growth within the limit have
// failed.
struct AllocatorPolicy {
  bool waitAtReuse = true;  // make the lane wait for the uses of pending ranges
  bool synchronize = true;  // wait, on the calling thread, for everything that was issued
};

// How often each rung served an allocation.
struct AllocatorCounters {
  std::uint64_t byOrder = 0;
  std::uint64_t byWait = 0;
  std::uint64_t byGrowth = 0;
  std::uint64_t bySynchronize = 0;
  std::uint64_t failures = 0;
  std::uint64_t waitsIssued = 0;
  std::uint64_t allocatedBytes = 0;
  std::uint64_t allocatedPeak = 0;
};

// Where the figures of a refused allocation stand.
struct AllocatorShortage {
  std::uint64_t wanted = 0, free = 0, longestFree = 0, limit = 0;
};

// A caching allocator over one range of a device's memory (or of pinned memory), for the lanes of one
// session:
//   1. Reuse by order: a freed range that the lane is known to be after is taken at once, with no query.
//   2. Growth into the part of the range that was never used.
//   3. Wait-at-reuse: the lane is made to wait, on the device, for the uses of the cheapest run of pending
//   ranges.
//   4. Synchronise and retry.
// Rungs 1 and 2 are RangePool's rule. The order itself is the issuer's, shared with every pool of the
// session. Thread-safe: one mutex, which is held across driver calls only on rung 3.
class Allocator {
 public:
  // `drivers` (of the device that each lane is on) and `streams` by lane. `events` are those of order's
  // markers, by marker. All outlive the allocator.
  Allocator(const std::vector<Driver*>& drivers, TickOrder& order, std::uint64_t limit,
            const std::vector<Stream>& streams, const std::vector<Event>& events,
            AllocatorPolicy policy = {});

  // One event per lane, created beforehand, with its marker: recorded where no event of the plan's marks a
  // point that rung 3 needs.
  void setSpareMarkers(std::vector<TickOrder::Marker> spare) { spare_ = std::move(spare); }
  // Takes the memory for this many blocks, live or free, so that none is taken later.
  void reserve(std::size_t blocks);

  Status malloc(std::uint64_t bytes, LaneId lane, BlockId* block);
  void free(BlockId block);
  // The block's last read on `point.lane` is at or before `point`. A no-op on the home lane; of several
  // points of a lane the last counts.
  void recordUse(BlockId block, Point point);

  // Called when the order has learnt that everything below `order.completed()` is before all lanes.
  void settle();
  // Everything has completed and every owner is gone (a failed tick left blocks behind).
  void reset();

  // What decides about the places of blocks to come, no block being live: see Settling.
  void appendState(std::vector<Count>* state) const;
  // A tick went by that placed this many blocks where the tick before did, without a question.
  void repeat(std::uint64_t blocks);

  const Block& block(BlockId id) const { return blocks_[id]; }
  AllocatorCounters counters() const;
  AllocatorShortage shortage() const;  // of the last failure
  std::uint64_t peak() const;          // the furthest byte ever given out
  std::string describe(const AllocatorShortage& shortage) const;

 private:
  Status recordSpare(TickOrder::Marker marker, LaneId lane, LaneId current);
  Status waitForPending(std::uint64_t size, LaneId lane, bool* waited);
  Status synchronizeAll(std::unique_lock<std::mutex>& lock);
  Frontier uses(BlockId id) { return {uses_.data() + id * order_.lanes(), order_.lanes()}; }
  BlockId addBlock();

  const std::vector<Driver*>& drivers_;
  TickOrder& order_;
  const std::vector<Stream>& streams_;
  const std::vector<Event>& events_;
  AllocatorPolicy policy_;
  mutable std::mutex mutex_;
  RangePool pool_;
  std::vector<Block> blocks_;
  std::vector<Count> uses_;  // blocks × lanes
  std::vector<BlockId> freeIds_;
  std::vector<TickOrder::Marker> spare_;
  std::vector<Count> pending_;  // scratch of rung 3
  AllocatorCounters counters_;
  AllocatorShortage shortage_;
};

}  // namespace braid
