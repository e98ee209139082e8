#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "memory/free_ranges.h"

namespace braid {

// Finds free ranges without looking at all of them. It relies on frontiers that only grow: a range that a
// lane may take stays so. The ranges that each lane may take are kept in order of size. When the lane's
// frontier has grown, the ranges with release points in between are looked at again, and no others.
class RangeIndex {
 public:
  using Row = FreeRanges::Row;

  // The ranges outlive the index.
  explicit RangeIndex(const FreeRanges& ranges);

  // A range is there, or has changed its place: to be called after the change.
  void add(Row row);
  // A range is about to vanish, or to change its place.
  void remove(Row row);

  // The last range below an address.
  Row below(std::uint64_t address) const;
  // The first range to take bytes from, as RangePool::take does; none: from `peak` on.
  Row find(std::uint64_t size, LaneId lane, ConstFrontier frontier, std::uint64_t peak);

 private:
  using Pairs = std::set<std::pair<std::uint64_t, std::uint64_t>>;

  // A set of bytes, as the stretches that they make up.
  class Stretches {
   public:
    void add(std::uint64_t start, std::uint64_t end);
    // Bytes of one stretch.
    void remove(std::uint64_t start, std::uint64_t end);
    // The start of the shortest stretch that is long enough, the lowest of several.
    std::optional<std::uint64_t> fit(std::uint64_t size) const;
    std::optional<std::uint64_t> endingAt(std::uint64_t end) const;

   private:
    void put(std::uint64_t start, std::uint64_t end);
    Pairs::const_iterator drop(Pairs::const_iterator stretch);
    Pairs byStart_;   // start, end
    Pairs byLength_;  // length, start
  };

  // What a lane may take.
  struct Usable {
    LaneId lane;
    // The frontier that the lane had when it last asked: the ranges that it may take are those below.
    std::vector<Count> known;
    Pairs ranges;  // size, offset
    // Made when no range alone was long enough for the first time.
    std::optional<Stretches> stretches;
  };

  Row at(std::optional<std::uint64_t> offset) const;
  Usable& usableBy(LaneId lane, ConstFrontier frontier);
  void look(Usable& usable, LaneId other, ConstFrontier frontier);
  void allow(Usable& usable, Row row);

  const FreeRanges& ranges_;
  Pairs byOffset_;                // offset, row
  std::vector<Pairs> byPoint_;    // by lane: its release point, row
  std::vector<Usable> usable_;    // of the lanes that have asked
  std::vector<std::size_t> own_;  // by lane, its place in usable_, and 1; 0: it has not asked
};

}  // namespace braid
