#pragma once

#include <array>
#include <cstdint>
#include <limits>

#include "memory/caching/policy.h"

namespace braid::caching {

inline constexpr std::uint64_t unlimited = std::numeric_limits<std::uint64_t>::max();

// How an allocator behaves; sizes in bytes. A comment names PyTorch's option of the same meaning.
struct Options {
  const Policy* policy = &orderThenGrow;
  std::uint64_t limit = unlimited;  // reserved at most; per_process_memory_fraction times the device's bytes
  bool expandable = true;           // expandable_segments
  bool movePages = true;            // move whole free pages before new ones are created
  std::uint64_t maxSplit = unlimited;            // max_split_size_mb
  std::uint64_t maxNonSplitRounding = 20 << 20;  // max_non_split_rounding_mb
  std::uint64_t largeSegment = 20 << 20;         // large_segment_size_mb
  double collectAbove = 0;                       // garbage_collection_threshold
  bool refuseEarly = false;                      // throw_on_cudamalloc_oom
  // roundup_power2_divisions: steps between powers of two, for sizes from 1 MiB · 2^i; 0 or 1: none.
  std::array<std::uint32_t, 16> divisions{};
  std::uint64_t roundToPowerOfTwoUpTo =
      0;                                // pinned memory: sizes up to this are rounded up to a power of two
  std::uint64_t cacheUpTo = unlimited;  // pinned_max_cached_size_mb: larger blocks go straight back
  std::uint64_t reserveFirst = 0;       // pinned_reserve_segment_size_mb
};

}  // namespace braid::caching
