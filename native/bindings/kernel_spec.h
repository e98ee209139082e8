#pragma once

#include <napi.h>

#include <string>

#include "driver/kernel_spec.h"

namespace braid::bindings {

// A KernelSpec of dsl/ir/kernel-spec.ts. Throws, naming the field, where it is none.
KernelSpec kernelSpec(Napi::Value value, const std::string& field);

}  // namespace braid::bindings
