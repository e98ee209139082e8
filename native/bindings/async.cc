#include "bindings/async.h"

#include <memory>
#include <string>

namespace braid::bindings {
namespace {

struct Task {
  napi_async_work work = nullptr;
  napi_deferred deferred = nullptr;
  std::function<void()> run;
  std::function<Napi::Value(Napi::Env)> finish;
  std::string problem;
};

void execute(napi_env, void* data) {
  auto* task = static_cast<Task*>(data);
  try {
    task->run();
  } catch (const std::exception& error) {
    task->problem = error.what();
    if (task->problem.empty()) task->problem = "unknown failure";
  }
}

// Also runs while the environment is torn down: then every call into JavaScript fails, which is ignored.
void complete(napi_env env, napi_status, void* data) {
  const std::unique_ptr<Task> task(static_cast<Task*>(data));
  napi_delete_async_work(env, task->work);
  try {
    if (!task->problem.empty()) throw Napi::Error::New(env, task->problem);
    napi_resolve_deferred(env, task->deferred, task->finish(Napi::Env(env)));
  } catch (const Napi::Error& error) {
    napi_reject_deferred(env, task->deferred, error.Value());
  } catch (const std::exception& error) {
    napi_value text = nullptr, value = nullptr;
    if (napi_create_string_utf8(env, error.what(), NAPI_AUTO_LENGTH, &text) == napi_ok &&
        napi_create_error(env, nullptr, text, &value) == napi_ok) {
      napi_reject_deferred(env, task->deferred, value);
    }
  }
}

}  // namespace

Napi::Promise runAsync(Napi::Env env, const char* name, std::function<void()> work,
                       std::function<Napi::Value(Napi::Env)> finish) {
  auto task = std::make_unique<Task>();
  task->run = std::move(work);
  task->finish = std::move(finish);
  napi_value promise = nullptr, resource = Napi::String::New(env, name);
  if (napi_create_promise(env, &task->deferred, &promise) != napi_ok) throw Napi::Error::New(env);
  if (napi_create_async_work(env, nullptr, resource, execute, complete, task.get(), &task->work) != napi_ok)
    throw Napi::Error::New(env);
  if (napi_queue_async_work(env, task->work) != napi_ok) {
    napi_delete_async_work(env, task->work);
    throw Napi::Error::New(env);
  }
  task.release();
  return Napi::Promise(env, promise);
}

}  // namespace braid::bindings
