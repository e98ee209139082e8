#pragma once

#include <napi.h>

#include <memory>
#include <string>

#include "bindings/allocator_device.h"

namespace braid::bindings {

// A user's allocator, as JavaScript functions { allocate, release }. They run on the JavaScript thread under
// the allocator's mutex, so the device refuses calls that they make to it. An exception of `allocate` is
// stored in the device's `thrown`.
std::unique_ptr<caching::Source> callbackSource(AllocatorDevice& device, Napi::Function allocate,
                                                Napi::Function release);

// A user's allocator, as two symbols of a shared library: void* allocate(size_t, int device, void* stream)
// and void release(void*, size_t, int device, void* stream). The library stays loaded. Null after a failure,
// with the reason in *problem.
std::unique_ptr<caching::Source> librarySource(const AllocatorDevice& device, const std::string& path,
                                               const std::string& allocate, const std::string& release,
                                               std::string* problem);

}  // namespace braid::bindings
