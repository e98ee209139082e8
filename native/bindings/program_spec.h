#pragma once

#include <napi.h>

#include "executor/program_spec.h"

namespace braid::bindings {

// A NativeProgramSpec of runtime/addon.ts: its form. Its meaning is checked by the executor's `decode`.
// Throws, naming the field.
ProgramSpec programSpec(Napi::Value value);

}  // namespace braid::bindings
