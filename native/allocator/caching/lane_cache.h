#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "allocator/caching/block.h"

namespace braid::caching {

// Free blocks of the sizes that a lane has asked for lately, which it may take back at once: no search, no neighbours,
// no shared lock. A heap is known by its number here, so that what a lane finds is the same in every run. A size has
// one place, and the size that was asked for last owns it.
class LaneCache {
 public:
  // A block of exactly this size, or null: then the place is this size's from now on, and *evicted, a list by `next`,
  // is what another size had left there.
  Block* take(const Heap* heap, std::uint64_t number, std::uint64_t size, Block** evicted) {
    Place& place = at(number, size);
    if (place.size == size && place.heap == heap) {
      Block* block = place.first;
      if (block != nullptr) place.first = block->next;
      return block;
    }
    *evicted = place.first;
    place = {heap, size, nullptr};
    return nullptr;
  }
  // False where nobody has asked for this size lately: it belongs into its heap.
  bool give(Block* block, std::uint64_t number) {
    Place& place = at(number, block->size);
    if (place.size != block->size || place.heap != block->heap) return false;
    block->state = BlockState::cached;
    block->next = place.first;
    place.first = block;
    return true;
  }
  // All that is here, a list by `next`.
  Block* flush() {
    Block* all = nullptr;
    for (Place& place : places_) {
      while (Block* block = place.first) {
        place.first = block->next;
        block->next = all;
        all = block;
      }
    }
    return all;
  }
  // Drops what belongs to these heaps, which are about to go.
  void forget(const Heap* const* heaps, std::size_t count) {
    for (Place& place : places_)
      for (std::size_t i = 0; i < count; ++i)
        if (place.heap == heaps[i]) place = {};
  }
  bool empty() const {
    for (const Place& place : places_)
      if (place.first != nullptr) return false;
    return true;
  }

 private:
  struct Place {
    const Heap* heap = nullptr;
    std::uint64_t size = 0;
    Block* first = nullptr;
  };
  static constexpr std::size_t places = 128;
  Place& at(std::uint64_t number, std::uint64_t size) {
    return places_[(((size >> 9) ^ (number << 24)) * 0x9e3779b97f4a7c15u) >> 57];
  }
  std::array<Place, places> places_;
};

// Blocks of one home lane whose uses it is not known to be after, in the order in which they were freed.
class PendingList {
 public:
  Block* first() const { return first_.load(std::memory_order_relaxed); }
  bool empty() const { return first() == nullptr; }  // may be asked without the lane's mutex
  void push(Block* block) {
    block->state = BlockState::pending;
    block->next = nullptr;
    block->previous = last_;
    if (last_)
      last_->next = block;
    else
      first_.store(block, std::memory_order_relaxed);
    last_ = block;
  }
  void remove(Block* block) {
    if (block->previous)
      block->previous->next = block->next;
    else
      first_.store(block->next, std::memory_order_relaxed);
    (block->next ? block->next->previous : last_) = block->previous;
  }

 private:
  std::atomic<Block*> first_{nullptr};
  Block* last_ = nullptr;
};

}  // namespace braid::caching
