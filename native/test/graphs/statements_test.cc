// What a graph keeps alive, statement by statement: sections A to G of the contract in
// docs/internals/decisions/graphs.md, as far as the native side decides them. Each test carries the numbers
// of its statements.
#include <algorithm>
#include <cstdlib>

#include "graphs/capture.h"
#include "graphs/executable.h"
#include "test/graphs/support.h"
#include "test/memory/caching/simulated_device.h"

namespace braid::graphs {
namespace {

using test::Destructions;
using test::GraphGate;

// Forwards to a device, makes calls fail, and counts user objects.
class FailingDriver final : public Driver {
 public:
  explicit FailingDriver(std::unique_ptr<Driver> inner) : inner_(std::move(inner)) {}
  ~FailingDriver() override = default;
  void fail(std::string call) { failing_ = std::move(call); }

  const DeviceInfo& info() const override { return inner_->info(); }
  Status bind() override { return inner_->bind(); }
  std::string lastDetail() override { return inner_->lastDetail(); }
  Status memAllocate(DeviceAddress* a, std::size_t n) override { return inner_->memAllocate(a, n); }
  Status memFree(DeviceAddress a) override { return inner_->memFree(a); }
  Status memInfo(std::size_t* f, std::size_t* t) override { return inner_->memInfo(f, t); }
  Status pinnedAllocate(void** p, std::size_t n) override { return inner_->pinnedAllocate(p, n); }
  Status pinnedFree(void* p) override { return inner_->pinnedFree(p); }
  Status addressReserve(DeviceAddress* a, std::size_t n) override { return inner_->addressReserve(a, n); }
  Status addressRelease(DeviceAddress a, std::size_t n) override { return inner_->addressRelease(a, n); }
  Status pagesCreate(Pages* p, std::size_t n) override { return inner_->pagesCreate(p, n); }
  Status pagesRelease(Pages p) override { return inner_->pagesRelease(p); }
  Status pagesMap(DeviceAddress a, std::size_t n, Pages p) override { return inner_->pagesMap(a, n, p); }
  Status pagesUnmap(DeviceAddress a, std::size_t n) override { return inner_->pagesUnmap(a, n); }
  Status streamCreate(Stream* s, int p) override { return inner_->streamCreate(s, p); }
  Status streamDestroy(Stream s) override { return inner_->streamDestroy(s); }
  Status streamSynchronize(Stream s) override { return inner_->streamSynchronize(s); }
  Status streamQuery(Stream s) override { return inner_->streamQuery(s); }
  Status streamWait(Stream s, Event e) override { return inner_->streamWait(s, e); }
  Status eventCreate(Event* e, EventKind k) override { return inner_->eventCreate(e, k); }
  Status eventDestroy(Event e) override { return inner_->eventDestroy(e); }
  Status eventRecord(Event e, Stream s) override { return inner_->eventRecord(e, s); }
  Status eventQuery(Event e) override { return inner_->eventQuery(e); }
  Status eventSynchronize(Event e) override { return inner_->eventSynchronize(e); }
  Status eventElapsed(float* m, Event a, Event b) override { return inner_->eventElapsed(m, a, b); }
  Status copy(CopyKind k, DeviceAddress to, DeviceAddress from, std::size_t n, Stream s) override {
    return inner_->copy(k, to, from, n, s);
  }
  Status fill32(DeviceAddress to, std::uint32_t value, std::size_t words, Stream s) override {
    return inner_->fill32(to, value, words, s);
  }
  Status prepare(std::unique_ptr<Kernel>* k, const KernelSpec& spec, HostCallback c) override {
    return inner_->prepare(k, spec, std::move(c));
  }
  Status launch(const Kernel& k, const DeviceAddress* r, const DeviceAddress* w, Stream s) override {
    return inner_->launch(k, r, w, s);
  }
  Status hostFunction(Stream s, void (*f)(void*), void* d) override {
    return strikes("hostFunction") ? Status::unknown : inner_->hostFunction(s, f, d);
  }

  Status graphCreate(Graph* g) override { return inner_->graphCreate(g); }
  Status graphDestroy(Graph g) override { return inner_->graphDestroy(g); }
  Status graphClone(Graph* c, Graph g) override { return inner_->graphClone(c, g); }
  Status graphFindInClone(GraphNode* n, GraphNode o, Graph c) override {
    return inner_->graphFindInClone(n, o, c);
  }
  Status graphNodes(Graph g, std::vector<GraphNode>* n) override {
    return strikes("graphNodes") ? Status::unknown : inner_->graphNodes(g, n);
  }
  Status graphEdges(Graph g, std::vector<GraphEdge>* e) override { return inner_->graphEdges(g, e); }
  Status graphAddEdges(Graph g, const GraphEdge* e, std::size_t n) override {
    return inner_->graphAddEdges(g, e, n);
  }
  Status graphRemoveEdges(Graph g, const GraphEdge* e, std::size_t n) override {
    return inner_->graphRemoveEdges(g, e, n);
  }
  Status nodeAdd(GraphNode* n, Graph g, const GraphNode* d, std::size_t c, const NodeParams& p) override {
    calls += "add ";
    return strikes("nodeAdd") ? Status::unknown : inner_->nodeAdd(n, g, d, c, p);
  }
  Status nodeDestroy(GraphNode n) override {
    return strikes("nodeDestroy") ? Status::unknown : inner_->nodeDestroy(n);
  }
  Status nodeUpdate(GraphNode n, const NodeParams& p) override {
    calls += "update ";
    return strikes("nodeUpdate") ? Status::unknown : inner_->nodeUpdate(n, p);
  }
  Status nodeKind(GraphNode n, NodeKind* k) override { return inner_->nodeKind(n, k); }
  Status nodeChild(GraphNode n, Graph* c) override { return inner_->nodeChild(n, c); }
  Status conditionCreate(Condition* c, Graph g, bool a, std::uint32_t i) override {
    return inner_->conditionCreate(c, g, a, i);
  }
  Status nodeAddConditional(GraphNode* n, Graph g, const GraphNode* d, std::size_t c, Condition condition,
                            ConditionalKind k, Graph* b, std::size_t count) override {
    return inner_->nodeAddConditional(n, g, d, c, condition, k, b, count);
  }
  Status captureBegin(Stream s, CaptureMode m) override { return inner_->captureBegin(s, m); }
  Status captureBeginOnto(Stream s, Graph g, const GraphNode* d, std::size_t n, CaptureMode m) override {
    return inner_->captureBeginOnto(s, g, d, n, m);
  }
  Status captureEnd(Stream s, Graph* g) override { return inner_->captureEnd(s, g); }
  Status captureInfo(Stream s, CaptureInfo* i) override {
    ++infos;
    return infos == failInfo ? Status::unknown : inner_->captureInfo(s, i);
  }
  Status graphInstantiate(GraphExec* e, Graph g, const InstantiateOptions& o, InstantiateResult* r) override {
    return inner_->graphInstantiate(e, g, o, r);
  }
  Status execDestroy(GraphExec e) override { return inner_->execDestroy(e); }
  Status execLaunch(GraphExec e, Stream s) override { return inner_->execLaunch(e, s); }
  Status execUpdate(GraphExec e, Graph g, UpdateResult* r) override { return inner_->execUpdate(e, g, r); }
  Status execNodeUpdate(GraphExec e, GraphNode n, const NodeParams& p) override {
    return strikes("execNodeUpdate") ? Status::unknown : inner_->execNodeUpdate(e, n, p);
  }
  Status execNodeEnable(GraphExec e, GraphNode n, bool on) override {
    return inner_->execNodeEnable(e, n, on);
  }
  Status userObjectCreate(UserObject* o, void (*f)(void*), void* d, unsigned n) override {
    ++userObjects;
    calls += "create(" + std::to_string(n) + ") ";
    return strikes("userObjectCreate") ? Status::outOfMemory : inner_->userObjectCreate(o, f, d, n);
  }
  Status userObjectRelease(UserObject o, unsigned n) override { return inner_->userObjectRelease(o, n); }
  Status graphRetain(Graph g, UserObject o, unsigned n, bool move) override {
    calls += move ? "move " : "retain ";
    return strikes("graphRetain") ? Status::outOfMemory : inner_->graphRetain(g, o, n, move);
  }
  Status graphRelease(Graph g, UserObject o, unsigned n) override {
    calls += "release ";
    return inner_->graphRelease(g, o, n);
  }

  int userObjects = 0, infos = 0, failInfo = -1;
  std::string calls;

 private:
  bool strikes(const char* call) {
    if (failing_ != call) return false;
    failing_.clear();
    return true;
  }
  const std::unique_ptr<Driver> inner_;
  std::string failing_;
};

void nothing(void*) {}

class Statements : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    std::unique_ptr<Driver> device;
    std::string detail;
    HostOptions options;
    options.jitterSeed = 3;
    options.jitterMicroseconds = 30;
    const bool host = std::string(GetParam()) == "host";
    const Status status = host ? openHost(&device, options, &detail) : openCuda(&device, 0, &detail);
    if (status != Status::ok) GTEST_SKIP() << detail;
    driver_ = std::make_shared<FailingDriver>(std::move(device));
    ASSERT_EQ(driver_->bind(), Status::ok);
    Graph probe = nullptr;
    if (driver_->graphCreate(&probe) == Status::notSupported) GTEST_SKIP() << driver_->lastDetail();
    driver_->graphDestroy(probe);
    ASSERT_EQ(driver_->streamCreate(&stream_, 0), Status::ok);
    ASSERT_EQ(driver_->memAllocate(&memory_, 1024), Status::ok);
  }
  void TearDown() override {
    if (!driver_) return;
    if (stream_) driver_->streamDestroy(stream_);
    if (memory_) driver_->memFree(memory_);
    driver_.reset();
    queue_->drain();
  }

  GraphDefinition graph() {
    GraphDefinition made;
    EXPECT_EQ(GraphDefinition::create(driver_, queue_, &made), Status::ok);
    return made;
  }
  static Owner owner(std::weak_ptr<const void>* watch) {
    auto made = std::make_shared<int>(7);
    *watch = made;
    return made;
  }
  Node add(GraphDefinition& to, OwnerPair owners, NodeParams params = NodeParams::host(nothing, nullptr),
           const std::vector<Node>& after = {}) {
    Node made;
    EXPECT_EQ(to.add(&made, after, params, std::move(owners)), Status::ok) << driver_->lastDetail();
    return made;
  }
  ExecutableGraph instantiate(const GraphDefinition& from) {
    ExecutableGraph made;
    InstantiateResult result = InstantiateResult::error;
    EXPECT_EQ(ExecutableGraph::instantiate(from, {}, &made, &result), Status::ok) << driver_->lastDetail();
    return made;
  }
  void launch(ExecutableGraph& executable) {
    ASSERT_EQ(executable.launch(stream_), Status::ok);
    ASSERT_EQ(driver_->streamSynchronize(stream_), Status::ok);
  }
  // The driver gives up references when it likes; the wait is bounded.
  bool gone(const std::weak_ptr<const void>& watch) {
    for (int i = 0; i < 30'000; ++i) {
      ++drains_;
      queue_->drain();
      if (watch.expired()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
  }
  bool kept(const std::weak_ptr<const void>& watch) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    ++drains_;
    queue_->drain();
    return !watch.expired();
  }

  std::shared_ptr<CleanupQueue> queue_ = std::make_shared<CleanupQueue>();
  std::shared_ptr<FailingDriver> driver_;
  int drains_ = 0;
  Stream stream_ = nullptr;
  DeviceAddress memory_ = 0;
};

// A. Where owners go.

TEST_P(Statements, S1_S4_S8_ANodeKeepsTwoOwnersOfAnyKind) {
  std::weak_ptr<const void> first, second;
  auto block = std::shared_ptr<void>(std::malloc(8), std::free);
  second = block;
  {
    GraphDefinition made = graph();
    const Node node = add(made, {owner(&first), std::move(block)},
                          NodeParams::copy(CopyKind::deviceToDevice, memory_, memory_ + 64, 8));
    EXPECT_EQ(node.owners()[0], first.lock());
    EXPECT_EQ(node.owners()[1], second.lock());
    EXPECT_TRUE(kept(first));
    EXPECT_TRUE(kept(second));
  }
  EXPECT_TRUE(gone(first));
  EXPECT_TRUE(gone(second));
}

TEST_P(Statements, S2_AKernelNodeKeepsItsKernelAndItsArguments) {
  KernelSpec twice;
  twice.kind = KernelSpec::Kind::map;
  twice.shape = {4};
  twice.operands = {{DType::f32, 0, {1}}};
  twice.code = {{MapOp::operand, 0}, {MapOp::constant, 0, 0, 0, 2}, {MapOp::mul, 0, 1}};
  twice.results = {{2, DType::f32}};
  twice.readCount = twice.writeCount = 1;
  std::unique_ptr<Kernel> prepared;
  ASSERT_EQ(driver_->prepare(&prepared, twice, {}), Status::ok) << driver_->lastDetail();
  std::shared_ptr<const Kernel> kernel = std::move(prepared);
  const NodeParams params = NodeParams::launch(*kernel, {memory_}, {memory_ + 512});
  const std::weak_ptr<const void> watch = kernel;
  std::weak_ptr<const void> arguments;
  GraphDefinition made = graph();
  const Node without = add(made, {kernel, nullptr}, params);
  const Node node = add(made, {kernel, owner(&arguments)}, params, {without});
  EXPECT_EQ(without.owners()[1], nullptr);
  EXPECT_EQ(node.owners()[0], watch.lock());
  EXPECT_EQ(node.owners()[1], arguments.lock());
  EXPECT_EQ(driver_->userObjects, 2);
  kernel.reset();
  ExecutableGraph executable = instantiate(made);
  ASSERT_EQ(made.destroy(without), Status::ok);
  ASSERT_EQ(made.destroy(node), Status::ok);
  EXPECT_TRUE(kept(watch) && kept(arguments));
  launch(executable);
  executable.destroy();
  EXPECT_TRUE(gone(watch) && gone(arguments));
}

TEST_P(Statements, S3_S5_ACallbackAndAFillMayLeaveTheSecondPlaceEmpty) {
  for (const NodeParams& params : {NodeParams::host(nothing, nullptr), NodeParams::fill(memory_, 1, 4, 1)}) {
    std::weak_ptr<const void> only;
    GraphDefinition made = graph();
    const int before = driver_->userObjects;
    const Node node = add(made, {owner(&only), nullptr}, params);
    EXPECT_EQ(node.owners()[1], nullptr);
    EXPECT_EQ(driver_->userObjects, before + 1);
    ASSERT_EQ(made.destroy(node), Status::ok);
    EXPECT_TRUE(gone(only));
  }
}

TEST_P(Statements, S6_EventNodesKeepTheirEventAlone) {
  const auto event = [&] {
    Event made = nullptr;
    EXPECT_EQ(driver_->eventCreate(&made, EventKind::order), Status::ok);
    return std::shared_ptr<EventTag>(made, [driver = driver_](Event held) { driver->eventDestroy(held); });
  };
  for (const bool waits : {false, true}) {
    const auto paramsOf = [&](Event of) { return waits ? NodeParams::wait(of) : NodeParams::record(of); };
    auto first = event(), second = event();
    const std::weak_ptr<const void> one = first, two = second;
    GraphDefinition made = graph();
    const NodeParams params = paramsOf(first.get()), others = paramsOf(second.get());
    const Node node = add(made, {std::move(first), nullptr}, params);
    EXPECT_EQ(node.owners()[0], one.lock());
    EXPECT_EQ(node.owners()[1], nullptr);
    ExecutableGraph executable = instantiate(made);
    ASSERT_EQ(made.update(node, others, {std::move(second), nullptr}), Status::ok);
    EXPECT_EQ(node.owners()[0], two.lock());
    EXPECT_TRUE(kept(one));
    launch(executable);
    executable.destroy();
    EXPECT_TRUE(gone(one));
    ExecutableGraph other = instantiate(made);
    launch(other);
    EXPECT_TRUE(kept(two));
    other.destroy();
    ASSERT_EQ(made.destroy(node), Status::ok);
    EXPECT_TRUE(gone(two));
  }
}

TEST_P(Statements, S7_AChildNodeOwnsNothingItself) {
  std::weak_ptr<const void> inner;
  GraphDefinition child = graph(), made = graph();
  add(child, {owner(&inner), nullptr});
  const int before = driver_->userObjects;
  Node node;
  ASSERT_EQ(made.embed(&node, {}, child), Status::ok);
  EXPECT_EQ(driver_->userObjects, before);
  EXPECT_TRUE(ownsNothing(node.owners()));
}

TEST_P(Statements, S9_NativeOwnersShareTheirControlBlock) {
  auto handle = std::make_shared<int>(1);
  GraphDefinition made = graph();
  add(made, {handle, handle});
  EXPECT_GE(handle.use_count(), 3);
  const Owner part(handle, handle.get());  // an alias counts as its handle
  add(made, {part, nullptr});
  EXPECT_GE(handle.use_count(), 5);
}

TEST_P(Statements, S10_ArgumentsAreOneOwner) {
  std::weak_ptr<const void> a, b;
  auto arguments = std::make_shared<std::vector<Owner>>(std::vector<Owner>{owner(&a), owner(&b)});
  GraphDefinition made = graph();
  const Node node = add(made, {nullptr, std::move(arguments)});
  EXPECT_TRUE(kept(a) && kept(b));
  ASSERT_EQ(made.destroy(node), Status::ok);
  EXPECT_TRUE(gone(a) && gone(b));
}

// C. Creation, publication, failure.

TEST_P(Statements, S20_S21_WithoutOwnersThereIsNoUserObject) {
  GraphDefinition made = graph();
  add(made, {}, NodeParams::empty());
  Node node = add(made, {});
  EXPECT_EQ(made.update(node, NodeParams::host(nothing, nullptr), {}), Status::ok);
  EXPECT_EQ(driver_->userObjects, 0);
  EXPECT_EQ(driver_->calls, "add add update ");
}

TEST_P(Statements, S23_S25_EverythingThatCanFailComesBeforeTheNode) {
  std::weak_ptr<const void> watch;
  GraphDefinition made = graph();
  add(made, {owner(&watch), nullptr});
  EXPECT_EQ(driver_->calls, "create(1) move add ");
}

TEST_P(Statements, S22_S24_ARefusedNodeLeavesNothing) {
  std::weak_ptr<const void> watch;
  GraphDefinition made = graph();
  Node node;
  driver_->fail("nodeAdd");
  EXPECT_EQ(made.add(&node, {}, NodeParams::host(nothing, nullptr), {owner(&watch), nullptr}),
            Status::unknown);
  EXPECT_FALSE(node.valid());
  EXPECT_TRUE(gone(watch));
  std::vector<Node> nodes;
  ASSERT_EQ(made.nodes(&nodes), Status::ok);
  EXPECT_TRUE(nodes.empty());
}

TEST_P(Statements, S26_AUserObjectThatIsNotMadeOrHeldReleasesItsOwners) {
  GraphDefinition made = graph();
  for (const char* call : {"userObjectCreate", "graphRetain"}) {
    SCOPED_TRACE(call);
    std::weak_ptr<const void> watch;
    Node node;
    driver_->fail(call);
    EXPECT_EQ(made.add(&node, {}, NodeParams::host(nothing, nullptr), {owner(&watch), nullptr}),
              Status::outOfMemory);
    EXPECT_TRUE(gone(watch));
    std::vector<Node> nodes;
    ASSERT_EQ(made.nodes(&nodes), Status::ok);
    EXPECT_TRUE(nodes.empty());
  }
}

TEST_P(Statements, S27_S28_MisuseIsAStatus) {
  GraphDefinition none, made = graph(), other = graph();
  Node node;
  EXPECT_EQ(none.add(&node, {}, NodeParams::empty()), Status::invalidValue);
  EXPECT_EQ(none.destroy({}), Status::invalidValue);
  const Node far = add(other, {});
  EXPECT_EQ(made.add(&node, {far}, NodeParams::empty()), Status::invalidValue);
  EXPECT_EQ(made.update(far, NodeParams::empty()), Status::invalidValue);
  EXPECT_EQ(made.addEdge(far, far), Status::invalidValue);
}

TEST(GraphStatements, S27_ADeviceWithoutGraphsSaysSo) {
  const auto device = std::make_shared<test::SimulatedDevice>(test::SimulatedDevice::Config{});
  GraphDefinition made;
  EXPECT_EQ(GraphDefinition::create(device, std::make_shared<CleanupQueue>(), &made), Status::notSupported);
  EXPECT_FALSE(made.valid());
}

TEST_P(Statements, S29_NewOwnersAreHeldBeforeOldOnesGo) {
  std::weak_ptr<const void> before, after;
  GraphDefinition made = graph();
  const Node node = add(made, {owner(&before), nullptr});
  driver_->calls.clear();
  ASSERT_EQ(made.update(node, NodeParams::host(nothing, nullptr), {owner(&after), nullptr}), Status::ok);
  EXPECT_EQ(driver_->calls, "create(1) move update release ");
  EXPECT_TRUE(gone(before));
  EXPECT_TRUE(kept(after));
}

TEST_P(Statements, S30_ARefusedUpdateChangesNothing) {
  std::weak_ptr<const void> before, after;
  GraphDefinition made = graph();
  const Node node = add(made, {owner(&before), nullptr});
  driver_->fail("nodeUpdate");
  EXPECT_EQ(made.update(node, NodeParams::host(nothing, nullptr), {owner(&after), nullptr}), Status::unknown);
  EXPECT_TRUE(gone(after));
  EXPECT_TRUE(kept(before));
  EXPECT_EQ(node.owners()[0], before.lock());
}

// D. Destroying, cloning, embedding, instantiating, launching.

TEST_P(Statements, S32_ADefinitionsOwnersGoWithIt) {
  std::weak_ptr<const void> watch;
  {
    GraphDefinition made = graph();
    add(made, {owner(&watch), nullptr});
    EXPECT_TRUE(kept(watch));
  }
  EXPECT_TRUE(gone(watch));
}

TEST_P(Statements, S33_ACloneOfTheDriversKeepsOwners) {
  std::weak_ptr<const void> watch;
  Graph clone = nullptr;
  {
    GraphDefinition made = graph();
    add(made, {owner(&watch), nullptr});
    ASSERT_EQ(driver_->graphClone(&clone, made.handle()), Status::ok);
  }
  EXPECT_TRUE(kept(watch));
  driver_->graphDestroy(clone);
  EXPECT_TRUE(gone(watch));
}

TEST_P(Statements, S34_EachExecutableKeepsOwnersAndTheLastReleases) {
  std::weak_ptr<const void> watch;
  ExecutableGraph first, second;
  {
    GraphDefinition made = graph();
    add(made, {owner(&watch), nullptr});
    first = instantiate(made);
    second = instantiate(made);
  }
  EXPECT_TRUE(kept(watch));
  first.destroy();
  EXPECT_TRUE(kept(watch));
  launch(second);
  second.destroy();
  EXPECT_TRUE(gone(watch));
}

TEST_P(Statements, S35_S37_AnExecutableKeepsTheOwnersItWasMadeWith) {
  std::weak_ptr<const void> before, after;
  GraphDefinition made = graph();
  const Node node = add(made, {owner(&before), nullptr});
  ExecutableGraph executable = instantiate(made);
  ASSERT_EQ(made.destroy(node), Status::ok);
  add(made, {owner(&after), nullptr});  // perhaps at the same address
  EXPECT_TRUE(kept(before));
  launch(executable);
  EXPECT_TRUE(kept(before));
  executable.destroy();
  EXPECT_TRUE(gone(before));
  EXPECT_TRUE(kept(after));
}

TEST_P(Statements, S36_ALaunchKeepsOwnersUntilItHasCompleted) {
  std::weak_ptr<const void> watch;
  GraphGate gate;
  ExecutableGraph executable;
  {
    GraphDefinition made = graph();
    add(made, {owner(&watch), nullptr}, NodeParams::host(GraphGate::pass, &gate));
    executable = instantiate(made);
  }
  ASSERT_EQ(executable.launch(stream_), Status::ok);
  gate.awaitReached();
  std::thread([&] {
    driver_->bind();
    executable.destroy();
  }).join();
  EXPECT_TRUE(kept(watch));
  gate.open = true;
  ASSERT_EQ(driver_->streamSynchronize(stream_), Status::ok);
  EXPECT_TRUE(gone(watch));
}

TEST_P(Statements, S38_S44_AChildsOwnersAndViewsGoWithItsNode) {
  std::weak_ptr<const void> inner, innermost;
  GraphDefinition made = graph();
  Node node;
  {
    GraphDefinition deepest = graph(), child = graph();
    add(deepest, {owner(&innermost), nullptr});
    Node nested;
    ASSERT_EQ(child.embed(&nested, {}, deepest), Status::ok);
    add(child, {owner(&inner), nullptr});
    ASSERT_EQ(made.embed(&node, {}, child), Status::ok);
  }
  EXPECT_TRUE(kept(inner) && kept(innermost));
  const GraphDefinition view = made.bodies(node)[0];
  std::vector<Node> nodes;
  ASSERT_EQ(view.nodes(&nodes), Status::ok);
  ASSERT_EQ(nodes.size(), 2u);
  const auto identity = nodes[0].identity();
  ASSERT_EQ(made.destroy(node), Status::ok);
  EXPECT_TRUE(gone(inner) && gone(innermost));
  EXPECT_FALSE(view.valid());
  EXPECT_EQ(view.handle(), nullptr);
  for (const Node& each : nodes) EXPECT_FALSE(each.valid());
  EXPECT_EQ(nodes[0].identity(), identity);
  EXPECT_EQ(view, view);
  EXPECT_EQ(made.destroy(node), Status::ok);  // once more is no error
}

TEST_P(Statements, S39_S56_AConditionalsBodiesOwnAndGoWithTheirNode) {
  std::weak_ptr<const void> first, second;
  GraphDefinition made = graph();
  Condition condition = 0;
  ASSERT_EQ(made.condition(&condition, true, 0), Status::ok);
  Node node;
  std::vector<GraphDefinition> bodies;
  ASSERT_EQ(made.addConditional(&node, {}, condition, ConditionalKind::branch, &bodies, 2), Status::ok);
  add(bodies[0], {owner(&first), nullptr}, NodeParams::fill(memory_, 1, 4, 1));
  const Node inner = add(bodies[1], {owner(&second), nullptr}, NodeParams::fill(memory_, 2, 4, 1));
  EXPECT_TRUE(kept(first) && kept(second));
  ASSERT_EQ(bodies[1].destroy(inner), Status::ok);
  EXPECT_TRUE(gone(second));
  ASSERT_EQ(made.destroy(node), Status::ok);
  EXPECT_TRUE(gone(first));
  EXPECT_FALSE(bodies[0].valid());
  EXPECT_FALSE(bodies[1].valid());
}

TEST_P(Statements, S40_AnyViewKeepsTheWholeHierarchy) {
  std::weak_ptr<const void> root, inner;
  GraphDefinition view;
  {
    GraphDefinition child = graph(), made = graph();
    add(child, {owner(&inner), nullptr});
    add(made, {owner(&root), nullptr});
    Node node;
    ASSERT_EQ(made.embed(&node, {}, child), Status::ok);
    view = made.bodies(node)[0];
  }
  EXPECT_TRUE(view.valid());
  EXPECT_TRUE(kept(root) && kept(inner));
  std::weak_ptr<const void> later;
  add(view, {owner(&later), nullptr});
  view = {};
  EXPECT_TRUE(gone(root) && gone(inner) && gone(later));
}

TEST_P(Statements, S41_EmbeddedNodesReleaseTheirOwnersOneByOne) {
  std::weak_ptr<const void> kept1, dropped;
  GraphDefinition made = graph();
  Node node;
  {
    GraphDefinition child = graph();
    add(child, {owner(&kept1), nullptr}, NodeParams::fill(memory_, 1, 4, 1));
    add(child, {owner(&dropped), nullptr});
    ASSERT_EQ(made.embed(&node, {}, child), Status::ok);
  }
  GraphDefinition view = made.bodies(node)[0];
  std::vector<Node> nodes;
  ASSERT_EQ(view.nodes(&nodes), Status::ok);
  for (const Node& each : nodes) {
    if (each.kind() != NodeKind::hostFunction) continue;
    ASSERT_EQ(view.destroy(each), Status::ok);
  }
  EXPECT_TRUE(gone(dropped));
  EXPECT_TRUE(kept(kept1));
}

TEST_P(Statements, S41_AnEmbeddingWhoseOwnersAreNotFoundLeavesNothing) {
  std::weak_ptr<const void> watch;
  GraphDefinition made = graph();
  {
    GraphDefinition child = graph();
    add(child, {owner(&watch), nullptr});
    driver_->fail("graphNodes");
    Node node;
    EXPECT_EQ(made.embed(&node, {}, child), Status::unknown);
  }
  std::vector<Node> nodes;
  ASSERT_EQ(made.nodes(&nodes), Status::ok);
  EXPECT_TRUE(nodes.empty());
  EXPECT_TRUE(gone(watch));
}

TEST_P(Statements, S42_AChildIsReplacedByOneOfAnotherHierarchy) {
  std::weak_ptr<const void> before, after;
  GraphDefinition made = graph();
  Node node;
  {
    GraphDefinition child = graph();
    add(child, {owner(&before), nullptr});
    ASSERT_EQ(made.embed(&node, {}, child), Status::ok);
  }
  const GraphDefinition old = made.bodies(node)[0];
  EXPECT_EQ(made.updateChild(node, made), Status::invalidValue);
  EXPECT_EQ(made.updateChild(node, old), Status::invalidValue);
  EXPECT_TRUE(old.valid());
  {
    GraphDefinition child = graph();
    add(child, {owner(&after), nullptr});
    ASSERT_EQ(made.updateChild(node, child), Status::ok) << driver_->lastDetail();
  }
  EXPECT_FALSE(old.valid());
  EXPECT_TRUE(gone(before));
  EXPECT_TRUE(kept(after));
  EXPECT_TRUE(made.bodies(node)[0].valid());
  ASSERT_EQ(made.destroy(node), Status::ok);
  EXPECT_TRUE(gone(after));
}

TEST_P(Statements, S43_TwoViewsOfAChildAreOne) {
  std::weak_ptr<const void> watch;
  GraphDefinition child = graph(), made = graph();
  Node node;
  ASSERT_EQ(made.embed(&node, {}, child), Status::ok);
  GraphDefinition first = made.bodies(node)[0], second = made.bodies(node)[0];
  EXPECT_EQ(first, second);
  add(first, {owner(&watch), nullptr});
  std::vector<Node> nodes;
  ASSERT_EQ(second.nodes(&nodes), Status::ok);
  ASSERT_EQ(nodes.size(), 1u);
  ASSERT_EQ(second.destroy(nodes[0]), Status::ok);
  EXPECT_TRUE(gone(watch));
}

TEST_P(Statements, S45_ARefusedDestructionChangesNothing) {
  std::weak_ptr<const void> watch;
  GraphDefinition made = graph();
  const Node first = add(made, {}, NodeParams::empty());
  const Node node = add(made, {owner(&watch), nullptr}, NodeParams::host(nothing, nullptr), {first});
  driver_->fail("nodeDestroy");
  EXPECT_EQ(made.destroy(node), Status::unknown);
  EXPECT_TRUE(node.valid());
  EXPECT_TRUE(kept(watch));
  std::vector<std::pair<Node, Node>> edges;
  ASSERT_EQ(made.edges(&edges), Status::ok);
  ASSERT_EQ(edges.size(), 1u);
  EXPECT_EQ(edges[0].second, node);
}

TEST_P(Statements, S46_AnUpdateOfTheWholeExchangesOwners) {
  std::weak_ptr<const void> before, after, rejected, updated;
  GraphGate gate;
  gate.open = true;
  ExecutableGraph executable;
  Node source;
  GraphDefinition first = graph();
  source = add(first, {owner(&before), nullptr}, NodeParams::host(GraphGate::pass, &gate));
  executable = instantiate(first);
  ASSERT_EQ(executable.updateNode(source, NodeParams::host(nothing, nullptr), {owner(&updated), nullptr}),
            Status::ok);
  UpdateResult result = UpdateResult::success;
  {
    GraphDefinition longer = graph();
    add(longer, {owner(&rejected), nullptr});
    add(longer, {}, NodeParams::empty());
    EXPECT_EQ(executable.update(longer, &result), Status::graphExecUpdateFailure);
    EXPECT_EQ(result, UpdateResult::topologyChanged);
  }
  EXPECT_TRUE(gone(rejected));
  EXPECT_TRUE(kept(before) && kept(updated));
  {
    GraphDefinition next = graph();
    add(next, {owner(&after), nullptr});
    ASSERT_EQ(executable.update(next, &result), Status::ok);
  }
  first = {};
  source = {};
  launch(executable);
  EXPECT_TRUE(gone(before));
  EXPECT_TRUE(gone(updated));
  EXPECT_EQ(executable.updatesHeld(), 0u);
  EXPECT_TRUE(kept(after));
  executable.destroy();
  EXPECT_TRUE(gone(after));
}

TEST_P(Statements, S47_S48_S49_UpdatesOfNodesAddOwnersToTheirExecutable) {
  GraphDefinition made = graph();
  const Node node = add(made, {});
  ExecutableGraph first = instantiate(made), second = instantiate(made);
  std::weak_ptr<const void> watches[3], rejected;
  for (auto& watch : watches)
    ASSERT_EQ(first.updateNode(node, NodeParams::host(nothing, nullptr), {owner(&watch), nullptr}),
              Status::ok);
  EXPECT_EQ(first.updatesHeld(), 3u);
  EXPECT_EQ(second.updatesHeld(), 0u);
  driver_->fail("execNodeUpdate");
  EXPECT_EQ(first.updateNode(node, NodeParams::host(nothing, nullptr), {owner(&rejected), nullptr}),
            Status::unknown);
  EXPECT_EQ(first.updatesHeld(), 3u);
  EXPECT_TRUE(rejected.expired());
  second.destroy();
  for (auto& watch : watches) EXPECT_TRUE(kept(watch));
  launch(first);
  first.destroy();
  for (auto& watch : watches) EXPECT_TRUE(gone(watch));
}

TEST_P(Statements, S47_OwnersOfAnUpdateStayUntilTheLastLaunchHasCompleted) {
  GraphGate gate;
  std::weak_ptr<const void> watch;
  GraphDefinition made = graph();
  const Node node = add(made, {});
  ExecutableGraph executable = instantiate(made);
  ASSERT_EQ(executable.updateNode(node, NodeParams::host(GraphGate::pass, &gate), {owner(&watch), nullptr}),
            Status::ok);
  ASSERT_EQ(executable.launch(stream_), Status::ok);
  gate.awaitReached();
  executable.destroy();
  EXPECT_TRUE(kept(watch));
  gate.open = true;
  ASSERT_EQ(driver_->streamSynchronize(stream_), Status::ok);
  EXPECT_TRUE(gone(watch));
}

TEST_P(Statements, S50_S51_AChildsUpdateAndEnablingAttachNothing) {
  GraphDefinition child = graph(), other = graph(), made = graph();
  add(child, {});
  std::weak_ptr<const void> watch;
  add(other, {owner(&watch), nullptr});
  Node node;
  ASSERT_EQ(made.embed(&node, {}, child), Status::ok);
  const Node fill = add(made, {}, NodeParams::fill(memory_, 1, 4, 1));
  ExecutableGraph executable = instantiate(made);
  const int before = driver_->userObjects;
  ASSERT_EQ(executable.updateChild(node, other), Status::ok) << driver_->lastDetail();
  ASSERT_EQ(executable.enable(fill, false), Status::ok);
  EXPECT_EQ(driver_->userObjects, before);
  EXPECT_EQ(executable.updatesHeld(), 0u);
  other = {};
  EXPECT_TRUE(kept(watch)) << "the driver took over the replacement's references";
  launch(executable);
  executable.destroy();
  EXPECT_TRUE(gone(watch));
}

// E. Capture.

TEST_P(Statements, S52_S53_CapturedWorkKeepsItsOwnersWithItsNode) {
  std::weak_ptr<const void> watch, other;
  GraphCapture capture;
  ASSERT_EQ(capture.begin(driver_, queue_, stream_, CaptureMode::relaxed), Status::ok);
  ASSERT_EQ(capture.work(stream_, {owner(&watch), nullptr},
                         [&] { return driver_->hostFunction(stream_, nothing, nullptr); }),
            Status::ok);
  ASSERT_EQ(capture.work(stream_, {owner(&other), nullptr},
                         [&] { return driver_->fill32(memory_, 1, 1, stream_); }),
            Status::ok);
  GraphDefinition made;
  ASSERT_EQ(capture.end(&made), Status::ok);
  std::vector<Node> nodes;
  ASSERT_EQ(made.nodes(&nodes), Status::ok);
  ASSERT_EQ(nodes.size(), 2u);
  for (const Node& node : nodes)
    if (node.kind() == NodeKind::hostFunction) {
      EXPECT_EQ(node.owners()[0], watch.lock());
      ASSERT_EQ(made.destroy(node), Status::ok);
    }
  EXPECT_TRUE(gone(watch));
  EXPECT_TRUE(kept(other));
}

TEST_P(Statements, S52_ALaunchThatIsCapturedOwnsInTheGraphItIsPartOf) {
  KernelSpec copy;
  copy.bytes = 64;
  copy.readCount = copy.writeCount = 1;
  std::unique_ptr<Kernel> prepared;
  ASSERT_EQ(driver_->prepare(&prepared, copy, {}), Status::ok);
  std::shared_ptr<const Kernel> kernel = std::move(prepared);
  const std::weak_ptr<const void> watch = kernel;
  GraphDefinition made = graph();
  Node first, node, next;
  ASSERT_EQ(made.add(&first, {}, NodeParams::empty()), Status::ok);
  ASSERT_EQ(GraphCapture::launch(made, &node, {first}, stream_, *kernel, {memory_}, {memory_ + 512},
                                 {kernel, nullptr}),
            Status::ok);
  ASSERT_EQ(made.add(&next, {node}, NodeParams::empty()), Status::ok);
  std::vector<Node> nodes;
  ASSERT_EQ(made.nodes(&nodes), Status::ok);
  EXPECT_EQ(nodes.size(), 3u);  // the launch is a node like the others, not a graph inside one
  kernel.reset();
  EXPECT_TRUE(kept(watch));
  ExecutableGraph executable = instantiate(made);
  launch(executable);
  ASSERT_EQ(made.destroy(node), Status::ok);
  EXPECT_TRUE(kept(watch));
  executable.destroy();
  EXPECT_TRUE(gone(watch));
}

TEST_P(Statements, S54_OwnersStayWithTheGraphWhereTheNodeIsNotFound) {
  std::weak_ptr<const void> watch;
  GraphDefinition made;
  {
    GraphCapture capture;
    ASSERT_EQ(capture.begin(driver_, queue_, stream_, CaptureMode::relaxed), Status::ok);
    driver_->failInfo = driver_->infos + 2;  // the one after the work
    ASSERT_EQ(capture.work(stream_, {owner(&watch), nullptr},
                           [&] { return driver_->hostFunction(stream_, nothing, nullptr); }),
              Status::ok);
    ASSERT_EQ(capture.end(&made), Status::ok);
  }
  std::vector<Node> nodes;
  ASSERT_EQ(made.nodes(&nodes), Status::ok);
  ASSERT_EQ(nodes.size(), 1u);
  EXPECT_TRUE(ownsNothing(nodes[0].owners()));
  EXPECT_TRUE(kept(watch));
  made = {};
  nodes.clear();
  EXPECT_TRUE(gone(watch));
}

TEST_P(Statements, S54_WorkThatIsRefusedReleasesItsOwners) {
  std::weak_ptr<const void> watch;
  GraphCapture capture;
  ASSERT_EQ(capture.begin(driver_, queue_, stream_, CaptureMode::relaxed), Status::ok);
  EXPECT_EQ(capture.work(stream_, {owner(&watch), nullptr}, [] { return Status::unknown; }), Status::unknown);
  EXPECT_TRUE(gone(watch));
  GraphDefinition made;
  EXPECT_EQ(capture.end(&made), Status::ok);
}

TEST_P(Statements, S55_WorkOnAForkLandsInTheGraphOfTheCapture) {
  std::weak_ptr<const void> watch;
  Stream fork = nullptr;
  Event out = nullptr, back = nullptr;
  ASSERT_EQ(driver_->streamCreate(&fork, 0), Status::ok);
  ASSERT_EQ(driver_->eventCreate(&out, EventKind::order), Status::ok);
  ASSERT_EQ(driver_->eventCreate(&back, EventKind::order), Status::ok);
  GraphCapture capture;
  ASSERT_EQ(capture.begin(driver_, queue_, stream_, CaptureMode::relaxed), Status::ok);
  ASSERT_EQ(driver_->eventRecord(out, stream_), Status::ok);
  ASSERT_EQ(driver_->streamWait(fork, out), Status::ok);
  ASSERT_EQ(capture.work(fork, {owner(&watch), nullptr},
                         [&] { return driver_->hostFunction(fork, nothing, nullptr); }),
            Status::ok);
  ASSERT_EQ(driver_->eventRecord(back, fork), Status::ok);
  ASSERT_EQ(driver_->streamWait(stream_, back), Status::ok);
  GraphDefinition made;
  ASSERT_EQ(capture.end(&made), Status::ok);
  std::vector<Node> nodes;
  ASSERT_EQ(made.nodes(&nodes), Status::ok);
  ASSERT_EQ(nodes.size(), 1u);
  EXPECT_EQ(nodes[0].owners()[0], watch.lock());
  driver_->streamDestroy(fork);
  driver_->eventDestroy(out);
  driver_->eventDestroy(back);
}

TEST_P(Statements, S58_WorkOutsideACaptureIsRefused) {
  GraphCapture capture;
  bool worked = false;
  EXPECT_EQ(capture.work(stream_, {},
                         [&] {
                           worked = true;
                           return Status::ok;
                         }),
            Status::illegalState);
  EXPECT_FALSE(worked);
}

// F. The graph while it is captured, and afterwards.

TEST_P(Statements, S59_S62_TheGraphIsThereAfterTheCaptureAndStays) {
  GraphDefinition made;
  {
    GraphCapture capture;
    EXPECT_EQ(capture.end(&made), Status::illegalState);
    ASSERT_EQ(capture.begin(driver_, queue_, stream_, CaptureMode::relaxed), Status::ok);
    EXPECT_EQ(capture.begin(driver_, queue_, stream_, CaptureMode::relaxed), Status::illegalState);
    EXPECT_FALSE(made.valid());
    ASSERT_EQ(driver_->hostFunction(stream_, nothing, nullptr), Status::ok);
    ASSERT_EQ(capture.end(&made), Status::ok);
    EXPECT_EQ(capture.end(&made), Status::illegalState);
  }
  EXPECT_TRUE(made.valid());
}

TEST_P(Statements, S60_S63_ABodyIsFilledByViewAndByCapture) {
  std::weak_ptr<const void> explicitly, captured;
  GraphDefinition made = graph();
  Condition condition = 0;
  ASSERT_EQ(made.condition(&condition, true, 1), Status::ok);
  Node node;
  std::vector<GraphDefinition> bodies;
  ASSERT_EQ(made.addConditional(&node, {}, condition, ConditionalKind::branch, &bodies, 1), Status::ok);
  add(bodies[0], {owner(&explicitly), nullptr}, NodeParams::fill(memory_, 5, 4, 1));
  GraphCapture capture;
  ASSERT_EQ(capture.beginOnto(bodies[0], stream_, CaptureMode::relaxed), Status::ok);
  ASSERT_EQ(capture.work(stream_, {owner(&captured), nullptr},
                         [&] { return driver_->fill32(memory_ + 64, 6, 1, stream_); }),
            Status::ok);
  GraphDefinition body;
  ASSERT_EQ(capture.end(&body), Status::ok);
  EXPECT_EQ(body, bodies[0]);
  std::vector<Node> nodes;
  ASSERT_EQ(body.nodes(&nodes), Status::ok);
  EXPECT_EQ(nodes.size(), 2u);
  EXPECT_TRUE(kept(explicitly) && kept(captured));
  ASSERT_EQ(made.destroy(node), Status::ok);
  EXPECT_TRUE(gone(explicitly) && gone(captured));
}

TEST_P(Statements, S63_ACaptureThatIsDroppedLeavesItsStreamUsable) {
  std::weak_ptr<const void> watch;
  {
    GraphCapture capture;
    ASSERT_EQ(capture.begin(driver_, queue_, stream_, CaptureMode::relaxed), Status::ok);
    ASSERT_EQ(capture.work(stream_, {owner(&watch), nullptr},
                           [&] { return driver_->hostFunction(stream_, nothing, nullptr); }),
              Status::ok);
  }
  EXPECT_TRUE(gone(watch));
  EXPECT_EQ(driver_->streamSynchronize(stream_), Status::ok);
}

// G. Cleaning up.

TEST_P(Statements, S64_OwnersDieWhereTheQueueIsDrained) {
  struct Witness {
    std::thread::id* died;
    ~Witness() { *died = std::this_thread::get_id(); }
  };
  std::thread::id died;
  {
    GraphDefinition made = graph();
    auto witness = std::make_shared<Witness>();
    witness->died = &died;
    add(made, {std::move(witness), nullptr});
  }
  for (int i = 0; i < 30'000 && queue_->drain() == 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(died, std::this_thread::get_id());
}

TEST_P(Statements, S65_ManyDestructionsAskForOneDrainAndNoneIsLost) {
  std::atomic<int> asked{0}, refused{0};
  std::atomic<bool> full{true};
  queue_ = std::make_shared<CleanupQueue>([&] {
    if (full) {
      ++refused;
      return false;
    }
    ++asked;
    return true;
  });
  std::vector<std::weak_ptr<const void>> watches(64);
  for (auto& watch : watches) {
    GraphDefinition made = graph();
    add(made, {owner(&watch), nullptr});
  }
  for (int i = 0; i < 30'000 && refused == 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_GT(refused, 0);
  full = false;
  std::weak_ptr<const void> last;
  {
    GraphDefinition made = graph();  // its end asks again
    add(made, {owner(&last), nullptr});
  }
  for (int i = 0; i < 30'000 && asked == 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_TRUE(kept(last) || last.expired());
  EXPECT_TRUE(std::ranges::all_of(watches, [&](const auto& watch) { return gone(watch); }));
  EXPECT_TRUE(gone(last));
  EXPECT_GE(asked, 1);
  EXPECT_LE(asked, drains_ + 1) << "once for all that comes before a drain";
}

TEST(GraphStatements, S66_AtTheEndOfTheProcessNothingIsReleased) {
  int asked = 0;
  const auto queue = std::make_shared<CleanupQueue>([&] {
    ++asked;
    return true;
  });
  auto owner = std::make_shared<int>(1);
  const std::weak_ptr<int> watch = owner;
  auto payload = std::make_unique<Payload>();
  payload->queue = queue;
  payload->owners = {std::move(owner), nullptr};
  Payload* const raw = payload.release();
  queue->close();
  CleanupQueue::destroyed(raw);
  EXPECT_EQ(queue->drain(), 0u);
  EXPECT_FALSE(watch.expired());
  EXPECT_EQ(asked, 0);
  delete raw;  // for the leak checker's sake
}

INSTANTIATE_TEST_SUITE_P(Devices, Statements, ::testing::Values("host", "cuda"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace braid::graphs
