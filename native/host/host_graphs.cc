#include <cstring>

#include "host/host_driver.h"

// The graph calls: checks, faults, and what a launch needs to know of streams and events.

namespace braid::host {

template <class Use>
Status HostDriver::graphCall(Call call, Use use) {
  if (const Status status = enter(call); status != Status::ok) return status;
  std::string detail;
  const Status status = use(&detail);
  return status == Status::ok ? status : fail(status, std::move(detail));
}

// Releases on a failed device too.
template <class Use>
Status HostDriver::graphReleaseCall(Call call, Use use) {
  if (const Status status = enterRelease(call); status != Status::ok) return status;
  std::string detail;
  const Status status = use(&detail);
  return status == Status::ok ? leave() : fail(status, std::move(detail));
}

namespace {

Status noPlace(std::string* detail) {
  *detail = "no place for the result";
  return Status::invalidValue;
}

GraphRanges memoryOf(const Image& image) {
  GraphRanges ranges;
  for (const ImageNode& node : image.nodes)
    if (node.kind == NodeKind::memAllocate) ranges.push_back(node.memory);
  return ranges;
}

}  // namespace

Status HostDriver::describeNode(const NodeParams& params, NewNode* node) {
  if (params.device == nullptr || params.device == this) return describe(params, node);
  auto* device = dynamic_cast<HostDriver*>(params.device);
  if (!device) return fail(Status::invalidValue, "a node of a device of another kind");
  if (params.kind != NodeKind::kernel && params.kind != NodeKind::copy && params.kind != NodeKind::fill)
    return fail(Status::invalidValue,
                std::string("a node of kind ") + nodeKindName(params.kind) + " has no device of its own");
  node->device = device;
  return device->describe(params, node);
}

Status HostDriver::describe(const NodeParams& params, NewNode* node) {
  node->kind = params.kind;
  node->label = label_;
  Work& work = node->work;
  const bool outOfRange = params.to == 0 || params.to + params.bytes < params.to;
  switch (params.kind) {
    case NodeKind::kernel:
      if (!params.kernel) return fail(Status::invalidValue, "no kernel");
      return describeLaunch(*params.kernel, params.reads.data(), params.writes.data(), &work);
    case NodeKind::copy:
      if (static_cast<unsigned>(params.copyKind) > static_cast<unsigned>(CopyKind::hostToHost))
        return fail(Status::invalidValue, "unknown kind of copy");
      if (outOfRange || params.from == 0 || params.from + params.bytes < params.from || params.bytes == 0)
        return fail(Status::invalidValue, "a copy to or from no memory");
      work.kind = Work::Kind::copy;
      work.cost = transferCost(params.copyKind, params.bytes);
      work.to = params.to;
      work.from = params.from;
      work.bytes = params.bytes;
      work.copyKind = params.copyKind;
      return Status::ok;
    case NodeKind::fill: {
      const std::uint32_t each = params.elementBytes;
      if (each != 1 && each != 2 && each != 4)
        return fail(Status::invalidValue,
                    "a fill has elements of 1, 2 or 4 bytes; given: " + std::to_string(each));
      if (params.to == 0 || params.to % each != 0 || params.width == 0 || params.height == 0 ||
          params.width > (SIZE_MAX >> 8) / each)
        return fail(Status::invalidValue, "a fill of no memory, or not aligned to its elements");
      if (params.height > 1 && (params.pitch < params.width * each || params.pitch % each != 0))
        return fail(Status::invalidValue, "the rows of a fill overlap, or are not aligned to its elements");
      work.kind = Work::Kind::fill;
      work.cost = computeCost(static_cast<double>(params.width * each) * static_cast<double>(params.height),
                              context_.options().deviceBytesPerSecond);
      work.to = params.to;
      work.value = params.value;
      work.elementBytes = each;
      work.width = params.width;
      work.height = params.height;
      work.pitch = params.pitch;
      return Status::ok;
    }
    case NodeKind::hostFunction:
      if (!params.function) return fail(Status::invalidValue, "no function");
      work.kind = Work::Kind::function;
      work.function = params.function;
      work.data = params.data;
      return Status::ok;
    case NodeKind::eventWait:
    case NodeKind::eventRecord:
      if (!find(params.event)) return unknown("event");
      node->event = reinterpret_cast<std::uint64_t>(params.event);
      return Status::ok;
    case NodeKind::child: node->child = params.child; return Status::ok;
    case NodeKind::memFree: work.to = params.to; return Status::ok;
    case NodeKind::empty: return Status::ok;
    case NodeKind::memAllocate:
    case NodeKind::conditional:
    case NodeKind::other: break;
  }
  return fail(Status::invalidValue, "a node of this kind is not added by nodeAdd");
}

Status HostDriver::graphCreate(Graph* graph) {
  return graphCall(Call::graphCreate, [&](std::string* detail) {
    return graph ? graphs_.create(graph, detail) : noPlace(detail);
  });
}
Status HostDriver::graphDestroy(Graph graph) {
  return graphReleaseCall(Call::graphDestroy,
                          [&](std::string* detail) { return graphs_.destroy(graph, detail); });
}
Status HostDriver::graphClone(Graph* clone, Graph graph) {
  return graphCall(Call::graphClone, [&](std::string* detail) {
    return clone ? graphs_.clone(clone, graph, detail) : noPlace(detail);
  });
}
Status HostDriver::graphFindInClone(GraphNode* node, GraphNode original, Graph clone) {
  return graphCall(Call::graphFindInClone, [&](std::string* detail) {
    return node ? graphs_.findInClone(node, original, clone, detail) : noPlace(detail);
  });
}
Status HostDriver::graphNodes(Graph graph, std::vector<GraphNode>* nodes) {
  return graphCall(Call::graphNodes, [&](std::string* detail) {
    return nodes ? graphs_.nodes(graph, nodes, detail) : noPlace(detail);
  });
}
Status HostDriver::graphEdges(Graph graph, std::vector<GraphEdge>* edges) {
  return graphCall(Call::graphEdges, [&](std::string* detail) {
    return edges ? graphs_.edges(graph, edges, detail) : noPlace(detail);
  });
}
Status HostDriver::graphAddEdges(Graph graph, const GraphEdge* edges, std::size_t count) {
  return graphCall(Call::graphAddEdges,
                   [&](std::string* detail) { return graphs_.addEdges(graph, edges, count, detail); });
}
Status HostDriver::graphRemoveEdges(Graph graph, const GraphEdge* edges, std::size_t count) {
  return graphCall(Call::graphRemoveEdges,
                   [&](std::string* detail) { return graphs_.removeEdges(graph, edges, count, detail); });
}
Status HostDriver::graphDot(Graph graph, std::string* text) {
  return graphCall(Call::graphDot, [&](std::string* detail) {
    return text ? graphs_.dot(graph, text, detail) : noPlace(detail);
  });
}

Status HostDriver::nodeAdd(GraphNode* node, Graph graph, const GraphNode* dependencies, std::size_t count,
                           const NodeParams& params) {
  if (const Status status = enter(Call::nodeAdd); status != Status::ok) return status;
  std::string detail;
  if (!node) return fail(noPlace(&detail), std::move(detail));
  NewNode made;
  if (const Status status = describeNode(params, &made); status != Status::ok) return status;
  const Status status = graphs_.add(node, graph, dependencies, count, made, &detail);
  return status == Status::ok ? status : fail(status, std::move(detail));
}
Status HostDriver::nodeDestroy(GraphNode node) {
  return graphReleaseCall(Call::nodeDestroy,
                          [&](std::string* detail) { return graphs_.destroyNode(node, detail); });
}
Status HostDriver::nodeUpdate(GraphNode node, const NodeParams& params) {
  if (const Status status = enter(Call::nodeUpdate); status != Status::ok) return status;
  NewNode made;
  if (const Status status = describeNode(params, &made); status != Status::ok) return status;
  std::string detail;
  const Status status = graphs_.update(node, made, &detail);
  return status == Status::ok ? status : fail(status, std::move(detail));
}
Status HostDriver::nodeKind(GraphNode node, NodeKind* kind) {
  return graphCall(Call::nodeKind, [&](std::string* detail) {
    return kind ? graphs_.kind(node, kind, detail) : noPlace(detail);
  });
}
Status HostDriver::nodeChild(GraphNode node, Graph* child) {
  return graphCall(Call::nodeChild, [&](std::string* detail) {
    return child ? graphs_.child(node, child, detail) : noPlace(detail);
  });
}
Status HostDriver::nodeAddAllocation(GraphNode* node, Graph graph, const GraphNode* dependencies,
                                     std::size_t count, std::size_t bytes, DeviceAddress* address) {
  return graphCall(Call::nodeAddAllocation, [&](std::string* detail) {
    if (!node || !address) return noPlace(detail);
    NewNode made;
    made.kind = NodeKind::memAllocate;
    if (const Status status = graphMemory_.make(bytes, &made.memory, detail); status != Status::ok)
      return status;
    *address = made.memory->address();
    return graphs_.add(node, graph, dependencies, count, made, detail);
  });
}
Status HostDriver::graphMemory(std::size_t* used, std::size_t* reserved) {
  return graphCall(Call::graphMemory, [&](std::string* detail) {
    if (!used || !reserved) return noPlace(detail);
    *used = *reserved = graphMemory_.reserved();
    return Status::ok;
  });
}
Status HostDriver::graphMemoryTrim() {
  return graphCall(Call::graphMemoryTrim, [&](std::string*) {
    graphMemory_.trim();
    return Status::ok;
  });
}
Status HostDriver::conditionCreate(Condition* condition, Graph graph, bool assign, std::uint32_t initial) {
  return graphCall(Call::conditionCreate, [&](std::string* detail) {
    return condition ? graphs_.createCondition(condition, graph, assign, initial, detail) : noPlace(detail);
  });
}
Status HostDriver::nodeAddConditional(GraphNode* node, Graph graph, const GraphNode* dependencies,
                                      std::size_t count, Condition condition, ConditionalKind kind,
                                      Graph* bodies, std::size_t bodyCount) {
  return graphCall(Call::nodeAddConditional, [&](std::string* detail) {
    return node && bodies ? graphs_.addConditional(node, graph, dependencies, count, condition, kind, bodies,
                                                   bodyCount, detail)
                          : noPlace(detail);
  });
}

// Capture.

Status HostDriver::captureBegin(Stream stream, CaptureMode mode) {
  if (const Status status = enter(Call::captureBegin); status != Status::ok) return status;
  StreamQueue* queue = find(stream);
  if (!queue) return unknown("stream");
  std::string detail;
  const Status status = graphs_.begin(queue, mode, &detail);
  return status == Status::ok ? status : fail(status, std::move(detail));
}
Status HostDriver::captureBeginOnto(Stream stream, Graph onto, const GraphNode* dependencies,
                                    std::size_t count, CaptureMode mode) {
  if (const Status status = enter(Call::captureBeginOnto); status != Status::ok) return status;
  StreamQueue* queue = find(stream);
  if (!queue) return unknown("stream");
  std::string detail;
  const Status status = graphs_.beginOnto(queue, onto, dependencies, count, mode, &detail);
  return status == Status::ok ? status : fail(status, std::move(detail));
}
Status HostDriver::captureEnd(Stream stream, Graph* graph) {
  if (const Status status = enterRelease(Call::captureEnd); status != Status::ok) return status;
  std::string detail;
  if (!graph) return fail(noPlace(&detail), std::move(detail));
  StreamQueue* queue = find(stream);
  if (!queue) return unknown("stream");
  const Status status = graphs_.end(queue, graph, &detail);
  return status == Status::ok ? status : fail(status, std::move(detail));
}
Status HostDriver::captureInfo(Stream stream, CaptureInfo* info) {
  if (const Status status = enter(Call::captureInfo); status != Status::ok) return status;
  std::string detail;
  if (!info) return fail(noPlace(&detail), std::move(detail));
  StreamQueue* queue = find(stream);
  if (!queue) return unknown("stream");
  return graphs_.info(queue, info, &detail);
}
Status HostDriver::captureDependencies(Stream stream, const GraphNode* nodes, std::size_t count, bool add) {
  if (const Status status = enter(Call::captureDependencies); status != Status::ok) return status;
  StreamQueue* queue = find(stream);
  if (!queue) return unknown("stream");
  std::string detail;
  const Status status = graphs_.dependencies(queue, nodes, count, add, &detail);
  return status == Status::ok ? status : fail(status, std::move(detail));
}
Status HostDriver::captureModeExchange(CaptureMode* mode) {
  return graphCall(Call::captureModeExchange, [&](std::string* detail) {
    if (!mode) return noPlace(detail);
    *mode = Graphs::exchangeMode(*mode);
    return Status::ok;
  });
}

// Executables.

Status HostDriver::graphInstantiate(GraphExec* exec, Graph graph, const InstantiateOptions&,
                                    InstantiateResult* result) {
  return graphCall(Call::graphInstantiate, [&](std::string* detail) {
    return exec && result ? graphs_.instantiate(exec, graph, result, detail) : noPlace(detail);
  });
}
Status HostDriver::execDestroy(GraphExec exec) {
  return graphReleaseCall(Call::execDestroy,
                          [&](std::string* detail) { return graphs_.destroyExec(exec, detail); });
}
// Only memory has to be there.
Status HostDriver::execUpload(GraphExec exec, Stream stream) {
  if (const Status status = enter(Call::execUpload); status != Status::ok) return status;
  if (!find(stream)) return unknown("stream");
  std::string detail;
  const Status status = graphs_.launch(
      exec,
      [&](const ExecData& found) {
        std::shared_ptr<const void> held;
        return graphMemory_.hold(memoryOf(*found.image), &held, &detail);
      },
      &detail);
  return status == Status::ok ? status : fail(status, std::move(detail));
}

// An event that is recorded moves its mark now, as eventRecord does; one that is waited for is read now, as
// by streamWait. Events that are destroyed meanwhile are none. All waits are read before any mark moves: what
// the launch itself records before a wait comes before it by its edges, and what it records after it is not
// waited for.
void HostDriver::preparePoints(const Image& image, GraphLaunch& launch, StreamQueue& queue) {
  preparePointsOf(NodeKind::eventWait, image, launch, queue);
  preparePointsOf(NodeKind::eventRecord, image, launch, queue);
}

void HostDriver::preparePointsOf(NodeKind kind, const Image& image, GraphLaunch& launch, StreamQueue& queue) {
  for (const ImageNode& node : image.nodes) {
    for (const auto& body : node.bodies) preparePointsOf(kind, *body, launch, queue);
    if (node.kind != kind) continue;
    EventState* event = events_.find(node.event);
    if (!event) continue;
    GraphLaunch::Point point;
    point.event = event;
    std::lock_guard lock(event->mutex);
    if (node.kind == NodeKind::eventWait) {
      // Earlier work of the launching stream is done by then.
      if (event->mark.stream != &queue) point.mark = event->mark;
    } else {
      point.mark = event->mark = engine_.points().take();
      event->stamped = false;
      event->capture = 0;
    }
    launch.points[&node] = point;
  }
}

void HostDriver::prepareFaults(const Image& image, GraphLaunch& launch) {
  for (const ImageNode& node : image.nodes) {
    for (const auto& body : node.bodies) prepareFaults(*body, launch);
    const bool work = node.kind == NodeKind::kernel || node.kind == NodeKind::copy ||
                      node.kind == NodeKind::fill || node.kind == NodeKind::hostFunction;
    Faults& faults = node.device ? node.device->faults_ : faults_;
    if (!work || !node.enabled || !faults.any(Call::run)) continue;
    if (const HostOptions::Fault* fault = faults.next(Call::run)) launch.faults[&node] = fault;
  }
}

Status HostDriver::queueLaunch(ExecData& exec, StreamQueue& queue, std::string* detail) {
  const GraphRanges ranges = memoryOf(*exec.image);
  std::shared_ptr<const void> held;
  if (!ranges.empty())
    if (const Status status = graphMemory_.hold(ranges, &held, detail); status != Status::ok) return status;
  auto launch = std::make_shared<GraphLaunch>(&engine_, exec.image, exec.users, exec.flights);
  launch->label = label_;
  const std::uint64_t seed = context_.options().jitterSeed;
  const std::uint64_t number = ++launches_;
  if (seed != 0) launch->jitter = seed * 0x9e3779b97f4a7c15u ^ number * 0xbf58476d1ce4e5b9u;
  launch->memory = std::move(held);
  const auto after = [&](const Mark& mark) {
    if (mark.stream && mark.stream != &queue) launch->previous.push_back(mark);
  };
  after(exec.last);
  for (const auto& range : ranges) after(range->last);  // of an executable before this one
  preparePoints(*exec.image, *launch, queue);
  prepareFaults(*exec.image, *launch);
  exec.last = push(queue, Piece::Kind::graph, Cost{}, [&](Piece& piece) { piece.graph = std::move(launch); });
  for (const auto& range : ranges) range->last = exec.last;
  return Status::ok;
}

Status HostDriver::execLaunch(GraphExec exec, Stream stream) {
  if (const Status status = enter(Call::execLaunch); status != Status::ok) return status;
  StreamQueue* queue = find(stream);
  if (!queue) return unknown("stream");
  std::string detail;
  if (const std::uint64_t capture = queue->capture; capture != 0) {
    const Status status =
        graphs_.forbid(capture, Status::captureUnsupported, "the launch of an executable graph", &detail);
    return fail(status, std::move(detail));
  }
  queue->awaitRoom(streamDepth());
  const Status status = graphs_.launch(
      exec, [&](ExecData& found) { return queueLaunch(found, *queue, &detail); }, &detail);
  return status == Status::ok ? status : fail(status, std::move(detail));
}
Status HostDriver::execUpdate(GraphExec exec, Graph graph, UpdateResult* result) {
  return graphCall(Call::execUpdate, [&](std::string* detail) {
    return result ? graphs_.updateExec(exec, graph, result, detail) : noPlace(detail);
  });
}
Status HostDriver::execNodeUpdate(GraphExec exec, GraphNode node, const NodeParams& params) {
  if (const Status status = enter(Call::execNodeUpdate); status != Status::ok) return status;
  NewNode made;
  if (const Status status = describeNode(params, &made); status != Status::ok) return status;
  std::string detail;
  const Status status = graphs_.updateExecNode(exec, node, made, &detail);
  return status == Status::ok ? status : fail(status, std::move(detail));
}
Status HostDriver::execNodeEnable(GraphExec exec, GraphNode node, bool enabled) {
  return graphCall(Call::execNodeEnable,
                   [&](std::string* detail) { return graphs_.enable(exec, node, enabled, detail); });
}
Status HostDriver::execNodeEnabled(GraphExec exec, GraphNode node, bool* enabled) {
  return graphCall(Call::execNodeEnabled, [&](std::string* detail) {
    return enabled ? graphs_.isEnabled(exec, node, enabled, detail) : noPlace(detail);
  });
}

// User objects.

Status HostDriver::userObjectCreate(UserObject* object, void (*destroy)(void*), void* data, unsigned count) {
  return graphCall(Call::userObjectCreate, [&](std::string* detail) {
    if (!object || !destroy || count == 0) {
      *detail = "a user object needs a destructor and at least one reference";
      return Status::invalidValue;
    }
    *object = reinterpret_cast<UserObject>(graphs_.users().create(destroy, data, count));
    return Status::ok;
  });
}
Status HostDriver::userObjectRetain(UserObject object, unsigned count) {
  return graphCall(Call::userObjectRetain, [&](std::string* detail) {
    if (count > 0 && graphs_.users().retain(reinterpret_cast<std::uint64_t>(object), count))
      return Status::ok;
    *detail = "not a user object of this device, or no references";
    return Status::invalidValue;
  });
}
Status HostDriver::userObjectRelease(UserObject object, unsigned count) {
  return graphReleaseCall(Call::userObjectRelease, [&](std::string* detail) {
    if (count > 0 && graphs_.users().release(reinterpret_cast<std::uint64_t>(object), count))
      return Status::ok;
    *detail = "not a user object of this device, or not so many references";
    return Status::invalidValue;
  });
}
Status HostDriver::graphRetain(Graph graph, UserObject object, unsigned count, bool move) {
  return graphCall(Call::graphRetain,
                   [&](std::string* detail) { return graphs_.retain(graph, object, count, move, detail); });
}
Status HostDriver::graphRelease(Graph graph, UserObject object, unsigned count) {
  return graphReleaseCall(Call::graphRelease,
                          [&](std::string* detail) { return graphs_.release(graph, object, count, detail); });
}

}  // namespace braid::host
