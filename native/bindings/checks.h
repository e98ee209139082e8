#pragma once

#include <napi.h>

#include "bindings/allocator_device.h"

// What the calls of a device and of its graphs check before they touch the driver. Each throws.
namespace braid::bindings {

// That the device takes calls: it is open, and waits for no function of JavaScript's. The error of the latter
// has the code `REENTRANT`.
void checkOpen(Napi::Env env, const AllocatorDevice& device);
// The same, and its driver is current on this thread.
void checkBound(Napi::Env env, AllocatorDevice& device);
// That a call of the driver succeeded; else what the driver says of the failure.
void checkStatus(Napi::Env env, AllocatorDevice& device, Status status, const char* op);
// The lane of a number, which is not retired.
Lane& laneAt(Napi::Value number, const AllocatorDevice& device);

}  // namespace braid::bindings
