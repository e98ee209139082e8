#include "host/graphs.h"

#include <algorithm>
#include <set>

namespace braid::host {
namespace {

template <class Handle>
std::uint64_t number(Handle handle) {
  return reinterpret_cast<std::uint64_t>(handle);
}

template <class Handle>
Handle handle(std::uint64_t number) {
  return reinterpret_cast<Handle>(number);
}

}  // namespace

Graphs::Graphs(std::uint16_t graphTag, std::uint16_t nodeTag, std::uint16_t execTag, std::uint16_t userTag)
    : graphTag_(std::uint64_t{graphTag} << 48),
      nodeTag_(std::uint64_t{nodeTag} << 48),
      execTag_(std::uint64_t{execTag} << 48),
      users_(userTag) {}

Status Graphs::wrong(Status status, std::string words, std::string* detail) {
  *detail = std::move(words);
  return status;
}
Status Graphs::unknownGraph(std::string* detail) {
  return wrong(Status::invalidValue, "not a graph of this device: null, destroyed, or another's", detail);
}
Status Graphs::unknownNode(std::string* detail) {
  return wrong(Status::invalidValue, "not a node of this graph: null, destroyed, or another's", detail);
}
Status Graphs::unknownExec(std::string* detail) {
  return wrong(Status::invalidValue, "not an executable graph of this device: null, destroyed, or another's",
               detail);
}

GraphData* Graphs::find(Graph graph) const {
  const auto found = graphs_.find(number(graph));
  return found == graphs_.end() ? nullptr : found->second;
}
NodeData* Graphs::find(GraphNode node) const {
  const auto found = nodes_.find(number(node));
  return found == nodes_.end() ? nullptr : found->second;
}
ExecData* Graphs::findExec(GraphExec exec) const {
  const auto found = execs_.find(number(exec));
  return found == execs_.end() ? nullptr : found->second.get();
}

void Graphs::name(GraphData& graph) {
  graph.id = graphTag_ | ++made_;
  graphs_[graph.id] = &graph;
}
void Graphs::name(NodeData& node) {
  node.id = nodeTag_ | ++made_;
  nodes_[node.id] = &node;
}
void Graphs::forgetGraph(const GraphData& graph) {
  graphs_.erase(graph.id);
  for (const auto& node : graph.nodes) forgetNode(*node);
}
void Graphs::forgetNode(const NodeData& node) {
  nodes_.erase(node.id);
  for (const auto& body : node.bodies) forgetGraph(*body);
}
std::unique_ptr<GraphData> Graphs::copyOf(const GraphData& graph) {
  return copyGraph(
      graph, &users_, [this](GraphData& made) { name(made); }, [this](NodeData& made) { name(made); });
}

// Definitions.

Status Graphs::create(Graph* graph, std::string*) {
  std::lock_guard lock(mutex_);
  auto made = std::make_unique<GraphData>(&users_);
  name(*made);
  *graph = handle<Graph>(made->id);
  roots_[made->id] = std::move(made);
  return Status::ok;
}

Status Graphs::destroy(Graph graph, std::string* detail) {
  std::lock_guard lock(mutex_);
  const auto found = roots_.find(number(graph));
  if (found == roots_.end()) {
    if (find(graph))
      return wrong(Status::invalidValue, "a graph inside a node goes with its node, and not before", detail);
    return unknownGraph(detail);
  }
  forgetGraph(*found->second);
  roots_.erase(found);
  return Status::ok;
}

Status Graphs::clone(Graph* clone, Graph graph, std::string* detail) {
  std::lock_guard lock(mutex_);
  const GraphData* from = find(graph);
  if (!from) return unknownGraph(detail);
  if (const Status status = copyable(*from, detail); status != Status::ok) return status;
  auto made = copyOf(*from);
  *clone = handle<Graph>(made->id);
  roots_[made->id] = std::move(made);
  return Status::ok;
}

Status Graphs::findInClone(GraphNode* node, GraphNode original, Graph clone, std::string* detail) {
  std::lock_guard lock(mutex_);
  const GraphData* graph = find(clone);
  if (!graph) return unknownGraph(detail);
  for (const auto& each : graph->nodes)
    if (each->original == number(original) && original != nullptr) {
      *node = handle<GraphNode>(each->id);
      return Status::ok;
    }
  return wrong(Status::invalidValue, "the graph is no clone of the node's, or its copy was destroyed",
               detail);
}

Status Graphs::nodes(Graph graph, std::vector<GraphNode>* nodes, std::string* detail) {
  std::lock_guard lock(mutex_);
  const GraphData* found = find(graph);
  if (!found) return unknownGraph(detail);
  nodes->clear();
  for (const auto& node : found->nodes) nodes->push_back(handle<GraphNode>(node->id));
  return Status::ok;
}

Status Graphs::edges(Graph graph, std::vector<GraphEdge>* edges, std::string* detail) {
  std::lock_guard lock(mutex_);
  const GraphData* found = find(graph);
  if (!found) return unknownGraph(detail);
  edges->clear();
  for (const auto& node : found->nodes)
    for (const NodeData* dependency : node->dependencies)
      edges->push_back({handle<GraphNode>(dependency->id), handle<GraphNode>(node->id)});
  return Status::ok;
}

Status Graphs::addEdges(Graph graph, const GraphEdge* edges, std::size_t count, std::string* detail) {
  std::lock_guard lock(mutex_);
  const GraphData* found = find(graph);
  if (!found) return unknownGraph(detail);
  std::set<std::pair<NodeData*, NodeData*>> added;
  for (std::size_t i = 0; i < count; ++i) {
    NodeData* from = find(edges[i].from);
    NodeData* to = find(edges[i].to);
    if (!from || !to || from->graph != found || to->graph != found) return unknownNode(detail);
    if (from == to) return wrong(Status::invalidValue, "an edge from a node to itself", detail);
    if (std::ranges::find(to->dependencies, from) != to->dependencies.end() ||
        !added.emplace(from, to).second)
      return wrong(Status::invalidValue, "the edge exists already", detail);
  }
  for (std::size_t i = 0; i < count; ++i) find(edges[i].to)->dependencies.push_back(find(edges[i].from));
  return Status::ok;
}

Status Graphs::removeEdges(Graph graph, const GraphEdge* edges, std::size_t count, std::string* detail) {
  std::lock_guard lock(mutex_);
  const GraphData* found = find(graph);
  if (!found) return unknownGraph(detail);
  if (found->hasMemory())
    return wrong(Status::notSupported, "a graph with memory nodes loses no edge", detail);
  std::set<std::pair<NodeData*, NodeData*>> removed;
  for (std::size_t i = 0; i < count; ++i) {
    NodeData* from = find(edges[i].from);
    NodeData* to = find(edges[i].to);
    if (!from || !to || from->graph != found || to->graph != found) return unknownNode(detail);
    if (std::ranges::find(to->dependencies, from) == to->dependencies.end() ||
        !removed.emplace(from, to).second)
      return wrong(Status::invalidValue, "there is no such edge", detail);
  }
  for (const auto& [from, to] : removed) std::erase(to->dependencies, from);
  return Status::ok;
}

Status Graphs::dot(Graph graph, std::string* text, std::string* detail) {
  std::lock_guard lock(mutex_);
  const GraphData* found = find(graph);
  if (!found) return unknownGraph(detail);
  *text = dotText(*found);
  return Status::ok;
}

// Nodes.

Status Graphs::find(const GraphData& graph, const GraphNode* nodes, std::size_t count,
                    std::vector<NodeData*>* found, std::string* detail) const {
  for (std::size_t i = 0; i < count; ++i) {
    NodeData* node = find(nodes[i]);
    if (!node || node->graph != &graph) return unknownNode(detail);
    if (std::ranges::find(*found, node) != found->end())
      return wrong(Status::invalidValue, "a dependency is named twice", detail);
    found->push_back(node);
  }
  return Status::ok;
}

// A condition is of one graph, from when it is made on, and so are a conditional node and its bodies.
Status Graphs::copyable(const GraphData& graph, std::string* detail) {
  if (graph.isConditional())
    return wrong(Status::notSupported, "a body of a conditional node cannot be copied", detail);
  if (graph.hasMemory())
    return wrong(Status::notSupported, "a graph with memory nodes cannot be copied", detail);
  if (!graph.hasCondition() && !graph.contains(NodeKind::conditional)) return Status::ok;
  return wrong(Status::notSupported, "a graph that a condition was made for cannot be copied", detail);
}

Status Graphs::embeddable(const GraphData& child, const GraphData& into, std::string* detail) const {
  if (child.root() == into.root())
    return wrong(Status::invalidValue, "a graph cannot become a part of itself", detail);
  if (const Status status = copyable(child, detail); status != Status::ok) return status;
  if (child.owner)
    return wrong(Status::notSupported, "a graph inside another one is copied before it is embedded", detail);
  if (into.isConditional())
    for (const NodeKind kind : {NodeKind::hostFunction, NodeKind::eventWait, NodeKind::eventRecord})
      if (child.contains(kind))
        return wrong(
            Status::notSupported,
            std::string("a conditional node's body cannot have a node of kind ") + nodeKindName(kind),
            detail);
  return Status::ok;
}

// The memory that a node of the graph allocates at the address, and none frees.
Status Graphs::freed(const GraphData& graph, DeviceAddress address, std::shared_ptr<GraphRange>* memory,
                     std::string* detail) {
  for (const auto& node : graph.nodes) {
    if (node->memory == nullptr || node->memory->address() != address) continue;
    if (node->kind == NodeKind::memFree)
      return wrong(Status::invalidValue, "a node of the graph frees the memory already", detail);
    *memory = node->memory;
  }
  if (*memory) return Status::ok;
  return wrong(Status::invalidValue, "not the address of memory that the graph allocates", detail);
}

Status Graphs::addTo(GraphData& graph, std::vector<NodeData*> dependencies, const NewNode& made,
                     NodeData** node, std::string* detail) {
  const bool plain = made.kind == NodeKind::kernel || made.kind == NodeKind::copy ||
                     made.kind == NodeKind::fill || made.kind == NodeKind::empty ||
                     made.kind == NodeKind::child;
  if (graph.isConditional() && !plain)
    return wrong(
        Status::notSupported,
        std::string("a conditional node's body cannot have a node of kind ") + nodeKindName(made.kind),
        detail);
  const bool ofMemory = made.kind == NodeKind::memAllocate || made.kind == NodeKind::memFree;
  if (ofMemory && graph.owner != nullptr)
    return wrong(Status::notSupported, "memory nodes are of a graph that is inside no other", detail);
  auto added = std::make_unique<NodeData>();
  added->graph = &graph;
  added->kind = made.kind;
  made.give(*added);
  if (made.kind == NodeKind::memFree)
    if (const Status status = freed(graph, made.work.to, &added->memory, detail); status != Status::ok)
      return status;
  added->dependencies = std::move(dependencies);
  if (made.kind == NodeKind::child) {
    const GraphData* child = find(made.child);
    if (!child) return unknownGraph(detail);
    if (const Status status = embeddable(*child, graph, detail); status != Status::ok) return status;
    added->bodies.push_back(copyOf(*child));
    added->bodies.back()->owner = added.get();
  }
  name(*added);
  *node = added.get();
  graph.nodes.push_back(std::move(added));
  return Status::ok;
}

Status Graphs::add(GraphNode* node, Graph graph, const GraphNode* dependencies, std::size_t count,
                   const NewNode& made, std::string* detail) {
  std::lock_guard lock(mutex_);
  GraphData* found = find(graph);
  if (!found) return unknownGraph(detail);
  std::vector<NodeData*> after;
  NodeData* added = nullptr;
  Status status = find(*found, dependencies, count, &after, detail);
  if (status == Status::ok) status = addTo(*found, std::move(after), made, &added, detail);
  if (status == Status::ok) *node = handle<GraphNode>(added->id);
  return status;
}

Status Graphs::destroyNode(GraphNode node, std::string* detail) {
  std::lock_guard lock(mutex_);
  NodeData* found = find(node);
  if (!found) return unknownNode(detail);
  GraphData& graph = *found->graph;
  if (graph.hasMemory())
    return wrong(Status::notSupported, "a graph with memory nodes loses no node", detail);
  for (const auto& each : graph.nodes) std::erase(each->dependencies, found);
  forgetNode(*found);
  std::erase_if(graph.nodes, [&](const auto& each) { return each.get() == found; });
  return Status::ok;
}

Status Graphs::update(GraphNode node, const NewNode& made, std::string* detail) {
  std::lock_guard lock(mutex_);
  NodeData* found = find(node);
  if (!found) return unknownNode(detail);
  if (found->kind != made.kind)
    return wrong(Status::invalidValue, std::string("the node is of kind ") + nodeKindName(found->kind),
                 detail);
  if (made.kind == NodeKind::empty || made.kind == NodeKind::memFree || made.kind == NodeKind::conditional)
    return wrong(Status::invalidValue, "a node of this kind has no parameters that change", detail);
  if (made.kind == NodeKind::child) {
    const GraphData* child = find(made.child);
    if (!child) return unknownGraph(detail);
    if (const Status status = embeddable(*child, *found->graph, detail); status != Status::ok) return status;
    auto copy = copyOf(*child);
    copy->owner = found;
    forgetGraph(*found->bodies[0]);
    found->bodies[0] = std::move(copy);
    return Status::ok;
  }
  made.give(*found);
  return Status::ok;
}

Status Graphs::kind(GraphNode node, NodeKind* kind, std::string* detail) {
  std::lock_guard lock(mutex_);
  const NodeData* found = find(node);
  if (!found) return unknownNode(detail);
  *kind = found->kind;
  return Status::ok;
}

Status Graphs::child(GraphNode node, Graph* child, std::string* detail) {
  std::lock_guard lock(mutex_);
  const NodeData* found = find(node);
  if (!found) return unknownNode(detail);
  if (found->kind != NodeKind::child)
    return wrong(Status::invalidValue, std::string("the node is of kind ") + nodeKindName(found->kind),
                 detail);
  *child = handle<Graph>(found->bodies[0]->id);
  return Status::ok;
}

Status Graphs::createCondition(Condition* condition, Graph graph, bool assign, std::uint32_t initial,
                               std::string* detail) {
  std::lock_guard lock(mutex_);
  GraphData* found = find(graph);
  if (!found) return unknownGraph(detail);
  *condition = graphTag_ | ++made_;
  found->conditions.push_back({*condition, assign, initial});
  return Status::ok;
}

Status Graphs::addConditional(GraphNode* node, Graph graph, const GraphNode* dependencies, std::size_t count,
                              Condition condition, ConditionalKind kind, Graph* bodies, std::size_t bodyCount,
                              std::string* detail) {
  std::lock_guard lock(mutex_);
  GraphData* found = find(graph);
  if (!found) return unknownGraph(detail);
  const std::size_t most = kind == ConditionalKind::branch ? 2 : kind == ConditionalKind::loop ? 1 : SIZE_MAX;
  if (bodyCount == 0 || bodyCount > most)
    return wrong(
        Status::invalidValue,
        "an if has 1 or 2 bodies, a loop has 1, a switch 1 or more; given: " + std::to_string(bodyCount),
        detail);
  const bool known = std::ranges::any_of(
      found->conditions, [&](const Image::Initial& made) { return made.condition == condition; });
  if (!known) return wrong(Status::invalidValue, "the condition was made for another graph", detail);
  std::vector<NodeData*> after;
  if (const Status status = find(*found, dependencies, count, &after, detail); status != Status::ok)
    return status;
  auto added = std::make_unique<NodeData>();
  added->graph = found;
  added->kind = NodeKind::conditional;
  added->condition = condition;
  added->conditional = kind;
  added->dependencies = std::move(after);
  for (std::size_t i = 0; i < bodyCount; ++i) {
    auto body = std::make_unique<GraphData>(&users_);
    body->owner = added.get();
    name(*body);
    bodies[i] = handle<Graph>(body->id);
    added->bodies.push_back(std::move(body));
  }
  name(*added);
  *node = handle<GraphNode>(added->id);
  found->nodes.push_back(std::move(added));
  return Status::ok;
}

// User objects.

Status Graphs::retain(Graph graph, UserObject object, std::uint64_t count, bool move, std::string* detail) {
  std::lock_guard lock(mutex_);
  GraphData* found = find(graph);
  if (!found) return unknownGraph(detail);
  if (count == 0 || !found->users.retain(number(object), count, move))
    return wrong(Status::invalidValue, "not a user object of this device, or no references", detail);
  return Status::ok;
}

Status Graphs::release(Graph graph, UserObject object, std::uint64_t count, std::string* detail) {
  std::lock_guard lock(mutex_);
  GraphData* found = find(graph);
  if (!found) return unknownGraph(detail);
  if (count == 0 || !found->users.release(number(object), count))
    return wrong(Status::invalidValue, "the graph does not hold so many references to the user object",
                 detail);
  return Status::ok;
}

}  // namespace braid::host
