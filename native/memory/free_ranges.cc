#include "memory/free_ranges.h"

namespace braid {

bool FreeRanges::isUsable(Row row, LaneId lane, ConstFrontier frontier) const {
  const ConstFrontier released = release(row);
  for (LaneId other = 0; other < lanes_; ++other)
    if (other != lane && !happensBefore({other, released[other]}, frontier)) return false;
  return true;
}

FreeRanges::Row FreeRanges::below(std::uint64_t address) const {
  Row last = none;
  for (Row row = first_; row != none && offset(row) < address; row = next(row)) last = row;
  return last;
}

FreeRanges::Row FreeRanges::insert(Row before, std::uint64_t offset, std::uint64_t size,
                                   ConstFrontier released) {
  Row row;
  if (spare_.empty()) {
    row = static_cast<Row>(ranges_.size());
    ranges_.emplace_back();
    releases_.insert(releases_.end(), released.begin(), released.end());
  } else {
    row = spare_.back();
    spare_.pop_back();
    std::copy(released.begin(), released.end(), release(row).begin());
  }
  ++count_;
  link(row, before == none ? first_ : next(before));
  link(before, row);
  move(row, offset, size);
  return row;
}

void FreeRanges::move(Row row, std::uint64_t offset, std::uint64_t size) {
  at(row).offset = offset;
  at(row).size = size;
}

void FreeRanges::drop(Row row) {
  link(at(row).before, at(row).next);
  spare_.push_back(row);
  --count_;
}

void FreeRanges::clear() {
  ranges_.clear();
  releases_.clear();
  spare_.clear();
  first_ = none;
  count_ = 0;
}

void FreeRanges::reserve(std::size_t ranges) {
  ranges_.reserve(ranges);
  releases_.reserve(ranges * lanes_);
  spare_.reserve(ranges);
}

void FreeRanges::link(Row before, Row next) {
  (before == none ? first_ : at(before).next) = next;
  if (next != none) at(next).before = before;
}

}  // namespace braid
