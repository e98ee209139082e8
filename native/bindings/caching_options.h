#pragma once

#include <napi.h>

#include "allocator/caching/options.h"

namespace braid::bindings {

// Of `NativeAllocatorOptions` in runtime/native.ts, which TypeScript has checked. Infinity is no bound.
caching::Options cachingOptions(Napi::Value given, const std::string& field);

}  // namespace braid::bindings
