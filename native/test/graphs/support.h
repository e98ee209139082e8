#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "driver/driver.h"

namespace braid::test {

// Every rule is tested on both devices; cuda is skipped, with the reason, where there is no GPU.
class GraphDevice : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override { open({}); }
  void TearDown() override {
    if (!driver_) return;
    for (Stream stream : streams_) driver_->streamDestroy(stream);
    for (Event event : events_) driver_->eventDestroy(event);
    for (DeviceAddress address : memory_) driver_->memFree(address);
    for (void* pointer : pinned_) driver_->pinnedFree(pointer);
  }

  bool isHost() const { return std::string(GetParam()) == "host"; }
  void open(HostOptions options) {
    TearDown();
    streams_.clear(), events_.clear(), memory_.clear(), pinned_.clear();
    std::string detail;
    options.poison = true;
    const Status status = isHost() ? openHost(&driver_, options, &detail) : openCuda(&driver_, 0, &detail);
    if (status != Status::ok) GTEST_SKIP() << detail;
    ASSERT_EQ(driver_->bind(), Status::ok);
    Graph probe = nullptr;
    if (driver_->graphCreate(&probe) == Status::notSupported) GTEST_SKIP() << driver_->lastDetail();
    driver_->graphDestroy(probe);
  }
  // A GPU has jitter of its own.
  void openJittered(std::uint64_t seed) {
    if (!isHost()) return;
    HostOptions options;
    options.jitterSeed = seed;
    options.jitterMicroseconds = 30;
    open(options);
  }

  // Given back at the end of the test.
  Stream stream() {
    Stream made = nullptr;
    EXPECT_EQ(driver_->streamCreate(&made, 0), Status::ok);
    streams_.push_back(made);
    return made;
  }
  Event event(EventKind kind = EventKind::order) {
    Event made = nullptr;
    EXPECT_EQ(driver_->eventCreate(&made, kind), Status::ok);
    events_.push_back(made);
    return made;
  }
  DeviceAddress words(std::size_t count) {
    DeviceAddress made = 0;
    EXPECT_EQ(driver_->memAllocate(&made, count * 4), Status::ok) << driver_->lastDetail();
    memory_.push_back(made);
    return made;
  }
  std::uint32_t* pinned(std::size_t count) {
    void* made = nullptr;
    EXPECT_EQ(driver_->pinnedAllocate(&made, count * 4), Status::ok);
    std::memset(made, 0, count * 4);
    pinned_.push_back(made);
    return static_cast<std::uint32_t*>(made);
  }
  static DeviceAddress at(const void* pointer) { return reinterpret_cast<DeviceAddress>(pointer); }

  void write(DeviceAddress to, const std::vector<std::uint32_t>& values) {
    const Stream on = stream();
    std::uint32_t* staged = pinned(values.size());
    std::memcpy(staged, values.data(), values.size() * 4);
    EXPECT_EQ(driver_->copy(CopyKind::hostToDevice, to, at(staged), values.size() * 4, on), Status::ok);
    EXPECT_EQ(driver_->streamSynchronize(on), Status::ok);
  }
  std::vector<std::uint32_t> read(DeviceAddress from, std::size_t count) {
    const Stream on = stream();
    std::uint32_t* staged = pinned(count);
    EXPECT_EQ(driver_->copy(CopyKind::deviceToHost, at(staged), from, count * 4, on), Status::ok);
    EXPECT_EQ(driver_->streamSynchronize(on), Status::ok) << driver_->lastDetail();
    return {staged, staged + count};
  }

  Graph graph() {
    Graph made = nullptr;
    EXPECT_EQ(driver_->graphCreate(&made), Status::ok);
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
  void launch(GraphExec exec) {
    const Stream on = stream();
    EXPECT_EQ(driver_->execLaunch(exec, on), Status::ok) << driver_->lastDetail();
    EXPECT_EQ(driver_->streamSynchronize(on), Status::ok) << driver_->lastDetail();
  }
  void runOnce(Graph graph) {
    const GraphExec exec = instantiate(graph);
    launch(exec);
    EXPECT_EQ(driver_->execDestroy(exec), Status::ok);
  }

  std::unique_ptr<Driver> driver_;
  std::vector<Stream> streams_;
  std::vector<Event> events_;
  std::vector<DeviceAddress> memory_;
  std::vector<void*> pinned_;
};

// A host function that holds what comes after it until it is opened.
struct GraphGate {
  std::atomic<bool> open{false}, reached{false};
  static void pass(void* data) {
    auto* gate = static_cast<GraphGate*>(data);
    gate->reached = true;
    while (!gate->open.load()) std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  void awaitReached() {
    while (!reached.load()) std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
};

// Counts destructions; `await` bounds the wait for those that come later.
struct Destructions {
  std::mutex mutex;
  std::condition_variable changed;
  int count = 0;
  static void one(void* data) {
    auto* all = static_cast<Destructions*>(data);
    std::lock_guard lock(all->mutex);
    ++all->count;
    all->changed.notify_all();
  }
  int now() {
    std::lock_guard lock(mutex);
    return count;
  }
  bool await(int wanted) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, std::chrono::seconds(20), [&] { return count >= wanted; }) &&
           count == wanted;
  }
  // Long enough for a destructor that was wrongly started to show.
  int afterAWhile() {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return now();
  }
};

// A device as the end of a test's name.
inline const auto named = [](const ::testing::TestParamInfo<const char*>& info) {
  return std::string(info.param);
};

// What the tests of graphs ask of a graph.
class Graphs : public GraphDevice {
 protected:
  Status edge(Graph graph, GraphNode from, GraphNode to) {
    const GraphEdge edge{from, to};
    return driver_->graphAddEdges(graph, &edge, 1);
  }
  Status removeEdge(Graph graph, GraphNode from, GraphNode to) {
    const GraphEdge edge{from, to};
    return driver_->graphRemoveEdges(graph, &edge, 1);
  }
  std::vector<GraphEdge> edges(Graph graph) {
    std::vector<GraphEdge> found;
    EXPECT_EQ(driver_->graphEdges(graph, &found), Status::ok);
    return found;
  }
  std::vector<GraphNode> nodes(Graph graph) {
    std::vector<GraphNode> found;
    EXPECT_EQ(driver_->graphNodes(graph, &found), Status::ok);
    return found;
  }
  UserObject owned(Destructions& destructions, unsigned count = 1) {
    UserObject made = nullptr;
    EXPECT_EQ(driver_->userObjectCreate(&made, Destructions::one, &destructions, count), Status::ok);
    return made;
  }
  // A graph of one host node that passes the gate, and holds the object.
  Graph gated(GraphGate& gate, UserObject object) {
    const Graph made = graph();
    add(made, NodeParams::host(GraphGate::pass, &gate));
    EXPECT_EQ(driver_->graphRetain(made, object, 1, true), Status::ok);
    return made;
  }
};

}  // namespace braid::test
