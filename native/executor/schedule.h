#pragma once

#include <cstdint>
#include <vector>

#include "executor/decode.h"

namespace braid {

// What is issued in a tick: the commands of the plan, with one launch in place of each graph.
//
// A launch is one piece of its stream, that of the lane of the graph's first run. So:
//   1. Waits and records inside a graph are issued nowhere. What others must know of them is known of the
//      graph's end, and an event marks that, on the launching lane, right after the launch.
//   2. A lane's commands stay in order. Before a launch the launching lane waits for the present end of every
//      lane that has commands in the graph: the end of its stream, or of the graph that it was last part of.
//      Before a lane's next command outside it waits for the end of that graph.
//   3. Before a launch the launching lane also waits for each event that a command in the graph waits for and
//      that is recorded outside. A wait for an event that is recorded in a graph is one for that graph's end.
//   4. Nothing waits for its own lane's earlier work, or twice for the same; nothing is recorded for nobody.
// All this holds from one tick to the next too; but where slots have lanes of their own, a tick comes after
// the one before only by 3, on whichever lane. Events are those of the plan, then those of 1 and 2.
struct Schedule {
  std::vector<Step> steps;
  std::uint32_t events = 0;
  // By event, as in Decoded.
  std::vector<bool> alternating;
  std::vector<std::uint32_t> recordedOn;
  // By step of the plan: the lane on whose stream it is issued.
  std::vector<std::uint32_t> issuedOn;
  // By graph of Decoded: whether it is launched.
  std::vector<bool> launched;
};

// With `graphs` unset every command is issued by itself.
Schedule scheduleOf(const ProgramSpec& spec, const Decoded& decoded, bool graphs);

}  // namespace braid
