#pragma once

#include <list>
#include <memory>
#include <vector>

#include "memory/caching/bins.h"
#include "memory/caching/block_store.h"
#include "memory/caching/options.h"
#include "memory/caching/segment.h"
#include "memory/caching/source.h"
#include "order/lanes.h"

namespace braid::caching {

// Small allocations live apart from large ones, so that a page is free sooner.
enum class SizeClass : std::uint8_t { small, large };

struct HeapConfig {
  std::uint64_t pool = 0;  // 0: the default one
  SizeClass sizes = SizeClass::small;
  bool noSplit = false;
  bool expandable = false;
  Source* source = nullptr;
};

// The free blocks of one pool and size class, those of each home lane apart, and the segments that they tile.
//
//   1. Neighbours in `bins` merge where the same lanes may take both: of one home, or where a release has
//   completed.
//      Those of different lanes are kept apart until a lane that is after both gathers them.
//   2. A merged block is released at the later of its parts' points.
//   3. What is taken belongs to the taker's lane; the rest of it stays as it was.
// All calls are made under the allocator's mutex.
class Heap {
 public:
  Heap(Lanes& lanes, BlockStore& blocks, const Options& options, HeapConfig config);

  const HeapConfig config;
  const std::uint64_t number;  // of this heap alone, and the same in every run

  // A block of `size`, from what the lane itself freed and what every lane may take; with `others`, also from
  // what other lanes freed that it is after. The shortest; split where that is worth while. Null where there
  // is none.
  Block* take(std::uint64_t size, Lane& lane, bool others);
  // The same of a block that another rung has chosen and made free; from its low end, or from its high one.
  Block* carve(Block* block, std::uint64_t size, Lane& lane, bool high = false);
  // Takes back a block without uses, released at `release` of its lane. Returns it as it is with its
  // neighbours.
  Block* give(Block* block);
  // Merges all neighbours that the lane is after.
  void gather(Lane& lane);
  // Whether no other lane has freed what is still its own: then all neighbours have merged already.
  bool ownOnly(const Lane& lane) const;

  // Merges all neighbours that nothing on the device can still touch.
  void mergeComplete();

  // A plain segment, whole and free, for the lane.
  Block* addSegment(DeviceAddress address, std::uint64_t bytes, Lane& lane, std::uint64_t counter);
  // An expandable one, nothing mapped.
  void addRange(DeviceAddress address, std::uint64_t bytes, std::uint64_t pageBytes, Lane& lane,
                std::uint64_t counter);
  // Takes out a plain segment that is one free block. The caller gives its memory back.
  std::unique_ptr<Segment> removeSegment(Block* whole);
  std::unique_ptr<Segment> removeRange(Segment* segment);

  // Has everything that touched it completed? Asks nothing: `lane.completed()` moves as lanes are polled.
  static bool complete(const Block& block) {
    return block.settled || block.lane->completed() >= block.release;
  }
  // May any lane take it? Where lanes share nothing, what has completed is still its own lane's.
  bool settled(const Block& block) const { return options_.policy->order && complete(block); }
  bool before(const Block& block, const Lane& lane) const;
  bool shouldSplit(std::uint64_t whole, std::uint64_t size) const;

  // For rungs that handle blocks themselves.
  void insert(Block* block);                       // into its bin
  void extract(Block* block);                      // out of it
  Block* split(Block* block, std::uint64_t size);  // returns the rest, in no bin; both keep the state
  Block* join(Block* into,
              Block* next);  // its right neighbour, in no list either; `into` says whose the whole is
  Block* mergeUnmapped(Block* block);  // in no list; puts the whole into that of the unmapped
  template <class Visit>
  void eachFree(Visit visit) const {
    for (const auto& bins : bins_)
      if (bins) bins->each(visit);
    settled_.each(visit);
  }
  Block* firstUnmapped() const { return unmapped_; }
  void addUnmapped(Block* block);
  void removeUnmapped(Block* block);

  const std::list<std::unique_ptr<Segment>>& segments() const { return segments_; }
  std::uint64_t freeBytes() const { return freeBytes_.load(std::memory_order_relaxed); }
  std::uint64_t reserved() const { return reserved_; }
  void addReserved(std::int64_t bytes) { reserved_ += static_cast<std::uint64_t>(bytes); }
  std::uint64_t clock = 0;          // allocations that came this far
  std::atomic<bool> closed{false};  // what is freed goes back

 private:
  bool fits(const Block& block, std::uint64_t size) const;
  Bins& binsOf(const Block& block) {
    if (block.settled) return settled_;
    return block.lane->id < bins_.size() && bins_[block.lane->id] ? *bins_[block.lane->id]
                                                                  : addBins(block.lane->id);
  }
  // Which end an allocation takes: the one that leaves more whole pages, since those can move; or else the
  // one where it begins at a page's edge, if the low one would not end at one.
  bool highEnd(const Block& block, std::uint64_t size) const;
  Bins& addBins(LaneId lane);
  bool joins(const Block& a, const Block& b) const;

  Lanes& lanes_;
  BlockStore& blocks_;
  const Options& options_;
  std::vector<std::unique_ptr<Bins>> bins_;  // by home lane
  Bins settled_;                             // any lane may take these
  Block* unmapped_ = nullptr;
  std::list<std::unique_ptr<Segment>> segments_;
  // Written by the mutex's holder alone.
  void addFree(std::uint64_t bytes) {
    freeBytes_.store(freeBytes_.load(std::memory_order_relaxed) + bytes, std::memory_order_relaxed);
  }
  std::atomic<std::uint64_t> freeBytes_{0};
  std::uint64_t reserved_ = 0;
};

}  // namespace braid::caching
