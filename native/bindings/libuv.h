#pragma once

#include <node_api.h>

#include <cstddef>
#include <cstdint>

// What the addon calls of the libuv in Node. The headers of Node-API name a loop but leave libuv's own out; a
// handle is opaque here, of the size that libuv says. Both stay as they are in all of libuv 1, which Node
// has.
extern "C" {
struct uv_idle_s;
struct uv_handle_s;
inline constexpr int UV_IDLE = 6;
std::size_t uv_handle_size(int type);
int uv_idle_init(uv_loop_s* loop, uv_idle_s* idle);
int uv_idle_start(uv_idle_s* idle, void (*callback)(uv_idle_s* idle));
int uv_idle_stop(uv_idle_s* idle);
void uv_unref(uv_handle_s* handle);
void uv_close(uv_handle_s* handle, void (*callback)(uv_handle_s* handle));
void* uv_handle_get_data(const uv_handle_s* handle);
void uv_handle_set_data(uv_handle_s* handle, void* data);
std::uint64_t uv_hrtime();
}
