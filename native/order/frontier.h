#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace braid {

using LaneId = std::uint32_t;
using Count = std::uint64_t;

// A place in a lane's order. Points count the runs and waits issued on the lane; count n means "after the
// n-th of them".
struct Point {
  LaneId lane = 0;
  Count count = 0;
};

// A frontier is one count per lane: how far something is known to be after everything else. Frontiers live in
// flat arrays that are sized once, so they are handed about as spans; all frontiers of one session have the
// same length.
using Frontier = std::span<Count>;
using ConstFrontier = std::span<const Count>;

inline void join(Frontier into, ConstFrontier other) {
  for (std::size_t lane = 0; lane < into.size(); ++lane) into[lane] = std::max(into[lane], other[lane]);
}

inline bool covers(ConstFrontier frontier, Point point) { return frontier[point.lane] >= point.count; }

inline bool equal(ConstFrontier a, ConstFrontier b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

}  // namespace braid
