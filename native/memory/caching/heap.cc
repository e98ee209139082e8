#include "memory/caching/heap.h"

#include "memory/caching/pages.h"

namespace braid::caching {

Heap::Heap(Lanes& lanes, BlockStore& blocks, const Options& options, HeapConfig config)
    : config(config),
      number(2 * config.pool + static_cast<std::uint64_t>(config.sizes)),
      lanes_(lanes),
      blocks_(blocks),
      options_(options) {}

bool Heap::before(const Block& block, const Lane& lane) const {
  return block.anyLane || lane.isAfter(*block.lane, block.release);
}

Bins& Heap::addBins(LaneId lane) {
  if (bins_.size() <= lane) bins_.resize(lane + 1);
  bins_[lane] = std::make_unique<Bins>();
  return *bins_[lane];
}

void Heap::insert(Block* block) {
  block->state = BlockState::free;
  block->age = clock;
  binsOf(*block).add(block);
  addFree(block->size);
}

void Heap::extract(Block* block) {
  binsOf(*block).remove(block);
  addFree(std::uint64_t{0} - block->size);
}

bool Heap::fits(const Block& block, std::uint64_t size) const {
  if (config.noSplit) return block.size == block.segment->size && block.size >= size;
  if (config.expandable || config.sizes == SizeClass::small || options_.maxSplit == unlimited) return true;
  if (size < options_.maxSplit) return block.size < options_.maxSplit;
  return block.size < size + options_.maxNonSplitRounding;
}

bool Heap::shouldSplit(std::uint64_t whole, std::uint64_t size) const {
  if (config.noSplit) return false;
  if (config.expandable || config.sizes == SizeClass::small || options_.reserveFirst > 0)
    return whole - size >= Bins::granule;
  return size < options_.maxSplit && whole - size > (1 << 20);
}

Block* Heap::take(std::uint64_t size, Lane& lane, bool others) {
  const auto fit = [&](const Block& block) { return fits(block, size); };
  Block* best = anyLane_.find(size, fit);
  if (lane.id < bins_.size() && bins_[lane.id]) {
    Block* own = bins_[lane.id]->find(size, fit);
    if (own && (!best || own->size < best->size || (own->size == best->size && own->address < best->address)))
      best = own;
  }
  if (!best && others) {
    std::lock_guard guard(lane.mutex);
    for (LaneId home = 0; home < bins_.size(); ++home) {
      const auto& bins = bins_[home];
      if (!bins || bins->empty() || home == lane.id) continue;
      Block* other =
          bins->find(size, [&](const Block& block) { return fits(block, size) && before(block, lane); });
      if (other && (!best || other->size < best->size)) best = other;
    }
  }
  if (!best) return nullptr;
  extract(best);
  return carve(best, size, lane, highEnd(*best, size));
}

bool Heap::highEnd(const Block& block, std::uint64_t size) const {
  if (!config.expandable) return false;
  const std::uint64_t page = lanes_.driver().info().pageBytes;
  const DeviceAddress from = block.address, to = block.address + block.size;
  const DeviceAddress lowCut = from + size, highCut = to - size;
  const std::uint64_t afterLow = wholePages(lowCut, to, page), beforeHigh = wholePages(from, highCut, page);
  if (afterLow != beforeHigh) return beforeHigh > afterLow;
  return highCut % page == 0 && lowCut % page != 0;
}

Block* Heap::carve(Block* block, std::uint64_t size, Lane& lane, bool high) {
  if (shouldSplit(block->size, size)) {
    Block* rest = block;
    if (high)
      block = split(rest, rest->size - size);
    else
      rest = split(block, size);
    insert(rest);
  }
  block->lane = &lane;
  block->anyLane = false;
  block->requested = block->size;  // until the caller sets what was requested
  block->state = BlockState::live;
  block->next = block->previous = nullptr;
  return block;
}

Block* Heap::split(Block* block, std::uint64_t size) {
  Block* rest = blocks_.make();
  rest->address = block->address + size;
  rest->size = block->size - size;
  rest->heap = this;
  rest->lane = block->lane;
  rest->release = Count{block->release};
  rest->anyLane = block->anyLane;
  rest->state = BlockState{block->state};
  rest->segment = block->segment;
  rest->previousInSegment = block;
  rest->nextInSegment = block->nextInSegment;
  if (rest->nextInSegment) rest->nextInSegment->previousInSegment = rest;
  block->nextInSegment = rest;
  block->size = size;
  return rest;
}

Block* Heap::join(Block* into, Block* next) {
  into->size += next->size;
  into->nextInSegment = next->nextInSegment;
  if (into->nextInSegment) into->nextInSegment->previousInSegment = into;
  blocks_.drop(next);
  return into;
}

bool Heap::joins(const Block& a, const Block& b) const {
  return b.state == BlockState::free && (a.lane == b.lane || forAnyLane(a) || forAnyLane(b));
}

Block* Heap::give(Block* block) {
  block->anyLane = forAnyLane(*block);
  const auto merge = [&](Block* low, Block* high) {
    const bool lowForAny = forAnyLane(*low), highForAny = forAnyLane(*high);
    // The part that not every lane may take decides the lane; of two parts of one lane, the later point.
    Lane* lane = lowForAny && !highForAny ? high->lane : low->lane;
    const Count lowest = low->release, highest = high->release;
    const Count release = lowForAny && highForAny ? 0
                          : lowForAny             ? highest
                          : highForAny            ? lowest
                                                  : std::max(lowest, highest);
    Block* whole = join(low, high);
    whole->lane = lane;
    whole->release = release;
    whole->anyLane = lowForAny && highForAny;
    return whole;
  };
  if (Block* high = block->nextInSegment; high && joins(*block, *high)) {
    extract(high);
    block = merge(block, high);
  }
  if (Block* low = block->previousInSegment; low && joins(*block, *low)) {
    extract(low);
    block = merge(low, block);
  }
  insert(block);
  return block;
}

bool Heap::ownOnly(const Lane& lane) const {
  for (LaneId home = 0; home < bins_.size(); ++home)
    if (home != lane.id && bins_[home] && !bins_[home]->empty()) return false;
  return true;
}

void Heap::coalesce(Lane& lane) {
  if (ownOnly(lane)) return;
  std::lock_guard guard(lane.mutex);
  const Count present = lane.present();
  for (const auto& segment : segments_) {
    for (Block* block = segment->first; block != nullptr; block = block->nextInSegment) {
      if (block->state != BlockState::free || !before(*block, lane)) continue;
      Block* next = block->nextInSegment;
      if (!next || next->state != BlockState::free || !before(*next, lane)) continue;
      extract(block);
      bool all = forAnyLane(*block);
      while ((next = block->nextInSegment) && next->state == BlockState::free && before(*next, lane)) {
        all = all && forAnyLane(*next);
        extract(next);
        join(block, next);
      }
      // The lane is after all parts, so everything after the lane's present point is too.
      block->anyLane = all;
      block->lane = &lane;
      block->release = all ? 0 : present;
      insert(block);
    }
  }
}

void Heap::coalesceCompleted() {
  const auto mergeable = [](const Block* block) {
    return block != nullptr && block->state == BlockState::free && complete(*block);
  };
  for (const auto& segment : segments_) {
    for (Block* block = segment->first; block != nullptr; block = block->nextInSegment) {
      if (!mergeable(block) || !mergeable(block->nextInSegment)) continue;
      extract(block);
      while (mergeable(block->nextInSegment)) {
        Block* next = block->nextInSegment;
        extract(next);
        join(block, next);
      }
      block->release = 0;
      block->anyLane = options_.policy->order;
      insert(block);
    }
  }
}

Block* Heap::addSegment(DeviceAddress address, std::uint64_t bytes, Lane& lane, std::uint64_t counter) {
  auto segment = std::make_unique<Segment>();
  segment->heap = this;
  segment->base = address;
  segment->size = segment->mapped = bytes;
  segment->counter = counter;
  segment->lane = &lane;
  Block* block = blocks_.make();
  block->address = address;
  block->size = bytes;
  block->heap = this;
  block->lane = &lane;
  block->release = 0;
  block->anyLane = options_.policy->order;
  block->state = BlockState::free;
  block->segment = segment.get();
  block->nextInSegment = block->previousInSegment = nullptr;
  segment->first = block;
  segments_.push_back(std::move(segment));
  return block;
}

void Heap::addRange(DeviceAddress address, std::uint64_t bytes, std::uint64_t pageBytes, Lane& lane,
                    std::uint64_t counter) {
  Block* block = addSegment(address, bytes, lane, counter);
  Segment& segment = *block->segment;
  segment.mapped = 0;
  segment.expandable = true;
  segment.pages.assign(bytes / pageBytes, nullptr);
  addUnmapped(block);
}

std::unique_ptr<Segment> Heap::removeSegment(Block* whole) {
  extract(whole);
  Segment* segment = whole->segment;
  blocks_.drop(whole);
  return removeRange(segment);
}

std::unique_ptr<Segment> Heap::removeRange(Segment* segment) {
  for (auto at = segments_.begin(); at != segments_.end(); ++at) {
    if (at->get() != segment) continue;
    std::unique_ptr<Segment> found = std::move(*at);
    segments_.erase(at);
    return found;
  }
  return nullptr;
}

void Heap::addUnmapped(Block* block) {
  block->state = BlockState::unmapped;
  block->previous = nullptr;
  block->next = unmapped_;
  if (unmapped_) unmapped_->previous = block;
  unmapped_ = block;
}

void Heap::removeUnmapped(Block* block) {
  (block->previous ? block->previous->next : unmapped_) = block->next;
  if (block->next) block->next->previous = block->previous;
}

// `block` is unmapped and in no list.
Block* Heap::mergeUnmapped(Block* block) {
  if (Block* high = block->nextInSegment; high && high->state == BlockState::unmapped) {
    removeUnmapped(high);
    join(block, high);
  }
  if (Block* low = block->previousInSegment; low && low->state == BlockState::unmapped) {
    removeUnmapped(low);
    block = join(low, block);
  }
  addUnmapped(block);
  return block;
}

}  // namespace braid::caching
