#include "memory/range_pool.h"

namespace braid {

RangePool::RangePool(std::uint64_t limit, std::size_t lanes)
    : limit_(limit / granule * granule), lanes_(lanes) {}

void RangePool::reserve(std::size_t ranges) {
  ranges_.reserve(ranges);
  freeSlots_.reserve(ranges);
  releases_.reserve(ranges * lanes_);
}

bool RangePool::usable(const Range& range, LaneId lane, ConstFrontier frontier) const {
  const ConstFrontier released = release(range.slot);
  for (LaneId other = 0; other < lanes_; ++other)
    if (other != lane && !happensBefore({other, released[other]}, frontier)) return false;
  return true;
}

std::uint32_t RangePool::addSlot(ConstFrontier release) {
  std::uint32_t slot;
  if (freeSlots_.empty()) {
    slot = static_cast<std::uint32_t>(releases_.size() / lanes_);
    releases_.insert(releases_.end(), release.begin(), release.end());
  } else {
    slot = freeSlots_.back();
    freeSlots_.pop_back();
    std::copy(release.begin(), release.end(), releases_.begin() + static_cast<std::ptrdiff_t>(slot * lanes_));
  }
  return slot;
}

std::optional<RangePool::Taken> RangePool::take(std::uint64_t size, LaneId lane, ConstFrontier frontier) {
  // Single ranges come before runs: blocks of one size then keep their places, and a small block does not
  // break up a large range.
  std::size_t single = 0, bestFirst = 0, bestLast = 0;
  std::uint64_t singleLength = 0, bestLength = 0;  // 0: none
  std::size_t tailFirst = ranges_.size(), tailLast = ranges_.size();
  std::uint64_t tailStart = peak_;
  for (std::size_t first = 0; first < ranges_.size();) {
    if (!usable(ranges_[first], lane, frontier)) {
      ++first;
      continue;
    }
    std::size_t last = first;
    do {
      const std::uint64_t whole = ranges_[last].size;
      if (whole >= size && (singleLength == 0 || whole < singleLength)) {
        single = last;
        singleLength = whole;
      }
      ++last;
    } while (last < ranges_.size() && ranges_[last].offset == ranges_[last - 1].end() &&
             usable(ranges_[last], lane, frontier));
    const std::uint64_t length = ranges_[last - 1].end() - ranges_[first].offset;
    if (ranges_[last - 1].end() == peak_) {
      tailFirst = first;
      tailLast = last;
      tailStart = ranges_[first].offset;
    }
    if (length >= size && (bestLength == 0 || length < bestLength)) {
      bestFirst = first;
      bestLast = last;
      bestLength = length;
    }
    first = last;
  }
  if (singleLength != 0) {
    const std::uint64_t offset = ranges_[single].offset;
    cut(single, single + 1, size);
    return Taken{offset, false};
  }
  if (bestLength != 0) {
    const std::uint64_t offset = ranges_[bestFirst].offset;
    cut(bestFirst, bestLast, size);
    return Taken{offset, false};
  }
  if (size > limit_ - tailStart) return std::nullopt;
  cut(tailFirst, tailLast, size);
  const bool grew = tailStart + size > peak_;
  if (grew) peak_ = tailStart + size;
  return Taken{tailStart, grew};
}

void RangePool::cut(std::size_t first, std::size_t last, std::uint64_t size) {
  std::size_t whole = first;  // ranges [first, whole) vanish
  while (whole < last && ranges_[whole].size <= size) {
    size -= ranges_[whole].size;
    freeSlots_.push_back(ranges_[whole].slot);
    ++whole;
  }
  if (whole < last) {
    ranges_[whole].offset += size;
    ranges_[whole].size -= size;
  }
  ranges_.erase(ranges_.begin() + static_cast<std::ptrdiff_t>(first),
                ranges_.begin() + static_cast<std::ptrdiff_t>(whole));
}

void RangePool::give(std::uint64_t offset, std::uint64_t size, ConstFrontier released) {
  const auto after = std::lower_bound(ranges_.begin(), ranges_.end(), offset,
                                      [](const Range& range, std::uint64_t at) { return range.offset < at; });
  const auto index = static_cast<std::size_t>(after - ranges_.begin());
  const bool joinsNext = index < ranges_.size() && ranges_[index].offset == offset + size &&
                         equal(release(ranges_[index].slot), released);
  const bool joinsPrevious =
      index > 0 && ranges_[index - 1].end() == offset && equal(release(ranges_[index - 1].slot), released);
  if (joinsPrevious) {
    ranges_[index - 1].size += size;
    if (joinsNext) {
      ranges_[index - 1].size += ranges_[index].size;
      freeSlots_.push_back(ranges_[index].slot);
      ranges_.erase(ranges_.begin() + static_cast<std::ptrdiff_t>(index));
    }
  } else if (joinsNext) {
    ranges_[index].offset = offset;
    ranges_[index].size += size;
  } else {
    ranges_.insert(ranges_.begin() + static_cast<std::ptrdiff_t>(index),
                   Range{offset, size, addSlot(released)});
  }
}

bool RangePool::cheapestPending(std::uint64_t size, LaneId lane, ConstFrontier frontier,
                                Frontier pending) const {
  // Quadratic in the free ranges of one run, but only used where the alternative is to fail.
  bool any = false;
  std::size_t bestLanes = 0;
  std::uint64_t bestLength = 0;
  const auto consider = [&](std::size_t first, std::size_t last, std::uint64_t length) {
    std::size_t lanesToWait = 0;
    for (LaneId other = 0; other < lanes_; ++other) {
      bool waits = false;
      for (std::size_t i = first; i < last && !waits; ++i)
        waits = other != lane && !happensBefore({other, release(ranges_[i].slot)[other]}, frontier);
      lanesToWait += waits ? 1 : 0;
    }
    if (any && (lanesToWait > bestLanes || (lanesToWait == bestLanes && length >= bestLength))) return;
    any = true;
    bestLanes = lanesToWait;
    bestLength = length;
    std::fill(pending.begin(), pending.end(), 0);
    for (std::size_t i = first; i < last; ++i) join(pending, release(ranges_[i].slot));
  };
  for (std::size_t first = 0; first < ranges_.size(); ++first) {
    std::uint64_t length = 0;
    for (std::size_t last = first; last < ranges_.size(); ++last) {
      if (last > first && ranges_[last].offset != ranges_[last - 1].end()) break;
      length += ranges_[last].size;
      // A run at the end of the used part can grow into the part never used.
      const std::uint64_t reach = ranges_[last].end() == peak_ ? length + (limit_ - peak_) : length;
      if (reach < size) continue;
      consider(first, last + 1, length);
      break;
    }
  }
  return any;
}

void RangePool::forgetCompleted(ConstFrontier completed) {
  std::size_t kept = 0;
  for (std::size_t i = 0; i < ranges_.size(); ++i) {
    Count* released = releases_.data() + ranges_[i].slot * lanes_;
    for (std::size_t lane = 0; lane < lanes_; ++lane) {
      if (released[lane] <= completed[lane]) released[lane] = 0;
    }
    if (kept > 0 && ranges_[kept - 1].end() == ranges_[i].offset &&
        equal(release(ranges_[kept - 1].slot), release(ranges_[i].slot))) {
      ranges_[kept - 1].size += ranges_[i].size;
      freeSlots_.push_back(ranges_[i].slot);
    } else {
      ranges_[kept++] = ranges_[i];
    }
  }
  ranges_.resize(kept, Range{});
}

void RangePool::reset() {
  ranges_.clear();
  releases_.clear();
  freeSlots_.clear();
  peak_ = 0;
}

std::uint64_t RangePool::freeBytes() const {
  std::uint64_t total = limit_ - peak_;
  for (const Range& range : ranges_) total += range.size;
  return total;
}

std::uint64_t RangePool::longestFree() const {
  std::uint64_t longest = limit_ - peak_, run = 0;
  for (std::size_t i = 0; i < ranges_.size(); ++i) {
    run = i > 0 && ranges_[i - 1].end() == ranges_[i].offset ? run + ranges_[i].size : ranges_[i].size;
    longest = std::max(longest, ranges_[i].end() == peak_ ? run + (limit_ - peak_) : run);
  }
  return longest;
}

}  // namespace braid
