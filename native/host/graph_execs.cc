#include <algorithm>

#include "host/graphs.h"

// Executables: copies of definitions, whose nodes are addressed by those of the definition.

namespace braid::host {
namespace {

bool mayBeDisabled(NodeKind kind) {
  return kind == NodeKind::kernel || kind == NodeKind::copy || kind == NodeKind::fill;
}

// Nodes are still addressed by the graph that was instantiated, and stay disabled, those inside too.
void keepNodes(const Image& before, Image& after) {
  after.indexOf = before.indexOf;
  for (std::size_t i = 0; i < after.nodes.size(); ++i) {
    ImageNode& node = after.nodes[i];
    node.source = before.nodes[i].source;
    node.enabled = before.nodes[i].enabled;
    for (std::size_t body = 0; body < node.bodies.size(); ++body) {
      const auto kept = std::make_shared<Image>(*node.bodies[body]);
      keepNodes(*before.nodes[i].bodies[body], *kept);
      node.bodies[body] = kept;
    }
  }
}

}  // namespace

Status Graphs::instantiate(GraphExec* exec, Graph graph, InstantiateResult* result, std::string* detail) {
  std::lock_guard lock(mutex_);
  *result = InstantiateResult::error;
  const GraphData* found = find(graph);
  if (!found) return unknownGraph(detail);
  if (found->isConditional())
    return wrong(Status::notSupported, "a body of a conditional node runs with the graph around it", detail);
  if (found->owner)
    return wrong(Status::notSupported, "a graph inside another one runs with the graph around it", detail);
  if ((found->contains(NodeKind::conditional) || found->hasMemory()) &&
      std::ranges::any_of(execs_, [&](const auto& exec) { return exec.second->graph == found->id; }))
    return wrong(Status::notSupported,
                 "a graph with conditional or memory nodes has one executable at a time", detail);
  auto made = std::make_unique<ExecData>();
  made->graph = found->id;
  made->image = makeImage(*found, result);
  if (!made->image)
    return wrong(Status::invalidValue, std::string("the graph cannot run: ") + instantiateResultName(*result),
                 detail);
  auto users = std::make_shared<UserReferences>(&users_);
  collectUsers(*found, users.get());
  made->users = std::move(users);
  const std::uint64_t id = execTag_ | ++made_;
  *exec = reinterpret_cast<GraphExec>(id);
  execs_[id] = std::move(made);
  return Status::ok;
}

Status Graphs::destroyExec(GraphExec exec, std::string* detail) {
  std::lock_guard lock(mutex_);
  return execs_.erase(reinterpret_cast<std::uint64_t>(exec)) > 0 ? Status::ok : unknownExec(detail);
}

Status Graphs::updateExec(GraphExec exec, Graph graph, UpdateResult* result, std::string* detail) {
  std::lock_guard lock(mutex_);
  *result = UpdateResult::error;
  ExecData* found = findExec(exec);
  if (!found) return unknownExec(detail);
  const GraphData* from = find(graph);
  if (!from) return unknownGraph(detail);
  if (from->owner)
    return wrong(Status::invalidValue, "a graph inside another one is copied before it is taken over",
                 detail);
  InstantiateResult made = InstantiateResult::error;
  auto image = makeImage(*from, &made);
  *result = image ? comparable(*found->image, *image) : UpdateResult::topologyChanged;
  if (*result != UpdateResult::success)
    return wrong(Status::graphExecUpdateFailure,
                 std::string("the executable was not updated: ") + updateResultName(*result), detail);
  keepNodes(*found->image, *image);
  auto users = std::make_shared<UserReferences>(&users_);
  collectUsers(*from, users.get());
  found->image = std::move(image);
  found->users = std::move(users);
  found->flights = std::make_shared<std::atomic<std::uint64_t>>(0);
  return Status::ok;
}

// Launches that are queued keep the image that they were queued with.
Image& Graphs::writable(ExecData& exec) {
  if (exec.flights->load(std::memory_order_acquire) > 0) {
    exec.image = std::make_shared<Image>(*exec.image);
    exec.flights = std::make_shared<std::atomic<std::uint64_t>>(0);
  }
  return *exec.image;
}

ImageNode& Graphs::writable(ExecData& exec, const ExecPlace& place) {
  Image* image = &writable(exec);
  for (const auto& [index, body] : place.around) {
    std::shared_ptr<const Image>& inner = image->nodes[index].bodies[body];
    const auto copy = std::make_shared<Image>(*inner);
    inner = copy;
    image = copy.get();
  }
  return image->nodes[place.index];
}

Status Graphs::execNode(GraphExec exec, GraphNode node, ExecData** found, ExecPlace* place,
                        std::string* detail) const {
  *found = findExec(exec);
  if (!*found) return unknownExec(detail);
  const auto noNode = [](std::string* words) {
    return wrong(Status::invalidValue,
                 "not a node that the executable has: added after it was made, destroyed, or another's",
                 words);
  };
  const NodeData* data = find(node);
  if (!data) return noNode(detail);
  const Image* image = (*found)->image.get();
  // The node and those around it, up to the one that is of the graph that was instantiated.
  std::vector<const NodeData*> path{data};
  while (!image->indexOf.contains(path.back()->id)) {
    if (path.back()->graph->owner == nullptr) return noNode(detail);
    path.push_back(path.back()->graph->owner);
  }
  for (; path.size() > 1; path.pop_back()) {
    const std::uint32_t index = image->indexOf.at(path.back()->id);
    const GraphData* inside = path[path.size() - 2]->graph;
    const auto& bodies = path.back()->bodies;
    const auto body = static_cast<std::size_t>(
        std::ranges::find(bodies, inside, &std::unique_ptr<GraphData>::get) - bodies.begin());
    place->around.emplace_back(index, body);
    image = image->nodes[index].bodies[body].get();
    // A child that the definition was given later.
    if (!image->indexOf.contains(path[path.size() - 2]->id)) return noNode(detail);
  }
  place->index = image->indexOf.at(data->id);
  place->node = &image->nodes[place->index];
  return Status::ok;
}

Status Graphs::updateExecNode(GraphExec exec, GraphNode node, const NewNode& made, std::string* detail) {
  std::lock_guard lock(mutex_);
  ExecData* found = nullptr;
  ExecPlace place;
  if (const Status status = execNode(exec, node, &found, &place, detail); status != Status::ok) return status;
  const ImageNode& before = *place.node;
  if (before.kind != made.kind)
    return wrong(Status::invalidValue, std::string("the node is of kind ") + nodeKindName(before.kind),
                 detail);
  if (made.kind == NodeKind::empty || made.kind == NodeKind::memFree || made.kind == NodeKind::conditional)
    return wrong(Status::invalidValue, "a node of this kind has no parameters that change", detail);
  if (made.device != before.device)
    return wrong(Status::invalidValue, "the device of a node cannot change", detail);
  if (made.kind == NodeKind::copy && made.work.copyKind != before.work.copyKind)
    return wrong(Status::invalidValue, "the kinds of memory of a copy cannot change", detail);
  if (made.kind != NodeKind::child) {
    made.give(writable(*found, place));
    return Status::ok;
  }
  const GraphData* child = find(made.child);
  if (!child) return unknownGraph(detail);
  InstantiateResult result = InstantiateResult::error;
  auto body = makeImage(*child, &result);
  const UpdateResult fits = body ? comparable(*before.bodies[0], *body) : UpdateResult::topologyChanged;
  if (fits != UpdateResult::success)
    return wrong(Status::invalidValue, std::string("the child graph does not fit: ") + updateResultName(fits),
                 detail);
  keepNodes(*before.bodies[0], *body);
  writable(*found, place).bodies[0] = std::move(body);
  auto users = std::make_shared<UserReferences>(*found->users);
  collectUsers(*child, users.get());
  found->users = std::move(users);
  return Status::ok;
}

Status Graphs::enable(GraphExec exec, GraphNode node, bool enabled, std::string* detail) {
  std::lock_guard lock(mutex_);
  ExecData* found = nullptr;
  ExecPlace place;
  if (const Status status = execNode(exec, node, &found, &place, detail); status != Status::ok) return status;
  if (!mayBeDisabled(place.node->kind))
    return wrong(Status::invalidValue, "only kernels, copies and fills can be disabled", detail);
  writable(*found, place).enabled = enabled;
  return Status::ok;
}

Status Graphs::isEnabled(GraphExec exec, GraphNode node, bool* enabled, std::string* detail) {
  std::lock_guard lock(mutex_);
  ExecData* found = nullptr;
  ExecPlace place;
  if (const Status status = execNode(exec, node, &found, &place, detail); status != Status::ok) return status;
  if (!mayBeDisabled(place.node->kind))
    return wrong(Status::invalidValue, "only kernels, copies and fills can be disabled", detail);
  *enabled = place.node->enabled;
  return Status::ok;
}

}  // namespace braid::host
