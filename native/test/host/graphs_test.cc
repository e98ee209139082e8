// What the host device does with graphs beyond the rules that both devices share: overlap, failures, rates,
// wrong handles.
#include <atomic>
#include <chrono>
#include <thread>

#include "test/host/support.h"

namespace braid::test {
namespace {

GraphNode add(Driver& driver, Graph graph, const NodeParams& params,
              const std::vector<GraphNode>& after = {}) {
  GraphNode made = nullptr;
  EXPECT_EQ(driver.nodeAdd(&made, graph, after.data(), after.size(), params), Status::ok)
      << driver.lastDetail();
  return made;
}

GraphExec instantiate(Driver& driver, Graph graph) {
  GraphExec made = nullptr;
  InstantiateResult result = InstantiateResult::error;
  EXPECT_EQ(driver.graphInstantiate(&made, graph, {}, &result), Status::ok) << driver.lastDetail();
  return made;
}

// Holds each of its callers until all are there.
struct Rendezvous {
  const int wanted;
  std::atomic<int> here{0};
  static void meet(void* data) {
    auto* all = static_cast<Rendezvous*>(data);
    ++all->here;
    while (all->here < all->wanted) std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
};

TEST(HostGraphs, IndependentNodesRunBesideEachOther) {
  const auto driver = host();
  Graph graph = nullptr;
  ASSERT_EQ(driver->graphCreate(&graph), Status::ok);
  Rendezvous wide{8}, narrow{4};
  const GraphNode first = add(*driver, graph, NodeParams::empty());
  std::vector<GraphNode> arms;
  for (int i = 0; i < 8; ++i)
    arms.push_back(add(*driver, graph, NodeParams::host(Rendezvous::meet, &wide), {first}));
  const GraphNode joint = add(*driver, graph, NodeParams::empty(), arms);
  for (int i = 0; i < 4; ++i) add(*driver, graph, NodeParams::host(Rendezvous::meet, &narrow), {joint});
  const GraphExec exec = instantiate(*driver, graph);
  const Stream on = stream(*driver);
  for (int i = 0; i < 3; ++i) {
    wide.here = narrow.here = 0;
    ASSERT_EQ(driver->execLaunch(exec, on), Status::ok);
    ASSERT_EQ(driver->streamSynchronize(on), Status::ok);
    EXPECT_EQ(wide.here, 8);
    EXPECT_EQ(narrow.here, 4);
  }
}

TEST(HostGraphs, CopiesInBothDirectionsOverlapInTime) {
  HostOptions options;
  options.copyBytesPerSecond = 1e6;
  const auto driver = host(options);
  constexpr std::size_t bytes = 100'000;  // 100 ms
  const DeviceAddress memory = allocate(*driver, 2 * bytes);
  void* staged = nullptr;
  ASSERT_EQ(driver->pinnedAllocate(&staged, 2 * bytes), Status::ok);
  Graph graph = nullptr;
  ASSERT_EQ(driver->graphCreate(&graph), Status::ok);
  add(*driver, graph, NodeParams::copy(CopyKind::hostToDevice, memory, address(staged), bytes));
  add(*driver, graph,
      NodeParams::copy(CopyKind::deviceToHost, address(staged) + bytes, memory + bytes, bytes));
  const GraphExec exec = instantiate(*driver, graph);
  const Stream on = stream(*driver);
  const Event from = event(*driver, true), to = event(*driver, true);
  // One after the other they never take less than 200 ms; beside each other they do, unless the machine is
  // busy.
  float milliseconds = 1e9f;
  for (int i = 0; i < 200 && milliseconds >= 180; ++i) {
    driver->eventRecord(from, on);
    ASSERT_EQ(driver->execLaunch(exec, on), Status::ok);
    driver->eventRecord(to, on);
    ASSERT_EQ(driver->streamSynchronize(on), Status::ok);
    ASSERT_EQ(driver->eventElapsed(&milliseconds, from, to), Status::ok);
    EXPECT_GE(milliseconds, 99.0f);
  }
  EXPECT_LT(milliseconds, 180.0f);
}

TEST(HostGraphs, AnotherDevicesStreamWaitsForANodeInside) {
  auto first = host();
  const auto second = host();
  const Event mark = event(*first);
  Graph graph = nullptr;
  ASSERT_EQ(first->graphCreate(&graph), Status::ok);
  std::atomic<bool> open{false}, passed{false};
  const GraphNode held = add(*first, graph,
                             NodeParams::host(
                                 [](void* data) {
                                   while (!*static_cast<std::atomic<bool>*>(data))
                                     std::this_thread::sleep_for(std::chrono::microseconds(100));
                                 },
                                 &open));
  add(*first, graph, NodeParams::record(mark), {held});
  const GraphExec exec = instantiate(*first, graph);
  ASSERT_EQ(first->execLaunch(exec, stream(*first)), Status::ok);
  const Stream on = stream(*second);
  ASSERT_EQ(second->streamWait(on, mark), Status::ok);
  ASSERT_EQ(second->hostFunction(
                on, [](void* data) { *static_cast<std::atomic<bool>*>(data) = true; }, &passed),
            Status::ok);
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_FALSE(passed);
  open = true;
  first.reset();  // its marks stay valid for whoever waits
  EXPECT_EQ(second->streamSynchronize(on), Status::ok);
  EXPECT_TRUE(passed);
}

TEST(HostGraphs, AFailedNodeEndsTheDeviceAndTheLaunch) {
  HostOptions options;
  options.faults = {{"run", 2, Status::launchFailed}};
  const auto driver = host(options);
  const DeviceAddress memory = allocate(*driver, 64);
  Graph graph = nullptr;
  ASSERT_EQ(driver->graphCreate(&graph), Status::ok);
  const Event mark = event(*driver);
  GraphNode last = nullptr;
  for (std::uint32_t i = 0; i < 4; ++i)
    last = add(*driver, graph, NodeParams::fill(memory + 4 * i, 1, 4, 1),
               last ? std::vector<GraphNode>{last} : std::vector<GraphNode>{});
  add(*driver, graph, NodeParams::record(mark), {last});
  const GraphExec exec = instantiate(*driver, graph);
  const Stream on = stream(*driver);
  driver->label({&options, 7, 3});
  std::memset(reinterpret_cast<void*>(memory), 0, 16);
  ASSERT_EQ(driver->execLaunch(exec, on), Status::ok);
  EXPECT_EQ(driver->streamSynchronize(on), Status::launchFailed);
  EXPECT_EQ(download<std::uint32_t>(memory, 4), (std::vector<std::uint32_t>{1, 0, 0, 0}));
  EXPECT_EQ(driver->failedWork().tick, 7u);
  EXPECT_EQ(driver->eventSynchronize(mark), Status::launchFailed);  // and does not hang
  EXPECT_EQ(driver->execLaunch(exec, on), Status::launchFailed);
  EXPECT_EQ(driver->execDestroy(exec), Status::launchFailed);  // released all the same
}

TEST(HostGraphs, WhateverFailsALaunchEndsAndGivesUpWhatItHeld) {
  for (std::uint64_t nth = 1; nth <= 12; ++nth) {
    SCOPED_TRACE(nth);
    HostOptions options;
    options.jitterSeed = nth;
    options.faults = {{"run", nth, Status::launchFailed}};
    auto driver = host(options);
    const DeviceAddress memory = allocate(*driver, 256);
    Graph graph = nullptr, child = nullptr;
    ASSERT_EQ(driver->graphCreate(&graph), Status::ok);
    ASSERT_EQ(driver->graphCreate(&child), Status::ok);
    const Event mark = event(*driver);
    GraphNode last = add(*driver, child, NodeParams::fill(memory, 1, 4, 1));
    add(*driver, child, NodeParams::record(mark), {last});
    std::vector<GraphNode> arms;
    for (std::uint32_t i = 1; i < 5; ++i)
      arms.push_back(add(*driver, graph, NodeParams::fill(memory + 4 * i, 1, 4, 1)));
    add(*driver, graph, NodeParams::embed(child), arms);
    std::atomic<bool> gone{false};
    UserObject object = nullptr;
    ASSERT_EQ(driver->userObjectCreate(
                  &object, [](void* data) { *static_cast<std::atomic<bool>*>(data) = true; }, &gone, 1),
              Status::ok);
    ASSERT_EQ(driver->graphRetain(graph, object, 1, true), Status::ok);
    const GraphExec exec = instantiate(*driver, graph);
    const Stream on = stream(*driver), beside = stream(*driver);
    Status status = Status::ok;
    for (int i = 0; i < 3 && status == Status::ok; ++i) {
      status = driver->execLaunch(exec, on);
      if (status == Status::ok) status = driver->streamWait(beside, mark);
    }
    EXPECT_EQ(driver->streamSynchronize(on), Status::launchFailed);
    EXPECT_EQ(driver->streamSynchronize(beside), Status::launchFailed);
    driver->graphDestroy(graph);
    driver->execDestroy(exec);
    driver.reset();  // destructors have run by its end
    EXPECT_TRUE(gone);
  }
}

TEST(HostGraphs, AWildAddressIsAnIllegalOne) {
  const auto driver = host();
  Graph graph = nullptr;
  ASSERT_EQ(driver->graphCreate(&graph), Status::ok);
  add(*driver, graph, NodeParams::fill(0x1000, 1, 4, 1));
  const GraphExec exec = instantiate(*driver, graph);
  const Stream on = stream(*driver);
  ASSERT_EQ(driver->execLaunch(exec, on), Status::ok);
  EXPECT_EQ(driver->streamSynchronize(on), Status::illegalAddress);
}

// Between the node that allocates and the node that frees alone an address is memory.
TEST(HostGraphs, MemoryOfAGraphIsNoneOutsideOfItsLife) {
  for (const bool before : {true, false}) {
    const auto driver = host();
    Graph graph = nullptr;
    ASSERT_EQ(driver->graphCreate(&graph), Status::ok);
    const GraphNode first = add(*driver, graph, NodeParams::empty());
    GraphNode node = nullptr;
    DeviceAddress memory = 0;
    ASSERT_EQ(driver->nodeAddAllocation(&node, graph, &first, 1, 64, &memory), Status::ok);
    const GraphNode freed = add(*driver, graph, NodeParams::memFree(memory), {node});
    const GraphNode wild = add(*driver, graph, NodeParams::fill(memory, 1, 4, 1));
    const GraphEdge edge = before ? GraphEdge{wild, first} : GraphEdge{freed, wild};
    ASSERT_EQ(driver->graphAddEdges(graph, &edge, 1), Status::ok);
    const GraphExec exec = instantiate(*driver, graph);
    const Stream on = stream(*driver);
    ASSERT_EQ(driver->execLaunch(exec, on), Status::ok);
    EXPECT_EQ(driver->streamSynchronize(on), Status::illegalAddress);
  }
}

// Executables of one graph have the same addresses.
TEST(HostGraphs, ALaunchWithMemoryComesAfterThoseOfAnExecutableThatHasGone) {
  const auto driver = host();
  Graph graph = nullptr;
  ASSERT_EQ(driver->graphCreate(&graph), Status::ok);
  Rendezvous gate{2};
  GraphNode node = nullptr;
  DeviceAddress memory = 0;
  ASSERT_EQ(driver->nodeAddAllocation(&node, graph, nullptr, 0, 64, &memory), Status::ok);
  const GraphNode passed = add(*driver, graph, NodeParams::host(Rendezvous::meet, &gate), {node});
  const GraphNode filled = add(*driver, graph, NodeParams::fill(memory, 1, 4, 16), {passed});
  add(*driver, graph, NodeParams::memFree(memory), {filled});
  const Stream first = stream(*driver), second = stream(*driver);
  const GraphExec before = instantiate(*driver, graph);
  ASSERT_EQ(driver->execLaunch(before, first), Status::ok);
  ASSERT_EQ(driver->execDestroy(before), Status::ok);
  const GraphExec after = instantiate(*driver, graph);
  ASSERT_EQ(driver->execLaunch(after, second), Status::ok);
  while (gate.here == 0) std::this_thread::sleep_for(std::chrono::microseconds(50));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(gate.here, 1);
  ++gate.here;
  ASSERT_EQ(driver->streamSynchronize(second), Status::ok);
  EXPECT_EQ(driver->streamQuery(first), Status::ok);
  EXPECT_EQ(gate.here, 3);
}

TEST(HostGraphs, MemoryOfGraphsIsTakenByLaunchesAndGivenBackByATrim) {
  HostOptions options;
  options.memoryBytes = 1 << 20;
  std::unique_ptr<Driver> driver;
  ASSERT_EQ(openHost(&driver, options, nullptr), Status::ok);
  const auto freeBytes = [&] {
    std::size_t bytes = 0;
    EXPECT_EQ(driver->memInfo(&bytes, nullptr), Status::ok);
    return bytes;
  };
  const auto ofTwo = [&](std::size_t bytes) {
    Graph graph = nullptr;
    EXPECT_EQ(driver->graphCreate(&graph), Status::ok);
    for (int i = 0; i < 2; ++i) {
      GraphNode node = nullptr;
      DeviceAddress memory = 0;
      EXPECT_EQ(driver->nodeAddAllocation(&node, graph, nullptr, 0, bytes, &memory), Status::ok);
      add(*driver, graph, NodeParams::memFree(memory), {node});
    }
    return graph;
  };
  const Graph fits = ofTwo(256 << 10), large = ofTwo(768 << 10);
  const GraphExec runs = instantiate(*driver, fits), fails = instantiate(*driver, large);
  const Stream on = stream(*driver);
  EXPECT_EQ(freeBytes(), options.memoryBytes);
  EXPECT_EQ(driver->execLaunch(fails, on), Status::outOfMemory);
  EXPECT_EQ(driver->execUpload(fails, on), Status::outOfMemory);
  EXPECT_EQ(freeBytes(), options.memoryBytes);
  ASSERT_EQ(driver->execLaunch(runs, on), Status::ok);
  ASSERT_EQ(driver->streamSynchronize(on), Status::ok);
  EXPECT_EQ(freeBytes(), options.memoryBytes / 2);
  for (int i = 0; i < 1000 && freeBytes() < options.memoryBytes; ++i) {
    ASSERT_EQ(driver->graphMemoryTrim(), Status::ok);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(freeBytes(), options.memoryBytes);
  ASSERT_EQ(driver->execLaunch(runs, on), Status::ok);
  ASSERT_EQ(driver->streamSynchronize(on), Status::ok);
  driver->execDestroy(runs);
  driver->graphDestroy(fits);
  for (int i = 0; i < 1000 && freeBytes() < options.memoryBytes; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(freeBytes(), options.memoryBytes);
}

TEST(HostGraphs, WrongHandlesAreErrors) {
  const auto driver = host(), other = host();
  Graph graph = nullptr, foreign = nullptr;
  ASSERT_EQ(driver->graphCreate(&graph), Status::ok);
  ASSERT_EQ(other->graphCreate(&foreign), Status::ok);
  const GraphNode node = add(*driver, graph, NodeParams::empty());
  const GraphExec exec = instantiate(*driver, graph);
  GraphNode made = nullptr;
  for (Graph wrong : {Graph{nullptr}, foreign, reinterpret_cast<Graph>(node)}) {
    EXPECT_EQ(driver->nodeAdd(&made, wrong, nullptr, 0, NodeParams::empty()), Status::invalidValue);
    EXPECT_EQ(driver->graphDestroy(wrong), Status::invalidValue);
  }
  ASSERT_EQ(driver->nodeDestroy(node), Status::ok);
  EXPECT_EQ(driver->nodeDestroy(node), Status::invalidValue);
  EXPECT_EQ(driver->nodeAdd(&made, graph, &node, 1, NodeParams::empty()), Status::invalidValue);
  EXPECT_EQ(driver->execNodeUpdate(exec, node, NodeParams::empty()), Status::invalidValue);
  ASSERT_EQ(driver->execDestroy(exec), Status::ok);
  EXPECT_EQ(driver->execDestroy(exec), Status::invalidValue);
  EXPECT_EQ(driver->execLaunch(exec, stream(*driver)), Status::invalidValue);
  ASSERT_EQ(driver->graphDestroy(graph), Status::ok);
  EXPECT_EQ(driver->graphDestroy(graph), Status::invalidValue);
}

TEST(HostGraphs, CallbacksMayNotCallTheDriver) {
  struct Probe {
    Driver* driver;
    std::atomic<int> statuses{0};
    static void call(void* data) {
      auto* probe = static_cast<Probe*>(data);
      Graph graph = nullptr;
      if (probe->driver->graphCreate(&graph) == Status::notPermitted) ++probe->statuses;
    }
  };
  const auto driver = host();
  Probe probe{driver.get()};
  Graph graph = nullptr;
  ASSERT_EQ(driver->graphCreate(&graph), Status::ok);
  add(*driver, graph, NodeParams::host(Probe::call, &probe));
  UserObject object = nullptr;
  ASSERT_EQ(driver->userObjectCreate(&object, Probe::call, &probe, 1), Status::ok);
  ASSERT_EQ(driver->graphRetain(graph, object, 1, true), Status::ok);
  const GraphExec exec = instantiate(*driver, graph);
  const Stream on = stream(*driver);
  ASSERT_EQ(driver->execLaunch(exec, on), Status::ok);
  ASSERT_EQ(driver->hostFunction(on, Probe::call, &probe), Status::ok);
  ASSERT_EQ(driver->streamSynchronize(on), Status::ok);
  driver->execDestroy(exec);
  driver->graphDestroy(graph);
  for (int i = 0; i < 30'000 && probe.statuses < 3; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(probe.statuses, 3);
}

TEST(HostGraphs, EveryCallCanBeMadeToFail) {
  Graph graph = nullptr;
  GraphNode node = nullptr;
  GraphExec exec = nullptr;
  UserObject object = nullptr;
  InstantiateResult instantiated;
  UpdateResult updated;
  Condition condition = 0;
  DeviceAddress address = 0;
  std::size_t used = 0, reserved = 0;
  CaptureInfo info;
  CaptureMode mode = CaptureMode::global;
  bool enabled = false;
  std::string text;
  std::unique_ptr<Kernel> kernel;
  std::vector<GraphNode> nodes;
  std::vector<GraphEdge> edges;
  const NodeParams empty;
  using Use = std::function<Status(Driver&)>;
  const std::vector<std::pair<std::string, Use>> calls = {
      {"graphCreate", [&](Driver& d) { return d.graphCreate(&graph); }},
      {"graphDestroy", [&](Driver& d) { return d.graphDestroy(graph); }},
      {"graphClone", [&](Driver& d) { return d.graphClone(&graph, graph); }},
      {"graphFindInClone", [&](Driver& d) { return d.graphFindInClone(&node, node, graph); }},
      {"graphNodes", [&](Driver& d) { return d.graphNodes(graph, &nodes); }},
      {"graphEdges", [&](Driver& d) { return d.graphEdges(graph, &edges); }},
      {"graphAddEdges", [&](Driver& d) { return d.graphAddEdges(graph, nullptr, 0); }},
      {"graphRemoveEdges", [&](Driver& d) { return d.graphRemoveEdges(graph, nullptr, 0); }},
      {"graphDot", [&](Driver& d) { return d.graphDot(graph, &text); }},
      {"nodeAdd", [&](Driver& d) { return d.nodeAdd(&node, graph, nullptr, 0, empty); }},
      {"nodeDestroy", [&](Driver& d) { return d.nodeDestroy(node); }},
      {"nodeUpdate", [&](Driver& d) { return d.nodeUpdate(node, empty); }},
      {"nodeKind",
       [&](Driver& d) {
         NodeKind kind;
         return d.nodeKind(node, &kind);
       }},
      {"nodeChild", [&](Driver& d) { return d.nodeChild(node, &graph); }},
      {"nodeAddAllocation",
       [&](Driver& d) { return d.nodeAddAllocation(&node, graph, nullptr, 0, 1, &address); }},
      {"graphMemory", [&](Driver& d) { return d.graphMemory(&used, &reserved); }},
      {"graphMemoryTrim", [&](Driver& d) { return d.graphMemoryTrim(); }},
      {"conditionCreate", [&](Driver& d) { return d.conditionCreate(&condition, graph, true, 0); }},
      {"nodeAddConditional",
       [&](Driver& d) {
         return d.nodeAddConditional(&node, graph, nullptr, 0, condition, ConditionalKind::loop, &graph, 1);
       }},
      {"prepareCondition", [&](Driver& d) { return d.prepareCondition(&kernel); }},
      {"captureBegin", [&](Driver& d) { return d.captureBegin(nullptr, mode); }},
      {"captureBeginOnto", [&](Driver& d) { return d.captureBeginOnto(nullptr, graph, nullptr, 0, mode); }},
      {"captureEnd", [&](Driver& d) { return d.captureEnd(nullptr, &graph); }},
      {"captureInfo", [&](Driver& d) { return d.captureInfo(nullptr, &info); }},
      {"captureDependencies", [&](Driver& d) { return d.captureDependencies(nullptr, nullptr, 0, true); }},
      {"captureModeExchange", [&](Driver& d) { return d.captureModeExchange(&mode); }},
      {"graphInstantiate", [&](Driver& d) { return d.graphInstantiate(&exec, graph, {}, &instantiated); }},
      {"execDestroy", [&](Driver& d) { return d.execDestroy(exec); }},
      {"execUpload", [&](Driver& d) { return d.execUpload(exec, nullptr); }},
      {"execLaunch", [&](Driver& d) { return d.execLaunch(exec, nullptr); }},
      {"execUpdate", [&](Driver& d) { return d.execUpdate(exec, graph, &updated); }},
      {"execNodeUpdate", [&](Driver& d) { return d.execNodeUpdate(exec, node, empty); }},
      {"execNodeEnable", [&](Driver& d) { return d.execNodeEnable(exec, node, true); }},
      {"execNodeEnabled", [&](Driver& d) { return d.execNodeEnabled(exec, node, &enabled); }},
      {"userObjectCreate",
       [&](Driver& d) {
         return d.userObjectCreate(
             &object, [](void*) {}, nullptr, 1);
       }},
      {"userObjectRetain", [&](Driver& d) { return d.userObjectRetain(object, 1); }},
      {"userObjectRelease", [&](Driver& d) { return d.userObjectRelease(object, 1); }},
      {"graphRetain", [&](Driver& d) { return d.graphRetain(graph, object, 1, false); }},
      {"graphRelease", [&](Driver& d) { return d.graphRelease(graph, object, 1); }},
  };
  for (const auto& [name, use] : calls) {
    HostOptions options;
    options.faults = {{name, 1, Status::systemNotReady}};
    std::unique_ptr<Driver> driver;
    ASSERT_EQ(openHost(&driver, options, nullptr), Status::ok) << name;
    EXPECT_EQ(use(*driver), Status::systemNotReady) << name;
    EXPECT_NE(use(*driver), Status::systemNotReady) << name;  // only the first
  }
}

}  // namespace
}  // namespace braid::test
