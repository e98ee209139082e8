#include <algorithm>
#include <set>
#include <utility>

#include "host/graphs.h"

// Streams that capture: what becomes a node, which streams take part, and what invalidates a capture.

namespace braid::host {
namespace {

thread_local CaptureMode threadMode = CaptureMode::global;

// Numbers of captures are unique in the process.
std::atomic<std::uint64_t> captures{0};

GraphNode nodeHandle(std::uint64_t number) { return reinterpret_cast<GraphNode>(number); }

}  // namespace

CaptureMode Graphs::exchangeMode(CaptureMode mode) { return std::exchange(threadMode, mode); }

Status Graphs::start(StreamQueue* queue, GraphData& graph, std::vector<std::uint64_t> tail, CaptureMode mode,
                     std::string* detail) {
  if (queue->capture.load(std::memory_order_relaxed) != 0)
    return wrong(Status::illegalState, "the stream captures already", detail);
  Capture made;
  made.id = ++captures;
  made.graph = graph.id;
  made.origin = queue;
  made.mode = mode;
  made.thread = std::this_thread::get_id();
  made.tails[queue] = std::move(tail);
  if (mode != CaptureMode::relaxed) ++strict_;
  queue->capture.store(made.id, std::memory_order_release);
  captures_[made.id] = std::move(made);
  return Status::ok;
}

Status Graphs::begin(StreamQueue* queue, CaptureMode mode, std::string* detail) {
  std::lock_guard lock(mutex_);
  auto graph = std::make_unique<GraphData>(&users_);
  name(*graph);
  const Status status = start(queue, *graph, {}, mode, detail);
  if (status == Status::ok)
    roots_[graph->id] = std::move(graph);
  else
    forgetGraph(*graph);
  return status;
}

Status Graphs::beginOnto(StreamQueue* queue, Graph graph, const GraphNode* dependencies, std::size_t count,
                         CaptureMode mode, std::string* detail) {
  std::lock_guard lock(mutex_);
  GraphData* found = find(graph);
  if (!found) return unknownGraph(detail);
  std::vector<NodeData*> after;
  if (const Status status = find(*found, dependencies, count, &after, detail); status != Status::ok)
    return status;
  std::vector<std::uint64_t> tail;
  for (const NodeData* node : after) tail.push_back(node->id);
  return start(queue, *found, std::move(tail), mode, detail);
}

std::vector<NodeData*> Graphs::alive(const GraphData& graph, const std::vector<std::uint64_t>& nodes) const {
  std::vector<NodeData*> found;
  for (const std::uint64_t id : nodes) {
    NodeData* node = find(nodeHandle(id));
    if (node && node->graph == &graph) found.push_back(node);
  }
  return found;
}

// The last nodes of every stream that took part are before the last ones of the stream that began.
bool Graphs::joined(const Capture& capture, const GraphData& graph) const {
  std::set<const NodeData*> before;
  std::vector<NodeData*> left = alive(graph, capture.tails.at(capture.origin));
  while (!left.empty()) {
    const NodeData* node = left.back();
    left.pop_back();
    if (before.insert(node).second)
      left.insert(left.end(), node->dependencies.begin(), node->dependencies.end());
  }
  return std::ranges::all_of(capture.tails, [&](const auto& stream) {
    return std::ranges::all_of(alive(graph, stream.second),
                               [&](const NodeData* node) { return before.contains(node); });
  });
}

Status Graphs::end(StreamQueue* queue, Graph* graph, std::string* detail) {
  std::lock_guard lock(mutex_);
  *graph = nullptr;
  const auto found = captures_.find(queue->capture.load(std::memory_order_relaxed));
  if (found == captures_.end()) return wrong(Status::illegalState, "the stream does not capture", detail);
  const Capture capture = found->second;
  if (capture.origin != queue)
    return wrong(Status::captureUnmatched, "the capture began on another stream, and ends there", detail);
  if (capture.mode != CaptureMode::relaxed && capture.thread != std::this_thread::get_id())
    return wrong(Status::captureWrongThread,
                 "the capture began on another thread; captures of mode `relaxed` may end on any", detail);
  GraphData* made = find(reinterpret_cast<Graph>(capture.graph));
  Status status = Status::ok;
  if (capture.invalid || !made)
    status = wrong(Status::captureInvalidated, "the capture was invalidated by an earlier call", detail);
  else if (!joined(capture, *made))
    status = wrong(Status::captureUnjoined,
                   "a stream that joined the capture was not joined again: let the first stream wait for an "
                   "event recorded after its last work",
                   detail);
  for (const auto& [stream, tail] : capture.tails) stream->capture.store(0, std::memory_order_release);
  if (capture.mode != CaptureMode::relaxed) --strict_;
  captures_.erase(found);
  if (status == Status::ok)
    *graph = reinterpret_cast<Graph>(capture.graph);
  else if (made)
    destroyAround(*made);
  return status;
}

void Graphs::destroyAround(const GraphData& graph) {
  const auto root = roots_.find(graph.root()->id);
  if (root == roots_.end()) return;
  forgetGraph(*root->second);
  roots_.erase(root);
}

Status Graphs::info(StreamQueue* queue, CaptureInfo* info, std::string*) {
  std::lock_guard lock(mutex_);
  *info = {};
  const auto found = captures_.find(queue->capture.load(std::memory_order_relaxed));
  if (found == captures_.end()) return Status::ok;
  const Capture& capture = found->second;
  const GraphData* graph = find(reinterpret_cast<Graph>(capture.graph));
  info->id = capture.id;
  info->status = capture.invalid || !graph ? CaptureStatus::invalidated : CaptureStatus::active;
  if (info->status == CaptureStatus::invalidated) return Status::ok;
  info->graph = reinterpret_cast<Graph>(capture.graph);
  for (const NodeData* node : alive(*graph, capture.tails.at(queue)))
    info->dependencies.push_back(nodeHandle(node->id));
  return Status::ok;
}

Status Graphs::active(StreamQueue* queue, Capture** capture, GraphData** graph, std::string* detail) {
  const auto found = captures_.find(queue->capture.load(std::memory_order_relaxed));
  if (found == captures_.end()) return wrong(Status::illegalState, "the stream does not capture", detail);
  *capture = &found->second;
  *graph = find(reinterpret_cast<Graph>(found->second.graph));
  if (!*graph) found->second.invalid = true;
  if (found->second.invalid)
    return wrong(Status::captureInvalidated, "the capture was invalidated by an earlier call; end it",
                 detail);
  return Status::ok;
}

Status Graphs::dependencies(StreamQueue* queue, const GraphNode* nodes, std::size_t count, bool add,
                            std::string* detail) {
  std::lock_guard lock(mutex_);
  Capture* capture = nullptr;
  GraphData* graph = nullptr;
  if (const Status status = active(queue, &capture, &graph, detail); status != Status::ok) return status;
  std::vector<NodeData*> after;
  if (const Status status = find(*graph, nodes, count, &after, detail); status != Status::ok) return status;
  std::vector<std::uint64_t>& tail = capture->tails[queue];
  if (!add) tail.clear();
  for (const NodeData* node : after)
    if (std::ranges::find(tail, node->id) == tail.end()) tail.push_back(node->id);
  return Status::ok;
}

Status Graphs::capture(StreamQueue* queue, const NewNode& made, std::string* detail) {
  std::lock_guard lock(mutex_);
  Capture* capture = nullptr;
  GraphData* graph = nullptr;
  if (const Status status = active(queue, &capture, &graph, detail); status != Status::ok) return status;
  std::vector<std::uint64_t>& tail = capture->tails[queue];
  NodeData* node = nullptr;
  const Status status = addTo(*graph, alive(*graph, tail), made, &node, detail);
  if (status == Status::ok)
    tail = {node->id};
  else
    capture->invalid = true;
  return status;
}

Status Graphs::recordCaptured(StreamQueue* queue, EventState* event, std::string* detail) {
  std::lock_guard lock(mutex_);
  Capture* capture = nullptr;
  GraphData* graph = nullptr;
  if (const Status status = active(queue, &capture, &graph, detail); status != Status::ok) return status;
  std::lock_guard eventLock(event->mutex);
  event->capture = capture->id;
  event->captured = capture->tails[queue];
  return Status::ok;
}

Status Graphs::waitCaptured(StreamQueue* queue, std::uint64_t from, const std::vector<std::uint64_t>& nodes,
                            std::string* detail) {
  std::lock_guard lock(mutex_);
  const std::uint64_t own = queue->capture.load(std::memory_order_relaxed);
  const auto found = captures_.find(from);
  if (found == captures_.end()) {
    if (own != 0) captures_[own].invalid = true;
    return wrong(Status::capturedEvent, "the event was last recorded in a capture, which has ended", detail);
  }
  if (found->second.invalid)
    return wrong(Status::captureInvalidated, "the event's capture was invalidated by an earlier call",
                 detail);
  if (own != 0 && own != from) {
    found->second.invalid = captures_[own].invalid = true;
    return wrong(Status::captureMerge, "the stream and the event belong to two captures", detail);
  }
  queue->capture.store(from, std::memory_order_release);
  std::vector<std::uint64_t>& tail = found->second.tails[queue];
  for (const std::uint64_t node : nodes)
    if (std::ranges::find(tail, node) == tail.end()) tail.push_back(node);
  return Status::ok;
}

Status Graphs::forbid(std::uint64_t capture, Status status, const char* what, std::string* detail) {
  std::lock_guard lock(mutex_);
  if (const auto found = captures_.find(capture); found != captures_.end()) found->second.invalid = true;
  return wrong(status, std::string(what) + " during a capture, which is invalid now", detail);
}

Status Graphs::unsafeNow(const char* what, std::string* detail) {
  if (threadMode == CaptureMode::relaxed) return Status::ok;
  std::lock_guard lock(mutex_);
  bool forbidden = false;
  for (auto& [id, capture] : captures_) {
    const bool own = capture.thread == std::this_thread::get_id() && capture.mode != CaptureMode::relaxed;
    const bool others = threadMode == CaptureMode::global && capture.mode == CaptureMode::global;
    if (!own && !others) continue;
    capture.invalid = forbidden = true;
  }
  if (!forbidden) return Status::ok;
  return wrong(Status::captureUnsupported,
               std::string(what) + " during a capture whose mode forbids it; the capture is invalid now",
               detail);
}

void Graphs::forget(StreamQueue* queue) {
  std::lock_guard lock(mutex_);
  const auto found = captures_.find(queue->capture.exchange(0));
  if (found == captures_.end()) return;
  Capture& capture = found->second;
  capture.invalid = true;
  capture.tails.erase(queue);
  if (capture.origin != queue) return;
  // Nobody can end it any more.
  for (const auto& [stream, tail] : capture.tails) stream->capture.store(0, std::memory_order_release);
  if (capture.mode != CaptureMode::relaxed) --strict_;
  if (const GraphData* graph = find(reinterpret_cast<Graph>(capture.graph))) destroyAround(*graph);
  captures_.erase(found);
}

}  // namespace braid::host
