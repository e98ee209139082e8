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

// Of a plain segment: as the options say, or just long enough for the request that creates it.
enum class SegmentSize : std::uint8_t { usual, exact };

struct HeapConfig {
  std::uint64_t pool = 0;  // 0: the default one
  SizeClass sizes = SizeClass::small;
  bool noSplit = false;
  bool expandable = false;
  Source* source = nullptr;
  SegmentSize segments = SegmentSize::usual;
};

// The free blocks of one pool and size class, those of each home lane apart, and the segments that they tile.
//
//   1. Free neighbours merge if the same lanes may take both: they have one home, or a release has completed.
//      Neighbours of different lanes stay apart until a lane that is after both coalesces them.
//   2. The release point of a merged block is the later one of its parts.
//   3. A block that is taken gets the taker as its home; what is split off it keeps its own.
// All calls are made under the allocator's mutex.
class Heap {
 public:
  Heap(Lanes& lanes, BlockStore& blocks, const Options& options, HeapConfig config);

  const HeapConfig config;
  const std::uint64_t number;  // of this heap alone, and the same in every run

  // The shortest block of at least `size`, from those that the lane itself freed and those that any lane may
  // take; with `others`, also from those that other lanes freed before a point that this lane is after. Split
  // to size where that is worth while. Null where there is none.
  Block* take(std::uint64_t size, Lane& lane, bool others);
  // Splits a block that the caller has chosen and taken out of its bin: `size` bytes from its low or high
  // end.
  Block* carve(Block* block, std::uint64_t size, Lane& lane, bool high = false);
  // Puts a block without uses into its bin, released at point `release` of its lane. Returns the block that
  // it became part of.
  Block* give(Block* block);
  // Merges all free neighbours that the lane is after.
  void coalesce(Lane& lane);
  // Whether no other lane has free blocks of its own here: then all neighbours have merged already.
  bool ownOnly(const Lane& lane) const;

  // Merges all free neighbours that nothing on the device can still touch.
  void coalesceCompleted();

  // A plain segment, whole and free, for the lane.
  Block* addSegment(DeviceAddress address, std::uint64_t bytes, Lane& lane, std::uint64_t counter);
  // An expandable one, nothing mapped.
  void addRange(DeviceAddress address, std::uint64_t bytes, std::uint64_t pageBytes, Lane& lane,
                std::uint64_t counter);
  // Takes out a plain segment that is one free block. The caller gives its memory back.
  std::unique_ptr<Segment> removeSegment(Block* whole);
  std::unique_ptr<Segment> removeRange(Segment* segment);

  // Has all work on the block completed? Queries nothing: polling a lane advances its `completed()`.
  static bool complete(const Block& block) {
    return block.anyLane || block.lane->completed() >= block.release;
  }
  // May any lane take it? Under a policy without order, never: lanes share nothing.
  bool forAnyLane(const Block& block) const { return options_.policy->order && complete(block); }
  bool before(const Block& block, const Lane& lane) const;
  bool shouldSplit(std::uint64_t whole, std::uint64_t size) const;

  // For fallbacks that choose and join blocks themselves.
  void insert(Block* block);                       // into its bin
  void extract(Block* block);                      // out of it
  Block* split(Block* block, std::uint64_t size);  // returns the rest, in no bin; both keep the state
  Block* join(Block* into,
              Block* next);  // its right neighbour, in no list either; the whole keeps `into`'s lane
  Block* mergeUnmapped(Block* block);  // in no list; puts the whole into that of the unmapped
  template <class Visit>
  void eachFree(Visit visit) const {
    for (const auto& bins : bins_)
      if (bins) bins->each(visit);
    anyLane_.each(visit);
  }
  Block* firstUnmapped() const { return unmapped_; }
  void addUnmapped(Block* block);
  void removeUnmapped(Block* block);

  const std::list<std::unique_ptr<Segment>>& segments() const { return segments_; }
  std::uint64_t freeBytes() const { return freeBytes_.load(std::memory_order_relaxed); }
  std::uint64_t reserved() const { return reserved_; }
  void addReserved(std::int64_t bytes) { reserved_ += static_cast<std::uint64_t>(bytes); }
  std::uint64_t clock = 0;          // allocations on the slow path so far
  std::atomic<bool> closed{false};  // freed blocks go back to the source
  std::atomic<bool> kept{false};    // graphs use its memory, free or not: it serves captures alone, and stays

 private:
  bool fits(const Block& block, std::uint64_t size) const;
  Bins& binsOf(const Block& block) {
    if (block.anyLane) return anyLane_;
    return block.lane->id < bins_.size() && bins_[block.lane->id] ? *bins_[block.lane->id]
                                                                  : addBins(block.lane->id);
  }
  // Which end an allocation takes: the one that leaves more whole pages, since those can move; between equals
  // the high end if the allocation then begins at a page boundary and would not end at one otherwise.
  bool highEnd(const Block& block, std::uint64_t size) const;
  Bins& addBins(LaneId lane);
  bool joins(const Block& a, const Block& b) const;

  Lanes& lanes_;
  BlockStore& blocks_;
  const Options& options_;
  std::vector<std::unique_ptr<Bins>> bins_;  // by home lane
  Bins anyLane_;                             // any lane may take these
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
