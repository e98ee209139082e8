// The graph calls of the cuda device over the fake driver: parameters, failures, and what is left behind.
#include <atomic>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include "executor/session.h"
#include "test/cuda/fake.h"
#include "test/executor/generated.h"

namespace braid::test {
namespace {

class CudaFakeGraphs : public CudaFake {
 protected:
  Graph graph() {
    Graph made = nullptr;
    EXPECT_EQ(driver_->graphCreate(&made), Status::ok) << driver_->lastDetail();
    return made;
  }
  GraphNode add(Graph graph, const NodeParams& params, const std::vector<GraphNode>& after = {}) {
    GraphNode made = nullptr;
    EXPECT_EQ(driver_->nodeAdd(&made, graph, after.data(), after.size(), params), Status::ok)
        << driver_->lastDetail();
    return made;
  }
  GraphExec instantiate(Graph graph) {
    GraphExec made = nullptr;
    InstantiateResult result = InstantiateResult::error;
    EXPECT_EQ(driver_->graphInstantiate(&made, graph, {}, &result), Status::ok) << driver_->lastDetail();
    EXPECT_EQ(result, InstantiateResult::success);
    return made;
  }
};

// The fake reads the driver's structures, so a field at a wrong place is a wrong value here.
TEST_F(CudaFakeGraphs, EveryKindOfNodeReachesTheDriver) {
  DeviceAddress memory = 0;
  void* pinned = nullptr;
  ASSERT_EQ(driver_->memAllocate(&memory, 64), Status::ok);
  ASSERT_EQ(driver_->pinnedAllocate(&pinned, 64), Status::ok);
  auto* words = static_cast<std::uint32_t*>(pinned);
  Event event = nullptr;
  ASSERT_EQ(driver_->eventCreate(&event, EventKind::order), Status::ok);
  int called = 0;
  const auto count = [](void* data) { ++*static_cast<int*>(data); };

  const Graph made = graph(), child = graph();
  add(child, NodeParams::host(count, &called));
  const GraphNode fill = add(made, NodeParams::fill(memory, 7, 4, 2, 2, 16));
  const GraphNode bytes = add(made, NodeParams::fill(memory + 8, 0xab, 1, 3), {fill});
  const GraphNode down =
      add(made, NodeParams::copy(CopyKind::deviceToHost, reinterpret_cast<DeviceAddress>(pinned), memory, 32),
          {bytes});
  const GraphNode up =
      add(made,
          NodeParams::copy(CopyKind::hostToDevice, memory + 32, reinterpret_cast<DeviceAddress>(pinned), 16),
          {down});
  const GraphNode over =
      add(made, NodeParams::copy(CopyKind::deviceToDevice, memory + 48, memory + 32, 4), {up});
  const GraphNode host = add(made, NodeParams::host(count, &called), {over});
  const GraphNode inner = add(made, NodeParams::embed(child), {host});
  const GraphNode empty = add(made, NodeParams::empty(), {inner});
  const GraphNode wait = add(made, NodeParams::wait(event), {empty});
  const GraphNode record = add(made, NodeParams::record(event), {wait});
  const std::vector<std::pair<GraphNode, NodeKind>> kinds{
      {fill, NodeKind::fill},         {down, NodeKind::copy},   {host, NodeKind::hostFunction},
      {inner, NodeKind::child},       {empty, NodeKind::empty}, {wait, NodeKind::eventWait},
      {record, NodeKind::eventRecord}};
  for (const auto& [node, wanted] : kinds) {
    NodeKind kind = NodeKind::other;
    ASSERT_EQ(driver_->nodeKind(node, &kind), Status::ok);
    EXPECT_EQ(kind, wanted) << nodeKindName(wanted);
  }
  std::vector<GraphEdge> edges;
  ASSERT_EQ(driver_->graphEdges(made, &edges), Status::ok);
  EXPECT_EQ(edges.size(), 9u);
  EXPECT_EQ(edges.front(), (GraphEdge{fill, bytes}));

  const GraphExec exec = instantiate(made);
  Stream on = nullptr;
  ASSERT_EQ(driver_->streamCreate(&on, 0), Status::ok);
  ASSERT_EQ(driver_->execUpload(exec, on), Status::ok);
  ASSERT_EQ(driver_->execLaunch(exec, on), Status::ok);
  EXPECT_EQ(words[0], 7u);
  EXPECT_EQ(words[1], 7u);
  EXPECT_EQ(words[2] & 0xffffff, 0xabababu);
  EXPECT_EQ(words[4], 7u);
  EXPECT_EQ(reinterpret_cast<std::uint32_t*>(memory)[12], 7u);
  EXPECT_EQ(called, 2);
  driver_->streamDestroy(on);
  driver_->execDestroy(exec);
  driver_->graphDestroy(child);
  driver_->graphDestroy(made);
  driver_->eventDestroy(event);
  driver_->memFree(memory);
  driver_->pinnedFree(pinned);
}

TEST_F(CudaFakeGraphs, MemoryNodesReachTheDriver) {
  void* pinned = nullptr;
  ASSERT_EQ(driver_->pinnedAllocate(&pinned, 64), Status::ok);
  const Graph made = graph();
  GraphNode node = nullptr, refused = nullptr;
  DeviceAddress memory = 0;
  EXPECT_EQ(driver_->nodeAddAllocation(&node, made, nullptr, 0, 0, &memory), Status::invalidValue);
  ASSERT_EQ(driver_->nodeAddAllocation(&node, made, nullptr, 0, 64, &memory), Status::ok)
      << driver_->lastDetail();
  const GraphNode fill = add(made, NodeParams::fill(memory, 7, 4, 16), {node});
  const GraphNode copy =
      add(made, NodeParams::copy(CopyKind::deviceToHost, reinterpret_cast<DeviceAddress>(pinned), memory, 64),
          {fill});
  const GraphNode freed = add(made, NodeParams::memFree(memory), {copy});
  for (const DeviceAddress address : {memory, memory + 16})
    EXPECT_EQ(driver_->nodeAdd(&refused, made, nullptr, 0, NodeParams::memFree(address)),
              Status::invalidValue);
  for (const auto& [each, wanted] : {std::pair{node, NodeKind::memAllocate}, {freed, NodeKind::memFree}}) {
    NodeKind kind = NodeKind::other;
    ASSERT_EQ(driver_->nodeKind(each, &kind), Status::ok);
    EXPECT_EQ(kind, wanted);
  }
  const GraphExec exec = instantiate(made);
  Stream on = nullptr;
  ASSERT_EQ(driver_->streamCreate(&on, 0), Status::ok);
  ASSERT_EQ(driver_->execLaunch(exec, on), Status::ok);
  EXPECT_EQ(static_cast<std::uint32_t*>(pinned)[15], 7u);
  std::size_t used = 0, reserved = 0;
  ASSERT_EQ(driver_->graphMemory(&used, &reserved), Status::ok);
  EXPECT_EQ(used, 1000u);  // by the numbers of the attributes
  EXPECT_EQ(reserved, 1002u);
  EXPECT_EQ(driver_->graphMemoryTrim(), Status::ok);
  EXPECT_EQ(calls("cuDeviceGraphMemTrim"), 1);
  failNext("cuDeviceGetGraphMemAttribute", 101, 2);
  EXPECT_EQ(driver_->graphMemory(&used, &reserved), Status::invalidDevice);
  driver_->streamDestroy(on);
  driver_->execDestroy(exec);
  driver_->graphDestroy(made);
  driver_->pinnedFree(pinned);
}

TEST_F(CudaFakeGraphs, KernelsSayHowTheyGetIntoAGraph) {
  KernelSpec copies;
  copies.bytes = 64;
  copies.parts = 2;
  copies.readCount = 2;
  copies.writeCount = 1;
  std::unique_ptr<Kernel> kernel;
  ASSERT_EQ(driver_->prepare(&kernel, copies, {}), Status::ok);
  EXPECT_EQ(kernel->form(nullptr, nullptr), Kernel::Form::captured);
  const Graph made = graph();
  GraphNode node = nullptr;
  EXPECT_EQ(driver_->nodeAdd(&node, made, nullptr, 0, NodeParams::launch(*kernel, {1, 2}, {3})),
            Status::notSupported);
  copies.parts = copies.readCount = 1;
  ASSERT_EQ(driver_->prepare(&kernel, copies, {}), Status::ok);
  EXPECT_EQ(kernel->form(nullptr, nullptr), Kernel::Form::node);
  NodeKind kind = NodeKind::other;
  ASSERT_EQ(driver_->nodeKind(add(made, NodeParams::launch(*kernel, {1}, {3})), &kind), Status::ok);
  EXPECT_EQ(kind, NodeKind::copy);

  KernelSpec user;
  user.kind = KernelSpec::Kind::cuda;
  user.name = "twice";
  user.source = "extern \"C\" __global__ void twice(float* x) {}";
  user.writeCount = 1;
  ASSERT_EQ(driver_->prepare(&kernel, user, {}), Status::ok) << driver_->lastDetail();
  ASSERT_EQ(kernel->form(nullptr, nullptr), Kernel::Form::node);
  const Graph runs = graph();
  add(runs, NodeParams::launch(*kernel, {}, {3}));
  const GraphExec exec = instantiate(runs);
  Stream on = nullptr;
  ASSERT_EQ(driver_->streamCreate(&on, 0), Status::ok);
  ASSERT_EQ(driver_->execLaunch(exec, on), Status::ok);
  EXPECT_EQ(lastLaunch(), "twice");
  driver_->streamDestroy(on);
  driver_->execDestroy(exec);
  driver_->graphDestroy(runs);
  driver_->graphDestroy(made);
}

TEST_F(CudaFakeGraphs, AKernelThatWaitsForNodesMayStartBeforeKernelsHaveEnded) {
  KernelSpec doubled;
  doubled.kind = KernelSpec::Kind::map;
  doubled.shape = {64};
  doubled.operands = {{DType::f32, 0, {1}}};
  doubled.code = {{MapOp::operand, 0}, {MapOp::add, 0, 0}};
  doubled.results = {{1, DType::f32}};
  doubled.readCount = doubled.writeCount = 1;
  std::unique_ptr<Kernel> kernel;
  ASSERT_EQ(driver_->prepare(&kernel, doubled, {}), Status::ok) << driver_->lastDetail();
  EXPECT_TRUE(kernel->waitsForNodes());
  const Graph made = graph();
  const GraphNode copy = add(made, NodeParams::copy(CopyKind::deviceToDevice, 0x2000, 0x1000, 256));
  NodeParams params = NodeParams::launch(*kernel, {0x1000}, {0x2000});
  const GraphNode first = add(made, params, {copy});
  const int before = calls("programmatic edge");
  params.early = {true, false};
  add(made, params, {first, copy});
  EXPECT_EQ(calls("programmatic edge"), before + 1);
  params.early = {true};
  GraphNode refused = nullptr;
  EXPECT_EQ(driver_->nodeAdd(&refused, made, &copy, 1, params), Status::invalidValue);
  driver_->graphDestroy(made);
}

// On a capturing stream too a generated kernel says that it may start early: the edge that the driver makes
// of it is programmatic where a kernel is in front, and only there.
TEST_F(CudaFakeGraphs, ACapturedKernelMayStartBeforeTheOneInFrontHasEnded) {
  KernelSpec doubled;
  doubled.kind = KernelSpec::Kind::map;
  doubled.shape = {64};
  doubled.operands = {{DType::f32, 0, {1}}};
  doubled.code = {{MapOp::operand, 0}, {MapOp::add, 0, 0}};
  doubled.results = {{1, DType::f32}};
  doubled.readCount = doubled.writeCount = 1;
  std::unique_ptr<Kernel> kernel, users;
  ASSERT_EQ(driver_->prepare(&kernel, doubled, {}), Status::ok) << driver_->lastDetail();
  KernelSpec user;
  user.kind = KernelSpec::Kind::cuda;
  user.name = "twice";
  user.source = "extern \"C\" __global__ void twice(float* x) {}";
  user.writeCount = 1;
  ASSERT_EQ(driver_->prepare(&users, user, {}), Status::ok) << driver_->lastDetail();
  Stream on = nullptr;
  ASSERT_EQ(driver_->streamCreate(&on, 0), Status::ok);
  const DeviceAddress from = 0x1000, to = 0x2000;
  const int before = calls("programmatic edge");
  ASSERT_EQ(driver_->captureBegin(on, CaptureMode::relaxed), Status::ok);
  ASSERT_EQ(driver_->copy(CopyKind::deviceToDevice, to, from, 256, on), Status::ok);
  ASSERT_EQ(driver_->launch(*kernel, &from, &to, on), Status::ok);
  EXPECT_EQ(calls("programmatic edge"), before);
  ASSERT_EQ(driver_->launch(*kernel, &to, &from, on), Status::ok);
  EXPECT_EQ(calls("programmatic edge"), before + 1);
  ASSERT_EQ(driver_->launch(*users, nullptr, &to, on), Status::ok);
  EXPECT_EQ(calls("programmatic edge"), before + 1);
  Graph made = nullptr;
  ASSERT_EQ(driver_->captureEnd(on, &made), Status::ok);
  std::vector<GraphNode> nodes;
  ASSERT_EQ(driver_->graphNodes(made, &nodes), Status::ok);
  EXPECT_EQ(nodes.size(), 4u);
  driver_->graphDestroy(made);
  driver_->streamDestroy(on);
}

// Programs whose runs are maps and copies: each edge between two maps is programmatic, and no other is.
TEST_F(CudaFakeGraphs, KernelsOfAPlanStartBeforeThoseInFrontHaveEnded) {
  std::mt19937 random(20261125);
  int programmatic = 0;
  const std::shared_ptr<Driver> driver = std::move(driver_);
  for (int i = 0; i < 20; ++i) {
    const ProgramSpec spec = asOneGraph(generated(random, 1));
    if (spec.nodes.size() == 13) continue;  // which the fake driver refuses
    Decoded decoded;
    ASSERT_FALSE(decode(spec, &decoded));
    const auto isMap = [&](std::uint32_t command) {
      return spec.nodes[decoded.steps[command].subject].kernel == 1;
    };
    int wanted = 0;
    for (const auto& [from, to] : decoded.graphs.front().edges) wanted += isMap(from) && isMap(to);
    const int before = calls("programmatic edge");
    Ends ends;
    ASSERT_TRUE(opened({driver}, spec, ends, false, false));
    EXPECT_EQ(calls("programmatic edge") - before, wanted);
    programmatic += wanted;
  }
  EXPECT_GT(programmatic, 100);
}

TEST_F(CudaFakeGraphs, ConditionsAndTheirBodies) {
  const Graph made = graph();
  Condition condition = 0;
  ASSERT_EQ(driver_->conditionCreate(&condition, made, true, 1), Status::ok);
  Graph bodies[2] = {};
  GraphNode node = nullptr;
  ASSERT_EQ(
      driver_->nodeAddConditional(&node, made, nullptr, 0, condition, ConditionalKind::branch, bodies, 2),
      Status::ok);
  EXPECT_NE(bodies[0], nullptr);
  EXPECT_NE(bodies[0], bodies[1]);
  add(bodies[1], NodeParams::empty());
  std::unique_ptr<Kernel> set;
  ASSERT_EQ(driver_->prepareCondition(&set), Status::ok) << driver_->lastDetail();
  EXPECT_EQ(set->form(nullptr, nullptr), Kernel::Form::node);
  driver_->graphDestroy(made);
}

TEST_F(CudaFakeGraphs, CaptureGivesAGraph) {
  DeviceAddress memory = 0;
  ASSERT_EQ(driver_->memAllocate(&memory, 64), Status::ok);
  auto* words = reinterpret_cast<std::uint32_t*>(memory);
  words[0] = 0;
  Stream on = nullptr;
  ASSERT_EQ(driver_->streamCreate(&on, 0), Status::ok);
  CaptureInfo info;
  ASSERT_EQ(driver_->captureInfo(on, &info), Status::ok);
  EXPECT_EQ(info.status, CaptureStatus::none);
  ASSERT_EQ(driver_->captureBegin(on, CaptureMode::relaxed), Status::ok);
  ASSERT_EQ(driver_->fill32(memory, 9, 1, on), Status::ok);
  ASSERT_EQ(driver_->captureInfo(on, &info), Status::ok);
  EXPECT_EQ(info.status, CaptureStatus::active);
  EXPECT_EQ(info.dependencies.size(), 1u);
  Graph made = nullptr;
  ASSERT_EQ(driver_->captureEnd(on, &made), Status::ok);
  EXPECT_EQ(words[0], 0u);
  const GraphExec exec = instantiate(made);
  ASSERT_EQ(driver_->execLaunch(exec, on), Status::ok);
  EXPECT_EQ(words[0], 9u);
  driver_->execDestroy(exec);
  driver_->graphDestroy(made);
  driver_->streamDestroy(on);
  driver_->memFree(memory);
}

// x and y (pinned) → one copy gathers both on the device, which a library's launch would be, captured → one
// copy down. In a graph all three are nodes.
TEST_F(CudaFakeGraphs, APlanIsLaunchedByOneCallATick) {
  constexpr std::size_t bytes = 256;
  ProgramSpec spec;
  spec.name = "gather";
  spec.inFlight = 2;
  spec.planned = true;
  spec.lanes = {{"copy", 0}};
  const auto buffer = [&](const char* name, Space space, Life life, std::uint32_t id, std::uint64_t size,
                          std::int64_t offset = -1) {
    spec.buffers.push_back({name, size, space, 0, life, id, 0, offset});
  };
  buffer("x", Space::pinned, Life::input, 0, bytes);
  buffer("dx", Space::device, Life::tick, 1, bytes, 0);
  buffer("both", Space::device, Life::tick, 2, 2 * bytes, 512);
  buffer("y", Space::pinned, Life::output, 3, 2 * bytes);
  KernelSpec copy, gather;
  copy.bytes = bytes;
  gather.bytes = 2 * bytes;
  gather.parts = 2;
  KernelSpec down;
  down.bytes = 2 * bytes;
  spec.kernels = {copy, gather, down};
  spec.nodes = {{"up", 0}, {"gather", 1}, {"down", 2}};
  spec.devices = {{1024, 1024}};
  spec.boundPinned = std::uint64_t{2} * 3 * 512;
  spec.commands = {2, 0, 0, 1, 1, 0, 1, 2, 1, 0, 2, 1, 1, 1, 2, 2, 2, 0, 1, 1, 2, 3};
  spec.graphs = {{0}, {3}, {0, 2}, {0, 1, 1, 2}};
  for (const bool trace : {false, true}) {
    SessionOptions options;
    std::atomic<std::uint64_t> ended{0};
    std::string problem;
    options.onTick = [&](std::uint64_t, const Failure* failure) {
      if (failure != nullptr) problem = failure->op + ": " + failure->detail;
      ++ended;
    };
    options.poison = true;
    options.trace = trace;
    const int captures = calls("cuStreamBeginCaptureToGraph");
    MaybeFailure failure;
    std::unique_ptr<Driver> opened;
    ASSERT_EQ(cuda::CudaDriver::open(0, kFake, &opened), Status::ok);
    // The fake has no memory behind the addresses of pages.
    caching::Options plain;
    plain.expandable = false;
    const std::vector<std::shared_ptr<DeviceMemory>> devices{
        std::make_shared<DeviceMemory>(std::move(opened), plain, plain)};
    auto session = Session::open(devices, spec, options, &failure);
    ASSERT_TRUE(session) << (failure ? failure->op + ": " + failure->detail : "");
    EXPECT_EQ(calls("cuStreamBeginCaptureToGraph") - captures, 2) << "the gathering copy, for each slot";
    const int launches = calls("cuGraphLaunch"), copies = calls("cuMemcpyDtoHAsync_v2"),
              nodes = calls("cuGraphAddNode");
    for (std::uint64_t tick = 0; tick < 6; ++tick) {
      std::memset(session->pinned(0, tick % 2), static_cast<int>(tick) + 1, bytes);
      ASSERT_TRUE(session->submit(tick));
      while (ended <= tick) std::this_thread::yield();
      ASSERT_EQ(problem, "");
      const auto* y = static_cast<const unsigned char*>(session->pinned(3, tick % 2));
      for (std::size_t i = 0; i < 2 * bytes; ++i) ASSERT_EQ(y[i], tick + 1);
    }
    EXPECT_EQ(calls("cuGraphLaunch") - launches, 6);
    EXPECT_EQ(calls("cuMemcpyDtoHAsync_v2"), copies);
    EXPECT_EQ(calls("cuGraphAddNode"), nodes) << "none is made in a tick";
    session->close();
  }
}

TEST_F(CudaFakeGraphs, ReasonsComeWithTheCall) {
  const Graph made = graph(), longer = graph();
  const GraphNode a = add(made, NodeParams::empty()), b = add(made, NodeParams::empty(), {a});
  const GraphExec exec = instantiate(made);
  add(longer, NodeParams::empty());
  UpdateResult updated = UpdateResult::success;
  EXPECT_EQ(driver_->execUpdate(exec, longer, &updated), Status::graphExecUpdateFailure);
  EXPECT_EQ(updated, UpdateResult::topologyChanged);
  EXPECT_NE(driver_->lastDetail().find("topology changed"), std::string::npos) << driver_->lastDetail();
  const GraphEdge back{b, a};
  ASSERT_EQ(driver_->graphAddEdges(made, &back, 1), Status::ok);
  GraphExec none = nullptr;
  InstantiateResult result = InstantiateResult::success;
  EXPECT_EQ(driver_->graphInstantiate(&none, made, {}, &result), Status::invalidValue);
  EXPECT_EQ(result, InstantiateResult::invalidStructure);
  driver_->execDestroy(exec);
  driver_->graphDestroy(made);
  driver_->graphDestroy(longer);
}

TEST_F(CudaFakeGraphs, AResultThatIsNoSuccessIsAFailureWhateverTheCode) {
  const Graph made = graph();
  for (int i = 0; i < 13; ++i) add(made, NodeParams::empty());
  GraphExec exec = nullptr;
  InstantiateResult result = InstantiateResult::success;
  EXPECT_EQ(driver_->graphInstantiate(&exec, made, {}, &result), Status::invalidValue);
  EXPECT_EQ(result, InstantiateResult::operationNotSupported);
  EXPECT_EQ(exec, nullptr);
  driver_->graphDestroy(made);
}

TEST_F(CudaFakeGraphs, UserObjectsAreMadeWithTheMandatoryFlagAndMoved) {
  int gone = 0;
  UserObject object = nullptr;
  ASSERT_EQ(driver_->userObjectCreate(
                &object, [](void* data) { ++*static_cast<int*>(data); }, &gone, 1),
            Status::ok);
  const Graph made = graph();
  ASSERT_EQ(driver_->graphRetain(made, object, 1, true), Status::ok);
  const GraphExec exec = instantiate(made);
  ASSERT_EQ(driver_->graphRelease(made, object, 1), Status::ok);
  EXPECT_EQ(gone, 0);
  driver_->execDestroy(exec);
  EXPECT_EQ(gone, 1);
  driver_->graphDestroy(made);
}

TEST_F(CudaFakeGraphs, EveryFailureIsPassedOnWithTheCallsName) {
  const Graph made = graph();
  const GraphNode node = add(made, NodeParams::empty());
  Graph other = nullptr;
  GraphNode found = nullptr;
  GraphExec exec = instantiate(made), none = nullptr;
  Stream on = nullptr;
  ASSERT_EQ(driver_->streamCreate(&on, 0), Status::ok);
  UserObject object = nullptr;
  Condition condition = 0;
  CaptureInfo info;
  CaptureMode mode = CaptureMode::relaxed;
  bool enabled = false;
  InstantiateResult instantiated;
  UpdateResult updated;
  NodeKind kind;
  std::string text;
  std::vector<GraphNode> nodes;
  std::vector<GraphEdge> edges;
  const GraphEdge edge{node, node};
  const std::vector<std::pair<const char*, std::function<Status()>>> calls{
      {"cuGraphCreate", [&] { return driver_->graphCreate(&other); }},
      {"cuGraphDestroy", [&] { return driver_->graphDestroy(made); }},
      {"cuGraphClone", [&] { return driver_->graphClone(&other, made); }},
      {"cuGraphNodeFindInClone", [&] { return driver_->graphFindInClone(&found, node, made); }},
      {"cuGraphGetNodes", [&] { return driver_->graphNodes(made, &nodes); }},
      {"cuGraphGetEdges", [&] { return driver_->graphEdges(made, &edges); }},
      {"cuGraphAddDependencies", [&] { return driver_->graphAddEdges(made, &edge, 1); }},
      {"cuGraphRemoveDependencies", [&] { return driver_->graphRemoveEdges(made, &edge, 1); }},
      {"cuGraphDebugDotPrint", [&] { return driver_->graphDot(made, &text); }},
      {"cuGraphAddNode_v2", [&] { return driver_->nodeAdd(&found, made, nullptr, 0, {}); }},
      {"cuGraphDestroyNode", [&] { return driver_->nodeDestroy(node); }},
      {"cuGraphNodeSetParams", [&] { return driver_->nodeUpdate(node, {}); }},
      {"cuGraphNodeGetType", [&] { return driver_->nodeKind(node, &kind); }},
      {"cuGraphChildGraphNodeGetGraph", [&] { return driver_->nodeChild(node, &other); }},
      {"cuGraphConditionalHandleCreate",
       [&] { return driver_->conditionCreate(&condition, made, false, 0); }},
      {"cuStreamBeginCapture_v2", [&] { return driver_->captureBegin(on, mode); }},
      {"cuStreamBeginCaptureToGraph", [&] { return driver_->captureBeginOnto(on, made, nullptr, 0, mode); }},
      {"cuStreamEndCapture", [&] { return driver_->captureEnd(on, &other); }},
      {"cuStreamGetCaptureInfo_v2", [&] { return driver_->captureInfo(on, &info); }},
      {"cuStreamUpdateCaptureDependencies", [&] { return driver_->captureDependencies(on, &node, 1, true); }},
      {"cuThreadExchangeStreamCaptureMode", [&] { return driver_->captureModeExchange(&mode); }},
      {"cuGraphInstantiateWithParams",
       [&] { return driver_->graphInstantiate(&none, made, {}, &instantiated); }},
      {"cuGraphExecDestroy", [&] { return driver_->execDestroy(exec); }},
      {"cuGraphUpload", [&] { return driver_->execUpload(exec, on); }},
      {"cuGraphLaunch", [&] { return driver_->execLaunch(exec, on); }},
      {"cuGraphExecUpdate_v2", [&] { return driver_->execUpdate(exec, made, &updated); }},
      {"cuGraphExecNodeSetParams", [&] { return driver_->execNodeUpdate(exec, node, {}); }},
      {"cuGraphNodeSetEnabled", [&] { return driver_->execNodeEnable(exec, node, false); }},
      {"cuGraphNodeGetEnabled", [&] { return driver_->execNodeEnabled(exec, node, &enabled); }},
      {"cuUserObjectCreate",
       [&] {
         return driver_->userObjectCreate(
             &object, [](void*) {}, nullptr, 1);
       }},
      {"cuUserObjectRetain", [&] { return driver_->userObjectRetain(object, 1); }},
      {"cuUserObjectRelease", [&] { return driver_->userObjectRelease(object, 1); }},
      {"cuGraphRetainUserObject", [&] { return driver_->graphRetain(made, object, 1, true); }},
      {"cuGraphReleaseUserObject", [&] { return driver_->graphRelease(made, object, 1); }},
  };
  for (const auto& [name, call] : calls) {
    failNext(name, 2);
    EXPECT_EQ(call(), Status::outOfMemory) << name;
    std::string plain = name;
    if (const auto version = plain.find("_v"); version != std::string::npos) plain.resize(version);
    EXPECT_EQ(driver_->lastDetail().rfind(plain + ":", 0), 0u) << driver_->lastDetail();
    failNext("", 0);
  }
  driver_->streamDestroy(on);
  driver_->execDestroy(exec);
  driver_->graphDestroy(made);
}

}  // namespace
}  // namespace braid::test
