#pragma once

#include <napi.h>

namespace braid::bindings {

// A NativeEventLoop of runtime/addon.ts; undefined where the event loop is not libuv's.
Napi::Value eventLoop(const Napi::CallbackInfo& info);

}  // namespace braid::bindings
