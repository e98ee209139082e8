#pragma once

#include <functional>
#include <vector>

#include "executor/decode.h"

namespace braid {

// Whether nodes of these two devices of a program may be in one graph.
using MayShareGraph = std::function<bool(std::uint32_t, std::uint32_t)>;

// The graphs of a program, each with nodes of devices that may share one: a graph of the plan is divided
// before each run of a device that may not be in it with those before. With a run come the waits and records
// right before it, and the records of its lane right after it. A path between two runs passes through no
// command that is not issued between them, so the edges that lie inside a part are all that it needs.
std::vector<GraphRange> dividedGraphs(const ProgramSpec& spec, const Decoded& decoded,
                                      const MayShareGraph& mayShare);

}  // namespace braid
