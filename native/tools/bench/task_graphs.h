#pragma once

#include <string>
#include <vector>

#include "executor/program_spec.h"

namespace braid::bench {

// Tasks that each write a datum of their own: which earlier ones they read, and on which lane they run.
struct TaskGraph {
  std::string name;
  std::uint32_t lanes = 1;
  std::vector<std::vector<std::uint32_t>> reads;
  std::vector<std::uint32_t> laneOf;
};

// Task Bench (SC'20), as CUDASTF's own stress benchmark has it: a column a lane.
enum class Pattern { trivial, stencil, fft, sweep };
TaskGraph taskBench(Pattern pattern, std::uint32_t width, std::uint32_t steps);
// Two data, each task reads the one and writes the other.
TaskGraph pingPong(std::uint32_t tasks);

// One run a task of one empty element, with the fewest waits; every datum is freed right after its last
// reader has been issued. Planned: all data lie side by side in an arena. `bytes` of each datum; 4 where it
// is empty.
ProgramSpec programOf(const TaskGraph& graph, bool planned, const std::vector<std::uint64_t>& bytes = {});

// The same with planned storage as one graph: an edge for each wait, and between neighbours on a lane.
ProgramSpec graphOf(const TaskGraph& graph);

}  // namespace braid::bench
