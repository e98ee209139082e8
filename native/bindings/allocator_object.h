#pragma once

#include <napi.h>

namespace braid::bindings {

// openCaching(where, deviceOptions, pinnedOptions): the NativeCachingDevice of runtime/addon.ts. `where` is a
// CUDA ordinal, or the HostOptions of a host device.
Napi::Value openCaching(const Napi::CallbackInfo& info);

}  // namespace braid::bindings
