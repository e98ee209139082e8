// The graph functions of the fake driver: graphs are kept, copied and run node by node, user objects are
// counted.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "test/cuda/fake/state.h"

namespace fake {

struct FakeUser {
  CUhostFn destroy;
  void* data;
  unsigned count;
};

struct FakeNode {
  CUgraphNodeParams params;
  std::vector<std::uint64_t> arguments;
  std::vector<FakeNode*> dependencies;
  std::vector<std::unique_ptr<FakeGraph>> bodies;
  std::vector<CUgraph> handles;
  FakeGraph* graph = nullptr;
  FakeNode* original = nullptr;
  std::shared_ptr<void> memory;  // of a node that allocates
  bool enabled = true;
};

void drop(FakeUser* user, unsigned count) {
  if ((user->count -= count) > 0) return;
  user->destroy(user->data);
  delete user;
  gone("user object");
}

struct FakeGraph {
  std::vector<std::unique_ptr<FakeNode>> nodes;
  std::map<FakeUser*, unsigned> users;
  std::set<CUgraphConditionalHandle> conditions;
  FakeGraph() { born("graph"); }
  ~FakeGraph() {
    for (const auto& [user, count] : users) drop(user, count);
    gone("graph");
  }
};

namespace {

FakeGraph* of(CUgraph graph) { return reinterpret_cast<FakeGraph*>(graph); }
FakeNode* of(CUgraphNode node) { return reinterpret_cast<FakeNode*>(node); }
FakeStream* of(CUstream stream) { return reinterpret_cast<FakeStream*>(stream); }

void set(FakeNode& node, const CUgraphNodeParams& params);

std::unique_ptr<FakeGraph> copy(const FakeGraph& from) {
  auto made = std::make_unique<FakeGraph>();
  made->users = from.users;
  made->conditions = from.conditions;
  for (const auto& [user, count] : made->users) user->count += count;
  std::map<const FakeNode*, FakeNode*> copies;
  for (const auto& node : from.nodes) {
    auto each = std::make_unique<FakeNode>();
    each->params = node->params;
    each->arguments = node->arguments;
    each->memory = node->memory;
    each->graph = made.get();
    each->original = node.get();
    each->enabled = node->enabled;
    for (const auto& body : node->bodies) {
      each->bodies.push_back(copy(*body));
      each->handles.push_back(reinterpret_cast<CUgraph>(each->bodies.back().get()));
    }
    copies[node.get()] = each.get();
    made->nodes.push_back(std::move(each));
  }
  for (const auto& node : from.nodes)
    for (FakeNode* dependency : node->dependencies)
      copies[node.get()]->dependencies.push_back(copies[dependency]);
  return made;
}

void set(FakeNode& node, const CUgraphNodeParams& params) {
  node.params = params;
  // The driver copies arguments when a node is added or changed.
  if (params.type == 0)
    node.arguments.assign(
        1, params.kernel.arguments ? *static_cast<std::uint64_t*>(params.kernel.arguments[0]) : 0);
  if (params.type == 4) {
    node.bodies.clear();
    node.handles.clear();
    node.bodies.push_back(copy(*of(params.child.graph)));
    node.handles.push_back(reinterpret_cast<CUgraph>(node.bodies.back().get()));
  }
}

FakeNode* append(FakeGraph& graph, const CUgraphNodeParams& params, std::vector<FakeNode*> dependencies) {
  auto made = std::make_unique<FakeNode>();
  made->graph = &graph;
  set(*made, params);
  made->dependencies = std::move(dependencies);
  graph.nodes.push_back(std::move(made));
  return graph.nodes.back().get();
}

// Memory of the context that is current, which is the allocating device's.
std::shared_ptr<void> allocate(CUDA_MEM_ALLOC_NODE_PARAMS& params) {
  void* made = std::aligned_alloc(512, (params.bytes + 511) / 512 * 512);
  params.address = reinterpret_cast<CUdeviceptr>(made);
  born("graph memory");
  const std::lock_guard lock(state().mutex);
  state().owners[params.address] = currentContext();
  return {made, [](void* memory) {
            gone("graph memory");
            const std::lock_guard freed(state().mutex);
            state().owners.erase(reinterpret_cast<CUdeviceptr>(memory));
            std::free(memory);
          }};
}

// Of memory that a node of the graph allocates, and none frees.
bool freeable(const FakeGraph& graph, CUdeviceptr address) {
  bool allocated = false;
  for (const auto& node : graph.nodes) {
    if (node->params.type == 11 && node->params.free.address == address) return false;
    allocated |= node->params.type == 10 && node->params.allocate.address == address;
  }
  return allocated;
}

bool valid(const CUgraphNodeParams& params) {
  if (params.type == 10) {
    const auto& pool = params.allocate.pool;
    return pool.allocType == 1 && pool.location.type == 1 && pool.location.id >= 0 && pool.maxSize == 0 &&
           params.allocate.accessCount == 0 && params.allocate.bytes > 0 && params.allocate.address == 0;
  }
  if (params.type == 2)
    return (params.memset.elementBytes == 1 || params.memset.elementBytes == 2 ||
            params.memset.elementBytes == 4) &&
           ownerOf(params.memset.to) == params.memset.context;
  if (params.type == 1)
    return params.memcpy.context != nullptr && params.memcpy.copy.height == 1 &&
           params.memcpy.copy.depth == 1;
  if (params.type == 4) return params.child.graph != nullptr;
  return true;
}

void run(FakeGraph& graph);

void run(FakeNode& node) {
  if (!node.enabled) return;
  const CUgraphNodeParams& params = node.params;
  if (params.type == 0) launchKernel(params.kernel.function);
  if (params.type == 1) {
    const CUDA_MEMCPY3D& copy = params.memcpy.copy;
    void* to = copy.dstMemoryType == kMemoryHost ? copy.dstHost : reinterpret_cast<void*>(copy.dstDevice);
    const void* from =
        copy.srcMemoryType == kMemoryHost ? copy.srcHost : reinterpret_cast<const void*>(copy.srcDevice);
    std::memmove(to, from, copy.widthInBytes);
  }
  if (params.type == 2)
    for (std::size_t row = 0; row < params.memset.height; ++row)
      for (std::size_t i = 0; i < params.memset.width; ++i)
        std::memcpy(reinterpret_cast<char*>(params.memset.to) + row * params.memset.pitch +
                        i * params.memset.elementBytes,
                    &params.memset.value, params.memset.elementBytes);
  if (params.type == 3) params.host.function(params.host.data);
  if (params.type == 4) run(*node.bodies[0]);
}

void run(FakeGraph& graph) {
  std::set<FakeNode*> done;
  while (done.size() < graph.nodes.size())
    for (const auto& node : graph.nodes) {
      if (done.contains(node.get())) continue;
      if (!std::ranges::all_of(node->dependencies, [&](FakeNode* each) { return done.contains(each); }))
        continue;
      run(*node);
      done.insert(node.get());
    }
}

bool cyclic(const FakeGraph& graph) {
  std::set<const FakeNode*> done;
  for (std::size_t turn = 0; turn < graph.nodes.size(); ++turn)
    for (const auto& node : graph.nodes)
      if (std::ranges::all_of(node->dependencies, [&](FakeNode* each) { return done.contains(each); }))
        done.insert(node.get());
  return done.size() < graph.nodes.size();
}

FakeNode* counterpart(CUgraphExec exec, CUgraphNode node) {
  for (const auto& each : reinterpret_cast<FakeGraph*>(exec)->nodes)
    if (each->original == of(node)) return each.get();
  return nullptr;
}

}  // namespace

CUgraphNodeParams copyOf(CUdeviceptr to, CUdeviceptr from, std::size_t bytes) {
  CUgraphNodeParams params;
  params.type = 1;
  CUDA_MEMCPY3D copy;
  copy.srcMemoryType = copy.dstMemoryType = kMemoryDevice;
  copy.srcDevice = from;
  copy.dstDevice = to;
  copy.widthInBytes = bytes;
  copy.height = copy.depth = 1;
  params.memcpy = {0, 0, nullptr, copy};
  return params;
}

bool captured(CUstream stream, const CUgraphNodeParams& params, CUresult* result, bool early) {
  if (stream == nullptr || of(stream)->capture == nullptr) return false;
  FakeStream& on = *of(stream);
  *result = on.invalid ? 901 : 0;
  if (!mayQueue(stream)) return *result = 400, true;
  // The edge from a kernel to one that may start early is programmatic.
  if (early && on.last && on.last->params.type == 0 && gate("programmatic edge")) return *result = 1, true;
  if (!on.invalid)
    on.last = append(*on.capture, params, on.last ? std::vector{on.last} : std::vector<FakeNode*>{});
  return true;
}

}  // namespace fake

using namespace fake;

CALL(cuGraphCreate, (CUgraph * graph, unsigned)) * graph = reinterpret_cast<CUgraph>(new FakeGraph);
END CALL(cuGraphDestroy, (CUgraph graph)) delete of(graph);
END CALL(cuGraphClone,
         (CUgraph * clone, CUgraph graph)) * clone = reinterpret_cast<CUgraph>(copy(*of(graph)).release());
END CALL(cuGraphNodeFindInClone,
         (CUgraphNode * found, CUgraphNode original,
          CUgraph clone)) for (const auto& node : of(clone)->nodes) if (node->original == of(original)) {
  *found = reinterpret_cast<CUgraphNode>(node.get());
  return 0;
}
return 1;
}
CALL(cuGraphGetNodes, (CUgraph graph, CUgraphNode* nodes, std::size_t* count))
if (nodes)
  for (std::size_t i = 0; i < *count; ++i)
    nodes[i] = reinterpret_cast<CUgraphNode>(of(graph)->nodes[i].get());
*count = of(graph)->nodes.size();
END CALL(cuGraphGetEdges,
         (CUgraph graph, CUgraphNode* from, CUgraphNode* to, std::size_t* count)) std::size_t edges = 0;
for (const auto& node : of(graph)->nodes)
  for (FakeNode* dependency : node->dependencies) {
    if (from) {
      from[edges] = reinterpret_cast<CUgraphNode>(dependency);
      to[edges] = reinterpret_cast<CUgraphNode>(node.get());
    }
    ++edges;
  }
*count = edges;
END CALL(cuGraphAddDependencies, (CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                  std::size_t count)) for (std::size_t i = 0; i < count;
                                                           ++i) if (from[i] == to[i] ||
                                                                    of(from[i])->graph != of(graph) ||
                                                                    of(to[i])->graph != of(graph)) return 1;
for (std::size_t i = 0; i < count; ++i) of(to[i])->dependencies.push_back(of(from[i]));
END CALL(cuGraphRemoveDependencies,
         (CUgraph, const CUgraphNode* from, const CUgraphNode* to,
          std::size_t count)) for (std::size_t i = 0; i < count;
                                   ++i) if (std::erase(of(to[i])->dependencies, of(from[i])) == 0) return 1;
END CALL(cuGraphDebugDotPrint, (CUgraph, const char* path, unsigned)) std::FILE* file = std::fopen(path, "w");
if (!file) return 304;
std::fputs("digraph dot {}", file);
std::fclose(file);
END CALL(cuGraphAddNode_v2,
         (CUgraphNode * node, CUgraph graph, const CUgraphNode* dependencies, const CUgraphEdgeData* data,
          std::size_t count, CUgraphNodeParams* params)) if (!valid(*params)) return 1;
std::vector<FakeNode*> after;
for (std::size_t i = 0; i < count; ++i) {
  if (of(dependencies[i])->graph != of(graph)) return 1;
  // An edge between two kernels may be programmatic.
  const bool kernels = params->type == 0 && of(dependencies[i])->params.type == 0;
  if (data && (data[i].type != data[i].fromPort || data[i].type > (kernels ? 1 : 0))) return 1;
  if (data && data[i].type == 1 && gate("programmatic edge")) return 1;
  after.push_back(of(dependencies[i]));
}
if (params->type == 13 &&
    (params->conditional.size == 0 || !of(graph)->conditions.contains(params->conditional.handle)))
  return 1;
if (params->type == 11 && !freeable(*of(graph), params->free.address)) return 1;
std::shared_ptr<void> memory = params->type == 10 ? allocate(params->allocate) : nullptr;
FakeNode* made = append(*of(graph), *params, std::move(after));
made->memory = std::move(memory);
if (params->type == 13) {
  for (unsigned i = 0; i < params->conditional.size; ++i) {
    made->bodies.push_back(std::make_unique<FakeGraph>());
    made->handles.push_back(reinterpret_cast<CUgraph>(made->bodies.back().get()));
  }
  params->conditional.bodies = made->handles.data();
}
*node = reinterpret_cast<CUgraphNode>(made);
END CALL(cuDeviceGetGraphMemAttribute,
         (CUdevice, int attribute, void* value)) if (attribute < 0 || attribute > 3) return 1;
*static_cast<std::uint64_t*>(value) = 1000 + static_cast<std::uint64_t>(attribute);
END CALL(cuDeviceGraphMemTrim, (CUdevice)) END
    CALL(cuGraphDestroyNode, (CUgraphNode node)) FakeGraph* graph = of(node)->graph;
for (const auto& each : graph->nodes) std::erase(each->dependencies, of(node));
std::erase_if(graph->nodes, [&](const auto& each) { return each.get() == of(node); });
END CALL(cuGraphNodeSetParams,
         (CUgraphNode node, CUgraphNodeParams* params)) if (params->type != of(node)->params.type ||
                                                            !valid(*params)) return 1;
set(*of(node), *params);
END CALL(cuGraphNodeGetType, (CUgraphNode node, int* type)) * type = of(node)->params.type;
END CALL(cuGraphChildGraphNodeGetGraph,
         (CUgraphNode node, CUgraph* graph)) if (of(node)->params.type != 4) return 1;
*graph = of(node)->handles[0];
END CALL(cuGraphConditionalHandleCreate,
         (CUgraphConditionalHandle * handle, CUgraph graph, CUcontext context, unsigned,
          unsigned flags)) static CUgraphConditionalHandle next = 100;
if (context == nullptr || flags > 1) return 1;
*handle = ++next;
of(graph)->conditions.insert(*handle);
END CALL(cuStreamBeginCapture_v2, (CUstream stream, int)) if (of(stream)->capture) return 401;
of(stream)->capture = new FakeGraph;
of(stream)->last = nullptr;
END CALL(cuStreamBeginCaptureToGraph,
         (CUstream stream, CUgraph graph, const CUgraphNode* dependencies, const CUgraphEdgeData* data,
          std::size_t count, int)) if (of(stream)->capture || data) return 401;
of(stream)->capture = of(graph);
of(stream)->last = count > 0 ? of(dependencies[0]) : nullptr;
END CALL(cuStreamEndCapture, (CUstream stream, CUgraph* graph)) * graph = nullptr;
if (!of(stream)->capture) return 401;
*graph = reinterpret_cast<CUgraph>(of(stream)->capture);
of(stream)->capture = nullptr;
END CALL(cuStreamGetCaptureInfo_v2,
         (CUstream stream, int* status, std::uint64_t* id, CUgraph* graph, const CUgraphNode** dependencies,
          std::size_t* count)) FakeStream& on = *of(stream);
*status = on.capture ? 1 : 0;
*id = 5;
*graph = reinterpret_cast<CUgraph>(on.capture);
*dependencies = reinterpret_cast<const CUgraphNode*>(&on.last);
*count = on.last ? 1 : 0;
END CALL(cuStreamUpdateCaptureDependencies,
         (CUstream stream, CUgraphNode* nodes, std::size_t count, unsigned)) of(stream)
    ->last = count > 0 ? of(nodes[0]) : nullptr;
END CALL(cuThreadExchangeStreamCaptureMode, (int* mode)) thread_local int own = 0;
std::swap(own, *mode);
END CALL(cuGraphInstantiateWithParams,
         (CUgraphExec * exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS* params)) if (cyclic(*of(graph))) {
  params->result = 2;
  return 1;
}
// A driver may say so in the result alone.
if (of(graph)->nodes.size() == 13) {
  params->result = 3;
  return 0;
}
*exec = reinterpret_cast<CUgraphExec>(copy(*of(graph)).release());
END CALL(cuGraphExecDestroy, (CUgraphExec exec)) delete reinterpret_cast<FakeGraph*>(exec);
END CALL(cuGraphUpload, (CUgraphExec, CUstream)) END CALL(cuGraphLaunch, (CUgraphExec exec, CUstream))
    run(*reinterpret_cast<FakeGraph*>(exec));
END CALL(cuGraphExecUpdate_v2,
         (CUgraphExec exec, CUgraph graph,
          CUgraphExecUpdateResultInfo* result)) FakeGraph& old = *reinterpret_cast<FakeGraph*>(exec);
if (old.nodes.size() != of(graph)->nodes.size()) {
  result->result = 2;
  return 910;
}
auto made = copy(*of(graph));
for (std::size_t i = 0; i < old.nodes.size(); ++i) made->nodes[i]->original = old.nodes[i]->original;
std::swap(old.nodes, made->nodes);
std::swap(old.users, made->users);
END CALL(cuGraphExecNodeSetParams, (CUgraphExec exec, CUgraphNode node,
                                    CUgraphNodeParams* params)) FakeNode* found = counterpart(exec, node);
if (!found || found->params.type != params->type || !valid(*params)) return 1;
set(*found, *params);
END CALL(cuGraphNodeSetEnabled,
         (CUgraphExec exec, CUgraphNode node, unsigned enabled)) FakeNode* found = counterpart(exec, node);
if (!found || found->params.type > 2) return 1;
found->enabled = enabled != 0;
END CALL(cuGraphNodeGetEnabled,
         (CUgraphExec exec, CUgraphNode node, unsigned* enabled)) FakeNode* found = counterpart(exec, node);
if (!found || found->params.type > 2) return 1;
*enabled = found->enabled;
END CALL(cuUserObjectCreate,
         (CUuserObject * object, void* data, CUhostFn destroy, unsigned count,
          unsigned flags)) if (flags != kUserObjectNoSync || count == 0 || !destroy) return 1;
*object = reinterpret_cast<CUuserObject>(new FakeUser{destroy, data, count});
born("user object");
END CALL(cuUserObjectRetain, (CUuserObject object, unsigned count)) reinterpret_cast<FakeUser*>(object)->count
    += count;
END CALL(cuUserObjectRelease, (CUuserObject object, unsigned count))
    drop(reinterpret_cast<FakeUser*>(object), count);
END CALL(cuGraphRetainUserObject, (CUgraph graph, CUuserObject object, unsigned count,
                                   unsigned flags)) auto* user = reinterpret_cast<FakeUser*>(object);
of(graph)->users[user] += count;
if (flags != kUserObjectMove) user->count += count;
END CALL(cuGraphReleaseUserObject, (CUgraph graph, CUuserObject object,
                                    unsigned count)) auto* user = reinterpret_cast<FakeUser*>(object);
if (of(graph)->users[user] < count) return 1;
if ((of(graph)->users[user] -= count) == 0) of(graph)->users.erase(user);
drop(user, count);
END
