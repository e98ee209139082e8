#include "memory/range_index.h"

namespace braid {

void RangeIndex::Stretches::add(std::uint64_t start, std::uint64_t end) {
  auto behind = byStart_.lower_bound({start, 0});
  if (behind != byStart_.begin()) {
    const auto before = std::prev(behind);
    if (before->second == start) {
      start = before->first;
      behind = drop(before);
    }
  }
  if (behind != byStart_.end() && behind->first == end) {
    end = behind->second;
    drop(behind);
  }
  put(start, end);
}

void RangeIndex::Stretches::remove(std::uint64_t start, std::uint64_t end) {
  const auto stretch = std::prev(byStart_.upper_bound({start, UINT64_MAX}));
  const auto [first, last] = *stretch;
  drop(stretch);
  if (first < start) put(first, start);
  if (end < last) put(end, last);
}

std::optional<std::uint64_t> RangeIndex::Stretches::fit(std::uint64_t size) const {
  const auto found = byLength_.lower_bound({size, 0});
  if (found == byLength_.end()) return std::nullopt;
  return found->second;
}

std::optional<std::uint64_t> RangeIndex::Stretches::endingAt(std::uint64_t end) const {
  if (byStart_.empty() || byStart_.rbegin()->second != end) return std::nullopt;
  return byStart_.rbegin()->first;
}

void RangeIndex::Stretches::put(std::uint64_t start, std::uint64_t end) {
  byStart_.emplace(start, end);
  byLength_.emplace(end - start, start);
}

RangeIndex::Pairs::const_iterator RangeIndex::Stretches::drop(Pairs::const_iterator stretch) {
  byLength_.erase({stretch->second - stretch->first, stretch->first});
  return byStart_.erase(stretch);
}

RangeIndex::RangeIndex(const FreeRanges& ranges)
    : ranges_(ranges), byPoint_(ranges.lanes()), own_(ranges.lanes()) {
  for (Row row = ranges.first(); row != FreeRanges::none; row = ranges.next(row)) add(row);
}

void RangeIndex::add(Row row) {
  byOffset_.emplace(ranges_.offset(row), row);
  const ConstFrontier release = ranges_.release(row);
  for (LaneId lane = 0; lane < release.size(); ++lane)
    if (release[lane] > 0) byPoint_[lane].emplace(release[lane], row);
  for (Usable& usable : usable_)
    if (ranges_.isUsable(row, usable.lane, usable.known)) allow(usable, row);
}

void RangeIndex::remove(Row row) {
  byOffset_.erase({ranges_.offset(row), row});
  const ConstFrontier release = ranges_.release(row);
  for (LaneId lane = 0; lane < release.size(); ++lane)
    if (release[lane] > 0) byPoint_[lane].erase({release[lane], row});
  for (Usable& usable : usable_) {
    if (!ranges_.isUsable(row, usable.lane, usable.known)) continue;
    usable.ranges.erase({ranges_.size(row), ranges_.offset(row)});
    if (usable.stretches) usable.stretches->remove(ranges_.offset(row), ranges_.end(row));
  }
}

RangeIndex::Row RangeIndex::below(std::uint64_t address) const {
  const auto found = byOffset_.lower_bound({address, 0});
  return found == byOffset_.begin() ? FreeRanges::none : static_cast<Row>(std::prev(found)->second);
}

RangeIndex::Row RangeIndex::find(std::uint64_t size, LaneId lane, ConstFrontier frontier,
                                 std::uint64_t peak) {
  Usable& usable = usableBy(lane, frontier);
  if (const auto single = usable.ranges.lower_bound({size, 0}); single != usable.ranges.end())
    return at(single->second);
  if (!usable.stretches) {
    usable.stretches.emplace();
    for (const auto& [length, offset] : usable.ranges) usable.stretches->add(offset, offset + length);
  }
  const auto start = usable.stretches->fit(size);
  return at(start ? start : usable.stretches->endingAt(peak));
}

RangeIndex::Row RangeIndex::at(std::optional<std::uint64_t> offset) const {
  return offset ? static_cast<Row>(byOffset_.lower_bound({*offset, 0})->second) : FreeRanges::none;
}

RangeIndex::Usable& RangeIndex::usableBy(LaneId lane, ConstFrontier frontier) {
  if (own_[lane] == 0) {
    Usable& usable = usable_.emplace_back(lane, std::vector(frontier.begin(), frontier.end()), Pairs{},
                                          std::optional<Stretches>{});
    own_[lane] = usable_.size();
    for (Row row = ranges_.first(); row != FreeRanges::none; row = ranges_.next(row))
      if (ranges_.isUsable(row, lane, frontier)) allow(usable, row);
    return usable;
  }
  Usable& usable = usable_[own_[lane] - 1];
  for (LaneId other = 0; other < frontier.size(); ++other)
    if (other != lane && frontier[other] > usable.known[other]) look(usable, other, frontier);
  std::copy(frontier.begin(), frontier.end(), usable.known.begin());
  return usable;
}

// Looks again at the ranges whose points of another lane are known by now.
void RangeIndex::look(Usable& usable, LaneId other, ConstFrontier frontier) {
  const Pairs& released = byPoint_[other];
  for (auto it = released.lower_bound({usable.known[other] + 1, 0});
       it != released.end() && it->first <= frontier[other]; ++it) {
    const Row row = static_cast<Row>(it->second);
    // Of several lanes whose points were missing, only at the first one.
    const ConstFrontier release = ranges_.release(row);
    LaneId missing = 0;
    while (missing == usable.lane || release[missing] <= usable.known[missing]) ++missing;
    if (missing == other && ranges_.isUsable(row, usable.lane, frontier)) allow(usable, row);
  }
}

void RangeIndex::allow(Usable& usable, Row row) {
  usable.ranges.emplace(ranges_.size(row), ranges_.offset(row));
  if (usable.stretches) usable.stretches->add(ranges_.offset(row), ranges_.end(row));
}

}  // namespace braid
