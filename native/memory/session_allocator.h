#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "driver/driver.h"
#include "memory/range_pool.h"
#include "order/tick_order.h"

namespace braid {

using BlockId = std::uint32_t;

// An allocator over one range of a device's memory (or of pinned memory), for the lanes of one session. It
// tries, in this order:
//   1. order        a free range that the lane is known to be after; no query
//   2. growth       the part of the range that was never used
//   3. wait         the lane waits, on the device, for the uses of the cheapest run of free ranges
//   4. synchronize  the calling thread waits for everything that was issued
// RangePool decides 1 and 2. The order is the issuer's, shared with every allocator of the session.
// Thread-safe: one mutex, held across driver calls only in 3.
class SessionAllocator {
 public:
  // What may be tried when neither order nor growth serves an allocation.
  struct Policy {
    bool wait = true;
    bool synchronize = true;
  };
  // How often each of the four served an allocation.
  struct Counters {
    std::uint64_t byOrder = 0, byWait = 0, byGrowth = 0, bySynchronize = 0;
    std::uint64_t failures = 0;
    std::uint64_t waitsIssued = 0;
    std::uint64_t allocatedBytes = 0, allocatedPeak = 0;
  };
  // Why an allocation failed, in bytes.
  struct Shortage {
    std::uint64_t wanted = 0, free = 0, longestFree = 0, limit = 0;
  };
  // A piece of memory with one owner. `offset` counts from the start of the range; `bytes` are as requested,
  // `size` as given.
  struct Block {
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;
    std::uint64_t size = 0;
    LaneId home = 0;
    bool live = false;
  };

  // By lane: `drivers` (of the lane's device) and `streams`. By marker of `order`: `events`. All outlive the
  // allocator.
  SessionAllocator(const std::vector<Driver*>& drivers, TickOrder& order, std::uint64_t limit,
                   const std::vector<Stream>& streams, const std::vector<Event>& events, Policy policy);

  // One marker per lane, with an event created beforehand. `wait` records it where no marker of the plan is
  // at the point that it needs.
  void setSpareMarkers(std::vector<TickOrder::Marker> spare) { spare_ = std::move(spare); }
  // Takes the memory for this many blocks, live or free, so that none is taken later.
  void reserve(std::size_t blocks);

  Status malloc(std::uint64_t bytes, LaneId lane, BlockId* block);
  void free(BlockId block);
  // The block's last read on `point.lane` is at or before `point`. A no-op on the home lane; of several
  // points of a lane the last counts.
  void recordUse(BlockId block, Point point);

  // Called when `order.completed()` has advanced.
  void forgetCompleted();
  // Frees every block: a failed tick has left blocks without owners, and all work has completed.
  void reset();

  // All that decides where the blocks to come will lie, while no block is live: see SteadyState.
  void appendState(std::vector<Count>* state) const;
  // Counts the blocks of a tick in steady state, whose places were known without calling this allocator.
  void countRepeated(std::uint64_t blocks);

  const Block& block(BlockId id) const { return blocks_[id]; }
  Counters counters() const;
  Shortage shortage() const;   // of the last failure
  std::uint64_t peak() const;  // the end of the highest block ever given out
  std::string describe(const Shortage& shortage) const;

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
  Policy policy_;
  mutable std::mutex mutex_;
  RangePool pool_;
  std::uint64_t peakBefore_ = 0;  // of the pool before `reset`
  std::vector<Block> blocks_;
  std::vector<Count> uses_;  // blocks × lanes
  std::vector<BlockId> freeIds_;
  std::vector<TickOrder::Marker> spare_;
  std::vector<Count>
      pending_;  // the frontier that `waitForPending` waits for; kept so that no call allocates
  Counters counters_;
  Shortage shortage_;
};

}  // namespace braid
