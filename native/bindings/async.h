#pragma once

#include <napi.h>

#include <functional>

namespace braid::bindings {

// Runs `work` on a thread of its own, which has this name meanwhile, then `finish` on the JavaScript thread,
// whose value resolves the promise and whose exception rejects it. Both functions are destroyed on the
// JavaScript thread. If `work` throws a std::exception, the promise is rejected with its message.
Napi::Promise runAsync(Napi::Env env, const char* name, std::function<void()> work,
                       std::function<Napi::Value(Napi::Env)> finish);

}  // namespace braid::bindings
