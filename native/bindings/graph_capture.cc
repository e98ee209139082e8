// The NativeCapture of runtime/addon.ts. TypeScript has checked the arguments.
#include "graphs/capture.h"

#include "bindings/checks.h"
#include "bindings/convert.h"
#include "bindings/graph_object.h"
#include "bindings/graph_params.h"
#include "bindings/handle.h"
#include "driver/unsafe_calls.h"
#include "memory/capture_memory.h"

namespace braid::bindings {
namespace {

// A capture into a graph that exists, with the lanes that take part.
class CaptureObject final : public GraphPart {
 public:
  CaptureObject(std::shared_ptr<AllocatorDevice> owner, std::shared_ptr<GraphObject> into, bool strict)
      : GraphPart(std::move(owner)), graph(std::move(into)), memory(device->memory), strict_(strict) {
    if (strict_) ++device->strictCaptures;
  }
  ~CaptureObject() override { end(); }
  void end() override {
    if (device->driver) device->driver->bind();
    capture.abandon();
    ended();
  }
  // The lanes are ordinary ones again.
  void ended() {
    memory.end();
    if (std::exchange(strict_, false)) --device->strictCaptures;
  }
  // The graph keeps the owner, from before what it stands for is used.
  void retain(Napi::Env env, Stream stream, graphs::Owner owner, const char* op) {
    checkStatus(env, *device, capture.retain(stream, {std::move(owner), nullptr}), op);
  }

  static constexpr napi_type_tag typeTag{0x6272616964636170u, 0xc5e1287fa90d364bu};
  static constexpr const char* typeName = "NativeCapture";
  const std::shared_ptr<GraphObject> graph;
  graphs::GraphCapture capture;
  CaptureMemory memory;

 private:
  bool strict_;  // its mode forbids calls of this thread
};

using Shared = std::shared_ptr<CaptureObject>;

Shared opened(const Napi::CallbackInfo& info) {
  auto made = self<CaptureObject>(info);
  checkBound(info.Env(), *made->device);
  return made;
}

// lane, NativeNode: what the lane is given becomes a node. Returns the node that sets a condition, where it
// is found.
Napi::Value work(const Napi::CallbackInfo& info) {
  const Shared self = opened(info);
  const Lane& lane = laneAt(info[0], *self->device);
  const Napi::Object given = objectAt(info[1], "node");
  NodeSpec spec = nodeSpec(self->device, given, &self->memory);
  const bool named = given.Has("condition");
  graphs::Node node;
  Driver& driver = *self->device->driver;
  Status status = self->capture.work(
      lane.stream, std::move(spec.owners), [&] { return queueWork(driver, spec.params, lane.stream); },
      named ? &node : nullptr);
  if (status == Status::ok) status = self->memory.worked(lane, spec.blocks);
  checkStatus(info.Env(), *self->device, status, "capture work");
  if (!node.valid()) return info.Env().Undefined();
  return Napi::Number::New(info.Env(), self->graph->numberOf(node));
}

// lane, NativeNode: a node that each launch runs, of work that a captured stream would not make one
Napi::Value add(const Napi::CallbackInfo& info) {
  const Shared self = opened(info);
  const Lane& lane = laneAt(info[0], *self->device);
  NodeSpec spec = nodeSpec(self->device, objectAt(info[1], "node"), &self->memory);
  Status status = self->capture.add(lane.stream, spec.params, std::move(spec.owners));
  if (status == Status::ok) status = self->memory.worked(lane, spec.blocks);
  checkStatus(info.Env(), *self->device, status, "add a node");
  return info.Env().Undefined();
}

// lane, NativeGraphEvent: marks what the lane has captured so far
Napi::Value record(const Napi::CallbackInfo& info) {
  const Shared self = opened(info);
  const Lane& lane = laneAt(info[0], *self->device);
  const auto event = unwrapped<GraphEvent>(info.Env(), info[1]);
  if (!event || !event->event) throw Napi::TypeError::New(info.Env(), "event must be a NativeGraphEvent");
  Status status = self->device->driver->eventRecord(event->event, lane.stream);
  if (status == Status::ok) status = self->memory.record(lane, event.get());
  checkStatus(info.Env(), *self->device, status, "eventRecord");
  return info.Env().Undefined();
}

// lane, NativeGraphEvent: the lane joins the capture, and goes on after what the event marks
Napi::Value wait(const Napi::CallbackInfo& info) {
  const Shared self = opened(info);
  Lane& lane = laneAt(info[0], *self->device);
  const auto event = unwrapped<GraphEvent>(info.Env(), info[1]);
  if (!event || !event->event) throw Napi::TypeError::New(info.Env(), "event must be a NativeGraphEvent");
  const UnsafeCalls allowed(self->device->capturing());
  checkStatus(info.Env(), *self->device, self->memory.join(lane), "eventRecord");
  Status status = self->device->driver->streamWait(lane.stream, event->event);
  if (status == Status::ok) status = self->memory.wait(lane, event.get());
  checkStatus(info.Env(), *self->device, status, "streamWait");
  return info.Env().Undefined();
}

// lane → 0 none, 1 active, 2 invalidated
Napi::Value status(const Napi::CallbackInfo& info) {
  const Shared self = opened(info);
  CaptureInfo about;
  checkStatus(info.Env(), *self->device,
              self->device->driver->captureInfo(laneAt(info[0], *self->device).stream, &about),
              "captureInfo");
  return Napi::Number::New(info.Env(), static_cast<double>(about.status));
}

// lane, the child's NativeGraph, its graph
Napi::Value embed(const Napi::CallbackInfo& info) {
  const Shared self = opened(info);
  const auto child = unwrapped<GraphObject>(info.Env(), info[1]);
  if (!child) throw Napi::TypeError::New(info.Env(), "child must be a NativeGraph");
  const Lane& lane = laneAt(info[0], *self->device);
  Status status = self->capture.embed(lane.stream, child->graph(info[2]));
  if (status == Status::ok) status = self->memory.worked(lane, {});
  checkStatus(info.Env(), *self->device, status, "embed a graph");
  return info.Env().Undefined();
}

// lane, condition, kind, count → the node
Napi::Value conditional(const Napi::CallbackInfo& info) {
  const Shared self = opened(info);
  bool lossless = false;
  if (!info[1].IsBigInt()) throw Napi::TypeError::New(info.Env(), "condition must be a bigint");
  const Condition on = info[1].As<Napi::BigInt>().Uint64Value(&lossless);
  const Lane& lane = laneAt(info[0], *self->device);
  graphs::Node node;
  Status status = self->capture.addConditional(
      lane.stream, on, static_cast<ConditionalKind>(integerAt(info[2], "kind", 0, 2)),
      static_cast<std::size_t>(integerAt(info[3], "count", 0, 1 << 16)), &node);
  if (status == Status::ok) status = self->memory.worked(lane, {});
  checkStatus(info.Env(), *self->device, status, "add a conditional node");
  return Napi::Number::New(info.Env(), self->graph->numberOf(node));
}

// lane, bytes, pool (0: the capture's own), site → the block, with its address, its size and the number of
// its home lane in the device's `out`; or 0, with the code there.
Napi::Value malloc(const Napi::CallbackInfo& info) {
  const Shared self = opened(info);
  AllocatorDevice& device = *self->device;
  const Lane& lane = laneAt(info[0], device);
  Lane* const at = self->memory.captured(lane);
  caching::MemPool* pool = nullptr;
  if (at == nullptr) throw Napi::RangeError::New(info.Env(), "the lane takes no part in the capture");
  if (!device.pool(numberAt(info[2], "pool"), &pool))
    throw Napi::RangeError::New(info.Env(), "there is no such pool");
  if (pool == nullptr) pool = self->memory.ownPool();
  if (graphs::Owner owner = self->memory.hold(pool)) {
    try {
      self->retain(info.Env(), lane.stream, std::move(owner), "keep a pool");
    } catch (...) {
      self->memory.unhold(pool);
      throw;
    }
  }
  const UnsafeCalls allowed(device.capturing());
  if (device.graphs->cleanup->hasWork()) device.graphs->cleanup->drain();
  MemorySpace& space = device.spaces[0];
  caching::Block* block = nullptr;
  const Status status = space.allocator->malloc(
      static_cast<std::uint64_t>(integerAt(info[1], "bytes", 1, static_cast<std::int64_t>(mostInteger))), *at,
      &block, &space.shortage, pool, static_cast<std::uint32_t>(numberAt(info[3], "site")), &device);
  device.out[0] = static_cast<double>(status);
  if (status != Status::ok) return Napi::Number::New(info.Env(), 0);
  device.out[0] = static_cast<double>(block->address);
  device.out[1] = static_cast<double>(block->size);
  device.out[2] = static_cast<double>(at->id);
  device.weigh(static_cast<std::int64_t>(block->size));
  return Napi::Number::New(info.Env(), static_cast<double>(reinterpret_cast<std::uintptr_t>(block)));
}

// lane, { space, block }, whether the lane's work until the block's free counts too. A use of a block of the
// capture's own is a point of the graph; any other block is kept by the graph.
Napi::Value use(const Napi::CallbackInfo& info) {
  const Shared self = opened(info);
  const Lane& lane = laneAt(info[0], *self->device);
  bool pinned = false;
  caching::Block* const block = blockOf(objectAt(info[1], "block"), &pinned);
  if (!self->memory.has(*block)) {
    if (self->memory.first(block))
      self->retain(info.Env(), lane.stream, blockOwner(self->device, block, pinned), "keep a block");
    return info.Env().Undefined();
  }
  Lane* const at = self->memory.captured(lane);
  if (at == nullptr) throw Napi::RangeError::New(info.Env(), "the lane takes no part in the capture");
  caching::Allocator& allocator = self->device->memory->device();
  const Status status =
      flagOr(info[2], "stream", false) ? allocator.recordStream(block, *at) : allocator.recordUse(block, *at);
  checkStatus(info.Env(), *self->device, status, "recordUse");
  return info.Env().Undefined();
}

// Ends the capture, and where that fails drops what was captured. The lanes are ordinary ones again, whether
// it succeeds or not.
Napi::Value end(const Napi::CallbackInfo& info) {
  const Shared self = opened(info);
  graphs::GraphDefinition made;
  const Status status = self->capture.end(&made);
  self->ended();
  checkStatus(info.Env(), *self->device, status, "end a capture");
  return info.Env().Undefined();
}

// Ends the capture, if it has not ended. → the graphs and nodes that have gone with it, or with an end that
// failed, and whether the graph is as it was before: { nodes, graphs, restored }
Napi::Value abandon(const Napi::CallbackInfo& info) {
  const Shared self = braid::bindings::self<CaptureObject>(info);
  self->end();
  Napi::Object gone = self->graph->sweep(info.Env());
  gone.Set("restored", self->capture.restored());
  return gone;
}

}  // namespace

// NativeGraph, graph, lane, mode, whether the graph existed before, and is restored where the capture is
// given up → a NativeCapture of the lane into the graph
Napi::Value beginCapture(const Napi::CallbackInfo& info) {
  const auto graph = self<GraphObject>(info);
  const std::shared_ptr<AllocatorDevice>& device = graph->device;
  checkBound(info.Env(), *device);
  Lane& lane = laneAt(info[1], *device);
  const auto mode = static_cast<CaptureMode>(integerAt(info[2], "mode", 0, 2));
  const auto made = std::make_shared<CaptureObject>(device, graph, mode != CaptureMode::relaxed);
  checkStatus(info.Env(), *device, made->memory.join(lane), "eventRecord");
  if (const Status status = made->capture.beginOnto(graph->graph(info[0]), lane.stream, mode, {},
                                                    flagOr(info[3], "restores", false));
      status != Status::ok) {
    made->ended();
    checkStatus(info.Env(), *device, status, "begin a capture");
  }
  Napi::Object object = handle(info.Env(), made);
  define<work>(object, "work");
  define<add>(object, "add");
  define<record>(object, "record");
  define<wait>(object, "wait");
  define<status>(object, "status");
  define<embed>(object, "embed");
  define<conditional>(object, "conditional");
  define<malloc>(object, "malloc");
  define<use>(object, "use");
  define<end>(object, "end");
  define<abandon>(object, "abandon");
  return object;
}

}  // namespace braid::bindings
