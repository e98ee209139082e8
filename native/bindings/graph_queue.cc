#include "bindings/graph_queue.h"

#include <utility>

namespace braid::bindings {
namespace {

void onMessage(napi_env env, napi_value, void* context, void*) {
  // Without an environment the queue is only emptied.
  if (env == nullptr) return;
  const std::shared_ptr<GraphQueue> queue = *static_cast<std::shared_ptr<GraphQueue>*>(context);
  queue->deliver(Napi::Env(env));
}

}  // namespace

// Runs on a thread of the driver's: no call of the driver, and no lock that a caller of the driver may hold.
void Callback::run(void* data) {
  Callback& callback = *static_cast<Callback*>(data);
  callback.queue->call(callback);
}

std::shared_ptr<GraphQueue> GraphQueue::create(Napi::Env env, std::function<void()> drain) {
  auto queue = std::make_shared<GraphQueue>();
  queue->drain_ = std::move(drain);
  auto* context = new std::shared_ptr<GraphQueue>(queue);
  const auto finalize = [](napi_env, void*, void* held) {
    const std::unique_ptr<std::shared_ptr<GraphQueue>> mine(static_cast<std::shared_ptr<GraphQueue>*>(held));
    {
      std::lock_guard lock((*mine)->mutex_);
      (*mine)->function_ = nullptr;
    }
    (*mine)->shut();
  };
  const napi_value name = Napi::String::New(env, "braid.graphs");
  if (napi_create_threadsafe_function(env, nullptr, nullptr, name, 0, 1, nullptr, finalize, context,
                                      onMessage, &queue->function_) != napi_ok) {
    delete context;
    throw Napi::Error::New(env);
  }
  napi_unref_threadsafe_function(env, queue->function_);
  return queue;
}

bool GraphQueue::wakeLocked() {
  return open_ && function_ != nullptr &&
         napi_call_threadsafe_function(function_, nullptr, napi_tsfn_nonblocking) == napi_ok;
}

bool GraphQueue::wake() {
  std::lock_guard lock(mutex_);
  return wakeLocked();
}

void GraphQueue::call(Callback& callback) {
  const auto call = std::make_shared<Call>();
  std::unique_lock lock(mutex_);
  // The graph keeps the callback while this runs, so that a reference given up here is never the last.
  call->callback = callback.shared_from_this();
  inbox_.push_back(call);
  if (!wakeLocked()) {
    inbox_.pop_back();
    return;
  }
  if (callback.ordered) answered_.wait(lock, [&] { return call->done || !open_; });
}

void GraphQueue::deliver(Napi::Env env) {
  if (drain_) drain_();
  for (;;) {
    std::shared_ptr<Call> call;
    {
      std::lock_guard lock(mutex_);
      if (!open_ || inbox_.empty()) return;
      call = std::move(inbox_.front());
      inbox_.pop_front();
    }
    {
      const Napi::HandleScope scope(env);
      try {
        call->callback->function.Call(env.Undefined(), {});
      } catch (const Napi::Error& error) {
        // What the user's function throws is handled as uncaught; the graph goes on.
        napi_fatal_exception(env, error.Value());
      }
    }
    call->callback.reset();
    {
      std::lock_guard lock(mutex_);
      call->done = true;
    }
    answered_.notify_all();
  }
}

void GraphQueue::shut() {
  std::deque<std::shared_ptr<Call>> dropped;
  {
    std::lock_guard lock(mutex_);
    open_ = false;
    dropped.swap(inbox_);
  }
  answered_.notify_all();
}

void GraphQueue::release() {
  napi_threadsafe_function function = nullptr;
  {
    std::lock_guard lock(mutex_);
    std::swap(function, function_);
  }
  drain_ = {};
  if (function != nullptr) napi_release_threadsafe_function(function, napi_tsfn_abort);
}

}  // namespace braid::bindings
