#include "memory/range_pool.h"

namespace braid {

RangePool::RangePool(std::uint64_t limit, std::size_t lanes, std::size_t few)
    : limit_(limit / granule * granule), few_(few), ranges_(lanes) {}

void RangePool::reserve(std::size_t ranges) { ranges_.reserve(ranges); }

RangeIndex* RangePool::indexed() {
  // Not dropped as soon as there are only a few: that could alternate.
  if (!index_ && ranges_.count() > few_)
    index_.emplace(ranges_);
  else if (index_ && ranges_.count() < few_ / 4)
    index_.reset();
  return index_ ? &*index_ : nullptr;
}

std::optional<RangePool::Taken> RangePool::take(std::uint64_t size, LaneId lane, ConstFrontier frontier) {
  RangeIndex* index = indexed();
  const Row from = index != nullptr ? index->find(size, lane, frontier, peak_) : look(size, lane, frontier);
  const std::uint64_t offset = from == none ? peak_ : ranges_.offset(from);
  if (size > limit_ - offset) return std::nullopt;
  cut(from, size);
  const bool grew = offset + size > peak_;
  if (grew) peak_ = offset + size;
  return Taken{offset, grew};
}

RangePool::Row RangePool::look(std::uint64_t size, LaneId lane, ConstFrontier frontier) const {
  // Single ranges come before runs: blocks of one size then keep their places, and a small block does not
  // break up a large range.
  Row single = none, run = none, tail = none;
  std::uint64_t singleLength = 0, runLength = 0;
  for (Row row = ranges_.first(); row != none;) {
    if (!ranges_.isUsable(row, lane, frontier)) {
      row = ranges_.next(row);
      continue;
    }
    const Row first = row;
    std::uint64_t end = 0;
    do {
      const std::uint64_t whole = ranges_.size(row);
      if (whole >= size && (single == none || whole < singleLength)) {
        single = row;
        singleLength = whole;
      }
      end = ranges_.end(row);
      row = ranges_.next(row);
    } while (row != none && ranges_.offset(row) == end && ranges_.isUsable(row, lane, frontier));
    const std::uint64_t length = end - ranges_.offset(first);
    if (end == peak_) tail = first;
    if (length >= size && (run == none || length < runLength)) {
      run = first;
      runLength = length;
    }
  }
  return single != none ? single : run != none ? run : tail;
}

void RangePool::cut(Row from, std::uint64_t size) {
  for (Row row = from; row != none && size > 0;) {
    const std::uint64_t own = ranges_.size(row);
    if (index_) index_->remove(row);
    if (own > size) {
      ranges_.move(row, ranges_.offset(row) + size, own - size);
      if (index_) index_->add(row);
      return;
    }
    size -= own;
    const Row next = ranges_.next(row);
    ranges_.drop(row);
    row = next;
  }
}

void RangePool::give(std::uint64_t offset, std::uint64_t size, ConstFrontier released) {
  RangeIndex* index = indexed();
  const Row before = index != nullptr ? index->below(offset) : ranges_.below(offset);
  const Row behind = before == none ? ranges_.first() : ranges_.next(before);
  if (behind != none && ranges_.offset(behind) == offset + size && equal(ranges_.release(behind), released)) {
    size += ranges_.size(behind);
    if (index != nullptr) index->remove(behind);
    ranges_.drop(behind);
  }
  if (before != none && ranges_.end(before) == offset && equal(ranges_.release(before), released)) {
    if (index != nullptr) index->remove(before);
    ranges_.move(before, ranges_.offset(before), ranges_.size(before) + size);
    if (index != nullptr) index->add(before);
  } else {
    const Row row = ranges_.insert(before, offset, size, released);
    if (index != nullptr) index->add(row);
  }
}

bool RangePool::cheapestPending(std::uint64_t size, LaneId lane, ConstFrontier frontier,
                                Frontier pending) const {
  // Quadratic in the free ranges of one run, but only used where the alternative is to fail.
  bool any = false;
  std::size_t bestLanes = 0;
  std::uint64_t bestLength = 0;
  // The ranges from `first` on, without `last`.
  const auto consider = [&](Row first, Row last, std::uint64_t length) {
    std::size_t lanesToWait = 0;
    for (LaneId other = 0; other < ranges_.lanes(); ++other) {
      bool waits = false;
      for (Row row = first; row != last && !waits; row = ranges_.next(row))
        waits = other != lane && !happensBefore({other, ranges_.release(row)[other]}, frontier);
      lanesToWait += waits ? 1 : 0;
    }
    if (any && (lanesToWait > bestLanes || (lanesToWait == bestLanes && length >= bestLength))) return;
    any = true;
    bestLanes = lanesToWait;
    bestLength = length;
    std::fill(pending.begin(), pending.end(), 0);
    for (Row row = first; row != last; row = ranges_.next(row)) join(pending, ranges_.release(row));
  };
  for (Row first = ranges_.first(); first != none; first = ranges_.next(first)) {
    std::uint64_t length = 0;
    for (Row last = first; last != none; last = ranges_.next(last)) {
      if (last != first && ranges_.offset(last) != ranges_.offset(first) + length) break;
      length += ranges_.size(last);
      // A run at the end of the used part can grow into the part never used.
      const std::uint64_t reach = ranges_.end(last) == peak_ ? length + (limit_ - peak_) : length;
      if (reach < size) continue;
      consider(first, ranges_.next(last), length);
      break;
    }
  }
  return any;
}

void RangePool::forgetCompleted(ConstFrontier completed) {
  index_.reset();
  Row before = none;
  for (Row row = ranges_.first(); row != none;) {
    const Row next = ranges_.next(row);
    Frontier released = ranges_.release(row);
    for (std::size_t lane = 0; lane < released.size(); ++lane)
      if (released[lane] <= completed[lane]) released[lane] = 0;
    if (before != none && ranges_.end(before) == ranges_.offset(row) &&
        equal(ranges_.release(before), released)) {
      ranges_.move(before, ranges_.offset(before), ranges_.size(before) + ranges_.size(row));
      ranges_.drop(row);
    } else {
      before = row;
    }
    row = next;
  }
}

void RangePool::reset() {
  index_.reset();
  ranges_.clear();
  peak_ = 0;
}

std::uint64_t RangePool::freeBytes() const {
  std::uint64_t total = limit_ - peak_;
  for (Row row = ranges_.first(); row != none; row = ranges_.next(row)) total += ranges_.size(row);
  return total;
}

std::uint64_t RangePool::longestFree() const {
  std::uint64_t longest = limit_ - peak_, run = 0, end = 0;
  for (Row row = ranges_.first(); row != none; row = ranges_.next(row)) {
    run = ranges_.offset(row) == end ? run + ranges_.size(row) : ranges_.size(row);
    end = ranges_.end(row);
    longest = std::max(longest, end == peak_ ? run + (limit_ - peak_) : run);
  }
  return longest;
}

}  // namespace braid
