#pragma once

#include <napi.h>

#include <cstddef>
#include <cstdint>

struct uv_idle_s;
struct uv_handle_s;

namespace braid::bindings {

// What the addon calls of the libuv in Node. The headers of Node-API name a loop but leave libuv's own out; a
// handle is opaque here, of the size that libuv says. Both stay as they are in all of libuv 1, which Node
// has.
//
// Looked up at run time: a module that names a function of libuv cannot be loaded where there is none.
struct Libuv {
  static constexpr int idleType = 6;

  std::size_t (*handleSize)(int type);
  int (*idleInit)(uv_loop_s* loop, uv_idle_s* idle);
  int (*idleStart)(uv_idle_s* idle, void (*callback)(uv_idle_s* idle));
  int (*idleStop)(uv_idle_s* idle);
  void (*unref)(uv_handle_s* handle);
  void (*close)(uv_handle_s* handle, void (*callback)(uv_handle_s* handle));
  void* (*getData)(const uv_handle_s* handle);
  void (*setData)(uv_handle_s* handle, void* data);
  std::uint64_t (*now)();

  // Null where the process has not all of them.
  static const Libuv* find();
};

// Whether the event loop of `env` is libuv's, so that Libuv::find() is not null.
bool runsOnLibuv(Napi::Env env);

}  // namespace braid::bindings
