#include "bindings/libuv.h"

#include <dlfcn.h>

#include <optional>

namespace braid::bindings {
namespace {

template <typename Function>
bool look(Function*& function, const char* name) {
  function = reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
  return function != nullptr;
}

std::optional<Libuv> lookAll() {
  Libuv found{};
  const bool all = look(found.handleSize, "uv_handle_size") && look(found.idleInit, "uv_idle_init") &&
                   look(found.idleStart, "uv_idle_start") && look(found.idleStop, "uv_idle_stop") &&
                   look(found.unref, "uv_unref") && look(found.close, "uv_close") &&
                   look(found.getData, "uv_handle_get_data") && look(found.setData, "uv_handle_set_data") &&
                   look(found.now, "uv_hrtime");
  return all ? std::optional(found) : std::nullopt;
}

}  // namespace

const Libuv* Libuv::find() {
  static const std::optional<Libuv> found = lookAll();
  return found ? &*found : nullptr;
}

// Bun and Deno have an event loop of another kind beside functions of these names, and end the process where
// some of them are called.
bool runsOnLibuv(Napi::Env env) {
  const Napi::Value process = env.Global().Get("process");
  if (!process.IsObject()) return false;
  const Napi::Value versions = process.As<Napi::Object>().Get("versions");
  if (!versions.IsObject()) return false;
  const auto names = versions.As<Napi::Object>();
  return names.Has("node") && !names.Has("bun") && !names.Has("deno") && Libuv::find() != nullptr;
}

}  // namespace braid::bindings
