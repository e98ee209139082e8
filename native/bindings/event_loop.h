#pragma once

#include <napi.h>

namespace braid::bindings {

// A NativeEventLoop of runtime/addon.ts.
Napi::Value eventLoop(const Napi::CallbackInfo& info);

}  // namespace braid::bindings
