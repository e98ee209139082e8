#pragma once

#include "driver/driver.h"
#include "host/context.h"
#include "host/faults.h"
#include "host/graph_memory.h"
#include "host/graphs.h"
#include "host/handle_table.h"
#include "host/memory.h"
#include "host/neighbours.h"
#include "host/stream.h"
#include "host/virtual_memory.h"

namespace braid::host {

class HostKernel;

// The embedded device. Its calls check their handles, apply the requested faults, and return the device's
// failure once it has one, as CUDA's calls do. Memory, virtual memory, streams and kernels do the work.
class HostDriver final : public Driver {
 public:
  explicit HostDriver(const HostOptions& options);
  ~HostDriver() override;
  bool loadFaults(std::string* detail) { return faults_.load(context_.options().faults, detail); }

  Context& context() { return context_; }

  const DeviceInfo& info() const override { return info_; }
  Status bind() override;
  std::string lastDetail() override;

  Status memAllocate(DeviceAddress* address, std::size_t bytes) override;
  Status memFree(DeviceAddress address) override;
  Status memInfo(std::size_t* freeBytes, std::size_t* totalBytes) override;
  Status pinnedAllocate(void** pointer, std::size_t bytes) override;
  Status pinnedFree(void* pointer) override;

  Status addressReserve(DeviceAddress* address, std::size_t bytes) override;
  Status addressRelease(DeviceAddress address, std::size_t bytes) override;
  Status pagesCreate(Pages* pages, std::size_t bytes) override;
  Status pagesRelease(Pages pages) override;
  Status pagesMap(DeviceAddress address, std::size_t bytes, Pages pages) override;
  Status pagesUnmap(DeviceAddress address, std::size_t bytes) override;

  Status streamCreate(Stream* stream, int priority) override;
  Status streamDestroy(Stream stream) override;
  Status streamSynchronize(Stream stream) override;
  Status streamQuery(Stream stream) override;
  std::size_t streamDepth() const override { return context_.options().queueDepth; }
  Status streamWait(Stream stream, Event event) override;
  Status eventCreate(Event* event, EventKind kind) override;
  Status eventDestroy(Event event) override;
  Status eventRecord(Event event, Stream stream) override;
  Status eventQuery(Event event) override;
  Status eventSynchronize(Event event) override;
  Status eventElapsed(float* milliseconds, Event from, Event to) override;

  Status copy(CopyKind kind, DeviceAddress to, DeviceAddress from, std::size_t bytes, Stream stream) override;
  Status fill32(DeviceAddress to, std::uint32_t value, std::size_t words, Stream stream) override;
  Status fill(const NodeParams& fill, Stream stream) override;
  Status prepare(std::unique_ptr<Kernel>* kernel, const KernelSpec& spec, HostCallback callback) override;
  Status launch(const Kernel& kernel, const DeviceAddress* reads, const DeviceAddress* writes,
                Stream stream) override;
  Status hostFunction(Stream stream, void (*function)(void*), void* data) override;
  Status prepareCondition(std::unique_ptr<Kernel>* kernel) override;
  Status reachPeer(Driver& other) override;
  Status preparePeerCopy(std::unique_ptr<Kernel>* kernel, std::size_t bytes, Driver* from,
                         Driver* to) override;

  Status graphCreate(Graph* graph) override;
  Status graphDestroy(Graph graph) override;
  Status graphClone(Graph* clone, Graph graph) override;
  Status graphFindInClone(GraphNode* node, GraphNode original, Graph clone) override;
  Status graphNodes(Graph graph, std::vector<GraphNode>* nodes) override;
  Status graphEdges(Graph graph, std::vector<GraphEdge>* edges) override;
  Status graphAddEdges(Graph graph, const GraphEdge* edges, std::size_t count) override;
  Status graphRemoveEdges(Graph graph, const GraphEdge* edges, std::size_t count) override;
  Status graphDot(Graph graph, std::string* text) override;
  Status nodeAdd(GraphNode* node, Graph graph, const GraphNode* dependencies, std::size_t count,
                 const NodeParams& params) override;
  Status nodeDestroy(GraphNode node) override;
  Status nodeUpdate(GraphNode node, const NodeParams& params) override;
  Status nodeKind(GraphNode node, NodeKind* kind) override;
  Status nodeChild(GraphNode node, Graph* child) override;
  Status nodeAddAllocation(GraphNode* node, Graph graph, const GraphNode* dependencies, std::size_t count,
                           std::size_t bytes, DeviceAddress* address) override;
  Status graphMemory(std::size_t* used, std::size_t* reserved) override;
  Status graphMemoryTrim() override;
  Status conditionCreate(Condition* condition, Graph graph, bool assign, std::uint32_t initial) override;
  Status nodeAddConditional(GraphNode* node, Graph graph, const GraphNode* dependencies, std::size_t count,
                            Condition condition, ConditionalKind kind, Graph* bodies,
                            std::size_t bodyCount) override;
  Status captureBegin(Stream stream, CaptureMode mode) override;
  Status captureBeginOnto(Stream stream, Graph onto, const GraphNode* dependencies, std::size_t count,
                          CaptureMode mode) override;
  Status captureEnd(Stream stream, Graph* graph) override;
  Status captureInfo(Stream stream, CaptureInfo* info) override;
  Status captureDependencies(Stream stream, const GraphNode* nodes, std::size_t count, bool add) override;
  Status captureModeExchange(CaptureMode* mode) override;
  Status graphInstantiate(GraphExec* exec, Graph graph, const InstantiateOptions& options,
                          InstantiateResult* result) override;
  Status execDestroy(GraphExec exec) override;
  Status execUpload(GraphExec exec, Stream stream) override;
  Status execLaunch(GraphExec exec, Stream stream) override;
  Status execUpdate(GraphExec exec, Graph graph, UpdateResult* result) override;
  Status execNodeUpdate(GraphExec exec, GraphNode node, const NodeParams& params) override;
  Status execNodeEnable(GraphExec exec, GraphNode node, bool enabled) override;
  Status execNodeEnabled(GraphExec exec, GraphNode node, bool* enabled) override;
  Status userObjectCreate(UserObject* object, void (*destroy)(void*), void* data, unsigned count) override;
  Status userObjectRetain(UserObject object, unsigned count) override;
  Status userObjectRelease(UserObject object, unsigned count) override;
  Status graphRetain(Graph graph, UserObject object, unsigned count, bool move) override;
  Status graphRelease(Graph graph, UserObject object, unsigned count) override;

  void label(const WorkLabel& label) override { label_ = label; }
  WorkLabel failedWork() override { return context_.failedWork(); }

  // Called by other devices, through Neighbours.
  static std::uint16_t numberIn(std::uint64_t handle) { return static_cast<std::uint16_t>(handle >> 52); }
  bool findMark(std::uint64_t event, Mark* mark, std::shared_ptr<const void>* keep) const;
  bool covers(DeviceAddress address, std::size_t bytes, bool deviceMemory) const {
    return context_.pinned().covers(address, bytes) ||
           (deviceMemory && context_.live().covers(address, bytes));
  }

 private:
  // Ok where the call may go on: no fault applies and the device has not failed.
  Status enter(Call call);
  // The same for calls that release something: they do so on a failed device too, and then return its
  // failure.
  Status enterRelease(Call call);
  Status leave() { return context_.failure() == Status::ok ? Status::ok : sticky(); }
  Status sticky();
  static Status fail(Status status, std::string detail);
  static Status unknown(const char* what);  // invalidHandle: not a stream, or event, of this device

  StreamQueue* find(Stream stream) const {
    return marks_->streams.find(reinterpret_cast<std::uint64_t>(stream));
  }
  EventState* find(Event event) const { return events_.find(reinterpret_cast<std::uint64_t>(event)); }

  // The same for calls that may not be made while some stream captures, unless its mode is relaxed.
  Status enterUnsafe(Call call);
  Status outside(EventState& state, const char* call, Mark* mark);
  // Checks a node's parameters and prices its work, on the device that runs it.
  Status describeNode(const NodeParams& params, NewNode* node);
  Status describe(const NodeParams& params, NewNode* node);
  static Status check(const Kernel& kernel, const DeviceAddress* reads, const DeviceAddress* writes,
                      const HostKernel** host);
  static void fillLaunch(const HostKernel& host, const DeviceAddress* reads, const DeviceAddress* writes,
                         Work* work);
  Status describeLaunch(const Kernel& kernel, const DeviceAddress* reads, const DeviceAddress* writes,
                        Work* work);
  // Queues the work, or adds it to the graph that the stream captures.
  Status submit(StreamQueue& queue, NodeKind kind, Work work);
  // A graph call: `use(detail)` after the checks.
  template <class Use>
  Status graphCall(Call call, Use use);
  template <class Use>
  Status graphReleaseCall(Call call, Use use);
  Status queueLaunch(ExecData& exec, StreamQueue& queue, std::string* detail);
  void preparePoints(const Image& image, GraphLaunch& launch, StreamQueue& queue);
  void preparePointsOf(NodeKind kind, const Image& image, GraphLaunch& launch, StreamQueue& queue);
  void prepareFaults(const Image& image, GraphLaunch& launch);

  // Queues a piece once the queue has capacity. `describe(Piece&)` fills it in.
  template <class Describe>
  Mark push(StreamQueue& queue, Piece::Kind kind, Cost cost, Describe describe) {
    const Time issued = slowed_ ? Clock::now() : Time{};
    const bool work = kind != Piece::Kind::wait && kind != Piece::Kind::stamp && kind != Piece::Kind::graph;
    // The callers of the others hold locks, and have waited before they took them.
    if (kind != Piece::Kind::stamp && kind != Piece::Kind::graph) queue.awaitRoom(streamDepth());
    const HostOptions::Fault* fault = work ? faults_.next(Call::run) : nullptr;
    return queue.push([&](Piece& piece) {
      piece.kind = kind;
      piece.cost = cost;
      piece.issued = issued;
      piece.fault = fault;
      piece.label = label_;
      describe(piece);
    });
  }
  Cost transferCost(CopyKind kind, std::size_t bytes) const;
  Cost computeCost(double amount, double rate) const;

  // The label of the calling thread, which may issue on several host devices in turn: it labels each piece
  // that may fail.
  static constinit thread_local WorkLabel label_;

  const std::uint16_t number_;
  Context context_;
  const bool slowed_;
  Faults faults_;
  DeviceInfo info_;
  Budget budget_;
  Memory memory_;
  VirtualMemory virtual_;
  GraphMemory graphMemory_;  // outlives the graphs
  HandleTable<EventState> events_;
  Graphs graphs_;  // its user objects outlive the launches
  // Shared with the pieces of other devices that wait for its streams.
  const std::shared_ptr<Marks> marks_;
  GraphEngine engine_;
  std::atomic<std::uint64_t> streamsMade_{0};
  std::atomic<std::uint64_t> launches_{0};
};

}  // namespace braid::host
