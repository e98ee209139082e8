#pragma once

#include <cstdint>
#include <vector>

#include "executor/failure.h"
#include "executor/program_spec.h"

namespace braid {

constexpr std::size_t mostLanes = 1024, mostInFlight = 256, mostDevices = 64;

enum class StepKind : std::uint8_t { alloc, free, run, record, wait, use };

// One command, its meaning by kind:
//   alloc buffer lane | free buffer | run node lane (operands, reads, writes) | record event lane | wait
//   event lane previous | use buffer lane event
struct Step {
  StepKind kind = StepKind::alloc;
  bool previous = false;      // wait: for the event as recorded one tick earlier
  std::uint32_t subject = 0;  // buffer, node or event
  std::uint32_t lane = 0;
  std::uint32_t event = 0;                            // use
  std::uint32_t run = 0;                              // run: its number among the runs
  std::uint32_t operands = 0, reads = 0, writes = 0;  // run: a slice of Decoded::operands
};

struct Decoded {
  std::vector<Step> steps;
  std::vector<std::uint32_t> operands;  // buffers
  std::vector<bool>
      alternating;  // by event: waited for as of the tick before, after it has been recorded in this one
  std::vector<std::uint32_t> recordedOn;  // by event: the lane of its record (one that is never recorded: 0)
  std::uint32_t runs = 0;
  std::size_t mostOperands = 0;
};

// Reads the words of a program and trusts none: every id and length is checked, every buffer is allocated
// before it is touched and freed once, every event recorded before it is waited for, and no kernel reaches
// beyond its buffers. Whether accesses are *ordered* is the verifier's business. After it has passed, nothing
// that indexes by the program's numbers can go astray.
MaybeFailure decode(const ProgramSpec& spec, Decoded* decoded);

}  // namespace braid
