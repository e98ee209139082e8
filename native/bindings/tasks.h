#pragma once

#include <napi.h>

#include <functional>
#include <list>
#include <memory>
#include <string>

#include "bindings/inbox.h"

namespace braid::bindings {

// A call that JavaScript awaits.
struct Task {
  std::function<void()> run;                     // on another thread
  std::function<Napi::Value(Napi::Env)> finish;  // on the JavaScript thread
  napi_deferred deferred = nullptr;
  std::string problem;  // that `run` has thrown
  bool ran = false;
};

// The tasks of an environment, which lives as long as there are any.
//
// Hazards, and their rules:
//   - A task may wait for work of a device that is never done once JavaScript has stopped. libuv's pool has
//     four threads, which `process.exit` joins and files, names and other addons need too; so tasks have
//     threads of their own, which the end of the process ends.
//   - A task may use memory of JavaScript's, and both functions hold references to JavaScript. So the end of
//     the environment waits until no task runs, and tasks are destroyed on the JavaScript thread.
class Tasks final : public Inbox<Task*>, public std::enable_shared_from_this<Tasks> {
 public:
  void start(Napi::Env env, std::unique_ptr<Task> task, const char* name);
  void deliver(Napi::Env env) override;
  // Waits until no task runs.
  void await();
  // After `shut` and `await`.
  void drop() { all_.clear(); }

 private:
  static void complete(Napi::Env env, Task& task);
  void execute(Task* task);

  std::list<std::unique_ptr<Task>> all_;
};

}  // namespace braid::bindings
