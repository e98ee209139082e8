#include "bindings/async.h"

#include <memory>

#include "bindings/environment.h"
#include "bindings/tasks.h"

namespace braid::bindings {

Napi::Promise runAsync(Napi::Env env, const char* name, std::function<void()> work,
                       std::function<Napi::Value(Napi::Env)> finish) {
  auto task = std::make_unique<Task>();
  task->run = std::move(work);
  task->finish = std::move(finish);
  napi_value promise = nullptr;
  if (napi_create_promise(env, &task->deferred, &promise) != napi_ok) throw Napi::Error::New(env);
  Environment::of(env).tasks().start(env, std::move(task), name);
  return Napi::Promise(env, promise);
}

}  // namespace braid::bindings
