#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "host/graph_data.h"

namespace braid::host {

// An executable: the image that launches share, and what it keeps alive.
struct ExecData {
  std::uint64_t graph = 0;  // that it was instantiated from
  std::shared_ptr<Image> image;
  std::shared_ptr<const UserReferences> users;
  std::shared_ptr<std::atomic<std::uint64_t>> flights = std::make_shared<std::atomic<std::uint64_t>>(0);
  Mark last;  // of the last launch
};

// A node of an executable, and the nodes around it, each with the body that leads inwards.
struct ExecPlace {
  std::vector<std::pair<std::uint32_t, std::size_t>> around;
  std::uint32_t index = 0;
  const ImageNode* node = nullptr;
};

// What a new node does, as the device has checked and priced it.
struct NewNode {
  NodeKind kind = NodeKind::empty;
  Work work;
  std::uint64_t event = 0;
  std::shared_ptr<GraphRange> memory;  // memAllocate
  WorkLabel label;
  HostDriver* device = nullptr;  // where it is not the graph's own
  Graph child = nullptr;

  // To a node whose kind stays, of a definition or of an executable.
  template <class Node>
  void give(Node& node) const {
    node.work = work;
    node.event = event;
    node.memory = memory;
    node.label = label;
    node.device = device;
  }
};

// The graphs, executables and captures of one device. One lock guards them all: definitions are changed by
// one thread at a time anyway, and launches run outside it. After a failure *detail says why.
class Graphs {
 public:
  Graphs(std::uint16_t graphTag, std::uint16_t nodeTag, std::uint16_t execTag, std::uint16_t userTag);

  Status create(Graph* graph, std::string* detail);
  Status destroy(Graph graph, std::string* detail);
  Status clone(Graph* clone, Graph graph, std::string* detail);
  Status findInClone(GraphNode* node, GraphNode original, Graph clone, std::string* detail);
  Status nodes(Graph graph, std::vector<GraphNode>* nodes, std::string* detail);
  Status edges(Graph graph, std::vector<GraphEdge>* edges, std::string* detail);
  Status addEdges(Graph graph, const GraphEdge* edges, std::size_t count, std::string* detail);
  Status removeEdges(Graph graph, const GraphEdge* edges, std::size_t count, std::string* detail);
  Status dot(Graph graph, std::string* text, std::string* detail);

  Status add(GraphNode* node, Graph graph, const GraphNode* dependencies, std::size_t count,
             const NewNode& made, std::string* detail);
  Status destroyNode(GraphNode node, std::string* detail);
  Status update(GraphNode node, const NewNode& made, std::string* detail);
  Status kind(GraphNode node, NodeKind* kind, std::string* detail);
  Status child(GraphNode node, Graph* child, std::string* detail);
  Status createCondition(Condition* condition, Graph graph, bool assign, std::uint32_t initial,
                         std::string* detail);
  Status addConditional(GraphNode* node, Graph graph, const GraphNode* dependencies, std::size_t count,
                        Condition condition, ConditionalKind kind, Graph* bodies, std::size_t bodyCount,
                        std::string* detail);

  Status instantiate(GraphExec* exec, Graph graph, InstantiateResult* result, std::string* detail);
  Status destroyExec(GraphExec exec, std::string* detail);
  Status updateExec(GraphExec exec, Graph graph, UpdateResult* result, std::string* detail);
  Status updateExecNode(GraphExec exec, GraphNode node, const NewNode& made, std::string* detail);
  Status enable(GraphExec exec, GraphNode node, bool enabled, std::string* detail);
  Status isEnabled(GraphExec exec, GraphNode node, bool* enabled, std::string* detail);
  // Calls `launch(ExecData&)` under the lock, so that an executable's launches have one order.
  template <class Launch>
  Status launch(GraphExec exec, Launch launch, std::string* detail) {
    std::lock_guard lock(mutex_);
    ExecData* found = findExec(exec);
    if (!found) return unknownExec(detail);
    return launch(*found);
  }

  Status retain(Graph graph, UserObject object, std::uint64_t count, bool move, std::string* detail);
  Status release(Graph graph, UserObject object, std::uint64_t count, std::string* detail);
  UserObjects& users() { return users_; }

  // Capture.
  Status begin(StreamQueue* queue, CaptureMode mode, std::string* detail);
  Status beginOnto(StreamQueue* queue, Graph graph, const GraphNode* dependencies, std::size_t count,
                   CaptureMode mode, std::string* detail);
  Status end(StreamQueue* queue, Graph* graph, std::string* detail);
  Status info(StreamQueue* queue, CaptureInfo* info, std::string* detail);
  Status dependencies(StreamQueue* queue, const GraphNode* nodes, std::size_t count, bool add,
                      std::string* detail);
  static CaptureMode exchangeMode(CaptureMode mode);
  // A piece of work on a capturing stream becomes a node.
  Status capture(StreamQueue* queue, const NewNode& made, std::string* detail);
  // The event carries the stream's last nodes.
  Status recordCaptured(StreamQueue* queue, EventState* event, std::string* detail);
  // Of an event recorded in a capture; the stream may join it.
  Status waitCaptured(StreamQueue* queue, std::uint64_t capture, const std::vector<std::uint64_t>& nodes,
                      std::string* detail);
  // A call that makes no sense during a capture: invalidates it.
  Status forbid(std::uint64_t capture, Status status, const char* what, std::string* detail);
  // A call that captures of stricter modes forbid.
  Status unsafe(const char* what, std::string* detail) {
    return strict_.load(std::memory_order_acquire) == 0 ? Status::ok : unsafeNow(what, detail);
  }
  void forget(StreamQueue* queue);  // the stream is destroyed

 private:
  struct Capture {
    std::uint64_t id = 0, graph = 0;
    bool invalid = false;
    StreamQueue* origin = nullptr;
    CaptureMode mode = CaptureMode::global;
    std::thread::id thread;
    std::unordered_map<StreamQueue*, std::vector<std::uint64_t>> tails;
  };

  static Status wrong(Status status, std::string words, std::string* detail);
  static Status unknownGraph(std::string* detail);
  static Status unknownNode(std::string* detail);
  static Status unknownExec(std::string* detail);
  GraphData* find(Graph graph) const;
  NodeData* find(GraphNode node) const;
  ExecData* findExec(GraphExec exec) const;
  void name(GraphData& graph);
  void name(NodeData& node);
  void forgetGraph(const GraphData& graph);  // its handles, and those of all inside
  void forgetNode(const NodeData& node);
  std::unique_ptr<GraphData> copyOf(const GraphData& graph);
  Status find(const GraphData& graph, const GraphNode* nodes, std::size_t count,
              std::vector<NodeData*>* found, std::string* detail) const;
  static Status freed(const GraphData& graph, DeviceAddress address, std::shared_ptr<GraphRange>* memory,
                      std::string* detail);
  static Status copyable(const GraphData& graph, std::string* detail);
  Status embeddable(const GraphData& child, const GraphData& into, std::string* detail) const;
  Status addTo(GraphData& graph, std::vector<NodeData*> dependencies, const NewNode& made, NodeData** node,
               std::string* detail);
  Image& writable(ExecData& exec);
  ImageNode& writable(ExecData& exec, const ExecPlace& place);
  Status execNode(GraphExec exec, GraphNode node, ExecData** found, ExecPlace* place,
                  std::string* detail) const;
  Status start(StreamQueue* queue, GraphData& graph, std::vector<std::uint64_t> tail, CaptureMode mode,
               std::string* detail);
  // The root that the graph is, or is in, with all graphs inside.
  void destroyAround(const GraphData& graph);
  Status active(StreamQueue* queue, Capture** capture, GraphData** graph, std::string* detail);
  std::vector<NodeData*> alive(const GraphData& graph, const std::vector<std::uint64_t>& nodes) const;
  bool joined(const Capture& capture, const GraphData& graph) const;
  Status unsafeNow(const char* what, std::string* detail);

  const std::uint64_t graphTag_, nodeTag_, execTag_;
  std::mutex mutex_;
  UserObjects users_;
  std::uint64_t made_ = 0;
  std::unordered_map<std::uint64_t, std::unique_ptr<GraphData>> roots_;
  std::unordered_map<std::uint64_t, GraphData*> graphs_;
  std::unordered_map<std::uint64_t, NodeData*> nodes_;
  std::unordered_map<std::uint64_t, std::unique_ptr<ExecData>> execs_;
  std::unordered_map<std::uint64_t, Capture> captures_;
  std::atomic<int> strict_{0};  // captures whose mode is not `relaxed`
};

}  // namespace braid::host
