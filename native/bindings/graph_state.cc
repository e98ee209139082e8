#include "bindings/graph_state.h"
#include "driver/unsafe_calls.h"

#include <chrono>
#include <thread>

namespace braid::bindings {

GraphPart::GraphPart(std::shared_ptr<AllocatorDevice> owner) : device(std::move(owner)) {
  device->graphs->parts.insert(this);
}

GraphPart::~GraphPart() { device->graphs->parts.erase(this); }

namespace {

using Waker = std::shared_ptr<std::weak_ptr<GraphQueue>>;

// On the JavaScript thread, from a turn of its own.
void reportReleased(const AllocatorDevice& device) {
  if (!device.released) return;
  const Napi::Env env(device.env);
  const Napi::HandleScope scope(env);
  napi_value function = nullptr;
  if (napi_get_reference_value(env, device.released, &function) != napi_ok || function == nullptr) return;
  try {
    Napi::Function(env, function).Call(env.Undefined(), {});
  } catch (const Napi::Error& error) {
    napi_fatal_exception(env, error.Value());
  }
}

/** The driver's threads hold the cleanup queue for longer than the device may live. */
std::shared_ptr<graphs::CleanupQueue> cleanupQueue(const Waker& waker) {
  return std::make_shared<graphs::CleanupQueue>([waker] {
    const std::shared_ptr<GraphQueue> queue = waker->lock();
    return queue != nullptr && queue->wake();
  });
}

}  // namespace

GraphState::GraphState(AllocatorDevice& device)
    : GraphState(device, std::make_shared<std::weak_ptr<GraphQueue>>()) {}

GraphState::GraphState(AllocatorDevice& device, const Waker& waker) : cleanup(cleanupQueue(waker)) {
  javascript = GraphQueue::create(Napi::Env(device.env),
                                  [weak = std::weak_ptr<graphs::CleanupQueue>(cleanup), &device] {
                                    const auto queue = weak.lock();
                                    if (!queue || !device.driver || device.driver->bind() != Status::ok)
                                      return;
                                    const UnsafeCalls allowed(device.capturing());
                                    // An allocation may have drained it already.
                                    queue->drain();
                                    reportReleased(device);
                                  });
  *waker = javascript;
}

GraphState& GraphState::of(AllocatorDevice& device) {
  if (!device.graphs) device.graphs = std::make_shared<GraphState>(device);
  return *device.graphs;
}

// The driver runs the destructors of user objects soon after the last graph has gone, but not at once. On a
// device that has failed it may never do so.
void GraphState::end() {
  for (GraphPart* part : parts) part->end();
  conditionKernel.reset();
  const auto latest = std::chrono::steady_clock::now() + std::chrono::milliseconds(500);
  for (;;) {
    cleanup->drain();
    if (cleanup->outstanding() == 0 || std::chrono::steady_clock::now() > latest) break;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  cleanup->close();
  javascript->shut();
  javascript->release();
}

}  // namespace braid::bindings
