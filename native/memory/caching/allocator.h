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

// A private pool: its allocations come from segments that nothing else uses.
class MemPool {
 public:
  const std::uint64_t id;
  const bool useOnOutOfMemory, noSplit;
  // Graphs use its memory, the free blocks too.
  bool kept() const { return small->kept.load(std::memory_order_acquire); }

 private:
  friend class Allocator;
  MemPool(std::uint64_t id, bool useOnOutOfMemory, bool noSplit, std::unique_ptr<Source> source)
      : id(id), useOnOutOfMemory(useOnOutOfMemory), noSplit(noSplit), source(std::move(source)) {}
  std::unique_ptr<Source> source;  // null: the allocator's
  std::unique_ptr<Heap> small, large;
  bool closed = false;  // no more allocations; it is destroyed when its last block has been freed
};

// Why an allocation failed, and what holds the memory.
struct Shortage {
  Status status = Status::ok;
  std::uint64_t wanted = 0, size = 0;  // as requested, and rounded
  std::uint64_t reserved = 0, limit = 0, live = 0, pending = 0, free = 0, longestFree = 0;
  std::uint64_t otherPools = 0;  // reserved by pools that this one may not use
  std::uint64_t asked = 0;       // of a pool's own source, which gave nothing; 0: no such source was asked
  std::uint64_t deviceFree = 0, deviceTotal = 0;
  struct Holder {
    std::uint64_t bytes = 0, count = 0;
    std::uint32_t site = 0;
  };
  std::vector<Holder> holders;  // the largest, by site
};

// A caching allocator over one kind of memory of a device (its own, or pinned host memory), for many lanes
// and threads. An allocation first looks into the lane's cache, and at the lane's oldest pending block of the
// same size. Then, on the slow path, it tries these fallbacks in order, those that its policy has:
//
//   order       the shortest free block that the lane is known to be after; pending blocks whose uses it is
//               after
//   completed   pending blocks whose uses have completed (policy.poll)
//   wait        the lane waits for the uses of a block of exactly this size that it freed itself
//               (policy.waitFirst); after `coalesce`, of a longer block, or of several neighbours
//   coalesce    the caches are emptied and neighbours merged; with several threads, first the lane's own
//               cache
//   transfer    whole free pages that nothing on the device can still touch are mapped where they are
//               needed
//   grow        memory from the source, within the limit
//   lastResort  waits for other lanes' blocks (policy.waitLast); memory that other heaps keep, and pools
//               that lend theirs; the calling thread waits for one outstanding use after the other, oldest
//               first, and tries again after each; then the observers
//
// Thread-safe. A block may be freed from any thread.
//
// Two kinds of lock. A lane's lock (`Lane::mutex`) guards the blocks that the lane freed and that are not in
// a heap yet: its cache and its pending blocks. The allocator's mutex guards everything else, and is taken
// first. Most allocations and frees take a lane's lock alone.
class Allocator {
 public:
  Allocator(Lanes& lanes, std::unique_ptr<Source> source, const Options& options);
  // Gives all memory back to the source, whether its blocks were freed or not. The caller has seen all work
  // on the device complete.
  ~Allocator();
  Allocator(const Allocator&) = delete;

  Lanes& lanes() { return lanes_; }
  const Options& options() const { return options_; }

  // `bytes` is at least 1. *shortage is written where this returns outOfMemory. illegalState where the pool
  // is kept and the lane is not one of a capture.
  Status malloc(std::uint64_t bytes, Lane& lane, Block** block, Shortage* shortage, MemPool* pool = nullptr,
                std::uint32_t site = 0, const void* owner = nullptr);
  // invalidHandle, with nothing done, where the block is not live.
  Status free(Block* block);

  // Marks the present point of `lane`: all accesses there so far. A no-op on the home lane.
  Status recordUse(Block* block, Lane& lane);
  // All work that `lane` was given before the block is freed counts as a use.
  Status recordStream(Block* block, Lane& lane);
  // The mark counts as a use, unless it is of the home lane. The caller keeps its hold on the mark.
  Status keepUntil(Block* block, Mark& mark);
  // A block that is lent again and again without being freed: `endLoan` marks the lanes that were noted by
  // recordStream, and `takeUses` hands all uses so far to the caller, with the holds on their marks. What
  // writes the block next has to come after them.
  Status endLoan(Block* block);
  void takeUses(Block* block, std::vector<Mark*>* marks);

  // Takes what `Options::reserveFirst` says, for blocks of this lane. Before the first allocation.
  Status reserve(Lane& lane);

  // A pool with its own source is never expandable.
  MemPool* makePool(bool useOnOutOfMemory, bool noSplit, std::unique_ptr<Source> source = nullptr,
                    SegmentSize segments = SegmentSize::usual);
  // Whether graphs use the pool's memory: then only lanes of captures allocate there, and nothing of it is
  // given back, lent or moved, not even what is free.
  void keepPool(MemPool* pool, bool kept);
  // Its free memory goes back to the source; live blocks stay valid, and theirs goes back once they are
  // freed. The pointer is invalid from here on.
  void closePool(MemPool* pool);

  // Waits for every outstanding use, then gives back all free memory, of one pool or of all.
  Status emptyCache(MemPool* pool = nullptr);

  // Called when an allocation is about to fail. Returns whether it freed blocks and the allocation is to be
  // tried again.
  using Observer = bool (*)(void* data, const Shortage& shortage);
  void observe(Observer observer, std::shared_ptr<void> data);
  void unobserve(const void* data);

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
    const Lane* refused = nullptr;  // queried already for this request: a use on it has not completed
  };
  enum class Fallback : std::uint8_t { cache, order, completed, wait, coalesce, transfer, grow, lastResort };

  std::uint64_t rounded(std::uint64_t bytes) const;
  [[gnu::noinline]] std::uint64_t roundedUp(std::uint64_t bytes) const;  // to more than the smallest size
  Heap& heapFor(std::uint64_t size, MemPool* pool);

  // allocator.cc
  [[gnu::noinline, gnu::cold]] static Status refuse(std::uint64_t bytes, const Lane& lane,
                                                    const MemPool* pool, Shortage* shortage);
  // Not inlined, so that `malloc` stays short for requests that the cache serves.
  [[gnu::noinline]] Block* reusePending(Lane& lane, PendingList& pending, const Heap& heap,
                                        std::uint64_t size, Fallback* fallback, const Lane** refused);
  [[gnu::noinline, gnu::cold]] Status recordNotedLanes(Block& block);
  // The block is no longer pending: counts it so and releases its uses.
  void retirePending(Block& block);
  static void releaseUses(Uses& uses);
  void dropUses(Block& block);
  void addUse(Block& block, Mark* held);
  [[gnu::noinline, gnu::cold]] void remember(Action action, const Block& block, const Lane& lane);
  static bool isAfterUses(const Lane& lane, const Block& block);
  Status waitForUses(const Block& block, Lane& lane);

  // slow_path.cc. Kept out of `malloc`, whose frame and code would be three times as large.
  [[gnu::noinline, gnu::cold]] Status slow(const Request& request, Block* evicted, Block** block,
                                           Shortage* shortage);
  Block* tryFallbacks(const Request& request, Fallback* fallback, Status* status);
  Block* fromPending(const Request& request, bool mayWait, bool longer, Status* status);
  Block* fromPendingRun(const Request& request, Status* status);
  Block* fromLendingPools(const Request& request);
  Block* waitForOthers(const Request& request, Status* status);
  Block* lastResort(const Request& request, Status* status);

  // pending.cc
  LaneBlocks& blocksOf(const Lane& lane) const {
    LaneBlocks* const known = laneBlocks_[lane.id].load(std::memory_order_acquire);
    return known != nullptr ? *known : makeLaneBlocks(lane);
  }
  [[gnu::noinline, gnu::cold]] LaneBlocks& makeLaneBlocks(const Lane& lane) const;
  void returnToHeap(Block* block);
  void returnAllToHeaps(Block* list);
  void drainCache(Lane& lane);
  void drainCaches();
  bool holdsLittle(Lane& lane) const;
  bool releasePending(Lane& home, bool poll, const Lane* notComplete = nullptr);
  void pollHomes(const Heap& heap, const Lane& lane);
  void adoptPending(Lane& home, Lane& lane);
  std::vector<Mark*> outstanding(Lane& home, const Heap* heap);
  bool holdsBack(Lane& home, const Heap& heap) const;
  Status releaseAllPending(bool wait);

  // growth.cc
  Stream streamFor(const Source& source, const Lane& lane) {
    return source.foreign() ? lanes_.lend(lane) : Stream{lane.stream};
  }
  std::uint64_t segmentBytes(std::uint64_t size, const Heap& heap) const;
  bool possible(const Request& request) const;
  bool mayGrow(std::uint64_t bytes) const;
  Block* grow(const Request& request, Status* status, Fallback* fallback);
  Block* growPlain(const Request& request, Status* status);
  Block* growRange(const Request& request, Status* status, Fallback* fallback, bool again = false);
  void mapped(Heap& heap, Segment& segment, DeviceAddress address, std::uint64_t bytes, const Lane& lane);

  // page_moves.cc
  bool mayMove(std::uint64_t pages) const;
  bool hasPage(const Block& block) const;
  std::uint64_t unmapPages(Block* block, std::uint64_t most, Status* status, Block** hole);
  std::uint64_t transferPages(std::uint64_t wanted);

  // release.cc
  void collectGarbage(std::uint64_t wanted);
  std::uint64_t releaseWhole(Block* block, Status* refused = nullptr);
  std::uint64_t releaseFree(const MemPool* pool, Status* refused = nullptr);
  void releaseSegments(Heap& heap);

  // pools.cc
  void makeDefaultHeaps();
  void sweepPools();
  bool empty(const Heap& heap) const;
  bool releaseRanges(Heap& heap);

  // report.cc
  void lookAtSplits() const;
  Shortage shortageOf(const Request& request, Status status) const;

  static constexpr std::uint64_t smallSegment = 2 << 20;
  // With several threads: the bytes that a lane may keep in its cache while memory grows.
  static constexpr std::uint64_t keptPerThread = std::uint64_t{4} << 20;
  // How many pages may move (see `mayMove`): a first allowance, one page for so many slow calls, and one for
  // so many pages of long requests.
  static constexpr std::uint64_t movesAtOnce = 8192, slowCallsPerMove = 1024, pagesPerMove = 2;
  static constexpr std::uint64_t longRequest = std::uint64_t{20} << 20;

  Lanes& lanes_;
  mutable std::atomic<LaneBlocks*> laneBlocks_[Lanes::most] = {};  // by lane; null before its first use
  std::unique_ptr<Source> source_;
  const Options options_;
  const bool coarse_;    // the options round sizes to more than 512 bytes
  mutable Mutex mutex_;  // guards the heaps with their segments and free blocks, and the pages
  BlockStore blocks_;
  PagePool pages_;
  std::unique_ptr<Heap> small_, large_;
  std::vector<Heap*> heaps_;  // of all pools, in order of creation
  std::vector<std::unique_ptr<MemPool>> poolStore_;
  std::vector<MemPool*> pools_;  // those that are not closed
  std::atomic<std::uint64_t> plain_{0};
  std::uint64_t segmentCounter_ = 0, poolCounter_ = 0;
  std::uint64_t slowCalls_ = 0;  // allocations that the cache did not serve
  std::uint64_t longBytes_ = 0;  // the bytes of those that were long
  std::uint64_t pagesMoved_ = 0;
  std::uint64_t asked_ = 0;  // as Shortage::asked, for the request on the slow path
  std::vector<std::pair<Observer, std::shared_ptr<void>>> observers_;
  mutable StatsCounters counters_;
  std::atomic<std::uint64_t> ids_{0};
  History history_;
};

}  // namespace braid::caching
