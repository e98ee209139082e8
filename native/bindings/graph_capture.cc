// The NativeCapture of runtime/addon.ts. TypeScript has checked the arguments.
#include "graphs/capture.h"

#include <algorithm>

#include "bindings/convert.h"
#include "bindings/graph_object.h"
#include "bindings/graph_params.h"
#include "bindings/handle.h"

namespace braid::bindings {
namespace {

// A capture into a graph that exists, with the lanes that take part.
class CaptureObject final : public GraphPart {
 public:
  CaptureObject(std::shared_ptr<AllocatorDevice> owner, std::shared_ptr<GraphObject> into)
      : GraphPart(std::move(owner)), graph(std::move(into)) {}
  ~CaptureObject() override { end(); }
  void end() override {
    if (device->driver) device->driver->bind();
    capture.abandon();
    leaveLanes();
  }
  Status join(Lane& lane) {
    if (std::find(lanes.begin(), lanes.end(), &lane) != lanes.end()) return Status::ok;
    if (const Status status = device->lanes->beginCapture(lane); status != Status::ok) return status;
    lanes.push_back(&lane);
    return Status::ok;
  }
  void leaveLanes() {
    for (Lane* lane : std::exchange(lanes, {})) lane->capturing = false;
  }

  static constexpr napi_type_tag typeTag{0x6272616964636170u, 0xc5e1287fa90d364bu};
  static constexpr const char* typeName = "NativeCapture";
  const std::shared_ptr<GraphObject> graph;
  graphs::GraphCapture capture;
  std::vector<Lane*> lanes;
};

using Shared = std::shared_ptr<CaptureObject>;

Shared opened(const Napi::CallbackInfo& info) {
  auto made = self<CaptureObject>(info);
  if (made->device->refusal() != 0) throw Napi::Error::New(info.Env(), "the device is closed");
  checkGraph(info.Env(), *made->device, made->device->driver->bind(), "bind");
  return made;
}

Lane& laneAt(const Napi::CallbackInfo& info, AllocatorDevice& device, std::size_t at) {
  Lane* lane = device.lane(numberAt(info[at], "lane"));
  if (!lane || lane->retired) throw Napi::RangeError::New(info.Env(), "there is no such lane");
  return *lane;
}

// lane, NativeNode: what the lane is given becomes a node
Napi::Value work(const Napi::CallbackInfo& info) {
  const Shared self = opened(info);
  const Lane& lane = laneAt(info, *self->device, 0);
  NodeSpec spec = nodeSpec(self->device, objectAt(info[1], "node"));
  Driver& driver = *self->device->driver;
  const Status status = self->capture.work(lane.stream, std::move(spec.owners),
                                           [&] { return queueWork(driver, spec.params, lane.stream); });
  checkGraph(info.Env(), *self->device, status, "capture work");
  return info.Env().Undefined();
}

// lane, NativeGraphEvent: marks what the lane has captured so far
Napi::Value record(const Napi::CallbackInfo& info) {
  const Shared self = opened(info);
  const Lane& lane = laneAt(info, *self->device, 0);
  const auto event = unwrapped<GraphEvent>(info.Env(), info[1]);
  if (!event || !event->event) throw Napi::TypeError::New(info.Env(), "event must be a NativeGraphEvent");
  checkGraph(info.Env(), *self->device, self->device->driver->eventRecord(event->event, lane.stream),
             "eventRecord");
  return info.Env().Undefined();
}

// lane, NativeGraphEvent: the lane joins the capture, and goes on after what the event marks
Napi::Value wait(const Napi::CallbackInfo& info) {
  const Shared self = opened(info);
  Lane& lane = laneAt(info, *self->device, 0);
  const auto event = unwrapped<GraphEvent>(info.Env(), info[1]);
  if (!event || !event->event) throw Napi::TypeError::New(info.Env(), "event must be a NativeGraphEvent");
  checkGraph(info.Env(), *self->device, self->join(lane), "eventRecord");
  checkGraph(info.Env(), *self->device, self->device->driver->streamWait(lane.stream, event->event),
             "streamWait");
  return info.Env().Undefined();
}

// lane → 0 none, 1 active, 2 invalidated
Napi::Value status(const Napi::CallbackInfo& info) {
  const Shared self = opened(info);
  CaptureInfo about;
  checkGraph(info.Env(), *self->device,
             self->device->driver->captureInfo(laneAt(info, *self->device, 0).stream, &about), "captureInfo");
  return Napi::Number::New(info.Env(), static_cast<double>(about.status));
}

// lane, the child's NativeGraph, its graph
Napi::Value embed(const Napi::CallbackInfo& info) {
  const Shared self = opened(info);
  const auto child = unwrapped<GraphObject>(info.Env(), info[1]);
  if (!child) throw Napi::TypeError::New(info.Env(), "child must be a NativeGraph");
  checkGraph(info.Env(), *self->device,
             self->capture.embed(laneAt(info, *self->device, 0).stream, child->graph(info[2])),
             "embed a graph");
  return info.Env().Undefined();
}

// lane, condition, kind, count → the node
Napi::Value conditional(const Napi::CallbackInfo& info) {
  const Shared self = opened(info);
  bool lossless = false;
  if (!info[1].IsBigInt()) throw Napi::TypeError::New(info.Env(), "condition must be a bigint");
  const Condition on = info[1].As<Napi::BigInt>().Uint64Value(&lossless);
  graphs::Node node;
  const Status status =
      self->capture.addConditional(laneAt(info, *self->device, 0).stream, on,
                                   static_cast<ConditionalKind>(integerAt(info[2], "kind", 0, 2)),
                                   static_cast<std::size_t>(integerAt(info[3], "count", 0, 1 << 16)), &node);
  checkGraph(info.Env(), *self->device, status, "add a conditional node");
  return Napi::Number::New(info.Env(), self->graph->numberOf(node));
}

// Ends the capture. The lanes are ordinary ones again, whether it succeeds or not.
Napi::Value end(const Napi::CallbackInfo& info) {
  const Shared self = opened(info);
  graphs::GraphDefinition made;
  const Status status = self->capture.end(&made);
  self->leaveLanes();
  checkGraph(info.Env(), *self->device, status, "end a capture");
  return info.Env().Undefined();
}

Napi::Value abandon(const Napi::CallbackInfo& info) {
  self<CaptureObject>(info)->end();
  return info.Env().Undefined();
}

}  // namespace

// NativeGraph, graph, lane, mode → a NativeCapture of the lane into the graph
Napi::Value beginCapture(const Napi::CallbackInfo& info) {
  const auto graph = self<GraphObject>(info);
  const std::shared_ptr<AllocatorDevice>& device = graph->device;
  if (device->refusal() != 0) throw Napi::Error::New(info.Env(), "the device is closed");
  checkGraph(info.Env(), *device, device->driver->bind(), "bind");
  Lane& lane = laneAt(info, *device, 1);
  const auto mode = static_cast<CaptureMode>(integerAt(info[2], "mode", 0, 2));
  const auto made = std::make_shared<CaptureObject>(device, graph);
  checkGraph(info.Env(), *device, made->join(lane), "eventRecord");
  if (const Status status = made->capture.beginOnto(graph->graph(info[0]), lane.stream, mode);
      status != Status::ok) {
    made->leaveLanes();
    checkGraph(info.Env(), *device, status, "begin a capture");
  }
  Napi::Object object = handle(info.Env(), made);
  define<work>(object, "work");
  define<record>(object, "record");
  define<wait>(object, "wait");
  define<status>(object, "status");
  define<embed>(object, "embed");
  define<conditional>(object, "conditional");
  define<end>(object, "end");
  define<abandon>(object, "abandon");
  return object;
}

}  // namespace braid::bindings
