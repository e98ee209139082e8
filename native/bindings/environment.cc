#include "bindings/environment.h"

#include <algorithm>

#include "bindings/tasks.h"

namespace braid::bindings {

Environment::Environment(Napi::Env) : tasks_(std::make_shared<Tasks>()) {}

void Environment::begin(Napi::Env env) {
  auto made = std::unique_ptr<Environment>(new Environment(env));
  const auto destroy = [](napi_env, void* self, void*) { delete static_cast<Environment*>(self); };
  if (napi_add_env_cleanup_hook(env, end, made.get()) != napi_ok) throw Napi::Error::New(env);
  if (napi_set_instance_data(env, made.get(), destroy, nullptr) != napi_ok) {
    napi_remove_env_cleanup_hook(env, end, made.get());
    throw Napi::Error::New(env);
  }
  made.release();
}

Environment& Environment::of(napi_env env) {
  void* self = nullptr;
  if (napi_get_instance_data(env, &self) != napi_ok || self == nullptr) throw Napi::Error::New(env);
  return *static_cast<Environment*>(self);
}

void Environment::add(std::weak_ptr<Awaited> awaited) {
  std::erase_if(awaited_, [](const auto& each) { return each.expired(); });
  awaited_.push_back(std::move(awaited));
}

void Environment::leaveJavaScript() {
  for (const auto& each : awaited_)
    if (const auto awaited = each.lock()) awaited->shut();
  tasks_->await();
}

void Environment::end(void* self) {
  auto* environment = static_cast<Environment*>(self);
  environment->leaveJavaScript();
  environment->tasks_->drop();
}

}  // namespace braid::bindings
