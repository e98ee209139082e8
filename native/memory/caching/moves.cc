// Pages of free blocks go where they are needed: what the rung `move` takes them from.
#include <algorithm>

#include "memory/caching/allocator.h"

namespace braid::caching {

// Moving a page costs as much as hundreds of allocations. A program whose memory comes and goes at random
// would move some for ever, to hold less than it needs at its peak: in the long run it pays with memory
// instead. Not for what is long: to fill it takes more than to gather its pages.
bool Allocator::mayMove(std::uint64_t pages) const {
  const std::uint64_t earned = climbs_ / climbsAMove + longBytes_ / (pagesAMove * pages_.pageBytes());
  return pagesMoved_ + pages <= movesAtOnce + earned || !mayGrow(pages * pages_.pageBytes());
}

bool Allocator::hasPage(const Block& block) const {
  return wholePages(block.address, block.address + block.size, pages_.pageBytes()) > 0;
}

// Takes whole pages, at most so many, away from a block that has some and is in no bin: they are spare then,
// and the rest of it is free again. Nothing on the device can touch it any more. *hole is what lies unmapped
// where they were.
std::uint64_t Allocator::unmapPages(Block* block, std::uint64_t most, Status* status, Block** hole) {
  Heap& heap = *block->heap;
  Segment& segment = *block->segment;
  const std::uint64_t page = pages_.pageBytes();
  const DeviceAddress end = down(block->address + block->size, page);
  const DeviceAddress first = up(block->address, page);
  // From the high end: what is left is nearer to its neighbours.
  const DeviceAddress start = end - std::min(most * page, end - first);
  // Nobody merges with a part before it is in a bin.
  block->state = BlockState::live;
  Block* middle = start > block->address ? heap.split(block, start - block->address) : block;
  Block* high = middle->address + middle->size > end ? heap.split(middle, end - middle->address) : nullptr;
  const std::uint64_t count = (end - start) / page;
  *status = pages_.unmap(start, count, &segment.pages[(start - segment.base) / page]);
  const bool unmapped = *status == Status::ok;
  if (unmapped) {
    segment.mapped -= count * page;
    heap.addReserved(-static_cast<std::int64_t>(count * page));
    counters_.reserved(static_cast<int>(heap.config.sizes), -static_cast<std::int64_t>(count * page));
    if (history_.on())
      history_.add({.action = Action::segmentUnmap,
                    .lane = middle->lane->id,
                    .address = start,
                    .size = count * page,
                    .pool = heap.config.pool,
                    .id = segment.counter});
    *hole = heap.mergeUnmapped(middle);
  }
  if (middle != block) heap.give(block);
  if (!unmapped) heap.give(middle);
  if (high) heap.give(high);
  return unmapped ? count : 0;
}

// Pages that free blocks do not need, spare afterwards: at most `wanted`, from the shortest blocks first.
// Only of blocks that nothing on the device can still touch, whatever lane they are of: lanes that have free
// blocks are asked, once.
std::uint64_t Allocator::donate(std::uint64_t wanted) {
  const std::uint64_t page = pages_.pageBytes();
  std::vector<Block*> donors;
  bool asked[Lanes::most] = {};
  for (Heap* heap : heaps_) {
    if (!heap->config.expandable) continue;
    heap->eachFree([&](Block& block) {
      if (!hasPage(block)) return;
      if (!Heap::complete(block) && !asked[block.lane->id]) {
        asked[block.lane->id] = true;
        lanes_.pollLane(*block.lane);
      }
      if (Heap::complete(block)) donors.push_back(&block);
    });
  }
  std::sort(donors.begin(), donors.end(), [](const Block* a, const Block* b) {
    return a->size != b->size ? a->size < b->size : a->address < b->address;
  });
  // Out of their bins first: what one of them keeps must not merge with another one.
  for (Block* donor : donors) {
    donor->heap->extract(donor);
    donor->state = BlockState::live;
  }
  std::uint64_t moved = 0;
  Status status = Status::ok;
  Block* hole = nullptr;
  for (Block* donor : donors) {
    if (moved >= wanted || status != Status::ok)
      donor->heap->give(donor);
    else
      moved += unmapPages(donor, wanted - moved, &status, &hole);
  }
  if (moved > 0) {
    ++counters_.moves;
    counters_.pagesMoved += moved;
    pagesMoved_ += moved;
    if (history_.on()) history_.add({.action = Action::pagesMoved, .size = moved * page});
  }
  return moved;
}

}  // namespace braid::caching
