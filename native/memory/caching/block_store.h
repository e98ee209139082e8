#pragma once

#include <deque>

#include "memory/caching/block.h"

namespace braid::caching {

// The storage of all `Block`s of an allocator. Their addresses never change and none is destroyed before the
// allocator, so a stale pointer always points to a block. Guarded by the allocator's mutex.
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
