#pragma once

#include <cstdint>
#include <vector>

#include "memory/caching/block.h"

namespace braid::caching {

// A range of addresses. A plain segment is one piece of memory from its source. An expandable segment
// reserves addresses and maps and unmaps single pages, each with its own handle.
struct Segment {
  Heap* heap = nullptr;
  DeviceAddress base = 0;
  std::uint64_t size = 0;
  std::uint64_t counter = 0;  // in order of creation
  Lane* lane = nullptr;       // whose request created it
  Block* first = nullptr;
  bool expandable = false;
  bool kept = false;         // reserved beforehand: released only with the allocator
  std::vector<Pages> pages;  // expandable: by page, null where none is mapped
  std::uint64_t mapped = 0;  // mapped bytes
};

}  // namespace braid::caching
