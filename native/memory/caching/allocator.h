#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "memory/caching/block_store.h"
#include "memory/caching/heap.h"
#include "memory/caching/history.h"
#include "memory/caching/lane_blocks.h"
#include "memory/caching/mutex.h"
#include "memory/caching/options.h"
#include "memory/caching/pages.h"
#include "memory/caching/source.h"
#include "memory/caching/stats.h"
#include "order/lanes.h"

namespace braid::caching {

class Allocator;

// A pool of its own: what is allocated in it comes from segments that nothing else uses.
class MemPool {
 public:
  const std::uint64_t id;
  const bool useOnOutOfMemory, noSplit;

 private:
  friend class Allocator;
  MemPool(std::uint64_t id, bool useOnOutOfMemory, bool noSplit, std::unique_ptr<Source> source)
      : id(id), useOnOutOfMemory(useOnOutOfMemory), noSplit(noSplit), source(std::move(source)) {}
  std::unique_ptr<Source> source;  // null: the allocator's own
  std::unique_ptr<Heap> small, large;
  bool closed = false;  // nobody allocates in it any more; it goes when its last block has
};

// What is known about an allocation that failed.
struct Shortage {
  Status status = Status::ok;
  std::uint64_t wanted = 0, size = 0;  // as asked for, and rounded
  std::uint64_t reserved = 0, limit = 0, live = 0, pending = 0, free = 0, longestFree = 0;
  std::uint64_t otherPools = 0;  // reserved by pools that this one may not use
  std::uint64_t deviceFree = 0, deviceTotal = 0;
  struct Holder {
    std::uint64_t bytes = 0, count = 0;
    std::uint32_t site = 0;
  };
  std::vector<Holder> holders;  // the largest, by site
};

// A caching allocator over one kind of memory of a device (its own, or pinned host memory), for many lanes
// and threads. An allocation climbs, in this order, the rungs that its policy has:
//
//   1. cache    a block of exactly this size that the lane itself freed
//   2. order    the shortest free block that the lane is known to be after; pending blocks whose uses it is
//   after
//   3. done     pending blocks whose uses are seen to have completed (policy.poll)
//   4. wait     the lane is made to wait for the uses of a block of exactly this size that it freed itself
//               (policy.waitFirst); after rung 5 of a longer one, or of several side by side
//   5. gather   caches are emptied and neighbours merged. Where several threads allocate, a lane with little
//   at
//               hand goes on to 6 and 7 first, and gives up its own before the others' are taken
//   6. move     whole free pages that nothing on the device can still touch are mapped where they are needed
//   7. grow     memory from the source, within the limit
//   8. last     waits for any lane's blocks (policy.waitLast); memory that other heaps keep; pools lent for
//   this;
//               the caller waits for one outstanding use after the other, oldest first, and looks again after
//               each; the observers
//
// Thread-safe. A block may be freed from any thread.
class Allocator {
 public:
  Allocator(Lanes& lanes, std::unique_ptr<Source> source, const Options& options);
  // Every block is freed or forgotten, and what the source gave goes back: the caller has seen all work on
  // the device complete.
  ~Allocator();
  Allocator(const Allocator&) = delete;

  Lanes& lanes() { return lanes_; }
  const Options& options() const { return options_; }
  // Not while another thread is in a call. Refused with invalidValue, and nothing changed, where memory is
  // held that the new options would not have made.
  Status configure(const Options& options);

  // `bytes` is at least 1. Out of memory: *shortage says why.
  Status malloc(std::uint64_t bytes, Lane& lane, Block** block, Shortage* shortage, MemPool* pool = nullptr,
                std::uint32_t site = 0);
  // invalidHandle where the block is not live: nothing is done.
  Status free(Block* block);

  // The block's last access on `lane` so far is marked, now. A no-op on the home lane.
  Status recordUse(Block* block, Lane& lane);
  // Whatever the lane has been given by the time of the free counts as a use.
  Status recordStream(Block* block, Lane& lane);
  // The block's memory is kept until the mark has been reached. A mark of the home lane is no use. The mark
  // stays the caller's.
  Status keepUntil(Block* block, Mark& mark);

  // A source of its own is never expandable.
  MemPool* makePool(bool useOnOutOfMemory, bool noSplit, std::unique_ptr<Source> source = nullptr);
  // Its free memory goes back; what is live stays, and goes back when it is freed. The handle is dead from
  // here on.
  void closePool(MemPool* pool);

  // Waits for every outstanding use, then gives back all memory that is free. Of one pool, where one is
  // given.
  Status emptyCache(MemPool* pool = nullptr);

  // Told of an allocation that is about to fail: may free blocks; true where it did, and the allocation is
  // tried again.
  using Observer = bool (*)(void* data, const Shortage& shortage);
  void observe(Observer observer, void* data);

  Stats stats() const;
  void resetPeaks();
  void resetAccumulated();
  History& history() { return history_; }
  std::uint64_t reserved() const { return pages_.reserved() + plain_.load(std::memory_order_relaxed); }

  // Visits every segment in order of creation, under the mutex, with caches left as they are.
  template <class Visit>
  void eachSegment(Visit visit) const {
    std::lock_guard lock(mutex_);
    for (const Heap* heap : heaps_)
      for (const auto& segment : heap->segments()) visit(*segment);
  }

 private:
  struct Request {
    std::uint64_t bytes, size;
    Lane& lane;
    MemPool* pool;
    Heap& heap;
    const Lane* refused = nullptr;  // has been asked already, and has not come so far
  };
  enum class Rung : std::uint8_t { cache, order, done, wait, gather, move, grow, last };

  std::uint64_t rounded(std::uint64_t bytes) const;
  [[gnu::noinline]] std::uint64_t roundedUp(std::uint64_t bytes) const;  // to more than the smallest size
  void setOptions(const Options& options);
  Heap& heapFor(std::uint64_t size, MemPool* pool);

  // allocator.cc
  [[gnu::noinline, gnu::cold]] static Status refuse(std::uint64_t bytes, const Lane& lane,
                                                    Shortage* shortage);
  // Not inlined: `malloc` is short for those who find a block in the cache.
  [[gnu::noinline]] Block* resume(Lane& lane, const Heap& heap, std::uint64_t size, std::uint64_t bytes,
                                  const Lane** refused);
  [[gnu::noinline, gnu::cold]] Status recordNoted(Block& block);
  // Pending no longer, and nobody's yet: counted so, or to be counted by whoever hands it out at once.
  void settle(Block& block);
  void complete(Block& block);
  static void letGo(Uses& uses);
  // What the history is told of a block and the lane that it happens on.
  static Record recordOf(Action action, const Block& block, const Lane& lane);
  [[gnu::noinline, gnu::cold]] void tell(Action action, const Block& block, const Lane& lane);
  // The first use, from one on, that the lane is not known to be after; their end where there is none.
  static Mark* const* uncovered(const Block& block, const Lane& lane, Mark* const* from);
  static bool covered(const Block& block, const Lane& lane);
  // For those from one on, which the lane is not known to be after; for all that it is not known to be after.
  Status waitForUses(const Block& block, Lane& lane, Mark* const* from);
  Status waitForUses(const Block& block, Lane& lane);
  void dropUses(Block& block);
  Status addUse(Block& block, Mark* held);

  // climb.cc. Kept out of `malloc`, whose frame and code would be three times as large.
  [[gnu::noinline, gnu::cold]] Status slow(const Request& request, Block* evicted, Block** block,
                                           Shortage* shortage);
  Block* fromPending(const Request& request, bool mayWait, bool longer, Status* status);
  Block* fromPendingRun(const Request& request, Status* status);
  bool settlePending(Lane& lane, bool ask, const Lane* refusedAlready = nullptr);
  void pollHomes(const Heap& heap, const Lane& lane);
  bool keepsLittle(Lane& lane) const;
  void flushCache(Lane& lane);
  void flushCaches();
  void giveBack(Block* block);
  void flush(Block* list);

  // growth.cc
  std::uint64_t segmentBytes(std::uint64_t size, const Heap& heap) const;
  bool possible(const Request& request) const;
  bool mayGrow(std::uint64_t bytes) const;
  Block* grow(const Request& request, Status* status, Rung* rung);
  Block* growPlain(const Request& request, Status* status);
  Block* growRange(const Request& request, Status* status, Rung* rung, bool again = false);
  void mapped(Heap& heap, Segment& segment, DeviceAddress address, std::uint64_t bytes, const Lane& lane);

  // moves.cc
  bool mayMove(std::uint64_t pages) const;
  bool hasPage(const Block& block) const;
  std::uint64_t unmapPages(Block* block, std::uint64_t most, Status* status, Block** hole);
  std::uint64_t donate(std::uint64_t wanted);

  // ladder.cc
  Block* lastResort(const Request& request, Status* status);
  Block* waitForOthers(const Request& request, Status* status);
  bool holdsBack(Lane& home, const Heap& heap) const;
  void adoptPending(Lane& home, Lane& lane);
  std::vector<Mark*> outstanding(Lane& home, const Heap* heap);
  Status settleAll(bool wait);
  void collectGarbage(std::uint64_t wanted);
  std::uint64_t releaseWhole(Block* block);
  std::uint64_t releaseFree(const MemPool* pool);
  void releaseSegments(Heap& heap);
  Shortage shortageOf(const Request& request, Status status) const;

  // pools.cc
  void sweepPools();
  bool empty(const Heap& heap) const;
  bool releaseRanges(Heap& heap);

  static constexpr std::uint64_t smallSegment = 2 << 20;
  // What a lane may have at hand, of several threads' lanes, before it is gathered rather than memory grown.
  static constexpr std::uint64_t keptByThread = std::uint64_t{4} << 20;
  // Pages that may move whatever is allocated; how many allocations beyond the caches earn one more; and how
  // many pages of long ones, from so many bytes on, do.
  static constexpr std::uint64_t movesAtOnce = 8192, climbsAMove = 1024, pagesAMove = 2;
  static constexpr std::uint64_t longRequest = std::uint64_t{20} << 20;

  LaneBlocks& blocksOf(const Lane& lane) const {
    LaneBlocks* const known = laneBlocks_[lane.id].load(std::memory_order_acquire);
    return known != nullptr ? *known : makeLaneBlocks(lane);
  }
  [[gnu::noinline, gnu::cold]] LaneBlocks& makeLaneBlocks(const Lane& lane) const;

  Lanes& lanes_;
  mutable std::atomic<LaneBlocks*> laneBlocks_[Lanes::most] = {};  // by lane; null until it is asked for
  std::unique_ptr<Source> source_;
  Options options_;
  bool coarse_ = false;  // sizes are rounded by more than the smallest
  mutable Mutex mutex_;  // guards the heaps, segments, pages and blocks that are free in them
  BlockStore blocks_;
  PagePool pages_;
  std::unique_ptr<Heap> small_, large_;
  std::vector<Heap*> heaps_;  // of all pools, in order of creation
  std::vector<std::unique_ptr<MemPool>> poolStore_;
  std::vector<MemPool*> pools_;  // those that are not closed
  std::atomic<std::uint64_t> plain_{0};
  std::uint64_t segmentCounter_ = 0, poolCounter_ = 0;
  std::uint64_t climbs_ = 0,
                longBytes_ = 0;  // asked for beyond the caches: how often, and how much at length
  std::uint64_t pagesMoved_ = 0;
  std::vector<std::pair<Observer, void*>> observers_;
  mutable StatsCounters counters_;
  std::atomic<std::uint64_t> ids_{0};
  History history_;
};

}  // namespace braid::caching
