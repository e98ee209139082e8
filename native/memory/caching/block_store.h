#pragma once

#include <deque>

#include "memory/caching/block.h"

namespace braid::caching {

// The memory of all `Block`s of an allocator: their addresses stand still, and none is given back before the
// end, so that what a stale pointer points to is always a block. Guarded by the allocator's mutex.
class BlockStore {
 public:
  Block* make() {
    if (spare_ == nullptr) return &all_.emplace_back();
    Block* block = spare_;
    spare_ = block->next;
    block->next = nullptr;
    return block;
  }
  void drop(Block* block) {
    block->state = BlockState::unmapped;
    block->heap = nullptr;
    block->segment = nullptr;
    block->next = spare_;
    spare_ = block;
  }

 private:
  std::deque<Block> all_;
  Block* spare_ = nullptr;
};

}  // namespace braid::caching
