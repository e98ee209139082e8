#pragma once

#include <cstdint>
#include <vector>

#include "memory/caching/block.h"

namespace braid::caching {

// Addresses side by side. A plain segment is memory of its source, all of it; an expandable one is a range of
// addresses of which pages, each with a handle of its own, are mapped and unmapped as they are needed.
struct Segment {
  Heap* heap = nullptr;
  DeviceAddress base = 0;
  std::uint64_t size = 0;
  std::uint64_t counter = 0;  // in order of creation
  Lane* lane = nullptr;       // that it was made for
  Block* first = nullptr;
  bool expandable = false;
  bool kept = false;         // reserved beforehand: it goes with the allocator, not before
  std::vector<Pages> pages;  // expandable: by page, null where none is mapped
  std::uint64_t mapped = 0;  // bytes with memory beneath them
};

}  // namespace braid::caching
