#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "cuda/driver.h"
#include "cuda/handles.h"

// The graph calls of the table, each the driver's own.

namespace braid::cuda {
namespace {

constexpr const char* kSetCondition = R"(
extern "C" __device__ __cudart_builtin__ void CUDARTAPI cudaGraphSetConditional(
    cudaGraphConditionalHandle handle, unsigned int value);
extern "C" __global__ void braid_set_condition(const unsigned* value, cudaGraphConditionalHandle handle) {
  if (threadIdx.x == 0 && blockIdx.x == 0) cudaGraphSetConditional(handle, *value);
}
)";

void copyParams(CUgraphNodeParams* params, CUcontext context, int toType, DeviceAddress to, int fromType,
                DeviceAddress from, std::size_t bytes) {
  params->type = static_cast<int>(NodeKind::copy);
  CUDA_MEMCPY3D copy;
  copy.srcMemoryType = fromType;
  copy.dstMemoryType = toType;
  if (fromType == kMemoryHost)
    copy.srcHost = reinterpret_cast<const void*>(from);
  else
    copy.srcDevice = from;
  if (toType == kMemoryHost)
    copy.dstHost = reinterpret_cast<void*>(to);
  else
    copy.dstDevice = to;
  copy.widthInBytes = copy.srcPitch = copy.dstPitch = bytes;
  copy.height = copy.depth = copy.srcHeight = copy.dstHeight = 1;
  params->memcpy = {0, 0, context, copy};
}

}  // namespace

void KernelNode::kernel(CUfunction function, const unsigned (&grid)[3], const unsigned (&block)[3],
                        unsigned sharedBytes) {
  pointers.clear();
  for (std::uint64_t& value : values) pointers.push_back(&value);
  params.type = static_cast<int>(NodeKind::kernel);
  params.kernel = {function,
                   {grid[0], grid[1], grid[2]},
                   {block[0], block[1], block[2]},
                   sharedBytes,
                   pointers.data(),
                   nullptr,
                   nullptr,
                   nullptr};
}

void KernelNode::copy(CUcontext context, int toType, DeviceAddress to, int fromType, DeviceAddress from,
                      std::size_t bytes) {
  copyParams(&params, context, toType, to, fromType, from, bytes);
}

Status CudaDriver::haveGraphs() const {
  if (graph_.missing.empty()) return Status::ok;
  return fail(Status::notSupported, context_->library().library.path + " has no function " + graph_.missing +
                                        ": graphs need a driver of CUDA 12.3 or later");
}

Status CudaDriver::nodeParams(const NodeParams& from, KernelNode* node) const {
  CUgraphNodeParams& params = node->params;
  params.type = static_cast<int>(from.kind);
  // A kernel's function says which context it is of; copies and fills name theirs.
  const auto* device = from.device ? dynamic_cast<const CudaDriver*>(from.device) : this;
  if (!device) return fail(Status::invalidValue, "a node of a device of another kind");
  CUcontext context = device->context_->handle();
  switch (from.kind) {
    case NodeKind::kernel:
      if (!from.kernel) return fail(Status::invalidValue, "no kernel");
      return static_cast<const CudaKernel*>(from.kernel)->node(from.reads.data(), from.writes.data(), node);
    case NodeKind::copy:
      copyParams(&params, context, memoryTo(from.copyKind), from.to, memoryFrom(from.copyKind), from.from,
                 from.bytes);
      return Status::ok;
    case NodeKind::fill:
      params.memset = {
          from.to, from.height > 1 ? from.pitch : 0, from.value, from.elementBytes, from.width, from.height,
          context};
      return Status::ok;
    case NodeKind::hostFunction:
      if (!from.function) return fail(Status::invalidValue, "no function");
      params.host = {from.function, from.data};
      return Status::ok;
    case NodeKind::child:
      if (!from.child) return fail(Status::invalidValue, "no graph");
      params.child = {cu(from.child), 0};
      return Status::ok;
    case NodeKind::eventWait:
    case NodeKind::eventRecord: params.event = {cu(from.event)}; return Status::ok;
    case NodeKind::empty: return Status::ok;
    case NodeKind::memFree: params.free = {from.to}; return Status::ok;
    case NodeKind::memAllocate:
    case NodeKind::conditional:
    case NodeKind::other: break;
  }
  return fail(Status::invalidValue, "a node of this kind is not added by nodeAdd");
}

Status CudaDriver::graphCreate(Graph* graph) {
  if (const Status status = haveGraphs(); status != Status::ok) return status;
  return context_->check(graph_.create(reinterpret_cast<CUgraph*>(graph), 0), "cuGraphCreate");
}
Status CudaDriver::graphDestroy(Graph graph) {
  if (const Status status = haveGraphs(); status != Status::ok) return status;
  return context_->check(graph_.destroy(cu(graph)), "cuGraphDestroy");
}
Status CudaDriver::graphClone(Graph* clone, Graph graph) {
  if (const Status status = haveGraphs(); status != Status::ok) return status;
  return context_->check(graph_.clone(reinterpret_cast<CUgraph*>(clone), cu(graph)), "cuGraphClone");
}
Status CudaDriver::graphFindInClone(GraphNode* node, GraphNode original, Graph clone) {
  if (const Status status = haveGraphs(); status != Status::ok) return status;
  return context_->check(graph_.findInClone(reinterpret_cast<CUgraphNode*>(node), cu(original), cu(clone)),
                         "cuGraphNodeFindInClone");
}

Status CudaDriver::graphNodes(Graph graph, std::vector<GraphNode>* nodes) {
  if (const Status status = haveGraphs(); status != Status::ok) return status;
  std::size_t count = 0;
  nodes->clear();
  if (const CUresult code = graph_.nodes(cu(graph), nullptr, &count))
    return context_->check(code, "cuGraphGetNodes");
  if (count == 0) return Status::ok;
  nodes->resize(count);
  return context_->check(graph_.nodes(cu(graph), reinterpret_cast<CUgraphNode*>(nodes->data()), &count),
                         "cuGraphGetNodes");
}

Status CudaDriver::graphEdges(Graph graph, std::vector<GraphEdge>* edges) {
  if (const Status status = haveGraphs(); status != Status::ok) return status;
  std::size_t count = 0;
  edges->clear();
  if (const CUresult code = graph_.edges(cu(graph), nullptr, nullptr, &count))
    return context_->check(code, "cuGraphGetEdges");
  if (count == 0) return Status::ok;
  std::vector<CUgraphNode> from(count), to(count);
  if (const CUresult code = graph_.edges(cu(graph), from.data(), to.data(), &count))
    return context_->check(code, "cuGraphGetEdges");
  for (std::size_t i = 0; i < count; ++i)
    edges->push_back({reinterpret_cast<GraphNode>(from[i]), reinterpret_cast<GraphNode>(to[i])});
  return Status::ok;
}

namespace {

struct Ends {
  std::vector<CUgraphNode> from, to;
  Ends(const GraphEdge* edges, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      from.push_back(cu(edges[i].from));
      to.push_back(cu(edges[i].to));
    }
  }
};

}  // namespace

Status CudaDriver::graphAddEdges(Graph graph, const GraphEdge* edges, std::size_t count) {
  if (const Status status = haveGraphs(); status != Status::ok) return status;
  const Ends ends(edges, count);
  return context_->check(graph_.addEdges(cu(graph), ends.from.data(), ends.to.data(), count),
                         "cuGraphAddDependencies");
}
Status CudaDriver::graphRemoveEdges(Graph graph, const GraphEdge* edges, std::size_t count) {
  if (const Status status = haveGraphs(); status != Status::ok) return status;
  const Ends ends(edges, count);
  return context_->check(graph_.removeEdges(cu(graph), ends.from.data(), ends.to.data(), count),
                         "cuGraphRemoveDependencies");
}

// The driver writes to a file only.
Status CudaDriver::graphDot(Graph graph, std::string* text) {
  if (const Status status = haveGraphs(); status != Status::ok) return status;
  std::error_code error;
  std::string path = std::filesystem::temp_directory_path(error).string() + "/braid-graph-XXXXXX";
  const int file = error ? -1 : mkstemp(path.data());
  if (file < 0) return fail(Status::operatingSystem, "no temporary file for the graph's text: " + path);
  close(file);
  const Status status = context_->check(graph_.dot(cu(graph), path.c_str(), 0), "cuGraphDebugDotPrint");
  if (status == Status::ok) {
    std::ostringstream read;
    read << std::ifstream(path).rdbuf();
    *text = read.str();
  }
  std::remove(path.c_str());
  return status;
}

Status CudaDriver::nodeAdd(GraphNode* node, Graph graph, const GraphNode* dependencies, std::size_t count,
                           const NodeParams& params) {
  if (const Status status = haveGraphs(); status != Status::ok) return status;
  KernelNode made;
  if (const Status status = nodeParams(params, &made); status != Status::ok) return status;
  std::vector<CUgraphEdgeData> edges(params.early.size());
  for (std::size_t i = 0; i < edges.size(); ++i)
    if (params.early[i]) edges[i] = {kPortProgrammatic, 0, kDependencyProgrammatic};
  return context_->check(graph_.addNode(reinterpret_cast<CUgraphNode*>(node), cu(graph), cu(dependencies),
                                        edges.empty() ? nullptr : edges.data(), count, &made.params),
                         "cuGraphAddNode");
}
Status CudaDriver::nodeDestroy(GraphNode node) {
  if (const Status status = haveGraphs(); status != Status::ok) return status;
  return context_->check(graph_.destroyNode(cu(node)), "cuGraphDestroyNode");
}
Status CudaDriver::nodeUpdate(GraphNode node, const NodeParams& params) {
  if (const Status status = haveGraphs(); status != Status::ok) return status;
  KernelNode made;
  if (const Status status = nodeParams(params, &made); status != Status::ok) return status;
  return context_->check(graph_.setParams(cu(node), &made.params), "cuGraphNodeSetParams");
}

Status CudaDriver::nodeKind(GraphNode node, NodeKind* kind) {
  if (const Status status = haveGraphs(); status != Status::ok) return status;
  int type = 0;
  const Status status = context_->check(graph_.type(cu(node), &type), "cuGraphNodeGetType");
  const bool known = (type >= 0 && type <= static_cast<int>(NodeKind::eventRecord)) ||
                     type == static_cast<int>(NodeKind::memAllocate) ||
                     type == static_cast<int>(NodeKind::memFree) ||
                     type == static_cast<int>(NodeKind::conditional);
  if (status == Status::ok) *kind = known ? static_cast<NodeKind>(type) : NodeKind::other;
  return status;
}
Status CudaDriver::nodeChild(GraphNode node, Graph* child) {
  if (const Status status = haveGraphs(); status != Status::ok) return status;
  return context_->check(graph_.child(cu(node), reinterpret_cast<CUgraph*>(child)),
                         "cuGraphChildGraphNodeGetGraph");
}

Status CudaDriver::nodeAddAllocation(GraphNode* node, Graph graph, const GraphNode* dependencies,
                                     std::size_t count, std::size_t bytes, DeviceAddress* address) {
  if (const Status status = haveGraphs(); status != Status::ok) return status;
  CUgraphNodeParams params;
  params.type = static_cast<int>(NodeKind::memAllocate);
  params.allocate = {};
  params.allocate.pool.location.id = context_->device();
  params.allocate.bytes = bytes;
  const Status status = context_->check(graph_.addNode(reinterpret_cast<CUgraphNode*>(node), cu(graph),
                                                       cu(dependencies), nullptr, count, &params),
                                        "cuGraphAddNode");
  if (status == Status::ok) *address = params.allocate.address;
  return status;
}

Status CudaDriver::graphMemory(std::size_t* used, std::size_t* reserved) {
  if (const Status status = haveGraphs(); status != Status::ok) return status;
  std::uint64_t figures[2] = {};
  constexpr int attributes[] = {kGraphMemoryUsed, kGraphMemoryReserved};
  for (int i = 0; i < 2; ++i)
    if (const CUresult code = graph_.memoryAttribute(context_->device(), attributes[i], &figures[i]))
      return context_->check(code, "cuDeviceGetGraphMemAttribute");
  *used = figures[0];
  *reserved = figures[1];
  return Status::ok;
}
Status CudaDriver::graphMemoryTrim() {
  if (const Status status = haveGraphs(); status != Status::ok) return status;
  return context_->check(graph_.memoryTrim(context_->device()), "cuDeviceGraphMemTrim");
}

Status CudaDriver::conditionCreate(Condition* condition, Graph graph, bool assign, std::uint32_t initial) {
  if (const Status status = haveGraphs(); status != Status::ok) return status;
  return context_->check(graph_.condition(condition, cu(graph), context_->handle(), assign ? initial : 0,
                                          assign ? kConditionAssign : 0),
                         "cuGraphConditionalHandleCreate");
}

Status CudaDriver::nodeAddConditional(GraphNode* node, Graph graph, const GraphNode* dependencies,
                                      std::size_t count, Condition condition, ConditionalKind kind,
                                      Graph* bodies, std::size_t bodyCount) {
  if (const Status status = haveGraphs(); status != Status::ok) return status;
  CUgraphNodeParams params;
  params.type = static_cast<int>(NodeKind::conditional);
  params.conditional = {condition, static_cast<int>(kind), static_cast<unsigned>(bodyCount), nullptr,
                        context_->handle()};
  const Status status = context_->check(graph_.addNode(reinterpret_cast<CUgraphNode*>(node), cu(graph),
                                                       cu(dependencies), nullptr, count, &params),
                                        "cuGraphAddNode");
  if (status != Status::ok) return status;
  for (std::size_t i = 0; i < bodyCount; ++i)
    bodies[i] = reinterpret_cast<Graph>(params.conditional.bodies[i]);
  return Status::ok;
}

Status CudaDriver::prepareCondition(std::unique_ptr<Kernel>* kernel) {
  if (const Status status = haveGraphs(); status != Status::ok) return status;
  Current current(*context_);
  std::shared_ptr<Module> module;
  const Status status =
      compiler_->compile(kSetCondition, "braid_set_condition.cu", Compiler::Flavor::user, &module);
  if (status != Status::ok) return status;
  KernelSpec spec;
  spec.kind = KernelSpec::Kind::cuda;
  spec.name = "braid_set_condition";
  spec.readCount = spec.writeCount = 1;
  return UserKernel::make(std::move(module), spec, kernel);
}

// Capture.

Status CudaDriver::captureBegin(Stream stream, CaptureMode mode) {
  if (const Status status = haveGraphs(); status != Status::ok) return status;
  return context_->check(graph_.captureBegin(cu(stream), static_cast<int>(mode)), "cuStreamBeginCapture");
}
Status CudaDriver::captureBeginOnto(Stream stream, Graph onto, const GraphNode* dependencies,
                                    std::size_t count, CaptureMode mode) {
  if (const Status status = haveGraphs(); status != Status::ok) return status;
  return context_->check(
      graph_.captureBeginOnto(cu(stream), cu(onto), cu(dependencies), nullptr, count, static_cast<int>(mode)),
      "cuStreamBeginCaptureToGraph");
}

// After a failure the driver has freed the graph already: its handle is dropped, never destroyed.
Status CudaDriver::captureEnd(Stream stream, Graph* graph) {
  *graph = nullptr;
  if (const Status status = haveGraphs(); status != Status::ok) return status;
  CUgraph made = nullptr;
  const Status status = context_->check(graph_.captureEnd(cu(stream), &made), "cuStreamEndCapture");
  if (status == Status::ok) *graph = reinterpret_cast<Graph>(made);
  return status;
}

Status CudaDriver::captureInfo(Stream stream, CaptureInfo* info) {
  *info = {};
  if (const Status status = haveGraphs(); status != Status::ok) return status;
  int captureStatus = 0;
  std::uint64_t id = 0;
  CUgraph graph = nullptr;
  const CUgraphNode* nodes = nullptr;
  std::size_t count = 0;
  const Status status = context_->check(
      graph_.captureInfo(cu(stream), &captureStatus, &id, &graph, &nodes, &count), "cuStreamGetCaptureInfo");
  if (status != Status::ok) return status;
  info->status = static_cast<CaptureStatus>(captureStatus);
  if (info->status != CaptureStatus::active) return Status::ok;
  info->id = id;
  info->graph = reinterpret_cast<Graph>(graph);
  for (std::size_t i = 0; i < count; ++i) info->dependencies.push_back(reinterpret_cast<GraphNode>(nodes[i]));
  return Status::ok;
}

Status CudaDriver::captureDependencies(Stream stream, const GraphNode* nodes, std::size_t count, bool add) {
  if (const Status status = haveGraphs(); status != Status::ok) return status;
  std::vector<CUgraphNode> copies(cu(nodes), cu(nodes) + count);
  return context_->check(
      graph_.captureDependencies(cu(stream), copies.data(), count, add ? kDependenciesAdd : kDependenciesSet),
      "cuStreamUpdateCaptureDependencies");
}
Status CudaDriver::captureModeExchange(CaptureMode* mode) {
  if (const Status status = haveGraphs(); status != Status::ok) return status;
  int exchanged = static_cast<int>(*mode);
  const Status status = context_->check(graph_.captureMode(&exchanged), "cuThreadExchangeStreamCaptureMode");
  if (status == Status::ok) *mode = static_cast<CaptureMode>(exchanged);
  return status;
}

// Executables.

// The call may succeed with a result that says it has not.
Status CudaDriver::graphInstantiate(GraphExec* exec, Graph graph, const InstantiateOptions& options,
                                    InstantiateResult* result) {
  *result = InstantiateResult::error;
  if (const Status status = haveGraphs(); status != Status::ok) return status;
  CUDA_GRAPH_INSTANTIATE_PARAMS params;
  params.flags = options.nodePriorities ? kInstantiatePriorities : 0;
  CUgraphExec made = nullptr;
  const CUresult code = graph_.instantiate(&made, cu(graph), &params);
  *result = static_cast<InstantiateResult>(params.result);
  if (code != kSuccess) {
    if (*result == InstantiateResult::success) *result = InstantiateResult::error;
    const Status status = context_->check(code, "cuGraphInstantiateWithParams");
    detail() += std::string(": ") + instantiateResultName(*result);
    return status;
  }
  if (*result != InstantiateResult::success)
    return fail(Status::invalidValue,
                std::string("cuGraphInstantiateWithParams: ") + instantiateResultName(*result));
  *exec = reinterpret_cast<GraphExec>(made);
  return Status::ok;
}
Status CudaDriver::execDestroy(GraphExec exec) {
  if (const Status status = haveGraphs(); status != Status::ok) return status;
  return context_->check(graph_.execDestroy(cu(exec)), "cuGraphExecDestroy");
}
Status CudaDriver::execUpload(GraphExec exec, Stream stream) {
  if (const Status status = haveGraphs(); status != Status::ok) return status;
  return context_->check(graph_.upload(cu(exec), cu(stream)), "cuGraphUpload");
}
// An executable exists, so the functions do.
Status CudaDriver::execLaunch(GraphExec exec, Stream stream) {
  return context_->check(graph_.launch(cu(exec), cu(stream)), "cuGraphLaunch");
}
Status CudaDriver::execUpdate(GraphExec exec, Graph graph, UpdateResult* result) {
  *result = UpdateResult::error;
  if (const Status status = haveGraphs(); status != Status::ok) return status;
  CUgraphExecUpdateResultInfo info;
  const Status status = context_->check(graph_.execUpdate(cu(exec), cu(graph), &info), "cuGraphExecUpdate");
  *result = static_cast<UpdateResult>(info.result);
  if (status == Status::ok) return status;
  if (*result == UpdateResult::success) *result = UpdateResult::error;
  detail() += std::string(": ") + updateResultName(*result);
  return status;
}
Status CudaDriver::execNodeUpdate(GraphExec exec, GraphNode node, const NodeParams& params) {
  if (const Status status = haveGraphs(); status != Status::ok) return status;
  KernelNode made;
  if (const Status status = nodeParams(params, &made); status != Status::ok) return status;
  return context_->check(graph_.execSetParams(cu(exec), cu(node), &made.params), "cuGraphExecNodeSetParams");
}
Status CudaDriver::execNodeEnable(GraphExec exec, GraphNode node, bool enabled) {
  if (const Status status = haveGraphs(); status != Status::ok) return status;
  return context_->check(graph_.setEnabled(cu(exec), cu(node), enabled ? 1 : 0), "cuGraphNodeSetEnabled");
}
Status CudaDriver::execNodeEnabled(GraphExec exec, GraphNode node, bool* enabled) {
  if (const Status status = haveGraphs(); status != Status::ok) return status;
  unsigned value = 0;
  const Status status =
      context_->check(graph_.getEnabled(cu(exec), cu(node), &value), "cuGraphNodeGetEnabled");
  if (status == Status::ok) *enabled = value != 0;
  return status;
}

// User objects. The only flag there is says that no call waits for the destructor; it is mandatory.

Status CudaDriver::userObjectCreate(UserObject* object, void (*destroy)(void*), void* data, unsigned count) {
  if (const Status status = haveGraphs(); status != Status::ok) return status;
  return context_->check(graph_.userObjectCreate(reinterpret_cast<CUuserObject*>(object), data, destroy,
                                                 count, kUserObjectNoSync),
                         "cuUserObjectCreate");
}
Status CudaDriver::userObjectRetain(UserObject object, unsigned count) {
  if (const Status status = haveGraphs(); status != Status::ok) return status;
  return context_->check(graph_.userObjectRetain(cu(object), count), "cuUserObjectRetain");
}
Status CudaDriver::userObjectRelease(UserObject object, unsigned count) {
  if (const Status status = haveGraphs(); status != Status::ok) return status;
  return context_->check(graph_.userObjectRelease(cu(object), count), "cuUserObjectRelease");
}
Status CudaDriver::graphRetain(Graph graph, UserObject object, unsigned count, bool move) {
  if (const Status status = haveGraphs(); status != Status::ok) return status;
  return context_->check(graph_.retain(cu(graph), cu(object), count, move ? kUserObjectMove : 0),
                         "cuGraphRetainUserObject");
}
Status CudaDriver::graphRelease(Graph graph, UserObject object, unsigned count) {
  if (const Status status = haveGraphs(); status != Status::ok) return status;
  return context_->check(graph_.release(cu(graph), cu(object), count), "cuGraphReleaseUserObject");
}

}  // namespace braid::cuda
