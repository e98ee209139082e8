// The cost of issuing a plan eagerly: alone, with a driver that does nothing; and on the device, compared
// with the same driver calls in a loop.
#include "executor/issuer.h"

#include "tools/bench/bench.h"
#include "tools/bench/idle_driver.h"
#include "tools/bench/task_graphs.h"

namespace braid::bench {
namespace {

std::shared_ptr<Driver> borrowed(Driver& driver) { return {std::shared_ptr<void>(), &driver}; }

std::vector<std::shared_ptr<DeviceMemory>> alone(const std::vector<std::shared_ptr<Driver>>& drivers) {
  std::vector<std::shared_ptr<DeviceMemory>> devices;
  for (const auto& driver : drivers) devices.push_back(DeviceMemory::alone(driver));
  return devices;
}

std::size_t freeBytes(Driver& driver) {
  std::size_t free = 0, total = 0;
  must(driver, driver.memInfo(&free, &total), "memInfo");
  return free;
}

// A program that is ready to be issued, tick after tick, with no other session.
struct Ready {
  Ready(std::shared_ptr<Driver> driver, const TaskGraph& graph, bool planned)
      : Ready({std::move(driver)}, graph.name, programOf(graph, planned)) {}
  Ready(const std::vector<std::shared_ptr<Driver>>& drivers, const std::string& name, ProgramSpec spec)
      : program(alone(drivers), std::move(spec)) {
    MaybeFailure failure = program.takeMemory();
    if (!failure) failure = program.load({});
    const std::size_t before = freeBytes(program.driver());
    if (!failure) failure = graphs.make(program, trace, false);
    synchronize();
    graphBytes = static_cast<double>(before) - static_cast<double>(freeBytes(program.driver()));
    if (failure) {
      std::fprintf(stderr, "%s: %s %s\n", name.c_str(), failure->op.c_str(), failure->detail.c_str());
      std::exit(1);
    }
    issuer = std::make_unique<Issuer>(program, trace, false, true, &graphs);
  }
  void issue() {
    do {
      const MaybeFailure failure = issuer->issue(tick);
      if (!failure) continue;
      std::fprintf(stderr, "%s: %s\n", failure->op.c_str(), failure->detail.c_str());
      std::exit(1);
    } while (!issuer->isWhole());
    ++tick;
  }
  void synchronize() {
    for (const Stream stream : program.streams()) program.driver().streamSynchronize(stream);
  }
  Program program;
  Trace trace;
  PlanGraphs graphs;
  double graphBytes = 0;  // of the device's memory, that executables hold
  std::unique_ptr<Issuer> issuer;
  std::uint64_t tick = 0;
};

// The driver calls of one tick, and nothing else.
struct Loop {
  explicit Loop(Ready& ready) : ready(ready) {
    const Decoded& decoded = ready.program.decoded();
    operands.assign(decoded.mostOperands, 0);
    DeviceAddress memory = 0;
    must(ready.program.driver(), ready.program.driver().memAllocate(&memory, 4096), "memAllocate");
    for (DeviceAddress& operand : operands) operand = memory;
    held = memory;
  }
  ~Loop() { ready.program.driver().memFree(held); }
  void issue() {
    Driver& driver = ready.program.driver();
    for (const Step& step : ready.program.steps()) {
      const Stream stream = ready.program.streams()[step.lane];
      if (step.kind == StepKind::run)
        driver.launch(ready.program.kernel(step.run), operands.data(), operands.data() + step.reads, stream);
      else if (step.kind == StepKind::record)
        driver.eventRecord(ready.program.event(ready.program.marker(step.subject, 0)), stream);
      else if (step.kind == StepKind::wait)
        driver.streamWait(stream, ready.program.event(ready.program.marker(step.subject, 0)));
    }
    for (const LaneId lane : ready.program.busyLanes())
      driver.eventRecord(ready.program.tickEnd(0, lane), ready.program.streams()[lane]);
  }
  Ready& ready;
  std::vector<DeviceAddress> operands;
  DeviceAddress held = 0;
};

// Nanoseconds of one tick's issuing; the device is idle at its beginning.
template <class Tick>
double issued(Ready& ready, Tick tick) {
  ready.synchronize();
  const auto began = Clock::now();
  tick();
  return nanoseconds(Clock::now() - began);
}

Spread over(Spread spread, double count) {
  return {spread.median / count, spread.least / count, spread.most / count};
}

// The ticks of a session until its pool has reached the steady state, from then on addresses are known: how
// many they are, and the nanoseconds of one, over the repeats. Each repeat starts with a pool without blocks.
struct Starting {
  double ticks = 0;
  Spread tick;
};
Starting startingOf(const Run& run, Ready& ready) {
  constexpr int most = 2048;  // the issuer stops searching for a period before
  Starting starting;
  std::vector<double> each;
  for (int repeat = 0; repeat < run.repeats; ++repeat) {
    ready.issuer->abandon();
    double spent = 0;
    int ticks = 0;
    while (ticks < most) {
      const auto began = Clock::now();
      ready.issue();
      const auto ended = Clock::now();
      if (ready.issuer->addressesKnown()) break;
      spent += nanoseconds(ended - began);
      ++ticks;
    }
    starting.ticks = ticks;
    each.push_back(spent / std::max(1, ticks));
  }
  starting.tick = spread(each);
  return starting;
}

void own(const Run& run, const TaskGraph& graph, bool planned) {
  Ready ready(std::make_shared<IdleDriver>(nullptr), graph, planned);
  const auto commands = static_cast<double>(ready.program.steps().size());
  const auto tasks = static_cast<double>(graph.reads.size());
  const Spread tick = perTurn(run, [&](std::uint64_t turns) {
    for (; turns > 0; --turns) ready.issue();
  });
  Line line("executor", "own, " + graph.name + (planned ? ", planned" : ", pooled"));
  line.add(over(tick, commands), "ns a command")
      .add("commands", commands)
      .add("nsATask", tick.median / tasks);
  if (planned) return;  // addresses are known from the first tick on
  const Starting starting = startingOf(run, ready);
  line.add("startingTicks", starting.ticks).add("starting", starting.tick.median / commands);
}

// The same with every other lane on a second device: what it costs to make devices current in turn.
void ownOfTwo(const Run& run, const TaskGraph& graph, bool planned) {
  ProgramSpec spec = programOf(graph, planned);
  spec.devices.push_back(spec.devices[0]);
  for (std::size_t lane = 0; lane < spec.lanes.size(); ++lane) spec.lanes[lane].device = lane % 2;
  for (BufferSpec& buffer : spec.buffers) buffer.device = spec.lanes[buffer.home].device;
  for (NodeSpec& node : spec.nodes) node.peerAccess = true;
  Ready ready({std::make_shared<IdleDriver>(nullptr), std::make_shared<IdleDriver>(nullptr)}, graph.name,
              std::move(spec));
  const auto commands = static_cast<double>(ready.program.steps().size());
  const Spread tick = perTurn(run, [&](std::uint64_t turns) {
    for (; turns > 0; --turns) ready.issue();
  });
  Line("executor", "own, " + graph.name + " on two devices" + (planned ? ", planned" : ", pooled"))
      .add(over(tick, commands), "ns a command")
      .add("commands", commands);
}

// `empty`: tasks that launch nothing.
void onDevice(const Run& run, const TaskGraph& graph, bool planned, bool empty) {
  Ready ready(empty ? std::make_shared<IdleDriver>(&run.driver) : borrowed(run.driver), graph, planned);
  Loop loop(ready);
  const auto tasks = static_cast<double>(graph.reads.size());
  for (int warm = 0; warm < 3; ++warm) {
    ready.issue();
    loop.issue();
    ready.synchronize();
  }
  // Tick by tick in turn, and compared pair by pair: a shared machine is slower for a second now and then.
  std::vector<double> plans, loops, ratios;
  for (int turn = 0; turn < 15 * run.repeats; ++turn) {
    const double plan = issued(ready, [&] { ready.issue(); });
    const double raw = issued(ready, [&] { loop.issue(); });
    plans.push_back(plan / tasks);
    loops.push_back(raw / tasks);
    ratios.push_back(plan / raw);
  }
  ready.synchronize();
  Line(empty ? "executor-empty" : "executor-launch", graph.name + (planned ? ", planned" : ", pooled"))
      .add(spread(plans), "ns a task")
      .add("calls", spread(loops).median)
      .add("overCalls", spread(ratios).median);
}

// One tick as a graph, one launch of as many empty tasks: what the executor takes to enqueue it, beside the
// driver's launch call alone and the same tick issued command by command. The device is idle each time.
void asGraph(const Run& run, const TaskGraph& graph) {
  Ready eager(borrowed(run.driver), graph, true);
  Ready ready({borrowed(run.driver)}, graph.name, graphOf(graph));
  if (!ready.program.schedule().launched.front()) return;
  const Stream stream = ready.program.streams()[ready.program.schedule().issuedOn.front()];
  const auto launch = [&] { must(run.driver, ready.graphs.launch(0, 0, stream), "execLaunch"); };
  for (int warm = 0; warm < 3; ++warm) {
    ready.issue();
    ready.synchronize();
    eager.issue();
    eager.synchronize();
  }
  std::vector<double> plans, launches, commands;
  for (int turn = 0; turn < 5 * run.repeats; ++turn) {
    plans.push_back(issued(ready, [&] { ready.issue(); }) / 1000);
    launches.push_back(issued(ready, launch) / 1000);
    commands.push_back(issued(eager, [&] { eager.issue(); }) / 1000);
  }
  ready.synchronize();
  eager.synchronize();
  Line("executor-graph", graph.name + ", " + std::to_string(graph.reads.size()) + " nodes")
      .add(spread(plans), "us a launch")
      .add("call", spread(launches).median)
      .add("eager", spread(commands).median)
      .add("heldKiB", ready.graphBytes / 1024);
}

}  // namespace

void executor(const Run& run) {
  std::vector<TaskGraph> graphs;
  for (const Pattern pattern : {Pattern::trivial, Pattern::stencil, Pattern::fft, Pattern::sweep})
    graphs.push_back(taskBench(pattern, 8, 100));
  graphs.push_back(pingPong(800));
  for (const TaskGraph& graph : graphs)
    for (const bool planned : {false, true}) own(run, graph, planned);
  for (const bool planned : {false, true}) ownOfTwo(run, graphs[1], planned);
  for (const TaskGraph& graph : graphs)
    for (const bool planned : {false, true}) onDevice(run, graph, planned, true);
  for (const TaskGraph& graph : graphs)
    for (const bool planned : {false, true}) onDevice(run, graph, planned, false);
  for (const Pattern pattern : {Pattern::trivial, Pattern::stencil, Pattern::fft, Pattern::sweep})
    asGraph(run, taskBench(pattern, 8, 125));
  asGraph(run, pingPong(1000));
}

}  // namespace braid::bench
