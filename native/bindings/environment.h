#pragma once

#include <napi.h>

#include <memory>
#include <vector>

namespace braid::bindings {

class Tasks;

// What other threads wait for JavaScript by. `shut` ends their waits, on the JavaScript thread. Idempotent.
class Awaited {
 public:
  Awaited() = default;
  virtual ~Awaited() = default;
  Awaited(const Awaited&) = delete;
  Awaited& operator=(const Awaited&) = delete;
  virtual void shut() = 0;
};

// A thread of JavaScript that has loaded the addon, from then to its end.
//
// Hazard: when the environment ends, its objects end one after the other, and each waits for its own work.
// That work may wait for what another object owes, and tasks still use the objects. So the first object that
// ends calls `leaveJavaScript`, which ends the waits of all, and lets the tasks run to their ends. JavaScript
// thread only.
class Environment {
 public:
  // While the addon is loaded: before any object, so that its hook runs after theirs.
  static void begin(Napi::Env env);
  static Environment& of(napi_env env);

  void add(std::weak_ptr<Awaited> awaited);
  // The environment ends: nobody waits for JavaScript any more, and no task runs. Idempotent.
  void leaveJavaScript();
  Tasks& tasks() { return *tasks_; }

 private:
  explicit Environment(Napi::Env env);
  static void end(void* self);

  std::vector<std::weak_ptr<Awaited>> awaited_;
  std::shared_ptr<Tasks> tasks_;
};

}  // namespace braid::bindings
