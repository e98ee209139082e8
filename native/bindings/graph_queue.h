#pragma once

#include <napi.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>

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

// Carries what a device's graphs have for JavaScript: owners to be released, and calls of functions. The
// threads of the driver only push and wake; everything happens on the JavaScript thread. Does not keep the
// environment alive.
//
// Hazards, and their rules:
//   - A thread-safe function dies with its environment. It is only used under `mutex_` while `open_`.
//   - A thread of the driver that waits for an ordered callback would wait for ever once JavaScript stops, or
//     blocks: `shut` wakes it, and JavaScript never blocks while such a callback is pending
//     (Lanes::mayBlock).
class GraphQueue : public std::enable_shared_from_this<GraphQueue> {
 public:
  // `drain` is called on the JavaScript thread.
  static std::shared_ptr<GraphQueue> create(Napi::Env env, std::function<void()> drain);

  // Any thread, those of the driver too.
  bool wake();
  void call(Callback& callback);

  // JavaScript thread only.
  void deliver(Napi::Env env);
  // Calls no function any more and wakes the threads that wait for one. Idempotent.
  void shut();
  // Gives the thread-safe function back. After `shut`, while the environment is alive. Idempotent.
  void release();

 private:
  struct Call {
    std::shared_ptr<Callback> callback;
    bool done = false;
  };
  bool wakeLocked();

  std::function<void()> drain_;
  std::mutex mutex_;
  std::condition_variable answered_;
  bool open_ = true;
  napi_threadsafe_function function_ = nullptr;  // null once released or gone with its environment
  std::deque<std::shared_ptr<Call>> inbox_;
};

}  // namespace braid::bindings
