#pragma once

#include <napi.h>

#include "memory/caching/options.h"

namespace braid::bindings {

// Converts `NativeAllocatorOptions` of runtime/addon.ts, which TypeScript has checked. Infinity means no
// bound. A fraction is one of the device's bytes.
caching::Options allocatorOptions(Napi::Value given, const std::string& field, std::uint64_t deviceBytes = 0);

}  // namespace braid::bindings
