// Plans as graphs: one launch for many runs, and the answers of the same plan issued command by command.
#include <cstring>
#include <set>

#include "executor/divided_graphs.h"
#include "test/executor/generated.h"
#include "tools/bench/idle_driver.h"

namespace braid {
namespace test {

std::uint64_t allocations();  // test/host/allocations.cc

}  // namespace test

namespace {

using namespace test;

// What a program yields in so many ticks: outputs tick by tick, then the states.
std::vector<float> yields(const std::vector<std::shared_ptr<Driver>>& drivers, const ProgramSpec& spec,
                          std::uint64_t ticks, bool trace = false,
                          std::uint64_t launched = ~std::uint64_t{0}) {
  Ends ends;
  auto session = opened(drivers, spec, ends, trace);
  if (!session) return {};
  std::vector<float> initial(count);
  for (std::uint32_t buffer = parameter; buffer < firstState + states; ++buffer) {
    for (std::size_t i = 0; i < count; ++i)
      initial[i] = static_cast<float>(buffer) + 0.25f * static_cast<float>(i);
    EXPECT_FALSE(session->load(buffer, initial.data()));
  }
  std::vector<float> found;
  const auto keep = [&](std::uint64_t tick) {
    ends.await(tick + 1);
    EXPECT_FALSE(ends.failure(tick)) << ends.failure(tick)->op << ends.failure(tick)->detail;
    for (const std::uint32_t output : {firstOutput, firstOutput + 1}) {
      const auto* values = static_cast<const float*>(
          session->pinned(output, static_cast<std::uint32_t>(tick % spec.inFlight)));
      found.insert(found.end(), values, values + count);
    }
  };
  for (std::uint64_t tick = 0; tick < ticks; ++tick) {
    if (tick >= spec.inFlight) keep(tick - spec.inFlight);
    for (std::uint32_t input = 0; input < generatedInputs; ++input) {
      auto* values =
          static_cast<float*>(session->pinned(input, static_cast<std::uint32_t>(tick % spec.inFlight)));
      for (std::size_t i = 0; i < count; ++i)
        values[i] = static_cast<float>(tick * 3 + input) - static_cast<float>(i);
    }
    EXPECT_TRUE(session->submit(tick));
  }
  for (std::uint64_t tick = ticks - std::min<std::uint64_t>(ticks, spec.inFlight); tick < ticks; ++tick)
    keep(tick);
  for (std::uint32_t state = firstState; state < firstState + states; ++state) {
    EXPECT_FALSE(session->read(state, initial.data()));
    found.insert(found.end(), initial.begin(), initial.end());
  }
  EXPECT_EQ(session->stats().eventsCreated, 0u);
  const std::uint64_t all = ticks * spec.graphs.from.size();
  EXPECT_EQ(session->stats().graphLaunches, launched == ~std::uint64_t{0} ? all : launched);
  return found;
}

std::vector<float> yields(const std::shared_ptr<Driver>& driver, const ProgramSpec& spec, std::uint64_t ticks,
                          bool trace = false, std::uint64_t launched = ~std::uint64_t{0}) {
  return yields(std::vector{driver}, spec, ticks, trace, launched);
}

bool sameBits(const std::vector<float>& one, const std::vector<float>& other) {
  return one.size() == other.size() && std::memcmp(one.data(), other.data(), one.size() * sizeof(float)) == 0;
}

TEST(PlanGraphs, YieldWhatCommandsIssuedOneByOneYield) {
  std::mt19937 random(20261123);
  for (int i = 0; i < 60; ++i) {
    const std::uint32_t inFlight = 1 + random() % 4;
    const ProgramSpec eager = generated(random, inFlight);
    HostOptions options;
    options.poison = true;
    options.jitterSeed = i % 2 == 0 ? 0 : random();
    options.jitterMicroseconds = 20;
    const std::vector<float> wanted = yields(hostDriver(options), eager, 12);
    ASSERT_FALSE(wanted.empty());
    EXPECT_TRUE(sameBits(yields(hostDriver(options), asOneGraph(eager), 12), wanted)) << "program " << i;
    for (int cut = 0; cut < 2; ++cut) {
      const ProgramSpec spec = withGraphs(eager, randomRanges(eager, random));
      EXPECT_TRUE(sameBits(yields(hostDriver(options), spec, 12, cut == 1), wanted))
          << "program " << i << ", cut " << cut;
    }
  }
}

// States are carried from tick to tick by waits alone then: no lane orders one tick after the other.
TEST(PlanGraphs, YieldTheSameWithAnArenaForEachTickInFlight) {
  std::mt19937 random(20261124);
  for (int i = 0; i < 40; ++i) {
    const std::uint32_t inFlight = 2 + random() % 3;
    const ProgramSpec eager = generated(random, inFlight, TickBefore::allLanes);
    HostOptions options;
    options.poison = true;
    options.jitterSeed = i % 2 == 0 ? 0 : random();
    options.jitterMicroseconds = 20;
    const std::vector<float> wanted = yields(hostDriver(options), eager, 12);
    ASSERT_FALSE(wanted.empty());
    EXPECT_TRUE(sameBits(yields(hostDriver(options), withArenas(asOneGraph(eager)), 12), wanted))
        << "program " << i;
    const ProgramSpec cut = withGraphs(eager, randomRanges(eager, random));
    if (cut.graphs.from.empty()) continue;
    EXPECT_TRUE(sameBits(yields(hostDriver(options), withArenas(cut), 12, i % 3 == 0), wanted))
        << "program " << i << ", cut";
  }
}

std::vector<std::shared_ptr<Driver>> hostDrivers(std::uint32_t devices, HostOptions options = {}) {
  std::vector<std::shared_ptr<Driver>> drivers;
  for (std::uint32_t device = 0; device < devices; ++device) {
    options.ordinal = static_cast<int>(device);
    drivers.push_back(hostDriver(options));
  }
  return drivers;
}

// One graph has nodes of all devices, unless they record events.
TEST(PlanGraphs, YieldTheSameOverSeveralDevices) {
  std::mt19937 random(20261125);
  for (int i = 0; i < 30; ++i) {
    const std::uint32_t inFlight = 1 + random() % 4, devices = 2 + random() % 2;
    const bool apart = i % 3 == 2 && inFlight > 1;
    const ProgramSpec eager = onDevices(
        generated(random, inFlight, apart ? TickBefore::allLanes : TickBefore::otherLanes), devices, random);
    HostOptions options;
    options.poison = true;
    options.jitterSeed = i % 2 == 0 ? 0 : random();
    options.jitterMicroseconds = 20;
    const std::vector<float> wanted = yields(hostDrivers(devices, options), eager, 12);
    ASSERT_FALSE(wanted.empty());
    for (const bool whole : {true, false}) {
      ProgramSpec spec = whole ? asOneGraph(eager) : withGraphs(eager, randomRanges(eager, random));
      if (apart && !spec.graphs.from.empty()) spec = withArenas(spec);
      EXPECT_TRUE(sameBits(yields(hostDrivers(devices, options), spec, 12), wanted)) << "program " << i;
      if (i % 4 > 0) continue;
      Decoded decoded;
      ASSERT_FALSE(decode(spec, &decoded));
      const auto parts = dividedGraphs(spec, decoded, [](auto, auto) { return false; });
      EXPECT_TRUE(sameBits(yields(hostDrivers(devices, options), spec, 12, true, 12 * parts.size()), wanted))
          << "program " << i << ", traced";
    }
  }
}

TEST(PlanGraphs, AreDividedBetweenDevicesThatMayNotShareThem) {
  std::mt19937 random(20261126);
  for (int i = 0; i < 100; ++i) {
    const ProgramSpec eager = onDevices(generated(random, 2), 3, random);
    const ProgramSpec spec = withGraphs(eager, randomRanges(eager, random));
    Decoded decoded;
    ASSERT_FALSE(decode(spec, &decoded));
    const auto deviceOf = [&](std::uint32_t at) { return spec.lanes[decoded.steps[at].lane].device; };
    // Device 2 is apart from the others.
    const auto parts =
        dividedGraphs(spec, decoded, [](auto one, auto other) { return one < 2 && other < 2; });
    std::vector<std::uint32_t> of(decoded.steps.size());
    std::uint32_t end = 0;
    for (std::uint32_t part = 0; part < parts.size(); ++part) {
      ASSERT_LE(end, parts[part].from);
      end = parts[part].to;
      std::set<bool> apart;
      for (std::uint32_t at = parts[part].from; at < end; ++at) {
        of[at] = part + 1;
        if (decoded.steps[at].kind == StepKind::run) apart.insert(deviceOf(at) == 2);
      }
      EXPECT_EQ(apart.size(), 1u);
      const auto wanted = edgesOf(decoded, parts[part].from, end);
      std::set<std::pair<std::int32_t, std::int32_t>> found(parts[part].edges.begin(),
                                                            parts[part].edges.end());
      EXPECT_EQ(found, std::set(wanted.begin(), wanted.end()));
    }
    for (const GraphRange& whole : decoded.graphs) {
      for (std::uint32_t at = whole.from; at < whole.to; ++at) EXPECT_GT(of[at], 0u);
      std::uint32_t last = whole.to;
      for (std::uint32_t at = whole.from; at < whole.to; ++at) {
        if (decoded.steps[at].kind != StepKind::run) continue;
        if (last < whole.to) {
          EXPECT_EQ(of[last] == of[at], (deviceOf(last) == 2) == (deviceOf(at) == 2))
              << "as few parts as there can be";
        }
        last = at;
      }
    }
  }
}

// x → a on lane 0 and x → b on lane 1, then y = a / 2 - b on lane 0: two copies that nothing orders.
ProgramSpec fork(std::uint32_t inFlight) {
  std::mt19937 random(1);
  ProgramSpec spec = generated(random, inFlight);
  spec.lanes = {{"left", 0}, {"right", 0}};
  spec.nodes = {{"up left", 0}, {"up right", 0}, {"mix", 1}, {"down", 0}};
  const std::vector<Task> tasks{{0, 0, {0}, {firstOfTick}},
                                {1, 1, {1}, {firstOfTick + 1}},
                                {2, 0, {firstOfTick, firstOfTick + 1}, {firstState}},
                                {3, 0, {firstState}, {firstOutput}}};
  spec.commands = commandsOf(tasks);
  spec.events = static_cast<std::uint32_t>(tasks.size());
  return spec;
}

// Counts the calls of ticks.
class Counting final : public bench::IdleDriver {
 public:
  Counting() : IdleDriver(nullptr) {}
  Status eventRecord(Event, Stream) override { return ++records, Status::ok; }
  Status streamWait(Stream, Event) override { return ++waits, Status::ok; }
  Status launch(const Kernel&, const DeviceAddress*, const DeviceAddress*, Stream) override {
    return ++launches, Status::ok;
  }
  Status graphCreate(Graph* graph) override { return *graph = handle<Graph>(), Status::ok; }
  Status graphDestroy(Graph) override { return Status::ok; }
  Status nodeAdd(GraphNode* node, Graph, const GraphNode*, std::size_t count, const NodeParams&) override {
    *node = handle<GraphNode>();
    ++nodes;
    edges += count;
    return Status::ok;
  }
  Status graphInstantiate(GraphExec* exec, Graph, const InstantiateOptions&, InstantiateResult*) override {
    return *exec = handle<GraphExec>(), Status::ok;
  }
  Status execDestroy(GraphExec) override { return Status::ok; }
  Status execUpload(GraphExec, Stream) override { return Status::ok; }
  Status execLaunch(GraphExec exec, Stream) override {
    launched.insert(exec);
    return ++graphs, Status::ok;
  }
  Status userObjectCreate(UserObject* object, void (*destroy)(void*), void* data, unsigned) override {
    destroy(data);
    return *object = handle<UserObject>(), Status::ok;
  }
  Status graphRetain(Graph, UserObject, unsigned, bool) override { return Status::ok; }
  Status graphRelease(Graph, UserObject, unsigned) override { return Status::ok; }
  std::size_t records = 0, waits = 0, launches = 0, graphs = 0, nodes = 0, edges = 0;
  std::set<GraphExec> launched;

 private:
  template <class Handle>
  Handle handle() {
    return reinterpret_cast<Handle>(handles_ += 16);
  }
  std::uintptr_t handles_ = 0;
};

struct Issuing {
  explicit Issuing(const ProgramSpec& spec) : program(driver, spec) {
    MaybeFailure failure = program.takeMemory();
    if (!failure) failure = program.load({});
    if (!failure) failure = graphs.make(program, trace, false);
    EXPECT_FALSE(failure) << failure->op << " " << failure->detail;
    issuer = std::make_unique<Issuer>(program, trace, false, true, &graphs);
  }
  std::shared_ptr<Counting> driver = std::make_shared<Counting>();
  Program program;
  Trace trace;
  PlanGraphs graphs;
  std::unique_ptr<Issuer> issuer;
};

TEST(PlanGraphs, ATickThatIsOneGraphIsOneLaunchAndItsEnd) {
  for (const std::uint32_t inFlight : {1u, 3u}) {
    Issuing issuing(asOneGraph(fork(inFlight)));
    Counting& calls = *issuing.driver;
    EXPECT_EQ(issuing.graphs.executables(), inFlight) << "one for each slot";
    EXPECT_EQ(calls.nodes, std::size_t{4} * inFlight);
    EXPECT_EQ(calls.edges, std::size_t{3} * inFlight) << "two into the mix, and one to the copy down";
    for (std::uint64_t tick = 0; tick < 8; ++tick) ASSERT_FALSE(issuing.issuer->issue(tick));
    calls.records = calls.waits = calls.graphs = 0;
    const std::uint64_t allocated = allocations();
    for (std::uint64_t tick = 8; tick < 108; ++tick) ASSERT_FALSE(issuing.issuer->issue(tick));
    EXPECT_EQ(allocations(), allocated);
    EXPECT_EQ(calls.graphs, 100u);
    EXPECT_EQ(calls.records, 100u) << "the ends of ticks";
    EXPECT_EQ(calls.waits + calls.launches, 0u);
    EXPECT_EQ(calls.launched.size(), inFlight);
  }
}

// A user's kernel that ends only when so many calls of it have begun.
struct Meeting {
  std::mutex mutex;
  std::condition_variable changed;
  std::size_t begun = 0, wanted = 0;

  ReferenceFactory reference() {
    return [this](std::uint32_t, std::uint32_t, const std::vector<std::size_t>&,
                  const std::vector<std::size_t>&) -> HostCallback {
      return [this](const DeviceAddress*, std::size_t, const DeviceAddress*, std::size_t) {
        std::unique_lock lock(mutex);
        ++begun;
        changed.notify_all();
        changed.wait(lock, [&] { return begun >= wanted; });
        return true;
      };
    };
  }
};

// As many ticks as are in flight are in progress on the device at once, or none of them would ever end.
TEST(PlanGraphs, TicksWithArenasOfTheirOwnAreInProgressAtOnce) {
  for (const std::uint32_t inFlight : {2u, 3u, 4u}) {
    ProgramSpec spec = fork(inFlight);
    const std::vector<Task> tasks{{0, 0, {0}, {firstOfTick}},
                                  {1, 1, {1}, {firstOfTick + 1}},
                                  {2, 0, {firstOfTick, firstOfTick + 1}, {firstOutput}}};
    spec.commands = commandsOf(tasks, TickBefore::nothing);
    KernelSpec meet;
    meet.kind = KernelSpec::Kind::cuda;
    meet.name = "meet";
    meet.source = "extern \"C\" __global__ void meet(const float*, const float*, float*) {}";
    meet.grid = meet.block = {1, 1, 1};
    meet.readCount = 2;
    meet.writeCount = 1;
    spec.kernels.push_back(meet);
    spec.nodes[2].kernel = static_cast<std::uint32_t>(spec.kernels.size() - 1);
    Meeting meeting;
    Ends ends;
    SessionOptions options;
    options.onTick = ends.callback();
    options.reference = meeting.reference();
    MaybeFailure failure;
    const auto session =
        Session::open(hostDriver(), withArenas(asOneGraph(spec)), std::move(options), &failure);
    ASSERT_TRUE(session) << failure->op << " " << failure->detail;
    for (std::uint64_t tick = 0; tick < 3 * inFlight; ++tick) {
      // Each group of ticks in flight ends when all of them have begun.
      if (tick % inFlight == 0) {
        ends.await(tick);
        std::lock_guard lock(meeting.mutex);
        meeting.wanted = tick + inFlight;
      }
      ASSERT_TRUE(session->submit(tick));
    }
    ends.await(std::size_t{3} * inFlight);
    EXPECT_EQ(ends.failed(), 0u);
  }
}

TEST(PlanGraphs, ArenasOfTicksInFlightLieApartAndShareTheRest) {
  for (const std::uint32_t inFlight : {2u, 4u}) {
    const ProgramSpec one = asOneGraph(fork(inFlight)), each = withArenas(one);
    Ends ends;
    const auto shared = opened(hostDriver(), one, ends), own = opened(hostDriver(), each, ends);
    ASSERT_TRUE(shared && own);
    EXPECT_EQ(own->stats().reserved - shared->stats().reserved, (inFlight - 1) * one.devices[0].arenaBytes);
    EXPECT_EQ(own->stats().reserved, each.devices[0].boundBytes);

    Issuing issuing(each);
    const SessionMemory& memory = issuing.program.memory;
    std::set<DeviceAddress> places;
    for (std::uint32_t slot = 0; slot < inFlight; ++slot) {
      places.insert(memory.address(each, firstOfTick, slot));
      EXPECT_EQ(memory.address(each, parameter, slot), memory.address(each, parameter, 0));
      EXPECT_EQ(memory.address(each, firstState, slot), memory.address(each, firstState, 0));
    }
    EXPECT_EQ(places.size(), inFlight);
    EXPECT_EQ(issuing.graphs.executables(), inFlight);
  }
  ProgramSpec fewer = withArenas(asOneGraph(fork(3)));
  fewer.arenas = 2;
  Decoded decoded;
  EXPECT_TRUE(decode(fewer, &decoded)) << "an arena would be used again before its tick has ended";
  ProgramSpec eager = withArenas(fork(3));
  decoded = {};
  EXPECT_TRUE(decode(eager, &decoded)) << "only ticks of graphs have arenas of their own";
}

// The copies up in a graph, the rest outside: the launch comes after the tick before, and the rest after it.
TEST(PlanGraphs, ALaunchIsOrderedWithTheCommandsAroundIt) {
  const ProgramSpec eager = fork(2);
  Decoded decoded;
  ASSERT_FALSE(decode(eager, &decoded));
  std::vector<std::size_t> runs;
  for (std::size_t at = 0; at < decoded.steps.size(); ++at)
    if (decoded.steps[at].kind == StepKind::run) runs.push_back(at);
  const ProgramSpec spec = withGraphs(eager, {{0, runs[1] + 2}});
  decoded = {};
  ASSERT_FALSE(decode(spec, &decoded));
  const Schedule schedule = scheduleOf(spec, decoded, true);
  std::vector<StepKind> kinds;
  for (const Step& step : schedule.steps) kinds.push_back(step.kind);
  EXPECT_EQ(kinds, (std::vector<StepKind>{StepKind::launch, StepKind::run, StepKind::record, StepKind::run,
                                          StepKind::record}))
      << "lane 1 only has a node in the graph, and lane 0 launches it";
  EXPECT_EQ(schedule.issuedOn[runs[1]], 0u);

  // The copy on lane 1 outside, before the graph of lane 0.
  const ProgramSpec late = withGraphs(eager, {{runs[1] + 1, decoded.steps.size()}});
  decoded = {};
  ASSERT_FALSE(decode(late, &decoded));
  kinds.clear();
  for (const Step& step : scheduleOf(late, decoded, true).steps) kinds.push_back(step.kind);
  // Lane 0's copy comes after the graph of the tick before on its own stream. Lane 1's waits for its end, the
  // record on lane 1 that is in the graph makes lane 0 wait for lane 1's present end.
  EXPECT_EQ(kinds,
            (std::vector<StepKind>{StepKind::run, StepKind::record, StepKind::wait, StepKind::run,
                                   StepKind::record, StepKind::wait, StepKind::launch, StepKind::record}));
}

TEST(PlanGraphs, ANodeThatFailsIsNamed) {
  HostOptions options;
  options.faults = {{"run", 2 * 4 + 3, Status::unknown}};  // the mix of the third tick
  Ends ends;
  auto session = opened({hostDriver(options)}, asOneGraph(fork(1)), ends, false, false);
  ASSERT_TRUE(session);
  for (std::uint64_t tick = 0; tick < 5; ++tick) ASSERT_TRUE(session->submit(tick));
  ends.await(5);
  EXPECT_FALSE(ends.failure(1));
  for (std::size_t tick = 2; tick < 5; ++tick) {
    const MaybeFailure failure = ends.failure(tick);
    ASSERT_TRUE(failure);
    EXPECT_EQ(failure->op, "run mix");
    EXPECT_EQ(failure->node, 2);
    EXPECT_EQ(failure->lane, "left");
    EXPECT_NE(failure->detail.find("in tick 2"), std::string::npos) << failure->detail;
  }
  session->close();
}

// A device that launches nothing itself: only its own state says that a node has failed.
TEST(PlanGraphs, ANodeThatFailsOnAnotherDeviceIsNamed) {
  ProgramSpec spec = fork(1);
  spec.lanes[1].device = 1;
  spec.devices.resize(2, spec.devices[0]);
  for (NodeSpec& node : spec.nodes) node.peerAccess = true;
  auto drivers = hostDrivers(2);
  HostOptions options;
  options.ordinal = 1;
  options.faults = {{"run", 3, Status::unknown}};  // its only node, in the third tick
  drivers[1] = hostDriver(options);
  Ends ends;
  auto session = opened(drivers, asOneGraph(spec), ends, false, false);
  ASSERT_TRUE(session);
  for (std::uint64_t tick = 0; tick < 5; ++tick) ASSERT_TRUE(session->submit(tick));
  ends.await(5);
  EXPECT_FALSE(ends.failure(1));
  for (std::size_t tick = 2; tick < 5; ++tick) {
    const MaybeFailure failure = ends.failure(tick);
    ASSERT_TRUE(failure);
    EXPECT_EQ(failure->op, "run up right");
    EXPECT_EQ(failure->node, 1);
    EXPECT_EQ(failure->lane, "right");
    EXPECT_EQ(failure->device, "host:1");
    EXPECT_NE(failure->detail.find("in tick 2"), std::string::npos) << failure->detail;
  }
  session->close();
}

TEST(PlanGraphs, ANodeIsOfADeviceOfTheGraphsKind) {
  auto drivers = hostDrivers(2);
  Counting other;
  Graph graph = nullptr;
  GraphNode node = nullptr;
  ASSERT_EQ(drivers[0]->graphCreate(&graph), Status::ok);
  NodeParams params = NodeParams::fill(512, 0, 4, 1);
  params.device = &other;
  EXPECT_EQ(drivers[0]->nodeAdd(&node, graph, nullptr, 0, params), Status::invalidValue);
  EXPECT_EQ(drivers[0]->lastDetail(), "a node of a device of another kind");
  params = NodeParams::empty();
  params.device = drivers[1].get();
  EXPECT_EQ(drivers[0]->nodeAdd(&node, graph, nullptr, 0, params), Status::invalidValue);
  EXPECT_EQ(drivers[0]->lastDetail(), "a node of kind empty has no device of its own");
  EXPECT_EQ(drivers[0]->graphDestroy(graph), Status::ok);
}

TEST(PlanGraphs, ALaunchThatFailsEndsItsTick) {
  HostOptions options;
  options.faults = {{"execLaunch", 3, Status::unknown}};
  const auto driver = hostDriver(options);
  Ends ends;
  auto session = opened({driver}, asOneGraph(fork(2)), ends, false, false);
  ASSERT_TRUE(session);
  for (std::uint64_t tick = 0; tick < 5; ++tick) ASSERT_TRUE(session->submit(tick));
  ends.await(5);
  EXPECT_FALSE(ends.failure(1));
  for (std::size_t tick = 2; tick < 5; ++tick) {
    const MaybeFailure failure = ends.failure(tick);
    ASSERT_TRUE(failure);
    EXPECT_EQ(failure->op, "execLaunch");
    EXPECT_EQ(failure->lane, "left");
  }
  session->close();
  // The device goes on.
  Ends again;
  auto other = opened({driver}, asOneGraph(fork(2)), again, false, false);
  ASSERT_TRUE(other);
  ASSERT_TRUE(other->submit(0));
  again.await(1);
  EXPECT_FALSE(again.failure(0));
}

std::size_t freeBytes(Driver& driver) {
  std::size_t free = 0, total = 0;
  EXPECT_EQ(driver.memInfo(&free, &total), Status::ok);
  return free;
}

TEST(PlanGraphs, FaultsWhileTheyAreMadeLeaveNothingBehind) {
  for (const char* call : {"graphCreate", "nodeAdd", "graphInstantiate", "execUpload", "userObjectCreate"}) {
    for (const std::uint64_t nth : {1u, 2u}) {
      HostOptions options;
      options.faults = {{call, nth, Status::unknown}};
      auto driver = hostDriver(options);
      const std::size_t before = freeBytes(*driver);
      MaybeFailure failure;
      EXPECT_FALSE(Session::open(driver, asOneGraph(fork(2)), {}, &failure));
      ASSERT_TRUE(failure) << call;
      EXPECT_EQ(failure->code, "CUDA_ERROR_UNKNOWN") << call;
      EXPECT_EQ(freeBytes(*driver), before) << call;
    }
  }
}

// In a driver that has no graphs each command is issued by itself.
TEST(PlanGraphs, ADriverWithoutGraphsYieldsTheSame) {
  HostOptions options;
  const ProgramSpec eager = fork(2);
  const std::vector<float> wanted = yields(hostDriver(options), eager, 6);
  options.faults = {{"graphCreate", 1, Status::notSupported}};
  EXPECT_TRUE(sameBits(yields(hostDriver(options), asOneGraph(eager), 6, false, 0), wanted));
}

TEST(PlanGraphs, ClosesInTheMiddle) {
  std::mt19937 random(5);
  for (int i = 0; i < 30; ++i) {
    HostOptions options;
    options.jitterSeed = 1 + random() % 1000;
    options.jitterMicroseconds = 100;
    options.poison = true;
    auto driver = hostDriver(options);
    const std::size_t before = freeBytes(*driver);
    Ends ends;
    const ProgramSpec eager = generated(random, 1 + random() % 4);
    auto session = opened(driver, i % 2 ? asOneGraph(eager) : withGraphs(eager, randomRanges(eager, random)),
                          ends, i % 3 == 0);
    ASSERT_TRUE(session);
    for (std::uint64_t tick = 0; tick < 20; ++tick) ASSERT_TRUE(session->submit(tick));
    if (i % 2) ends.await(random() % 5);
    session->close(i % 3 ? Session::Unbegun::drop : Session::Unbegun::issue);
    EXPECT_EQ(ends.failed(), 0u);
    EXPECT_EQ(freeBytes(*driver), before);
  }
}

TEST(PlanGraphs, OfSeveralDevicesCloseInTheMiddle) {
  std::mt19937 random(6);
  for (int i = 0; i < 20; ++i) {
    HostOptions options;
    options.jitterSeed = 1 + random() % 1000;
    options.jitterMicroseconds = 100;
    options.poison = true;
    auto drivers = hostDrivers(2, options);
    const std::size_t before[] = {freeBytes(*drivers[0]), freeBytes(*drivers[1])};
    Ends ends;
    auto session =
        opened(drivers, asOneGraph(onDevices(generated(random, 1 + random() % 4), 2, random)), ends);
    ASSERT_TRUE(session);
    for (std::uint64_t tick = 0; tick < 20; ++tick) ASSERT_TRUE(session->submit(tick));
    if (i % 2) ends.await(random() % 5);
    session->close(i % 3 ? Session::Unbegun::drop : Session::Unbegun::issue);
    EXPECT_EQ(ends.failed(), 0u);
    for (std::size_t device = 0; device < 2; ++device) EXPECT_EQ(freeBytes(*drivers[device]), before[device]);
  }
}

TEST(PlanGraphs, ATraceShowsEveryNodeAfterThoseThatItNeeds) {
  Ends ends;
  auto session = opened(hostDriver(), asOneGraph(fork(2)), ends, true);
  ASSERT_TRUE(session);
  for (std::uint64_t tick = 0; tick < 10; ++tick) ASSERT_TRUE(session->submit(tick));
  ends.await(10);
  const TraceRows rows = session->trace();
  ASSERT_EQ(rows.node.size(), 40u);
  for (std::size_t tick = 0; tick < 10; ++tick) {
    const std::size_t at = 4 * tick;
    for (std::size_t run = 0; run < 4; ++run) {
      EXPECT_EQ(rows.tick[at + run], static_cast<double>(tick));
      EXPECT_EQ(rows.node[at + run], static_cast<int>(run));
      EXPECT_EQ(rows.lane[at + run], run == 1 ? 1 : 0);
      EXPECT_LE(rows.start[at + run], rows.end[at + run]);
      EXPECT_GE(rows.start[at + run], tick == 0 ? 0 : rows.end[at - 1] - 1e-3);
    }
    EXPECT_GE(rows.start[at + 2], std::max(rows.end[at], rows.end[at + 1]) - 1e-3);
    EXPECT_GE(rows.start[at + 3], rows.end[at + 2] - 1e-3);
  }
}

TEST(PlanGraphs, WrongTablesAreRefused) {
  const ProgramSpec right = asOneGraph(fork(1));
  const auto refused = [](const ProgramSpec& spec, const char* why) {
    Decoded decoded;
    const MaybeFailure failure = decode(spec, &decoded);
    ASSERT_TRUE(failure) << why;
    EXPECT_NE(failure->detail.find(why), std::string::npos) << failure->detail;
  };
  ProgramSpec spec = right;
  spec.graphs.to[0] += 1;
  refused(spec, "no range of commands");
  spec = right;
  spec.graphs.from[0] = -1;
  refused(spec, "no range of commands");
  spec = right;
  spec.graphs.edgeStart[1] += 1;
  refused(spec, "edgeStart names no edges");
  spec = right;
  spec.graphs.edgeStart.pop_back();
  refused(spec, "do not match");
  spec = right;
  std::swap(spec.graphs.edges[0], spec.graphs.edges[1]);
  refused(spec, "is not from one run of the graph to a later one");
  spec = right;
  spec.graphs.edges[1] = 0;
  refused(spec, "is not from one run of the graph to a later one");
  spec = right;
  spec.planned = false;
  for (BufferSpec& each : spec.buffers) each.arenaOffset = -1;
  spec.devices[0].arenaBytes = 0;
  Decoded decoded;
  EXPECT_TRUE(decode(spec, &decoded));
}

}  // namespace
}  // namespace braid
