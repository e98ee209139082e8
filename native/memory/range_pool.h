#pragma once

#include <cstdint>
#include <optional>

#include "memory/free_ranges.h"
#include "memory/range_index.h"
#include "order/frontier.h"

namespace braid {

// The deterministic pool of a session (docs/internals/decisions, 5 and 10): one range of addresses, given out
// by order alone. So a plan has one peak, the same in every run and the same that the compiler computed.
// Offsets count from the start of the range.
//
// A freed range keeps its *release frontier*. A lane may take a range once it is after the whole release
// frontier; a lane is always after its own points. Invariants:
//   1. Free ranges are disjoint, in order of offset, and all below `peak`; nothing at or above `peak` was
//   ever
//      taken.
//   2. `take` returns only bytes whose release frontier the lane is after.
//   3. After `reserve`, no call allocates memory while at most that many ranges are free, and at most `few`.
// A few free ranges are looked at one by one; of more there is an index, which chooses the same. The
// frontiers of a lane only grow from call to call. Not thread-safe.
class RangePool {
 public:
  static constexpr std::uint64_t granule = 512;
  static constexpr std::uint64_t rounded(std::uint64_t bytes) {
    return bytes == 0 ? granule : (bytes + granule - 1) / granule * granule;
  }

  // Free ranges beyond which there is an index: an index takes as long to keep, by lane.
  static constexpr std::size_t fewFor(std::size_t lanes) { return std::max<std::size_t>(1024, 8 * lanes); }

  RangePool(std::uint64_t limit, std::size_t lanes) : RangePool(limit, lanes, fewFor(lanes)) {}
  RangePool(std::uint64_t limit, std::size_t lanes, std::size_t few);

  // `size` is a multiple of the granule. Null where no range that the lane may take now is long enough, and
  // the limit does not allow growth.
  struct Taken {
    std::uint64_t offset = 0;
    bool grew = false;  // the peak rose
  };
  std::optional<Taken> take(std::uint64_t size, LaneId lane, ConstFrontier frontier);
  void give(std::uint64_t offset, std::uint64_t size, ConstFrontier release);

  // The cheapest run of adjacent free ranges, usable now or not, that would hold `size` bytes: the one with
  // the fewest lanes to wait for, then the shortest, then the lowest. Writes the join of its release
  // frontiers to `pending`. False where there is none.
  bool cheapestPending(std::uint64_t size, LaneId lane, ConstFrontier frontier, Frontier pending) const;

  // Every lane is after `completed`, so points up to there are dropped from release frontiers, and neighbours
  // whose frontiers become equal merge. When ranges merge is part of the rule by which `take` chooses: single
  // ranges come before runs.
  void forgetCompleted(ConstFrontier completed);
  // Frees everything, as if nothing had ever been taken: the ranges to come lie where those of a new pool
  // would.
  void reset();
  void reserve(std::size_t ranges);

  std::uint64_t limit() const { return limit_; }
  std::uint64_t peak() const { return peak_; }
  std::uint64_t freeBytes() const;    // within the limit, usable now or not
  std::uint64_t longestFree() const;  // adjacent ranges, including the part never used
  std::size_t ranges() const { return ranges_.count(); }
  // In order of offset.
  const FreeRanges& free() const { return ranges_; }

 private:
  using Row = FreeRanges::Row;
  static constexpr Row none = FreeRanges::none;

  // The index, where there are more ranges than a few.
  RangeIndex* indexed();
  // The first range to take bytes from, found by looking at all; none: from `peak` on.
  Row look(std::uint64_t size, LaneId lane, ConstFrontier frontier) const;
  // Takes `size` bytes from the low end of adjacent ranges.
  void cut(Row from, std::uint64_t size);

  std::uint64_t limit_, peak_ = 0;
  std::size_t few_;
  FreeRanges ranges_;
  std::optional<RangeIndex> index_;
};

}  // namespace braid
