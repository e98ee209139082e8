#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "executor/program.h"
#include "executor/trace.h"
#include "graphs/executable.h"

namespace braid {

// The executables of a program's graphs, made when it is opened. A graph that touches an input or an output
// has one executable for each slot, since they differ in these addresses, and so has one that touches a tick
// buffer where slots have arenas of their own; every other address is fixed. So a launch is one call of the
// driver, and nothing is updated.
//
// The nodes need no owners: kernels and memory are the session's, which destroys its executables only after
// all launches have completed.
class PlanGraphs {
 public:
  // All graphs of the schedule. `poison`: a buffer's first node comes after one that fills it with garbage.
  // With a trace, each node stands between two that record its events.
  MaybeFailure make(Program& program, const Trace& trace, bool poison);
  Status launch(std::uint32_t graph, std::uint32_t slot, Stream stream) {
    std::vector<graphs::ExecutableGraph>& slots = executables_[graph];
    return slots[slot < slots.size() ? slot : 0].launch(stream);
  }
  std::size_t executables() const;
  // All launches have completed.
  void clear() { executables_.clear(); }

 private:
  std::vector<std::vector<graphs::ExecutableGraph>> executables_;  // by graph, by slot
};

}  // namespace braid
