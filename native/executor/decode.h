#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "executor/failure.h"
#include "executor/program_spec.h"

namespace braid {

constexpr std::size_t mostLanes = 1024, mostInFlight = 256, mostDevices = 64;

enum class StepKind : std::uint8_t { alloc, free, run, record, wait, use, launch };

// One command, by kind:
//   alloc buffer lane
//   free buffer
//   run node lane reads writes operands…
//   record event lane
//   wait event lane previous
//   use buffer lane event
//   launch graph lane: of a schedule only (executor/schedule.h)
struct Step {
  StepKind kind = StepKind::alloc;
  bool previous = false;      // wait: for the event as recorded one tick earlier
  std::uint32_t subject = 0;  // buffer, node, event or graph
  std::uint32_t lane = 0;
  std::uint32_t command = 0;                          // its number in the plan
  std::uint32_t event = 0;                            // use
  std::uint32_t run = 0;                              // run: its number among the runs
  std::uint32_t operands = 0, reads = 0, writes = 0;  // run: a slice of Decoded::operands
};

// The steps from `from` up to `to`, launched at once. Its nodes are the runs among them; of each edge the
// first run comes before the second.
struct GraphRange {
  std::uint32_t from = 0, to = 0;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> edges;
};

struct Decoded {
  std::vector<Step> steps;
  std::vector<std::uint32_t> operands;  // buffers
  std::vector<GraphRange> graphs;       // in order of their steps
  // By event: a wait for its record of the tick before stands after its record in this tick.
  std::vector<bool> alternating;
  std::vector<std::uint32_t> recordedOn;  // by event: the lane of its record; 0 where it is never recorded
  std::uint32_t runs = 0;
  std::size_t mostOperands = 0;
};

// Reads the words of a program. TypeScript has validated every plan and has the exact messages; the checks
// here are what keeps this process from crashing on a wrong table. Every id and length is in bounds, every
// buffer is allocated before it is touched and freed once, every event is recorded before it is waited for,
// no kernel reaches beyond its buffers, and graphs are apart and without cycles. Whether accesses are ordered
// is the verifier's concern.
MaybeFailure decode(const ProgramSpec& spec, Decoded* decoded);

}  // namespace braid
