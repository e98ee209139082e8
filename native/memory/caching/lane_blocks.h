#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstdint>

#include "memory/caching/block.h"

namespace braid::caching {

// Free blocks of the sizes that a lane allocated recently. The lane takes them back without a search, without
// looking at neighbours, and without a shared lock. Set-associative: each size and heap hashes to a set of
// four places, which are replaced in turn. Heaps are hashed by number, not by address, so that every run
// finds the same blocks.
class LaneCache {
 public:
  // A block of exactly this size, or null. Where the size has no place yet it gets one, and *evicted becomes
  // the list (by `next`) of the blocks that were there.
  Block* take(const Heap* heap, std::uint64_t number, std::uint64_t size, Block** evicted) {
    Place* const set = places_.data() + setOf(number, size) * ways;
    for (std::size_t way = 0; way < ways; ++way) {
      if (set[way].size != size || set[way].heap != heap) continue;
      Block* block = set[way].first;
      if (block != nullptr) set[way].first = block->next;
      return block;
    }
    Place& next = set[turn_++ % ways];
    *evicted = next.first;
    next = {heap, size, nullptr};
    return nullptr;
  }
  // False where the size has no place: the block belongs into its heap.
  bool give(Block* block, std::uint64_t number) {
    const std::size_t index = setOf(number, block->size);
    Place* const set = places_.data() + index * ways;
    for (std::size_t way = 0; way < ways; ++way) {
      if (set[way].size != block->size || set[way].heap != block->heap) continue;
      block->state = BlockState::cached;
      block->next = set[way].first;
      set[way].first = block;
      full_ |= std::uint64_t{1} << index;
      return true;
    }
    return false;
  }
  // Whether all blocks together have at most so many bytes.
  bool within(std::uint64_t bytes) const {
    std::uint64_t found = 0;
    for (std::uint64_t sets = full_; sets != 0; sets &= sets - 1) {
      const Place* const set = places_.data() + static_cast<std::size_t>(std::countr_zero(sets)) * ways;
      for (std::size_t way = 0; way < ways; ++way)
        for (const Block* block = set[way].first; block != nullptr; block = block->next)
          if ((found += block->size) > bytes) return false;
    }
    return true;
  }
  // Takes out all blocks, as a list by `next`.
  Block* drain() {
    Block* all = nullptr;
    for (; full_ != 0; full_ &= full_ - 1) {
      Place* const set = places_.data() + static_cast<std::size_t>(std::countr_zero(full_)) * ways;
      for (std::size_t way = 0; way < ways; ++way) {
        while (Block* block = set[way].first) {
          set[way].first = block->next;
          block->next = all;
          all = block;
        }
      }
    }
    return all;
  }

 private:
  struct Place {
    const Heap* heap = nullptr;
    std::uint64_t size = 0;
    Block* first = nullptr;
  };
  static constexpr std::size_t sets = 64, ways = 4;
  static std::size_t setOf(std::uint64_t number, std::uint64_t size) {
    return (((size >> 9) ^ (number << 24)) * 0x9e3779b97f4a7c15u) >> 58;
  }
  std::array<Place, sets * ways> places_{};
  std::uint64_t full_ = 0;  // by set: whether it may hold blocks
  std::size_t turn_ = 0;    // which place of a set is replaced next
};

// Freed blocks whose home lane is not known to be after their uses, in the order of their frees.
class PendingList {
 public:
  Block* first() const { return first_.load(std::memory_order_relaxed); }
  bool empty() const { return first() == nullptr; }  // may be called without the lane's lock
  void push(Block* block) {
    Block* const last = last_;
    block->state = BlockState::pending;
    block->next = nullptr;
    block->previous = last;
    last_ = block;
    if (last != nullptr)
      last->next = block;
    else
      first_.store(block, std::memory_order_relaxed);
  }
  void remove(Block* block) {
    Block *const next = block->next, *const previous = block->previous;
    (next != nullptr ? next->previous : last_) = previous;
    if (previous != nullptr)
      previous->next = next;
    else
      first_.store(next, std::memory_order_relaxed);
  }

 private:
  std::atomic<Block*> first_{nullptr};
  Block* last_ = nullptr;
};

// The blocks that an allocator keeps for one lane, outside its heaps. Guarded by the lane's lock.
struct alignas(128) LaneBlocks {
  LaneCache cache;
  PendingList pending;
};

}  // namespace braid::caching
