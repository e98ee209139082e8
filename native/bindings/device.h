#pragma once

#include <napi.h>

#include <memory>

#include "memory/device_memory.h"

namespace braid::bindings {

// Behind a NativeDevice. JavaScript thread only, except the driver.
struct Device {
  static constexpr napi_type_tag typeTag{0x6272616964646576u, 0x8f1d5b0e4c2a49d7u};
  static constexpr const char* typeName = "NativeDevice";

  std::shared_ptr<DeviceMemory> memory;
  caching::MemPool* pool = nullptr;  // that programs take their memory from; null: the device's own
  std::size_t programs = 0;          // open, or being opened
  bool closed = false;
};

Napi::Object deviceObject(Napi::Env env, std::shared_ptr<DeviceMemory> memory,
                          caching::MemPool* pool = nullptr);
Napi::Object deviceInfo(Napi::Env env, const DeviceInfo& info, std::size_t freeBytes);

}  // namespace braid::bindings
