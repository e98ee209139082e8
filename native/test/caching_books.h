#pragma once

#include <string>

#include "memory/caching/allocator.h"
#include "test/caching_watch.h"

namespace braid::test {

// What an allocator holds, added up block by block, against its own figures and the driver's. "" where they
// agree, else the first that does not. Nobody else may be using the allocator.
struct Expected {
  std::uint64_t liveBlocks = 0, requested = 0;
};
std::string books(const caching::Allocator& allocator, Watch* watch, const Expected& expected);

}  // namespace braid::test
