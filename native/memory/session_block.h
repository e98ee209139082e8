#pragma once

#include <cstdint>

#include "order/frontier.h"

namespace braid {

// A piece of memory given out to one owner. `offset` counts from the start of the pool; `bytes` are as asked
// for, `size` as given. The points of its uses stand in the allocator's table, at the block's id.
struct Block {
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  std::uint64_t size = 0;
  LaneId home = 0;
  bool live = false;
};

using BlockId = std::uint32_t;

}  // namespace braid
