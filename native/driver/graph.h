#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "driver/status.h"

namespace braid {

class Driver;
class Kernel;
using DeviceAddress = std::uint64_t;

struct StreamTag;
struct EventTag;
struct GraphTag;
struct GraphNodeTag;
struct GraphExecTag;
struct UserObjectTag;
using Stream = StreamTag*;          // a FIFO of work: a CUstream, or a worker thread's queue
using Event = EventTag*;            // a CUevent, or its like
using Graph = GraphTag*;            // a definition: nodes and edges, which may be changed
using GraphNode = GraphNodeTag*;    // one node of a definition
using GraphExec = GraphExecTag*;    // an executable copy of a definition, which can be launched
using UserObject = UserObjectTag*;  // a counted reference with a destructor
using Condition = std::uint64_t;    // a value that a kernel sets and a conditional node reads

enum class CopyKind { hostToDevice, deviceToHost, deviceToDevice, hostToHost };

// The numbers are CUgraphNodeType's.
enum class NodeKind : std::uint8_t {
  kernel = 0,
  copy = 1,
  fill = 2,
  hostFunction = 3,
  child = 4,
  empty = 5,
  eventWait = 6,
  eventRecord = 7,
  memAllocate = 10,
  memFree = 11,
  conditional = 13,
  other = 255,
};
const char* nodeKindName(NodeKind kind);

// What a node does. A driver copies what it needs; kernels, memory, events and data that it refers to must
// outlive every executable made of the node.
struct NodeParams {
  NodeKind kind = NodeKind::empty;

  // kernel, copy, fill: the device that runs the node, of the graph's kind, where it is not the graph's own;
  // else null. That device outlives every executable made of the node.
  Driver* device = nullptr;

  // kernel: one whose form() is `node`. Addresses as for Driver::launch. `early` is empty, or says of each
  // dependency, in nodeAdd's order, whether the kernel may start before that node has ended: only a kernel
  // that waits for its nodes itself, and only after kernels of the same device.
  const Kernel* kernel = nullptr;
  std::vector<DeviceAddress> reads, writes;
  std::vector<bool> early;

  // copy: `bytes` bytes, in the direction named. fill: from `to` on, `height` rows, `pitch` bytes apart, of
  // `width` elements of `elementBytes` (1, 2 or 4) bytes, each set to `value`.
  CopyKind copyKind = CopyKind::deviceToDevice;
  DeviceAddress to = 0, from = 0;
  std::size_t bytes = 0;
  std::uint32_t value = 0, elementBytes = 4;
  std::size_t width = 0, height = 1, pitch = 0;

  // hostFunction: as for Driver::hostFunction. It must not call the driver.
  void (*function)(void*) = nullptr;
  void* data = nullptr;

  // child: the node holds a copy of this graph.
  Graph child = nullptr;

  // memFree: ends the life of what nodeAddAllocation gave the address `to` of.

  // eventWait: waits for the mark as it is when the graph is launched. eventRecord: marks the node.
  Event event = nullptr;

  static NodeParams launch(const Kernel& kernel, std::vector<DeviceAddress> reads,
                           std::vector<DeviceAddress> writes);
  static NodeParams copy(CopyKind kind, DeviceAddress to, DeviceAddress from, std::size_t bytes);
  static NodeParams fill(DeviceAddress to, std::uint32_t value, std::uint32_t elementBytes, std::size_t width,
                         std::size_t height = 1, std::size_t pitch = 0);
  static NodeParams host(void (*function)(void*), void* data);
  static NodeParams embed(Graph child);
  static NodeParams empty() { return {}; }
  static NodeParams wait(Event event);
  static NodeParams record(Event event);
  static NodeParams memFree(DeviceAddress address);
};

// A conditional node reads its condition once everything before it is done. The numbers are
// CUgraphConditionalNodeType's.
enum class ConditionalKind : std::uint8_t {
  branch = 0,     // 1 or 2 bodies: the first where the value is not 0, the second where it is
  loop = 1,       // 1 body: again and again while the value is not 0
  selection = 2,  // n bodies: the one of that index, or none
};

struct GraphEdge {
  GraphNode from = nullptr, to = nullptr;
  bool operator==(const GraphEdge&) const = default;
};

// Which calls of other threads are refused while a stream captures. Calls that allocate or free memory, and
// queries of events, are "unsafe" in CUDA's words.
enum class CaptureMode : std::uint8_t {
  global = 0,       // no thread may make an unsafe call, except those in mode `relaxed`
  threadLocal = 1,  // the capturing thread may not
  relaxed = 2,      // every thread may
};
enum class CaptureStatus : std::uint8_t { none = 0, active = 1, invalidated = 2 };

struct CaptureInfo {
  CaptureStatus status = CaptureStatus::none;
  std::uint64_t id = 0;                 // of the capture, unique in the process
  Graph graph = nullptr;                // while active
  std::vector<GraphNode> dependencies;  // the next captured node comes after these
};

// Why a graph could not be instantiated. The numbers are CUgraphInstantiateResult's.
enum class InstantiateResult : std::uint8_t {
  success = 0,
  error = 1,
  invalidStructure = 2,  // a cycle, for instance
  operationNotSupported = 3,
  severalContexts = 4,
  conditionUnused = 5,  // a condition that no node reads
};
const char* instantiateResultName(InstantiateResult result);

struct InstantiateOptions {
  bool nodePriorities = false;  // kernels keep the priority of the stream that they were captured from
};

// Why an executable could not be updated. The numbers are CUgraphExecUpdateResult's.
enum class UpdateResult : std::uint8_t {
  success = 0,
  error = 1,
  topologyChanged = 2,
  nodeKindChanged = 3,
  functionChanged = 4,
  parametersChanged = 5,
  notSupported = 6,
  unsupportedFunctionChange = 7,
  attributesChanged = 8,
};
const char* updateResultName(UpdateResult result);

// The graph calls of the driver table; see Driver for the rules of all calls. Devices that have none return
// Status::notSupported.
//   1. A graph is data: adding, changing and destroying nodes runs nothing. One thread at a time may use a
//      graph and the graphs inside it, reading calls included.
//   2. graphInstantiate copies. Later changes of the graph reach the executable only through execUpdate and
//      execNodeUpdate; those reach later launches only, never one that was queued before.
//   3. execLaunch queues the whole graph as one piece of its stream: after all earlier work of the stream,
//      before all later work. A node runs after those that its edges name, and beside all others. Launches of
//      one executable run one after the other, whatever their streams.
//   4. A capturing stream runs nothing: work queued on it becomes a node after the stream's last ones. An
//      event recorded there carries these nodes, and a stream that waits for it joins the capture. A call
//      that makes no sense meanwhile (synchronising, querying, waiting for an event from outside) fails and
//      invalidates the capture, which can then only be ended.
//   5. References to user objects are copied by graphClone, graphInstantiate and child nodes, replaced by
//      execUpdate, and kept by a launch until it has completed. The last one that goes runs the destructor,
//      on a thread of the driver's, which must not call the driver.
class GraphCalls {
 public:
  virtual ~GraphCalls() = default;

  // Definitions. Only graphs from graphCreate, graphClone and captureEnd are destroyed by their owner; those
  // inside child and conditional nodes go with their node.
  virtual Status graphCreate(Graph*) { return Status::notSupported; }
  virtual Status graphDestroy(Graph) { return Status::notSupported; }
  // Neither this nor a child node copies a graph that a condition was made for, here or inside, also once no
  // node reads it, nor a conditional node's body: notSupported.
  virtual Status graphClone(Graph* /*clone*/, Graph) { return Status::notSupported; }
  // The node of the clone that was made of `original`.
  virtual Status graphFindInClone(GraphNode*, GraphNode /*original*/, Graph /*clone*/) {
    return Status::notSupported;
  }
  virtual Status graphNodes(Graph, std::vector<GraphNode>*) { return Status::notSupported; }
  virtual Status graphEdges(Graph, std::vector<GraphEdge>*) { return Status::notSupported; }
  // All or none. An edge that exists cannot be added, nor one that does not be removed; nor one from a node
  // to itself, nor between graphs. A cycle is refused by graphInstantiate.
  virtual Status graphAddEdges(Graph, const GraphEdge*, std::size_t /*count*/) {
    return Status::notSupported;
  }
  virtual Status graphRemoveEdges(Graph, const GraphEdge*, std::size_t /*count*/) {
    return Status::notSupported;
  }
  // Graphviz's text, for people.
  virtual Status graphDot(Graph, std::string*) { return Status::notSupported; }

  // Nodes, of every kind but memAllocate and conditional.
  virtual Status nodeAdd(GraphNode*, Graph, const GraphNode* /*dependencies*/, std::size_t /*count*/,
                         const NodeParams&) {
    return Status::notSupported;
  }
  virtual Status nodeDestroy(GraphNode) { return Status::notSupported; }
  // For later instantiations. The kind stays; empty, memory and conditional nodes cannot be updated. A child
  // node's new graph replaces the one inside, whose handles become invalid.
  virtual Status nodeUpdate(GraphNode, const NodeParams&) { return Status::notSupported; }
  virtual Status nodeKind(GraphNode, NodeKind*) { return Status::notSupported; }
  virtual Status nodeChild(GraphNode, Graph*) { return Status::notSupported; }

  // Memory nodes. The address is fixed from this call on; the memory lives in each launch from this node to
  // the node that frees it, which is of the same graph, and there once at most. A graph with memory nodes is
  // a root. It is neither cloned nor a child, loses no node and no edge, and has one executable at a time,
  // which takes updates from that graph alone: notSupported.
  virtual Status nodeAddAllocation(GraphNode*, Graph, const GraphNode* /*dependencies*/,
                                   std::size_t /*count*/, std::size_t /*bytes*/, DeviceAddress*) {
    return Status::notSupported;
  }
  // The bytes of the device that back such memory, and those of them that graphs use. Launches take them, and
  // keep them for later launches; a trim gives back what no launch uses.
  virtual Status graphMemory(std::size_t* /*used*/, std::size_t* /*reserved*/) {
    return Status::notSupported;
  }
  virtual Status graphMemoryTrim() { return Status::notSupported; }

  // Conditional nodes. With `assign` the condition is `initial` when a launch begins. Bodies are made empty
  // and belong to the node; they take kernels, copies, fills, empty, child and conditional nodes only.
  virtual Status conditionCreate(Condition*, Graph, bool /*assign*/, std::uint32_t /*initial*/) {
    return Status::notSupported;
  }
  virtual Status nodeAddConditional(GraphNode*, Graph, const GraphNode* /*dependencies*/,
                                    std::size_t /*count*/, Condition, ConditionalKind, Graph* /*bodies*/,
                                    std::size_t /*bodyCount*/) {
    return Status::notSupported;
  }

  // Capture. With `onto`, the nodes are added to that graph, the first ones after `dependencies`, and
  // captureEnd returns it. Where captureEnd fails the graph has been destroyed, that of `onto` too, and no
  // graph around it may be touched again: CUDA (13.0) ends the process then.
  virtual Status captureBegin(Stream, CaptureMode) { return Status::notSupported; }
  virtual Status captureBeginOnto(Stream, Graph /*onto*/, const GraphNode* /*dependencies*/,
                                  std::size_t /*count*/, CaptureMode) {
    return Status::notSupported;
  }
  virtual Status captureEnd(Stream, Graph*) { return Status::notSupported; }
  virtual Status captureInfo(Stream, CaptureInfo* info) {
    *info = {};
    return Status::ok;
  }
  // The next captured node comes after these, and with `add` after the present ones too.
  virtual Status captureDependencies(Stream, const GraphNode*, std::size_t /*count*/, bool /*add*/) {
    return Status::notSupported;
  }
  // Exchanges the calling thread's mode, which is `global` at first.
  virtual Status captureModeExchange(CaptureMode*) { return Status::notSupported; }

  // Executables. A graph with conditional nodes has one at a time, and its bodies have none: notSupported.
  virtual Status graphInstantiate(GraphExec*, Graph, const InstantiateOptions&, InstantiateResult*) {
    return Status::notSupported;
  }
  virtual Status execDestroy(GraphExec) { return Status::notSupported; }  // queued launches still complete
  virtual Status execUpload(GraphExec, Stream) { return Status::notSupported; }
  virtual Status execLaunch(GraphExec, Stream) { return Status::notSupported; }
  // To a graph of the same topology. After a failure the executable is unchanged, the status
  // graphExecUpdateFailure and the result the reason.
  virtual Status execUpdate(GraphExec, Graph, UpdateResult*) { return Status::notSupported; }
  // `node`: of the graph that was instantiated, or of one inside it. A child node's graph must have the
  // topology of the old one.
  virtual Status execNodeUpdate(GraphExec, GraphNode, const NodeParams&) { return Status::notSupported; }
  // Kernels, copies and fills only. A disabled node does nothing, and its edges hold.
  virtual Status execNodeEnable(GraphExec, GraphNode, bool) { return Status::notSupported; }
  virtual Status execNodeEnabled(GraphExec, GraphNode, bool*) { return Status::notSupported; }

  // User objects. The caller owns the first `count` references.
  virtual Status userObjectCreate(UserObject*, void (* /*destroy*/)(void*), void* /*data*/,
                                  unsigned /*count*/) {
    return Status::notSupported;
  }
  virtual Status userObjectRetain(UserObject, unsigned /*count*/) { return Status::notSupported; }
  virtual Status userObjectRelease(UserObject, unsigned /*count*/) { return Status::notSupported; }
  // With `move`, the graph takes over references of the caller's.
  virtual Status graphRetain(Graph, UserObject, unsigned /*count*/, bool /*move*/) {
    return Status::notSupported;
  }
  virtual Status graphRelease(Graph, UserObject, unsigned /*count*/) { return Status::notSupported; }
};

}  // namespace braid
