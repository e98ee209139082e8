#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace braid {

using LaneId = std::uint32_t;
using Count = std::uint64_t;

// A place in a lane's order: count n is the n-th place on the lane that something may have to come after. A
// session's lanes count runs and waits, a device's lanes count recorded events.
struct Point {
  LaneId lane = 0;
  Count count = 0;
};

// A frontier is one count per lane: everything up to these points happens before. All frontiers over the same
// lanes have the same length, so they are stored in arrays of fixed size and passed as spans.
using Frontier = std::span<Count>;
using ConstFrontier = std::span<const Count>;

inline void join(Frontier into, ConstFrontier other) {
  for (std::size_t lane = 0; lane < other.size(); ++lane) into[lane] = std::max(into[lane], other[lane]);
}

inline bool happensBefore(Point point, ConstFrontier frontier) { return frontier[point.lane] >= point.count; }

inline bool equal(ConstFrontier a, ConstFrontier b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

}  // namespace braid
