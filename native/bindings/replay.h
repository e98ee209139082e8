#pragma once

#include <napi.h>

namespace braid::bindings {

// replay(where, options, trace): opens a driver, replays the trace on it off the JavaScript thread, and
// closes it. Resolves with NativeReplayFigures; rejects with a NativeFailure that names the operation of the
// trace.
Napi::Value replayTrace(const Napi::CallbackInfo& info);

}  // namespace braid::bindings
