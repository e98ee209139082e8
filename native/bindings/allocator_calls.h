#pragma once

#include <node_api.h>

#include <memory>

#include "bindings/allocator_device.h"

namespace braid::bindings {

// The frequent calls: raw Node-API functions that take numbers and return a number, a handle or a code (0,
// the driver's, or a Refusal). They create no objects.
//
//   of a space (0 device, 1 pinned): malloc free recordUse recordStream keepUntil
//   of a device: record recordTime elapsed wait waitPeer drop done copy fill32 fill idle launchGraph
//   uploadGraph
void defineSpaceCalls(napi_env env, napi_value object, const std::shared_ptr<AllocatorDevice>& device,
                      int space);
void defineDeviceCalls(napi_env env, napi_value object, const std::shared_ptr<AllocatorDevice>& device);

}  // namespace braid::bindings
