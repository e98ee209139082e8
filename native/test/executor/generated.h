#pragma once

#include <algorithm>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "executor/decode.h"
#include "test/executor/support.h"

// Generated programs with planned storage, and their graphs.
namespace braid::test {

struct Task {
  std::uint32_t node, lane;
  std::vector<std::uint32_t> reads, writes;
};

// What a task waits for in the tick before: tasks of other lanes that it conflicts with; those of its own
// lane too, for ticks that have lanes of their own; or nothing.
enum class TickBefore : std::uint8_t { otherLanes, allLanes, nothing };

// The commands of tasks: each is recorded, and waits for every task of another lane that it conflicts with,
// in this tick or the tick before. That is far more than is needed, and right.
inline std::vector<std::int32_t> commandsOf(const std::vector<Task>& tasks,
                                            TickBefore before = TickBefore::otherLanes) {
  const auto meet = [](const std::vector<std::uint32_t>& one, const std::vector<std::uint32_t>& other) {
    return std::any_of(one.begin(), one.end(), [&](std::uint32_t buffer) {
      return std::find(other.begin(), other.end(), buffer) != other.end();
    });
  };
  const auto conflict = [&](const Task& one, const Task& other, bool previous) {
    if (previous && before == TickBefore::nothing) return false;
    return (one.lane != other.lane || (previous && before == TickBefore::allLanes)) &&
           (meet(one.writes, other.writes) || meet(one.writes, other.reads) || meet(one.reads, other.writes));
  };
  std::vector<std::int32_t> words;
  const auto word = [&](std::size_t value) { words.push_back(static_cast<std::int32_t>(value)); };
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    const Task& task = tasks[i];
    for (std::size_t other = 0; other < tasks.size(); ++other) {
      if (!conflict(task, tasks[other], other >= i)) continue;
      for (const std::size_t value : {std::size_t{4}, other, std::size_t{task.lane}}) word(value);
      words.push_back(other < i ? 0 : -1);
    }
    for (const std::size_t value : {std::size_t{2}, std::size_t{task.node}, std::size_t{task.lane},
                                    task.reads.size(), task.writes.size()})
      word(value);
    for (const std::uint32_t buffer : task.reads) word(buffer);
    for (const std::uint32_t buffer : task.writes) word(buffer);
    for (const std::size_t value : {std::size_t{3}, i, std::size_t{task.lane}}) word(value);
  }
  return words;
}

// Which runs of a range come before which by its lanes and events: the transitive reduction.
inline std::vector<std::pair<std::int32_t, std::int32_t>> edgesOf(const Decoded& decoded, std::size_t from,
                                                                  std::size_t to) {
  const std::size_t count = to - from;
  std::vector<std::vector<bool>> before(count, std::vector<bool>(count));
  for (std::size_t i = 0; i < count; ++i) {
    const Step& step = decoded.steps[from + i];
    for (std::size_t j = 0; j < i; ++j) {
      const Step& earlier = decoded.steps[from + j];
      const bool sameLane = earlier.lane == step.lane;
      const bool event = step.kind == StepKind::wait && !step.previous && earlier.kind == StepKind::record &&
                         earlier.subject == step.subject;
      if (!sameLane && !event) continue;
      before[i][j] = true;
      for (std::size_t k = 0; k < j; ++k) before[i][k] = before[i][k] || before[j][k];
    }
  }
  const auto run = [&](std::size_t i) { return decoded.steps[from + i].kind == StepKind::run; };
  std::vector<std::pair<std::int32_t, std::int32_t>> edges;
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (!run(i) || !run(j) || !before[i][j]) continue;
      bool direct = true;
      for (std::size_t k = j + 1; k < i && direct; ++k) direct = !(run(k) && before[i][k] && before[k][j]);
      if (direct) edges.emplace_back(from + j, from + i);
    }
  }
  return edges;
}

// The same program with these ranges of commands as graphs.
inline ProgramSpec withGraphs(ProgramSpec spec,
                              const std::vector<std::pair<std::size_t, std::size_t>>& ranges) {
  spec.graphs = {};
  Decoded decoded;
  EXPECT_FALSE(decode(spec, &decoded));
  spec.graphs.edgeStart = {0};
  for (const auto& [from, to] : ranges) {
    spec.graphs.from.push_back(static_cast<std::int32_t>(from));
    spec.graphs.to.push_back(static_cast<std::int32_t>(to));
    for (const auto& [before, after] : edgesOf(decoded, from, to)) {
      spec.graphs.edges.push_back(before);
      spec.graphs.edges.push_back(after);
    }
    spec.graphs.edgeStart.push_back(static_cast<std::int32_t>(spec.graphs.edges.size() / 2));
  }
  return spec;
}
inline std::size_t commandCount(const ProgramSpec& spec) {
  Decoded decoded;
  EXPECT_FALSE(decode(spec, &decoded));
  return decoded.steps.size();
}
inline ProgramSpec asOneGraph(const ProgramSpec& spec) { return withGraphs(spec, {{0, commandCount(spec)}}); }

// Ranges that cover some of the commands, each with a run.
inline std::vector<std::pair<std::size_t, std::size_t>> randomRanges(const ProgramSpec& spec,
                                                                     std::mt19937& random) {
  Decoded decoded;
  EXPECT_FALSE(decode(spec, &decoded));
  std::vector<std::pair<std::size_t, std::size_t>> ranges;
  const std::size_t longest = 1 + random() % (decoded.steps.size() + 1);
  for (std::size_t from = 0; from < decoded.steps.size();) {
    const std::size_t to = std::min(decoded.steps.size(), from + 1 + random() % longest);
    const bool runs = std::any_of(decoded.steps.begin() + static_cast<std::ptrdiff_t>(from),
                                  decoded.steps.begin() + static_cast<std::ptrdiff_t>(to),
                                  [](const Step& step) { return step.kind == StepKind::run; });
    if (runs && random() % 4 > 0) ranges.emplace_back(from, to);
    from = to;
  }
  return ranges;
}

// A program of runs that each read two buffers and write a third, r = a / 2 - b, on several lanes. Buffers: 0
// to 1 inputs, 2 to 3 outputs, 4 a parameter, 5 to 6 states, then those of a tick in the arena.
constexpr std::uint32_t generatedInputs = 2, firstOutput = 2, parameter = 4, firstState = 5, states = 2,
                        firstOfTick = 7;
inline ProgramSpec generated(std::mt19937& random, std::uint32_t inFlight,
                             TickBefore before = TickBefore::otherLanes) {
  const auto below = [&](std::size_t count) { return static_cast<std::uint32_t>(random() % count); };
  ProgramSpec spec;
  spec.name = "generated";
  spec.inFlight = inFlight;
  spec.planned = true;
  const std::uint32_t lanes = 1 + below(4), tasks = 2 + below(24), ofTick = 2 + below(8);
  for (std::uint32_t lane = 0; lane < lanes; ++lane) spec.lanes.push_back({"lane" + std::to_string(lane), 0});
  const auto add = [&](const std::string& name, Space space, Life life) {
    BufferSpec made = buffer(name.c_str(), space, life, 0, static_cast<std::uint32_t>(spec.buffers.size()));
    if (life == Life::tick) {
      made.arenaOffset = static_cast<std::int64_t>(spec.devices[0].arenaBytes);
      spec.devices[0].arenaBytes += 512;
    }
    spec.buffers.push_back(made);
  };
  for (const char* name : {"x0", "x1"}) add(name, Space::pinned, Life::input);
  for (const char* name : {"y0", "y1"}) add(name, Space::pinned, Life::output);
  add("w", Space::device, Life::param);
  for (const char* name : {"s0", "s1"}) add(name, Space::device, Life::state);
  for (std::uint32_t i = 0; i < ofTick; ++i) add("t" + std::to_string(i), Space::device, Life::tick);
  spec.devices[0].boundBytes = spec.devices[0].arenaBytes + 3 * 512;
  spec.boundPinned = std::uint64_t{4} * inFlight * 512;

  KernelSpec copy;
  copy.bytes = bytes;
  KernelSpec mix;
  mix.kind = KernelSpec::Kind::map;
  mix.shape = {static_cast<std::int64_t>(count)};
  mix.operands = {{DType::f32, 0, {1}}, {DType::f32, 0, {1}}};
  mix.code = {{MapOp::operand, 0, 0, 0, 0},
              {MapOp::operand, 1, 0, 0, 0},
              {MapOp::constant, 0, 0, 0, 0.5},
              {MapOp::mul, 0, 2, 0, 0},
              {MapOp::sub, 3, 1, 0, 0}};
  mix.results = {{4, DType::f32}};
  spec.kernels = {copy, mix};

  std::vector<Task> list;
  const auto task = [&](std::uint32_t kernel, std::vector<std::uint32_t> reads, std::uint32_t write) {
    const auto node = static_cast<std::uint32_t>(spec.nodes.size());
    spec.nodes.push_back({(kernel == 0 ? "copy" : "mix") + std::to_string(node), kernel});
    list.push_back({node, below(lanes), std::move(reads), {write}});
  };
  std::vector<std::uint32_t> known{parameter, firstState, firstState + 1};
  for (std::uint32_t i = 0; i < tasks; ++i) {
    const bool state = random() % 5 == 0;
    const std::uint32_t write = state ? firstState + below(states) : firstOfTick + below(ofTick);
    if (random() % 4 == 0) {
      task(0, {below(generatedInputs)}, write);
    } else {
      task(1, {known[below(known.size())], known[below(known.size())]}, write);
    }
    if (std::find(known.begin(), known.end(), write) == known.end()) known.push_back(write);
  }
  for (const std::uint32_t output : {0u, 1u}) task(0, {known[below(known.size())]}, firstOutput + output);
  spec.commands = commandsOf(list, before);
  spec.events = static_cast<std::uint32_t>(list.size());
  return spec;
}

// The same program with an arena, and lanes, for each tick in flight. It needs graphs.
inline ProgramSpec withArenas(ProgramSpec spec) {
  spec.arenas = spec.inFlight;
  for (DeviceSpec& device : spec.devices) device.boundBytes += (spec.arenas - 1) * device.arenaBytes;
  return spec;
}

// The same program on so many devices: lanes and buffers lie anywhere, and kernels reach everything.
inline ProgramSpec onDevices(ProgramSpec spec, std::uint32_t devices, std::mt19937& random) {
  spec.devices.resize(devices, spec.devices[0]);
  for (LaneSpec& lane : spec.lanes) lane.device = random() % devices;
  for (BufferSpec& buffer : spec.buffers) {
    buffer.home = random() % spec.lanes.size();
    if (buffer.space == Space::device) buffer.device = spec.lanes[buffer.home].device;
  }
  for (NodeSpec& node : spec.nodes) node.peerAccess = true;
  return spec;
}

}  // namespace braid::test
