#include "executor/divided_graphs.h"

#include <algorithm>
#include <set>

namespace braid {
namespace {

void addEdges(const GraphRange& whole, std::vector<GraphRange>& parts, std::size_t first) {
  for (const auto& edge : whole.edges) {
    const auto part = std::find_if(parts.begin() + static_cast<std::ptrdiff_t>(first), parts.end(),
                                   [&](const GraphRange& each) { return edge.second < each.to; });
    if (edge.first >= part->from) part->edges.push_back(edge);
  }
}

}  // namespace

std::vector<GraphRange> dividedGraphs(const ProgramSpec& spec, const Decoded& decoded,
                                      const MayShareGraph& mayShare) {
  std::vector<GraphRange> parts;
  for (const GraphRange& whole : decoded.graphs) {
    const std::size_t first = parts.size();
    std::set<std::uint32_t> devices;  // of the last part
    for (std::uint32_t at = whole.from, begin = whole.from; at < whole.to; ++at) {
      const Step& run = decoded.steps[at];
      if (run.kind != StepKind::run) continue;
      while (at + 1 < whole.to && decoded.steps[at + 1].kind == StepKind::record &&
             decoded.steps[at + 1].lane == run.lane)
        ++at;
      const std::uint32_t device = spec.lanes[run.lane].device;
      const bool joins = std::all_of(devices.begin(), devices.end(), [&](std::uint32_t other) {
        return other == device || mayShare(device, other);
      });
      if (parts.size() == first || !joins) {
        parts.push_back({begin, at + 1, {}});
        devices.clear();
      }
      devices.insert(device);
      parts.back().to = begin = at + 1;
    }
    // Waits and records behind the last run.
    if (parts.size() > first) parts.back().to = whole.to;
    addEdges(whole, parts, first);
  }
  return parts;
}

}  // namespace braid
