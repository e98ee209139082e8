#pragma once

#include <napi.h>

#include "memory/caching/options.h"

namespace braid::bindings {

// Of `NativeAllocatorOptions` in runtime/addon.ts, which TypeScript has checked. Infinity is no bound. A
// fraction is of the device's bytes.
caching::Options cachingOptions(Napi::Value given, const std::string& field, std::uint64_t deviceBytes = 0);

}  // namespace braid::bindings
