#pragma once

#include <napi.h>

#include <functional>
#include <memory>

#include "bindings/inbox.h"

namespace braid::bindings {

class GraphQueue;

// A JavaScript function that a graph or a lane calls. Made and destroyed on the JavaScript thread.
struct Callback : std::enable_shared_from_this<Callback> {
  std::shared_ptr<GraphQueue> queue;
  Napi::FunctionReference function;
  // The device waits until the function has returned. Otherwise it goes on at once.
  bool ordered = false;

  // For Driver::hostFunction; `data` is a Callback.
  static void run(void* data);
};

// The call of a callback.
struct GraphCall {
  std::shared_ptr<Callback> callback;
  bool done = false;
};

// Carries what a device's graphs have for JavaScript: owners to be released, and calls of functions. The
// threads of the driver only push and wake; everything happens on the JavaScript thread. Does not keep the
// environment alive.
//
// Hazard: a thread of the driver that waits for an ordered callback would wait for ever once JavaScript
// blocks. It never blocks while such a callback is pending (Lanes::mayBlock).
class GraphQueue final : public Inbox<std::shared_ptr<GraphCall>> {
 public:
  // `drain` is called on the JavaScript thread.
  static std::shared_ptr<GraphQueue> create(Napi::Env env, std::function<void()> drain);

  // Any thread, those of the driver too.
  void call(Callback& callback);

  // JavaScript thread only.
  void deliver(Napi::Env env) override;
  // Gives the thread-safe function back. After `shut`, while the environment is alive. Idempotent.
  void release();

 private:
  std::function<void()> drain_;
};

}  // namespace braid::bindings
