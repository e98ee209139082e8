#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "memory/caching/allocator.h"

namespace braid::caching {

// A recorded run of an allocator, in order: allocations, frees as they were asked for, and frees as they were
// complete, when every use had ended.
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

// Replays a trace on lanes of its own. Between a free and its completion the block has a use that is really
// outstanding: a lane that is held at a gate until the trace is there. Whoever blocks on it moves the trace's
// clock (see ReplayDriver). On failure figures->events is the number of the operation that failed, *detail
// says why, and *shortage, where memory ended, what held it. Without gates only the clock holds the lanes
// back: all figures are the same, and the times are those of a program, which has kernels where a gate is a
// host function (50 us to CUDA).
Status replay(Driver& driver, const Options& options, const std::vector<TraceOp>& ops, ReplayFigures* figures,
              std::string* detail, Shortage* shortage = nullptr, bool gates = true);

}  // namespace braid::caching
