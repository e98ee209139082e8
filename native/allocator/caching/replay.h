#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "allocator/caching/allocator.h"

namespace braid::caching {

// A recorded run of an allocator, in order: allocations, frees as they were asked for, and frees as they were complete,
// when every use had ended.
struct TraceOp {
  enum class Kind : std::uint8_t { allocate, freeRequested, freeCompleted };
  Kind kind;
  std::uint32_t stream;
  std::uint64_t id, bytes;
};

struct ReplayFigures {
  std::uint64_t events = 0, peakLive = 0, peakReserved = 0, segments = 0, waits = 0, pagesMoved = 0, moves = 0;
  double nsPerEvent = 0;  // in the allocator's calls
  Stats stats;
};

// Replays a trace on lanes of its own. Between a free and its completion the block has a use that is really
// outstanding: work on another lane that does not end before the trace says so. On failure *detail says where.
Status replay(Driver& driver, const Options& options, const std::vector<TraceOp>& ops, ReplayFigures* figures,
              std::string* detail);

}  // namespace braid::caching
