#include "tools/bench/task_graphs.h"

#include <algorithm>

namespace braid::bench {
namespace {

constexpr std::uint64_t datumBytes = 512;

const char* nameOf(Pattern pattern) {
  switch (pattern) {
    case Pattern::trivial: return "trivial";
    case Pattern::stencil: return "stencil";
    case Pattern::fft: return "fft";
    case Pattern::sweep: return "sweep";
  }
  return "";
}

KernelSpec kernelOf(std::uint32_t reads) {
  KernelSpec kernel;
  kernel.kind = KernelSpec::Kind::map;
  kernel.name = "task" + std::to_string(reads);
  kernel.shape = {1};
  for (std::uint32_t i = 0; i < reads; ++i) kernel.operands.push_back({DType::f32, 0, {1}});
  if (reads == 0) {
    kernel.code = {{MapOp::constant, 0, 0, 0, 0}};
  } else {
    kernel.code = {{MapOp::operand, 0, 0, 0, 0}};
  }
  kernel.results = {{0, DType::f32}};
  return kernel;
}

}  // namespace

TaskGraph taskBench(Pattern pattern, std::uint32_t width, std::uint32_t steps) {
  TaskGraph graph;
  graph.name = std::string("task bench, ") + nameOf(pattern);
  graph.lanes = width;
  std::uint32_t levels = 0;
  while ((2u << levels) <= width) ++levels;
  for (std::uint32_t step = 0; step < steps; ++step) {
    for (std::uint32_t column = 0; column < width; ++column) {
      std::vector<std::uint32_t> reads;
      const auto above = [&](std::int64_t other) {
        if (other >= 0 && other < width)
          reads.push_back((step - 1) * width + static_cast<std::uint32_t>(other));
      };
      if (step > 0 && pattern == Pattern::stencil)
        for (const int by : {-1, 0, 1}) above(std::int64_t{column} + by);
      if (step > 0 && pattern == Pattern::fft) {
        const std::int64_t by = std::int64_t{1} << ((step - 1) % std::max(1u, levels));
        for (const std::int64_t other : {std::int64_t{column}, column - by, column + by}) above(other);
      }
      if (step > 0 && pattern == Pattern::sweep) {
        above(column);
        if (column > 0) reads.push_back(step * width + column - 1);
      }
      graph.reads.push_back(std::move(reads));
      graph.laneOf.push_back(column);
    }
  }
  return graph;
}

TaskGraph pingPong(std::uint32_t tasks) {
  TaskGraph graph;
  graph.name = "ping-pong";
  for (std::uint32_t i = 0; i < tasks; ++i) {
    graph.reads.push_back(i > 0 ? std::vector<std::uint32_t>{i - 1} : std::vector<std::uint32_t>{});
    graph.laneOf.push_back(0);
  }
  return graph;
}

ProgramSpec programOf(const TaskGraph& graph, bool planned, const std::vector<std::uint64_t>& bytes) {
  const auto tasks = static_cast<std::uint32_t>(graph.reads.size());
  const std::uint32_t lanes = graph.lanes;
  ProgramSpec spec;
  spec.name = graph.name;
  spec.planned = planned;
  for (std::uint32_t lane = 0; lane < lanes; ++lane) spec.lanes.push_back({"lane" + std::to_string(lane), 0});
  std::uint32_t mostReads = 0;
  for (const auto& reads : graph.reads)
    mostReads = std::max(mostReads, static_cast<std::uint32_t>(reads.size()));
  for (std::uint32_t reads = 0; reads <= mostReads; ++reads) spec.kernels.push_back(kernelOf(reads));

  // A clock counts for each lane the tasks that happen before. Waits are for tasks beyond the clock, the
  // latest first, and each joins the clock of its task.
  std::vector<std::vector<std::uint32_t>> clocks(tasks), waits(tasks), lastReader(tasks), freed(tasks);
  std::vector<std::vector<std::uint32_t>> frontier(lanes, std::vector<std::uint32_t>(lanes));
  std::vector<std::uint32_t> position(tasks), issued(lanes), last(tasks);
  std::vector<bool> recorded(tasks);
  for (std::uint32_t task = 0; task < tasks; ++task) {
    const std::uint32_t lane = graph.laneOf[task];
    position[task] = ++issued[lane];
    std::vector<std::uint32_t> reads = graph.reads[task];
    std::sort(reads.rbegin(), reads.rend());
    for (const std::uint32_t read : reads) {
      if (frontier[lane][graph.laneOf[read]] >= position[read] || graph.laneOf[read] == lane) continue;
      waits[task].push_back(read);
      recorded[read] = true;
      for (std::uint32_t other = 0; other < lanes; ++other)
        frontier[lane][other] = std::max(frontier[lane][other], clocks[read][other]);
    }
    frontier[lane][lane] = position[task];
    clocks[task] = frontier[lane];
    last[task] = task;
    for (const std::uint32_t read : reads) last[read] = task;
    for (const std::uint32_t read : reads) lastReader[read].push_back(task);
  }
  for (std::uint32_t task = 0; task < tasks; ++task) freed[last[task]].push_back(task);
  // The last reader on each foreign lane marks its use.
  std::vector<std::vector<std::pair<std::uint32_t, std::uint32_t>>> uses(tasks);  // by datum: (lane, task)
  for (std::uint32_t datum = 0; datum < tasks && !planned; ++datum) {
    std::vector<std::int64_t> byLane(lanes, -1);
    for (const std::uint32_t reader : lastReader[datum]) byLane[graph.laneOf[reader]] = reader;
    for (std::uint32_t lane = 0; lane < lanes; ++lane) {
      if (byLane[lane] < 0 || lane == graph.laneOf[datum]) continue;
      const auto reader = static_cast<std::uint32_t>(byLane[lane]);
      uses[datum].emplace_back(lane, reader);
      recorded[reader] = true;
    }
  }

  std::vector<std::uint32_t> event(tasks);
  for (std::uint32_t task = 0; task < tasks; ++task) {
    if (recorded[task]) event[task] = spec.events++;
    const auto reads = static_cast<std::uint32_t>(graph.reads[task].size());
    spec.nodes.push_back({"task" + std::to_string(task), reads});
    spec.buffers.push_back({"datum" + std::to_string(task), bytes.empty() ? 4 : bytes[task], Space::device,
                            graph.laneOf[task], Life::tick, task, 0,
                            planned ? static_cast<std::int64_t>(task * datumBytes) : -1});
  }
  auto& words = spec.commands;
  const auto put = [&](std::initializer_list<std::uint32_t> list) {
    for (const std::uint32_t word : list) words.push_back(static_cast<std::int32_t>(word));
  };
  for (std::uint32_t task = 0; task < tasks; ++task) {
    const std::uint32_t lane = graph.laneOf[task];
    for (const std::uint32_t on : waits[task]) put({4, event[on], lane, 0});
    if (!planned) put({0, task, lane});
    put({2, task, lane, static_cast<std::uint32_t>(graph.reads[task].size()), 1});
    for (const std::uint32_t read : graph.reads[task]) put({read});
    put({task});
    if (recorded[task]) put({3, event[task], lane});
    if (planned) continue;
    for (const std::uint32_t datum : freed[task]) {
      for (const auto& [reader, by] : uses[datum]) put({5, datum, reader, event[by]});
      put({1, datum});
    }
  }
  spec.devices[0].arenaBytes = planned ? tasks * datumBytes : 0;
  for (const BufferSpec& buffer : spec.buffers)
    spec.devices[0].boundBytes += (buffer.bytes + datumBytes - 1) / datumBytes * datumBytes;
  return spec;
}

ProgramSpec graphOf(const TaskGraph& graph) {
  ProgramSpec spec = programOf(graph, true);
  // Commands by number, from the words of runs, records and waits.
  const std::vector<std::int32_t>& words = spec.commands;
  std::vector<std::int32_t> lastOn(graph.lanes, -1);    // by lane: its last run
  std::vector<std::int32_t> recorded(spec.events, -1);  // by event: the run before its record
  std::vector<std::vector<std::int32_t>> awaited(graph.lanes);
  std::int32_t command = 0;
  for (std::size_t at = 0; at < words.size(); ++command) {
    if (words[at] == 3) {
      recorded[static_cast<std::size_t>(words[at + 1])] = lastOn[static_cast<std::size_t>(words[at + 2])];
      at += 3;
    } else if (words[at] == 4) {
      awaited[static_cast<std::size_t>(words[at + 2])].push_back(
          recorded[static_cast<std::size_t>(words[at + 1])]);
      at += 4;
    } else {
      const auto lane = static_cast<std::size_t>(words[at + 2]);
      std::vector<std::int32_t>& before = awaited[lane];
      if (lastOn[lane] >= 0) before.push_back(lastOn[lane]);
      std::sort(before.begin(), before.end());
      before.erase(std::unique(before.begin(), before.end()), before.end());
      for (const std::int32_t run : before) spec.graphs.edges.insert(spec.graphs.edges.end(), {run, command});
      before.clear();
      lastOn[lane] = command;
      at += 5 + static_cast<std::size_t>(words[at + 3]) + static_cast<std::size_t>(words[at + 4]);
    }
  }
  spec.graphs.from = {0};
  spec.graphs.to = {command};
  spec.graphs.edgeStart = {0, static_cast<std::int32_t>(spec.graphs.edges.size() / 2)};
  return spec;
}

}  // namespace braid::bench
