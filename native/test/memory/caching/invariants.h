#pragma once

#include <string>

#include "memory/caching/allocator.h"
#include "test/memory/caching/checking_driver.h"

namespace braid::test {

// Compares what an allocator holds, added up block by block, with its own statistics and the driver's.
// Returns "" where they agree, else the first difference. No other thread may use the allocator meanwhile.
struct Expected {
  std::uint64_t liveBlocks = 0, requested = 0;
};
std::string violations(const caching::Allocator& allocator, CheckingDriver* driver, const Expected& expected);

}  // namespace braid::test
