#pragma once

#include <napi.h>

#include <functional>

namespace braid::bindings {

// Runs `work` on a thread of libuv's pool, then `settle` on the JavaScript thread: its value resolves the
// promise, its exception rejects it. Both functions, and what they hold, are destroyed on the JavaScript
// thread. `work` may throw std::exception; the promise is rejected with its message.
Napi::Promise runAsync(Napi::Env env, const char* name, std::function<void()> work,
                       std::function<Napi::Value(Napi::Env)> settle);

}  // namespace braid::bindings
