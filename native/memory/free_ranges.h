#pragma once

#include <cstdint>
#include <vector>

#include "order/frontier.h"

namespace braid {

// The free ranges of a pool, each in a row of its own: where it lies, and its release frontier. Rows are
// linked in order of address; ranges are disjoint. A row keeps its number until it is dropped.
class FreeRanges {
 public:
  using Row = std::int32_t;
  static constexpr Row none = -1;

  explicit FreeRanges(std::size_t lanes) : lanes_(lanes) {}

  std::size_t lanes() const { return lanes_; }
  std::size_t count() const { return count_; }
  Row first() const { return first_; }
  Row next(Row row) const { return at(row).next; }
  std::uint64_t offset(Row row) const { return at(row).offset; }
  std::uint64_t size(Row row) const { return at(row).size; }
  std::uint64_t end(Row row) const { return at(row).offset + at(row).size; }
  ConstFrontier release(Row row) const {
    return {releases_.data() + static_cast<std::size_t>(row) * lanes_, lanes_};
  }
  Frontier release(Row row) { return {releases_.data() + static_cast<std::size_t>(row) * lanes_, lanes_}; }

  // Whether the lane is after the whole release frontier of a range; it is always after its own points.
  bool isUsable(Row row, LaneId lane, ConstFrontier frontier) const;
  // The last range below an address, found from the first range on.
  Row below(std::uint64_t address) const;

  // A new range right behind another one, or before all.
  Row insert(Row before, std::uint64_t offset, std::uint64_t size, ConstFrontier release);
  void move(Row row, std::uint64_t offset, std::uint64_t size);
  void drop(Row row);
  void clear();
  void reserve(std::size_t ranges);

 private:
  struct Range {
    std::uint64_t offset = 0, size = 0;
    Row next = none, before = none;
  };
  const Range& at(Row row) const { return ranges_[static_cast<std::size_t>(row)]; }
  Range& at(Row row) { return ranges_[static_cast<std::size_t>(row)]; }
  void link(Row before, Row next);

  std::size_t lanes_, count_ = 0;
  Row first_ = none;
  std::vector<Range> ranges_;
  std::vector<Count> releases_;  // rows × lanes
  std::vector<Row> spare_;
};

}  // namespace braid
