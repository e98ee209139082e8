#include "graphs/executable.h"

namespace braid::graphs {
namespace {

// Attaches an empty payload to a graph for as long as `use` takes; what copies the graph's references
// meanwhile holds it from then on.
template <class Use>
Status withPayload(Driver& driver, const std::shared_ptr<CleanupQueue>& queue, Graph graph, Payload** payload,
                   Use use) {
  auto made = std::make_unique<Payload>();
  made->queue = queue;
  Payload* const raw = made.get();
  UserObject object = nullptr;
  Status status = makeUserObject(driver, std::move(made), &object);
  if (status != Status::ok) return status;
  status = driver.graphRetain(graph, object, 1, true);
  if (status != Status::ok) {
    driver.userObjectRelease(object, 1);
    return status;
  }
  status = use();
  if (status == Status::ok) *payload = raw;
  driver.graphRelease(graph, object, 1);
  return status;
}

}  // namespace

ExecutableGraph& ExecutableGraph::operator=(ExecutableGraph&& other) noexcept {
  if (this == &other) return *this;
  destroy();
  driver_ = std::move(other.driver_);
  queue_ = std::move(other.queue_);
  handle_ = std::exchange(other.handle_, nullptr);
  payload_ = std::exchange(other.payload_, nullptr);
  return *this;
}

Status ExecutableGraph::instantiate(const GraphDefinition& definition, const InstantiateOptions& options,
                                    ExecutableGraph* made, InstantiateResult* result) {
  *result = InstantiateResult::error;
  if (!definition.valid()) return Status::invalidValue;
  ExecutableGraph executable;
  executable.driver_ = definition.hierarchy_->driver;
  executable.queue_ = definition.hierarchy_->queue;
  Driver& driver = *executable.driver_;
  const Status status = withPayload(
      driver, executable.queue_, definition.handle(), &executable.payload_,
      [&] { return driver.graphInstantiate(&executable.handle_, definition.handle(), options, result); });
  if (status != Status::ok) {
    executable.handle_ = nullptr;
    executable.queue_->retry();
    return status;
  }
  *made = std::move(executable);
  return Status::ok;
}

Status ExecutableGraph::destroy() {
  if (!handle_) return Status::ok;
  payload_ = nullptr;
  const Status status = driver_->execDestroy(std::exchange(handle_, nullptr));
  queue_->retry();
  return status;
}

Status ExecutableGraph::upload(Stream stream) {
  return handle_ ? driver_->execUpload(handle_, stream) : Status::invalidValue;
}

Status ExecutableGraph::launch(Stream stream) {
  return handle_ ? driver_->execLaunch(handle_, stream) : Status::invalidValue;
}

Status ExecutableGraph::update(const GraphDefinition& definition, UpdateResult* result) {
  *result = UpdateResult::error;
  if (!handle_ || !definition.valid()) return Status::invalidValue;
  const Status status = withPayload(*driver_, queue_, definition.handle(), &payload_, [&] {
    return driver_->execUpdate(handle_, definition.handle(), result);
  });
  queue_->retry();
  return status;
}

// The owners are held before the driver knows of them, and given up where it refuses: so that every launch
// that uses them finds them held.
Status ExecutableGraph::updateNode(const Node& node, const NodeParams& params, OwnerPair owners) {
  if (!handle_ || !node.valid() || params.kind == NodeKind::child) return Status::invalidValue;
  const bool owned = !ownsNothing(owners);
  if (owned) payload_->more.push_back(std::move(owners));
  const Status status = driver_->execNodeUpdate(handle_, node.handle(), params);
  if (status != Status::ok && owned) payload_->more.pop_back();
  return status;
}

Status ExecutableGraph::updateChild(const Node& node, const GraphDefinition& child) {
  if (!handle_ || !node.valid() || !child.valid()) return Status::invalidValue;
  return driver_->execNodeUpdate(handle_, node.handle(), NodeParams::embed(child.handle()));
}

Status ExecutableGraph::enable(const Node& node, bool enabled) {
  return handle_ && node.valid() ? driver_->execNodeEnable(handle_, node.handle(), enabled)
                                 : Status::invalidValue;
}

Status ExecutableGraph::enabled(const Node& node, bool* enabled) const {
  return handle_ && node.valid() ? driver_->execNodeEnabled(handle_, node.handle(), enabled)
                                 : Status::invalidValue;
}

}  // namespace braid::graphs
