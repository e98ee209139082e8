#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "memory/caching/allocator.h"

namespace braid::caching {

// A recorded run of an allocator: allocations, requested frees, and completed frees (when every use has
// ended), in order.
struct TraceOp {
  enum class Kind : std::uint8_t { allocate, freeRequested, freeCompleted };
  Kind kind;
  std::uint32_t stream;
  std::uint64_t id, bytes;
};

struct ReplayFigures {
  // Peak live: the largest sum of requested bytes from each allocation to its completed free. Peak reserved:
  // the most memory held from the device at once.
  std::uint64_t events = 0, peakLive = 0, peakReserved = 0, segments = 0, waits = 0, pagesMoved = 0,
                moves = 0;
  // In the allocator's calls, less what asking the clock costs; and of a single call.
  double nsPerEvent = 0;
  double nsMedian = 0, ns99 = 0, nsMost = 0;
  double moveNs = 0;              // of these, unmapping and mapping for moves
  std::uint64_t outstanding = 0;  // uses, at most at once
  Stats stats;
};

// Of a trace: what it has more of is refused. The uses get lanes of their own.
inline constexpr std::uint32_t mostTraceStreams = 128;

// Replays a trace on its own lanes. Between a free and its completion the block has a use that is really
// outstanding, on a lane that a gate holds until the trace reaches the completion. A call that blocks on it
// advances the trace's clock (see ReplayDriver). After a failure figures->events is the number of the failed
// operation, *detail the reason, and *shortage, where memory ran out, what held the memory. Without gates
// only the clock holds the lanes back: all figures are the same, and the times are realistic, since a gate is
// a host function that costs CUDA 50 µs.
Status replay(Driver& driver, const Options& options, const std::vector<TraceOp>& ops, ReplayFigures* figures,
              std::string* detail, Shortage* shortage = nullptr, bool gates = true);

}  // namespace braid::caching
