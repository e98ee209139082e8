#include "graphs/capture.h"

#include <algorithm>

namespace braid::graphs {

Status GraphCapture::begin(std::shared_ptr<Driver> driver, std::shared_ptr<CleanupQueue> queue, Stream stream,
                           CaptureMode mode) {
  if (capturing()) return Status::illegalState;
  if (const Status status = driver->captureBegin(stream, mode); status != Status::ok) return status;
  stream_ = stream;
  driver_ = std::move(driver);
  queue_ = std::move(queue);
  onto_ = {};
  unnamed_.clear();
  restores_ = false;
  return Status::ok;
}

Status GraphCapture::beginOnto(const GraphDefinition& definition, Stream stream, CaptureMode mode,
                               const std::vector<Node>& after, bool restores) {
  if (capturing()) return Status::illegalState;
  if (!definition.valid()) return Status::invalidValue;
  std::vector<GraphNode> dependencies, before;
  Status status = definition.handles(after, &dependencies);
  if (status != Status::ok) return status;
  Driver& driver = *definition.hierarchy_->driver;
  if (restores) status = driver.graphNodes(definition.handle(), &before);
  if (status != Status::ok) return status;
  status =
      driver.captureBeginOnto(stream, definition.handle(), dependencies.data(), dependencies.size(), mode);
  if (status != Status::ok) return status;
  stream_ = stream;
  driver_ = definition.hierarchy_->driver;
  queue_ = definition.hierarchy_->queue;
  onto_ = definition;
  unnamed_.clear();
  restores_ = restores;
  restored_ = true;
  before_ = {before.begin(), before.end()};
  return Status::ok;
}

Status GraphCapture::tail(Stream stream, CaptureInfo* info) {
  if (!capturing()) return Status::illegalState;
  if (const Status status = driver_->captureInfo(stream, info); status != Status::ok) return status;
  if (info->status == CaptureStatus::none) return Status::illegalState;
  return info->status == CaptureStatus::invalidated ? Status::captureInvalidated : Status::ok;
}

Status GraphCapture::tail(Stream stream, std::vector<Node>* after) {
  CaptureInfo info;
  if (!onto_.valid()) return Status::illegalState;
  if (const Status status = tail(stream, &info); status != Status::ok) return status;
  for (const GraphNode handle : info.dependencies) {
    // Nodes that were captured without owners get their records here, those with owners keep theirs.
    const auto known = attached_.find(handle);
    if (known != attached_.end()) {
      known->second->graph = onto_.record_;
      onto_.record_->nodes.insert_or_assign(handle, known->second);
    }
    after->push_back(onto_.view(handle));
  }
  return Status::ok;
}

Status GraphCapture::add(Stream stream, const NodeParams& params, OwnerPair owners) {
  std::vector<Node> after;
  Node node;
  Status status = tail(stream, &after);
  if (status == Status::ok) status = onto_.add(&node, after, params, std::move(owners));
  const GraphNode made = node.handle();
  return status == Status::ok ? driver_->captureDependencies(stream, &made, 1, false) : status;
}

Status GraphCapture::embed(Stream stream, GraphDefinition child) {
  CaptureInfo info;
  if (!child.valid()) return Status::invalidValue;
  if (const Status status = GraphDefinition::setApart(&child); status != Status::ok) return status;
  if (const Status status = tail(stream, &info); status != Status::ok) return status;
  const auto record = std::make_shared<NodeRecord>();
  const auto body = std::make_shared<GraphRecord>();
  record->kind = NodeKind::child;
  Status status = driver_->nodeAdd(&record->handle, info.graph, info.dependencies.data(),
                                   info.dependencies.size(), NodeParams::embed(child.handle()));
  if (status != Status::ok) return status;
  attached_.insert_or_assign(record->handle, record);
  status = driver_->captureDependencies(stream, &record->handle, 1, false);
  if (status == Status::ok) status = driver_->nodeChild(record->handle, &body->handle);
  if (status == Status::ok) status = child.importOwners(*child.record_, body);
  record->bodies.push_back(body);
  return status;
}

Status GraphCapture::addConditional(Stream stream, Condition condition, ConditionalKind kind,
                                    std::size_t bodyCount, Node* node) {
  std::vector<Node> after;
  if (const Status status = tail(stream, &after); status != Status::ok) return status;
  std::vector<GraphDefinition> bodies;
  const Status status = onto_.addConditional(node, after, condition, kind, &bodies, bodyCount);
  if (status != Status::ok) return status;
  const GraphNode made = node->handle();
  return driver_->captureDependencies(stream, &made, 1, false);
}

Status GraphCapture::attach(Graph graph, OwnerPair owners, UserObject* object) {
  auto payload = std::make_unique<Payload>();
  payload->queue = queue_;
  payload->owners = std::move(owners);
  Status status = makeUserObject(*driver_, std::move(payload), object);
  if (status != Status::ok) return status;
  status = driver_->graphRetain(graph, *object, 1, true);
  if (status != Status::ok) driver_->userObjectRelease(*object, 1);
  return status;
}

Status GraphCapture::retain(Stream stream, OwnerPair owners) {
  CaptureInfo info;
  if (const Status status = tail(stream, &info); status != Status::ok) return status;
  if (ownsNothing(owners)) return Status::ok;
  UserObject object = nullptr;
  const Status status = attach(info.graph, std::move(owners), &object);
  if (status == Status::ok) unnamed_.push_back(object);
  return status;
}

Status GraphCapture::work(Stream stream, OwnerPair owners, const std::function<Status()>& work, Node* made) {
  CaptureInfo info;
  if (const Status status = tail(stream, &info); status != Status::ok) return status;
  if (ownsNothing(owners)) return work();

  auto record = std::make_shared<NodeRecord>();
  std::map<GraphNode, std::shared_ptr<NodeRecord>> entry;
  entry.emplace(nullptr, record);
  auto place = entry.extract(entry.begin());
  record->owners = std::move(owners);
  Status status = attach(info.graph, record->owners, &record->object);
  if (status != Status::ok) return status;
  status = work();
  if (status != Status::ok) {
    // The capture may be invalid by now, and its graph gone with everything that it held.
    CaptureInfo after;
    if (driver_->captureInfo(stream, &after) == Status::ok && after.status == CaptureStatus::active)
      driver_->graphRelease(after.graph, record->object, 1);
    return status;
  }
  // The work is in the graph, and so are its owners, whether or not its node is found.
  CaptureInfo after;
  const bool isFound = driver_->captureInfo(stream, &after) == Status::ok && after.dependencies.size() == 1 &&
                       driver_->nodeKind(after.dependencies[0], &record->kind) == Status::ok;
  if (!isFound) {
    unnamed_.push_back(record->object);
    return Status::ok;
  }
  record->handle = after.dependencies[0];
  place.key() = record->handle;
  attached_.insert(std::move(place));
  if (made == nullptr || !onto_.valid()) return Status::ok;
  record->graph = onto_.record_;
  onto_.record_->nodes.insert_or_assign(record->handle, record);
  *made = Node(onto_.hierarchy_, record);
  return Status::ok;
}

Status GraphCapture::added(Graph graph, std::vector<GraphNode>* nodes) const {
  const Status status = driver_->graphNodes(graph, nodes);
  std::erase_if(*nodes, [&](GraphNode node) { return before_.contains(node); });
  return status;
}

// Whether all that was added comes before what the first stream would be given next.
Status GraphCapture::joined(const CaptureInfo& info, bool* joined) const {
  std::vector<GraphNode> nodes, left = info.dependencies;
  std::vector<GraphEdge> edges;
  Status status = added(info.graph, &nodes);
  if (status == Status::ok) status = driver_->graphEdges(info.graph, &edges);
  if (status != Status::ok) return status;
  std::multimap<GraphNode, GraphNode> before;
  for (const GraphEdge& edge : edges) before.emplace(edge.to, edge.from);
  std::set<GraphNode> reached(left.begin(), left.end());
  while (!left.empty()) {
    const auto [first, last] = before.equal_range(left.back());
    left.pop_back();
    for (auto edge = first; edge != last; ++edge)
      if (reached.insert(edge->second).second) left.push_back(edge->second);
  }
  *joined = std::ranges::all_of(nodes, [&](GraphNode node) { return reached.contains(node); });
  return Status::ok;
}

// Hazard: the driver destroys the graph of a capture whose end fails, and where that is a conditional node's
// body, whatever touches the graph around it ends the process (CUDA 13.0). So streams that are not joined are
// joined first.
Status GraphCapture::giveUp() {
  CaptureInfo info;
  std::vector<GraphNode> nodes;
  if (tail(stream_, &info) == Status::ok && added(info.graph, &nodes) == Status::ok && !nodes.empty())
    driver_->captureDependencies(stream_, nodes.data(), nodes.size(), false);
  const GraphDefinition onto = onto_;
  GraphDefinition made;
  restores_ = false;
  const Status status = end(&made);
  if (status == Status::captureWrongThread) return status;
  restored_ = status == Status::ok && takeOut(onto) == Status::ok;
  return status;
}

// The last ones first, so that each is a node that nothing comes after.
Status GraphCapture::takeOut(GraphDefinition definition) {
  if (!definition.valid()) return Status::illegalState;
  std::vector<GraphNode> nodes;
  Status status = added(definition.handle(), &nodes);
  for (auto node = nodes.rbegin(); node != nodes.rend() && status == Status::ok; ++node)
    status = definition.destroy(definition.view(*node));
  for (const UserObject object : std::exchange(unnamed_, {}))
    driver_->graphRelease(definition.handle(), object, 1);
  queue_->retry();
  return status;
}

Status GraphCapture::end(GraphDefinition* made) {
  if (!capturing()) return Status::illegalState;
  if (restores_) {
    CaptureInfo info;
    bool isJoined = true;
    if (tail(stream_, &info) == Status::ok && joined(info, &isJoined) == Status::ok && !isJoined) {
      const Status status = giveUp();
      return status == Status::ok ? Status::captureUnjoined : status;
    }
  }
  Graph graph = nullptr;
  const Status status = driver_->captureEnd(stream_, &graph);
  // Another thread's to end: it goes on.
  if (status == Status::captureWrongThread) return status;
  stream_ = nullptr;
  auto attached = std::exchange(attached_, {});
  GraphDefinition definition = std::exchange(onto_, {});
  const bool isNew = !definition.record_;
  if (status != Status::ok) {
    unnamed_.clear();
    if (!isNew) definition.lose();
    restored_ = false;
    queue_->retry();
    return status;
  }
  // Lost with another capture of its hierarchy.
  if (!isNew && !definition.valid()) return Status::illegalState;
  if (isNew) {
    auto hierarchy = std::make_shared<Hierarchy>(driver_, queue_, graph);
    definition = GraphDefinition(hierarchy, hierarchy->root);
  }
  for (auto& [handle, record] : attached) {
    record->graph = definition.record_;
    definition.record_->nodes.insert_or_assign(handle, record);
  }
  *made = std::move(definition);
  return Status::ok;
}

Status GraphCapture::endOnto(Node* last) {
  if (!onto_.valid()) return Status::illegalState;
  CaptureInfo info;
  const Status found = tail(stream_, &info);
  GraphDefinition made;
  const Status status = end(&made);
  if (found != Status::ok || status != Status::ok) return found != Status::ok ? found : status;
  std::vector<Node> nodes;
  for (const GraphNode handle : info.dependencies) nodes.push_back(made.view(handle));
  if (nodes.size() != 1) return made.add(last, nodes, NodeParams::empty());
  *last = std::move(nodes.front());
  return Status::ok;
}

void GraphCapture::abandon() {
  if (!capturing()) return;
  GraphDefinition dropped;
  if (restores_)
    giveUp();
  else
    end(&dropped);
  stream_ = nullptr;
}

Status GraphCapture::launch(const GraphDefinition& definition, Node* last, const std::vector<Node>& after,
                            Stream idle, const Kernel& kernel, const std::vector<DeviceAddress>& reads,
                            const std::vector<DeviceAddress>& writes, OwnerPair owners) {
  GraphCapture capture;
  Status status = capture.beginOnto(definition, idle, CaptureMode::relaxed, after);
  if (status == Status::ok)
    status = capture.work(idle, std::move(owners), [&] {
      return definition.driver().launch(kernel, reads.data(), writes.data(), idle);
    });
  return status == Status::ok ? capture.endOnto(last) : status;
}

}  // namespace braid::graphs
