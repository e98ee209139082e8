#pragma once

#include <napi.h>

#include <memory>
#include <string>

#include "bindings/caching_device.h"

namespace braid::bindings {

// A user's allocator, as { allocate, release } functions: called on the JavaScript thread, under the
// allocator's mutex, so what they call of the device is refused. What `allocate` throws is kept in the
// device's `thrown`.
std::unique_ptr<caching::Source> callbackSource(CachingDevice& device, Napi::Function allocate,
                                                Napi::Function release);

// As two symbols of a shared library: void* allocate(size_t, int device, void* stream) and
// void release(void*, size_t, int device, void* stream). The library stays loaded. Null: *problem says why.
std::unique_ptr<caching::Source> librarySource(const CachingDevice& device, const std::string& path,
                                               const std::string& allocate, const std::string& release,
                                               std::string* problem);

}  // namespace braid::bindings
