// The fallback `transfer`: whole pages of free blocks become spare, to be mapped where they are needed.
#include <algorithm>

#include "memory/caching/allocator.h"

namespace braid::caching {

// Moving a page costs as much as hundreds of allocations. A program that allocates and frees at random would
// move pages for ever, to hold less than its peak needs; so the number of moves is limited, and memory grows
// instead. Long requests earn further moves: filling them takes longer than moving their pages.
bool Allocator::mayMove(std::uint64_t pages) const {
  const std::uint64_t earned =
      slowCalls_ / slowCallsPerMove + longBytes_ / (pagesPerMove * pages_.pageBytes());
  return pagesMoved_ + pages <= movesAtOnce + earned || !mayGrow(pages * pages_.pageBytes());
}

bool Allocator::hasPage(const Block& block) const {
  return wholePages(block.address, block.address + block.size, pages_.pageBytes()) > 0;
}

// Unmaps at most `most` whole pages of a block that is in no bin and that nothing on the device can still
// touch. The pages become spare, the rest of the block free. *hole is the unmapped block in their place.
std::uint64_t Allocator::unmapPages(Block* block, std::uint64_t most, Status* status, Block** hole) {
  Heap& heap = *block->heap;
  Segment& segment = *block->segment;
  const std::uint64_t page = pages_.pageBytes();
  const DeviceAddress end = down(block->address + block->size, page);
  const DeviceAddress first = up(block->address, page);
  // From the high end, so that the rest lies beside its lower neighbour.
  const DeviceAddress start = end - std::min(most * page, end - first);
  // Live, so that nothing merges with a part before it is in a bin.
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

// Makes at most `wanted` pages of free blocks spare, from the shortest blocks first. Blocks of any lane give
// pages once nothing on the device can still touch them: each lane with free blocks is polled once.
std::uint64_t Allocator::transferPages(std::uint64_t wanted) {
  const std::uint64_t page = pages_.pageBytes();
  std::vector<Block*> sources;
  bool polled[Lanes::most] = {};
  for (Heap* heap : heaps_) {
    if (!heap->config.expandable || heap->kept) continue;
    heap->eachFree([&](Block& block) {
      if (!hasPage(block)) return;
      if (!Heap::complete(block) && !polled[block.lane->id]) {
        polled[block.lane->id] = true;
        lanes_.pollLane(*block.lane);
      }
      if (Heap::complete(block)) sources.push_back(&block);
    });
  }
  std::sort(sources.begin(), sources.end(), [](const Block* a, const Block* b) {
    return a->size != b->size ? a->size < b->size : a->address < b->address;
  });
  // All leave their bins first: what one of them keeps must not merge with another.
  for (Block* source : sources) {
    source->heap->extract(source);
    source->state = BlockState::live;
  }
  std::uint64_t moved = 0;
  Status status = Status::ok;
  Block* hole = nullptr;
  for (Block* source : sources) {
    if (moved >= wanted || status != Status::ok)
      source->heap->give(source);
    else
      moved += unmapPages(source, wanted - moved, &status, &hole);
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
