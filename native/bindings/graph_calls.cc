// What a NativeCachingDevice can do for graphs, and what graphs and lanes share.
#include "bindings/checks.h"
#include "bindings/convert.h"
#include "bindings/graph_object.h"
#include "bindings/graph_params.h"
#include "bindings/handle.h"

namespace braid::bindings {
namespace {

using Shared = std::shared_ptr<AllocatorDevice>;

Shared opened(const Napi::CallbackInfo& info) {
  auto device = self<AllocatorDevice>(info);
  checkBound(info.Env(), *device);
  return device;
}

// A new, empty definition: a NativeGraph.
Napi::Value graph(const Napi::CallbackInfo& info) {
  const Shared device = opened(info);
  graphs::GraphDefinition made;
  const GraphState& state = GraphState::of(*device);
  checkStatus(info.Env(), *device,
              graphs::GraphDefinition::create(device->memory->sharedDriver(), state.cleanup, &made),
              "graphCreate");
  return graphObject(info.Env(), device, std::move(made));
}

// function: called when graphs have let go of what they kept, later than that
Napi::Value onReleased(const Napi::CallbackInfo& info) {
  const auto device = self<AllocatorDevice>(info);
  if (device->released) napi_delete_reference(info.Env(), std::exchange(device->released, nullptr));
  if (napi_create_reference(info.Env(), info[0], 1, &device->released) != napi_ok)
    throw Napi::Error::New(info.Env());
  return info.Env().Undefined();
}

// whether it is timed → a NativeGraphEvent
Napi::Value graphEvent(const Napi::CallbackInfo& info) {
  const Shared device = opened(info);
  const EventKind kind = flagOr(info[0], "timed", false) ? EventKind::timed : EventKind::order;
  const auto made = std::make_shared<GraphEvent>();
  made->driver = device->memory->sharedDriver();
  checkStatus(info.Env(), *device, device->driver->eventCreate(&made->event, kind), "eventCreate");
  return handle(info.Env(), made);
}

// → { used, reserved }
Napi::Value graphMemory(const Napi::CallbackInfo& info) {
  const Shared device = opened(info);
  std::size_t used = 0, reserved = 0;
  checkStatus(info.Env(), *device, device->driver->graphMemory(&used, &reserved), "graphMemory");
  Napi::Object result = Napi::Object::New(info.Env());
  result.Set("used", static_cast<double>(used));
  result.Set("reserved", static_cast<double>(reserved));
  return result;
}

// The driver may wait for work that uses memory of graphs.
Napi::Value trimGraphMemory(const Napi::CallbackInfo& info) {
  const Shared device = opened(info);
  checkStatus(info.Env(), *device,
              device->lanes->mayBlock() ? device->driver->graphMemoryTrim() : Status::notPermitted,
              "graphMemoryTrim");
  return info.Env().Undefined();
}

// lane, NativeGraphEvent → 0 or a code
template <bool waits>
Napi::Value onEvent(const Napi::CallbackInfo& info) {
  const auto device = self<AllocatorDevice>(info);
  const auto code = [&](int value) { return Napi::Number::New(info.Env(), value); };
  if (device->refusal() != 0) return code(device->refusal());
  Lane* lane = device->lane(numberAt(info[0], "lane"));
  const auto event = unwrapped<GraphEvent>(info.Env(), info[1]);
  if (!lane || lane->retired || !event || !event->event) return code(static_cast<int>(Refusal::badHandle));
  if (!device->lanes->mayQueue(*lane)) return code(static_cast<int>(Status::notPermitted));
  Driver& driver = *device->driver;
  Status status = driver.bind();
  if (status == Status::ok)
    status = waits ? driver.streamWait(lane->stream, event->event)
                   : driver.eventRecord(event->event, lane->stream);
  lane->queued();
  return code(static_cast<int>(status));
}

// NativeGraphEvent, NativeGraphEvent → 0, and the milliseconds in the device's `out`; or a code
Napi::Value elapsedBetween(const Napi::CallbackInfo& info) {
  const auto device = self<AllocatorDevice>(info);
  const auto code = [&](int value) { return Napi::Number::New(info.Env(), value); };
  if (device->refusal() != 0) return code(device->refusal());
  const auto from = unwrapped<GraphEvent>(info.Env(), info[0]);
  const auto to = unwrapped<GraphEvent>(info.Env(), info[1]);
  if (!from || !from->event || !to || !to->event) return code(static_cast<int>(Refusal::badHandle));
  float milliseconds = 0;
  Status status = device->driver->bind();
  if (status == Status::ok) status = device->driver->eventElapsed(&milliseconds, from->event, to->event);
  device->out[0] = static_cast<double>(milliseconds);
  return code(static_cast<int>(status));
}

}  // namespace

void defineGraphCalls(Napi::Object object) {
  define<graph>(object, "graph");
  define<onReleased>(object, "onReleased");
  define<graphEvent>(object, "graphEvent");
  define<graphMemory>(object, "graphMemory");
  define<trimGraphMemory>(object, "trimGraphMemory");
  define<onEvent<false>>(object, "recordEvent");
  define<onEvent<true>>(object, "waitEvent");
  define<elapsedBetween>(object, "elapsedEvents");
}

}  // namespace braid::bindings
