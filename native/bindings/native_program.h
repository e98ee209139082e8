#pragma once

#include <napi.h>

#include <memory>

#include "bindings/device.h"

namespace braid::bindings {

// Prepares a program off the JavaScript thread and resolves to a NativeProgram. Throws where `spec` or
// `options` has the wrong form.
Napi::Promise openProgram(Napi::Env env, std::shared_ptr<Device> device, Napi::Value spec,
                          Napi::Value options);

}  // namespace braid::bindings
