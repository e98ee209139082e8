#include "executor/schedule.h"

#include <algorithm>
#include <optional>
#include <set>
#include <tuple>

namespace braid {
namespace {

constexpr std::uint32_t none = ~std::uint32_t{0};

class Scheduler {
 public:
  Scheduler(const ProgramSpec& spec, const Decoded& decoded)
      : spec_(spec), decoded_(decoded), apart_(spec.arenas > 1) {
    out_.events = spec.events;
    endOf_.assign(decoded.graphs.size(), none);
    laneOf_.assign(decoded.graphs.size(), 0);
    out_.launched.assign(decoded.graphs.size(), false);
    graphOf_.assign(decoded.steps.size(), none);
    recordedIn_.assign(spec.events, none);
    for (const Step& step : decoded.steps) out_.issuedOn.push_back(step.lane);
  }

  Schedule schedule() {
    for (std::uint32_t graph = 0; graph < decoded_.graphs.size(); ++graph) enter(graph);
    findEnds();
    for (std::size_t at = 0; at < decoded_.steps.size(); ++at) {
      const std::uint32_t graph = graphOf_[at];
      if (graph == none) {
        outside(decoded_.steps[at]);
      } else {
        launch(graph);
        at = decoded_.graphs[graph].to - 1;
      }
    }
    dropUnused();
    findEvents();
    return std::move(out_);
  }

 private:
  static bool onLane(const Step& step) { return step.kind != StepKind::free && step.kind != StepKind::use; }

  void enter(std::uint32_t graph) {
    const GraphRange& range = decoded_.graphs[graph];
    std::uint32_t lane = none;
    for (std::uint32_t at = range.from; at < range.to && lane == none; ++at)
      if (decoded_.steps[at].kind == StepKind::run) lane = decoded_.steps[at].lane;
    laneOf_[graph] = lane;
    endOf_[graph] = out_.events++;
    out_.launched[graph] = true;
    for (std::uint32_t at = range.from; at < range.to; ++at) {
      const Step& step = decoded_.steps[at];
      graphOf_[at] = graph;
      out_.issuedOn[at] = lane;
      if (step.kind == StepKind::record) recordedIn_[step.subject] = graph;
    }
  }

  // The graph that each lane's last command of a tick is in, which is where the next tick finds it.
  void findEnds() {
    tails_.assign(spec_.lanes.size(), {none, true, apart_});
    if (apart_) return;
    for (std::size_t at = 0; at < decoded_.steps.size(); ++at)
      if (onLane(decoded_.steps[at])) tails_[decoded_.steps[at].lane].graph = graphOf_[at];
  }

  // Makes `lane` wait for an event, unless it has in this tick.
  void wait(std::uint32_t event, std::uint32_t lane, bool previous, std::uint32_t command) {
    if (!waited_.emplace(event, lane, previous).second) return;
    Step step;
    step.kind = StepKind::wait;
    step.subject = event;
    step.lane = lane;
    step.previous = previous;
    step.command = command;
    out_.steps.push_back(step);
  }
  // For the end of a graph's launch in this tick, or the tick before.
  void waitForEnd(std::uint32_t graph, std::uint32_t lane, bool previous, std::uint32_t command) {
    if (laneOf_[graph] != lane || (previous && apart_)) wait(endOf_[graph], lane, previous, command);
  }
  void record(std::uint32_t event, std::uint32_t lane, std::uint32_t command) {
    Step step;
    step.kind = StepKind::record;
    step.subject = event;
    step.lane = lane;
    step.command = command;
    out_.steps.push_back(step);
  }

  void outside(const Step& step) {
    if (!onLane(step)) return void(out_.steps.push_back(step));
    Tail& tail = tails_[step.lane];
    if (tail.graph != none) waitForEnd(tail.graph, step.lane, tail.previous, step.command);
    tail = {none, false, false};
    if (step.kind == StepKind::wait && recordedIn_[step.subject] != none)
      waitForEnd(recordedIn_[step.subject], step.lane, step.previous, step.command);
    else
      out_.steps.push_back(step);
  }

  void launch(std::uint32_t graph) {
    const GraphRange& range = decoded_.graphs[graph];
    const std::uint32_t own = laneOf_[graph];
    for (std::uint32_t at = range.from; at < range.to; ++at) {
      const Step& step = decoded_.steps[at];
      Tail& tail = tails_[step.lane];
      if (tail.graph != none) {
        waitForEnd(tail.graph, own, tail.previous, range.from);
      } else if (step.lane != own && !tail.idle) {
        record(out_.events, step.lane, range.from);
        wait(out_.events++, own, false, range.from);
      }
      tail = {graph, false, false};
      if (step.kind != StepKind::wait) continue;
      const std::uint32_t in = recordedIn_[step.subject];
      const bool elsewhere = step.previous && apart_;
      if (in != none && (in != graph || elsewhere)) waitForEnd(in, own, step.previous, range.from);
      if (in == none && (decoded_.recordedOn[step.subject] != own || elsewhere))
        wait(step.subject, own, step.previous, range.from);
    }
    Step step;
    step.kind = StepKind::launch;
    step.subject = graph;
    step.lane = own;
    step.command = range.from;
    out_.steps.push_back(step);
    record(endOf_[graph], own, range.from);
  }

  // Marks that nobody waits for. The plan's own commands outside graphs stay as they are.
  void dropUnused() {
    std::vector<bool> used(out_.events);
    for (const Step& step : out_.steps)
      if (step.kind == StepKind::wait) used[step.subject] = true;
    std::erase_if(out_.steps, [&](const Step& step) {
      return step.kind == StepKind::record && step.subject >= spec_.events && !used[step.subject];
    });
  }

  void findEvents() {
    out_.alternating.assign(out_.events, false);
    out_.recordedOn.assign(out_.events, 0);
    std::vector<bool> recorded(out_.events);
    for (const Step& step : out_.steps) {
      if (step.kind == StepKind::record) {
        recorded[step.subject] = true;
        out_.recordedOn[step.subject] = step.lane;
      }
      if (step.kind == StepKind::wait && step.previous && recorded[step.subject])
        out_.alternating[step.subject] = true;
    }
  }

  // Where a lane's last command is: in a graph, launched in the tick before or in this one; or outside. Idle:
  // ticks have lanes of their own, and this one has none on this lane yet.
  struct Tail {
    std::uint32_t graph = none;
    bool previous = false;
    bool idle = false;
  };

  const ProgramSpec& spec_;
  const Decoded& decoded_;
  const bool apart_;  // ticks in flight have streams of their own: none is ordered after the one before
  Schedule out_;
  std::vector<std::uint32_t> endOf_, laneOf_;  // by graph: the event of its end, its launching lane
  std::vector<std::uint32_t> graphOf_;         // by step of the plan; none: outside
  std::vector<std::uint32_t> recordedIn_;      // by event of the plan; none: outside
  std::vector<Tail> tails_;                    // by lane
  std::set<std::tuple<std::uint32_t, std::uint32_t, bool>> waited_;
};

}  // namespace

Schedule scheduleOf(const ProgramSpec& spec, const Decoded& decoded, bool graphs) {
  if (graphs && !decoded.graphs.empty()) return Scheduler(spec, decoded).schedule();
  Schedule plain;
  plain.steps = decoded.steps;
  plain.events = spec.events;
  plain.alternating = decoded.alternating;
  plain.recordedOn = decoded.recordedOn;
  plain.launched.assign(decoded.graphs.size(), false);
  for (const Step& step : decoded.steps) plain.issuedOn.push_back(step.lane);
  return plain;
}

}  // namespace braid
