#pragma once

#include <napi.h>

#include "driver/driver.h"
#include "executor/failure.h"

namespace braid::bindings {

// The HostOptions of runtime/addon.ts; absent: all defaults.
HostOptions hostOptions(Napi::Value value);

// Why no driver opened.
Failure openFailure(Status status, const char* op, std::string detail);

}  // namespace braid::bindings
