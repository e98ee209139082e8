#include "graphs/definition.h"

#include <algorithm>

namespace braid::graphs {

Hierarchy::Hierarchy(std::shared_ptr<Driver> owningDriver, std::shared_ptr<CleanupQueue> ownersQueue,
                     Graph handle)
    : driver(std::move(owningDriver)), queue(std::move(ownersQueue)), root(std::make_shared<GraphRecord>()) {
  root->handle = handle;
}

Hierarchy::~Hierarchy() {
  if (root->handle) driver->graphDestroy(root->handle);
  queue->retry();
}

// What a change needs, made before the driver is called. `record` is already in the graph's map, under a key
// that no handle has, so that committing it allocates nothing.
struct GraphDefinition::Staged {
  UserObject object = nullptr;  // held by the graph already
  std::shared_ptr<NodeRecord> record;
};

Status GraphDefinition::create(std::shared_ptr<Driver> driver, std::shared_ptr<CleanupQueue> queue,
                               GraphDefinition* made) {
  Graph handle = nullptr;
  if (const Status status = driver->graphCreate(&handle); status != Status::ok) return status;
  auto hierarchy = std::make_shared<Hierarchy>(std::move(driver), std::move(queue), handle);
  *made = GraphDefinition(hierarchy, hierarchy->root);
  return Status::ok;
}

bool GraphDefinition::holds(const Node& node) const {
  return valid() && node.valid() && node.record_->graph.lock() == record_;
}

Status GraphDefinition::handles(const std::vector<Node>& nodes, std::vector<GraphNode>* handles) const {
  if (!valid()) return Status::invalidValue;
  for (const Node& node : nodes) {
    if (!holds(node)) return Status::invalidValue;
    handles->push_back(node.handle());
  }
  return Status::ok;
}

// Owners that own nothing need no user object.
Status GraphDefinition::stage(OwnerPair owners, Staged* staged) const {
  staged->record = std::make_shared<NodeRecord>();
  staged->record->graph = record_;
  staged->record->owners = owners;
  if (ownsNothing(owners)) return Status::ok;
  auto payload = std::make_unique<Payload>();
  payload->queue = hierarchy_->queue;
  payload->owners = std::move(owners);
  if (const Status status = makeUserObject(driver(), std::move(payload), &staged->object);
      status != Status::ok)
    return status;
  const Status status = driver().graphRetain(record_->handle, staged->object, 1, true);
  if (status != Status::ok) {
    driver().userObjectRelease(staged->object, 1);
    staged->object = nullptr;
  }
  staged->record->object = staged->object;
  return status;
}

void GraphDefinition::rollBack(Staged& staged) const {
  if (staged.object) driver().graphRelease(record_->handle, staged.object, 1);
  staged.object = nullptr;
}

Status GraphDefinition::add(Node* node, const std::vector<Node>& after, const NodeParams& params,
                            OwnerPair owners) {
  std::vector<GraphNode> dependencies;
  if (const Status status = handles(after, &dependencies); status != Status::ok) return status;
  Staged staged;
  if (const Status status = stage(std::move(owners), &staged); status != Status::ok) return status;
  const auto& record = staged.record;
  record->kind = params.kind;
  // The entry is made before the driver's call, and renamed after it.
  std::map<GraphNode, std::shared_ptr<NodeRecord>> entry;
  entry.emplace(nullptr, record);
  auto place = entry.extract(entry.begin());
  const Status status =
      driver().nodeAdd(&record->handle, record_->handle, dependencies.data(), dependencies.size(), params);
  if (status != Status::ok) {
    record->handle = nullptr;
    rollBack(staged);
    return status;
  }
  place.key() = record->handle;
  record_->nodes.insert(std::move(place));
  *node = Node(hierarchy_, record);
  return Status::ok;
}

// The records of a copied graph: the driver copied the references to user objects, so that each node's can be
// given up there on its own.
Status GraphDefinition::importOwners(const GraphRecord& from, const std::shared_ptr<GraphRecord>& to) const {
  std::vector<GraphNode> originals, copies;
  Status status = driver().graphNodes(from.handle, &originals);
  if (status == Status::ok) status = driver().graphNodes(to->handle, &copies);
  if (status != Status::ok) return status;
  if (originals.size() != copies.size()) return Status::unknown;
  for (std::size_t i = 0; i < originals.size(); ++i) {
    const auto known = from.nodes.find(originals[i]);
    if (known == from.nodes.end()) continue;
    // A copy lists its nodes as the original does; where the driver knows better, its word counts.
    GraphNode copy = copies[i];
    GraphNode named = nullptr;
    if (driver().graphFindInClone(&named, originals[i], to->handle) == Status::ok) copy = named;
    auto record = std::make_shared<NodeRecord>();
    record->handle = copy;
    record->graph = to;
    if (const Status kind = driver().nodeKind(copy, &record->kind); kind != Status::ok) return kind;
    if (record->kind != known->second->kind) return Status::unknown;
    record->owners = known->second->owners;
    record->object = known->second->object;
    for (const auto& body : known->second->bodies) {
      auto inner = std::make_shared<GraphRecord>();
      if (const Status child = driver().nodeChild(copy, &inner->handle); child != Status::ok) return child;
      if (const Status imported = importOwners(*body, inner); imported != Status::ok) return imported;
      record->bodies.push_back(std::move(inner));
    }
    to->nodes.emplace(copy, std::move(record));
  }
  return Status::ok;
}

Status GraphDefinition::clone(GraphDefinition* made) const {
  if (!valid()) return Status::invalidValue;
  Graph handle = nullptr;
  if (const Status status = driver().graphClone(&handle, record_->handle); status != Status::ok)
    return status;
  // Destroyed with the hierarchy where the rest fails.
  auto hierarchy = std::make_shared<Hierarchy>(hierarchy_->driver, hierarchy_->queue, handle);
  if (const Status status = importOwners(*record_, hierarchy->root); status != Status::ok) return status;
  *made = GraphDefinition(hierarchy, hierarchy->root);
  return Status::ok;
}

Status GraphDefinition::setApart(GraphDefinition* child) {
  if (child->record_ == child->hierarchy_->root) return Status::ok;
  GraphDefinition copy;
  const Status status = child->clone(&copy);
  if (status == Status::ok) *child = std::move(copy);
  return status;
}

// The child of a node as a graph of ours, with the owners of the graph that it is a copy of. Where the child
// cannot be had now, its view is made when it is asked for.
Status GraphDefinition::adopt(const Node& node, const GraphDefinition& child) const {
  auto body = std::make_shared<GraphRecord>();
  if (const Status status = driver().nodeChild(node.handle(), &body->handle); status != Status::ok)
    return status;
  const Status status = importOwners(*child.record_, body);
  if (status != Status::ok) body->nodes.clear();
  node.record_->bodies.push_back(std::move(body));
  return status;
}

Status GraphDefinition::embed(Node* node, const std::vector<Node>& after, GraphDefinition child) {
  if (!child.valid() || child.hierarchy_ == hierarchy_) return Status::invalidValue;
  if (const Status status = setApart(&child); status != Status::ok) return status;
  Node made;
  if (const Status status = add(&made, after, NodeParams::embed(child.handle())); status != Status::ok)
    return status;
  // Where the driver neither shows the child nor takes the node out again, the node stays.
  if (const Status status = adopt(made, child); status != Status::ok && destroy(made) == Status::ok)
    return status;
  *node = std::move(made);
  return Status::ok;
}

Status GraphDefinition::addAllocation(Node* node, const std::vector<Node>& after, std::size_t bytes,
                                      DeviceAddress* address) {
  std::vector<GraphNode> dependencies;
  if (const Status status = handles(after, &dependencies); status != Status::ok) return status;
  auto record = std::make_shared<NodeRecord>();
  record->kind = NodeKind::memAllocate;
  record->graph = record_;
  const Status status = driver().nodeAddAllocation(&record->handle, record_->handle, dependencies.data(),
                                                   dependencies.size(), bytes, address);
  if (status != Status::ok) return status;
  record_->nodes.emplace(record->handle, record);
  *node = Node(hierarchy_, std::move(record));
  return Status::ok;
}

Status GraphDefinition::condition(Condition* condition, bool assign, std::uint32_t initial) {
  return valid() ? driver().conditionCreate(condition, record_->handle, assign, initial)
                 : Status::invalidValue;
}

Status GraphDefinition::addConditional(Node* node, const std::vector<Node>& after, Condition condition,
                                       ConditionalKind kind, std::vector<GraphDefinition>* bodies,
                                       std::size_t bodyCount) {
  std::vector<GraphNode> dependencies;
  if (const Status status = handles(after, &dependencies); status != Status::ok) return status;
  auto record = std::make_shared<NodeRecord>();
  record->kind = NodeKind::conditional;
  record->graph = record_;
  std::vector<Graph> made(std::max<std::size_t>(bodyCount, 1));
  const Status status =
      driver().nodeAddConditional(&record->handle, record_->handle, dependencies.data(), dependencies.size(),
                                  condition, kind, made.data(), bodyCount);
  if (status != Status::ok) return status;
  bodies->clear();
  for (std::size_t i = 0; i < bodyCount; ++i) {
    auto body = std::make_shared<GraphRecord>();
    body->handle = made[i];
    record->bodies.push_back(body);
    bodies->push_back(GraphDefinition(hierarchy_, std::move(body)));
  }
  record_->nodes.emplace(record->handle, record);
  *node = Node(hierarchy_, std::move(record));
  return Status::ok;
}

Status GraphDefinition::update(const Node& node, const NodeParams& params, OwnerPair owners) {
  if (!holds(node)) return Status::invalidValue;
  if (params.kind == NodeKind::child) return Status::invalidValue;  // updateChild
  Staged staged;
  if (const Status status = stage(std::move(owners), &staged); status != Status::ok) return status;
  if (const Status status = driver().nodeUpdate(node.handle(), params); status != Status::ok) {
    rollBack(staged);
    return status;
  }
  // The new pair is in the graph already; only now does the old one go.
  NodeRecord& record = *node.record_;
  std::swap(record.owners, staged.record->owners);
  const UserObject old = std::exchange(record.object, staged.object);
  if (old) driver().graphRelease(record_->handle, old, 1);
  hierarchy_->queue->retry();
  return Status::ok;
}

Status GraphDefinition::updateChild(const Node& node, GraphDefinition child) {
  if (!holds(node) || !child.valid() || node.kind() != NodeKind::child) return Status::invalidValue;
  if (child.hierarchy_ == hierarchy_) return Status::invalidValue;
  if (const Status status = setApart(&child); status != Status::ok) return status;
  if (const Status status = driver().nodeUpdate(node.handle(), NodeParams::embed(child.handle()));
      status != Status::ok)
    return status;
  for (const auto& old : node.record_->bodies) forget(*old);
  node.record_->bodies.clear();
  // The driver has replaced the child, so this has succeeded.
  adopt(node, child);
  hierarchy_->queue->retry();
  return Status::ok;
}

void GraphDefinition::forget(GraphRecord& graph) {
  graph.handle = nullptr;
  for (const auto& [handle, node] : graph.nodes) forget(*node);
  graph.nodes.clear();
}

void GraphDefinition::forget(NodeRecord& node) {
  node.handle = nullptr;
  node.object = nullptr;
  node.owners = {};
  for (const auto& body : node.bodies) forget(*body);
}

void GraphDefinition::lose() { forget(*hierarchy_->root); }

Status GraphDefinition::destroy(const Node& node) {
  if (node.record_ && !node.record_->handle) return Status::ok;
  if (!holds(node)) return Status::invalidValue;
  const GraphNode handle = node.handle();
  if (const Status status = driver().nodeDestroy(handle); status != Status::ok) return status;
  const std::shared_ptr<NodeRecord> record = node.record_;
  if (record->object) driver().graphRelease(record_->handle, record->object, 1);
  record_->nodes.erase(handle);
  forget(*record);
  hierarchy_->queue->retry();
  return Status::ok;
}

Status GraphDefinition::addEdge(const Node& from, const Node& to) {
  if (!holds(from) || !holds(to)) return Status::invalidValue;
  const GraphEdge edge{from.handle(), to.handle()};
  return driver().graphAddEdges(record_->handle, &edge, 1);
}

Status GraphDefinition::removeEdge(const Node& from, const Node& to) {
  if (!holds(from) || !holds(to)) return Status::invalidValue;
  const GraphEdge edge{from.handle(), to.handle()};
  return driver().graphRemoveEdges(record_->handle, &edge, 1);
}

Node GraphDefinition::view(GraphNode handle) const {
  std::shared_ptr<NodeRecord>& record = record_->nodes[handle];
  if (!record) {
    record = std::make_shared<NodeRecord>();
    record->handle = handle;
    record->graph = record_;
    driver().nodeKind(handle, &record->kind);
    if (record->kind == NodeKind::child) {
      auto body = std::make_shared<GraphRecord>();
      if (driver().nodeChild(handle, &body->handle) == Status::ok) record->bodies.push_back(std::move(body));
    }
  }
  return Node(hierarchy_, record);
}

Status GraphDefinition::nodes(std::vector<Node>* nodes) const {
  nodes->clear();
  if (!valid()) return Status::invalidValue;
  std::vector<GraphNode> found;
  if (const Status status = driver().graphNodes(record_->handle, &found); status != Status::ok) return status;
  for (const GraphNode handle : found) nodes->push_back(view(handle));
  return Status::ok;
}

Status GraphDefinition::edges(std::vector<std::pair<Node, Node>>* edges) const {
  edges->clear();
  if (!valid()) return Status::invalidValue;
  std::vector<GraphEdge> found;
  if (const Status status = driver().graphEdges(record_->handle, &found); status != Status::ok) return status;
  for (const GraphEdge& edge : found) edges->emplace_back(view(edge.from), view(edge.to));
  return Status::ok;
}

std::vector<GraphDefinition> GraphDefinition::bodies(const Node& node) const {
  std::vector<GraphDefinition> found;
  if (!holds(node)) return found;
  if (node.kind() == NodeKind::child && node.record_->bodies.empty()) {
    auto body = std::make_shared<GraphRecord>();
    if (driver().nodeChild(node.handle(), &body->handle) == Status::ok)
      node.record_->bodies.push_back(std::move(body));
  }
  for (const auto& body : node.record_->bodies) found.push_back(GraphDefinition(hierarchy_, body));
  return found;
}

Status GraphDefinition::dot(std::string* text) const {
  return valid() ? driver().graphDot(record_->handle, text) : Status::invalidValue;
}

}  // namespace braid::graphs
