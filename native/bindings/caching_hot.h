#pragma once

#include <node_api.h>

#include <memory>

#include "bindings/caching_device.h"

namespace braid::bindings {

// The calls that a program makes all the time: raw Node-API functions of numbers, each answering a number: a
// handle, or a code (0, the driver's, or a Refusal). They make no object.
//
//   of a space (0 device, 1 pinned): malloc free recordUse recordStream keepUntil
//   of a device: record wait drop done copy fill32 idle
void defineHotSpace(napi_env env, napi_value object, const std::shared_ptr<CachingDevice>& device, int space);
void defineHotDevice(napi_env env, napi_value object, const std::shared_ptr<CachingDevice>& device);

}  // namespace braid::bindings
