#include "bindings/graph_queue.h"

#include <utility>

namespace braid::bindings {

// Runs on a thread of the driver's: no call of the driver, and no lock that a caller of the driver may hold.
void Callback::run(void* data) {
  Callback& callback = *static_cast<Callback*>(data);
  callback.queue->call(callback);
}

std::shared_ptr<GraphQueue> GraphQueue::create(Napi::Env env, std::function<void()> drain) {
  auto queue = std::make_shared<GraphQueue>();
  queue->drain_ = std::move(drain);
  open(env, queue, "braid.graphs");
  return queue;
}

void GraphQueue::call(Callback& callback) {
  const auto call = std::make_shared<GraphCall>();
  // The graph keeps the callback while this runs, so that a reference given up here is never the last.
  call->callback = callback.shared_from_this();
  if (!post(call) || !callback.ordered) return;
  std::unique_lock lock(mutex_);
  answered_.wait(lock, [&] { return call->done || !open_; });
}

void GraphQueue::deliver(Napi::Env env) {
  if (drain_) drain_();
  while (const std::optional<std::shared_ptr<GraphCall>> message = next()) {
    GraphCall& call = **message;
    {
      const Napi::HandleScope scope(env);
      try {
        call.callback->function.Call(env.Undefined(), {});
      } catch (const Napi::Error& error) {
        // What the user's function throws is handled as uncaught; the graph goes on.
        napi_fatal_exception(env, error.Value());
      }
    }
    call.callback.reset();
    {
      std::lock_guard lock(mutex_);
      call.done = true;
    }
    answered_.notify_all();
  }
}

void GraphQueue::release() {
  releaseFunction();
  drain_ = {};
}

}  // namespace braid::bindings
