#pragma once

#include <napi.h>

#include <memory>

#include "driver/driver.h"

namespace braid::bindings {

// Behind a NativeDevice. JavaScript thread only, except the driver.
struct Device {
  static constexpr napi_type_tag typeTag{0x6272616964646576u, 0x8f1d5b0e4c2a49d7u};
  static constexpr const char* typeName = "NativeDevice";

  std::shared_ptr<Driver> driver;
  std::size_t programs = 0;  // open, or being opened
  bool closed = false;
};

Napi::Object deviceObject(Napi::Env env, std::unique_ptr<Driver> driver);
Napi::Object deviceInfo(Napi::Env env, const DeviceInfo& info, std::size_t freeBytes);

}  // namespace braid::bindings
