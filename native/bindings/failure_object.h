#pragma once

#include <napi.h>

#include "executor/failure.h"

namespace braid::bindings {

// The NativeFailure of runtime/native.ts.
Napi::Error failureObject(Napi::Env env, const Failure& failure);

}  // namespace braid::bindings
