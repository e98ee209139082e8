#pragma once

#include <napi.h>

#include "executor/failure.h"

namespace braid::bindings {

// The NativeFailure of runtime/addon.ts.
Napi::Error failureObject(Napi::Env env, const Failure& failure);

}  // namespace braid::bindings
