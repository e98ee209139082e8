#include "bindings/allocator_sources.h"

#include <dlfcn.h>

#include <cmath>

namespace braid::bindings {
namespace {

class CallbackSource final : public caching::Source {
 public:
  CallbackSource(AllocatorDevice& device, Napi::Function allocate, Napi::Function release)
      : device_(device), allocate_(Napi::Persistent(allocate)), release_(Napi::Persistent(release)) {}
  const char* name() const override { return "allocate"; }
  bool foreign() const override { return true; }
  // JavaScript runs on its own thread alone.
  bool callable() const override { return thread_ == std::this_thread::get_id(); }

  Status allocate(DeviceAddress* address, std::size_t bytes, Stream stream) override {
    const Napi::HandleScope scope(device_.env);
    napi_value arguments[] = {number(static_cast<double>(bytes)), handle(stream)}, result = nullptr;
    if (!call(allocate_.Value(), 2, arguments, &result)) return keepThrown();
    napi_valuetype type = napi_undefined;
    napi_typeof(device_.env, result, &type);
    if (type == napi_null || type == napi_undefined) return Status::outOfMemory;
    double given = std::nan("");
    napi_get_value_double(device_.env, result, &given);
    if (given == 0) return Status::outOfMemory;
    if (!(given > 0 && given < 9007199254740992.0) || given != std::floor(given)) {
      keep(Napi::TypeError::New(device_.env, "a pool's allocate gave something that is no address").Value());
      return Status::invalidValue;
    }
    *address = static_cast<DeviceAddress>(given);
    return Status::ok;
  }

  Status release(DeviceAddress address, std::size_t bytes, Stream stream) override {
    if (device_.tearing) return Status::ok;
    const Napi::HandleScope scope(device_.env);
    napi_value arguments[] = {number(static_cast<double>(address)), number(static_cast<double>(bytes)),
                              handle(stream)},
               result = nullptr;
    if (call(release_.Value(), 3, arguments, &result)) return Status::ok;
    // No caller waits for a result here, so an exception becomes an uncaught one.
    napi_value error = nullptr;
    if (napi_get_and_clear_last_exception(device_.env, &error) == napi_ok)
      napi_fatal_exception(device_.env, error);
    return Status::unknown;
  }

 private:
  napi_value number(double value) {
    napi_value made = nullptr;
    napi_create_double(device_.env, value, &made);
    return made;
  }
  napi_value handle(Stream stream) {
    napi_value made = nullptr;
    napi_create_bigint_uint64(device_.env, reinterpret_cast<std::uintptr_t>(stream), &made);
    return made;
  }
  bool call(napi_value function, std::size_t count, const napi_value* arguments, napi_value* result) {
    napi_value receiver = nullptr;
    napi_get_undefined(device_.env, &receiver);
    device_.enterSource();
    const napi_status status = napi_call_function(device_.env, receiver, function, count, arguments, result);
    device_.leaveSource();
    return status == napi_ok;
  }
  Status keepThrown() {
    napi_value error = nullptr;
    if (napi_get_and_clear_last_exception(device_.env, &error) == napi_ok) keep(error);
    return Status::unknown;
  }
  // In an array: references exist for objects only, and the exception may be any value.
  void keep(napi_value error) {
    napi_value list = nullptr;
    if (device_.thrown) napi_delete_reference(device_.env, device_.thrown);
    device_.thrown = nullptr;
    if (napi_create_array_with_length(device_.env, 1, &list) != napi_ok) return;
    napi_set_element(device_.env, list, 0, error);
    napi_create_reference(device_.env, list, 1, &device_.thrown);
  }

  AllocatorDevice& device_;
  const std::thread::id thread_ = std::this_thread::get_id();
  Napi::FunctionReference allocate_,
      release_;  // destroyed with the allocator, while the environment is alive
};

class LibrarySource final : public caching::Source {
 public:
  using Allocate = void* (*)(std::size_t, int, void*);
  using Release = void (*)(void*, std::size_t, int, void*);
  LibrarySource(int ordinal, std::string name, Allocate allocate, Release release)
      : ordinal_(ordinal), name_(std::move(name)), allocate_(allocate), release_(release) {}
  const char* name() const override { return name_.c_str(); }
  bool foreign() const override { return true; }

  Status allocate(DeviceAddress* address, std::size_t bytes, Stream stream) override {
    void* given = allocate_(bytes, ordinal_, stream);
    *address = reinterpret_cast<DeviceAddress>(given);
    return given ? Status::ok : Status::outOfMemory;
  }
  Status release(DeviceAddress address, std::size_t bytes, Stream stream) override {
    release_(reinterpret_cast<void*>(address), bytes, ordinal_, stream);
    return Status::ok;
  }

 private:
  const int ordinal_;
  const std::string name_;
  const Allocate allocate_;
  const Release release_;
};

}  // namespace

std::unique_ptr<caching::Source> callbackSource(AllocatorDevice& device, Napi::Function allocate,
                                                Napi::Function release) {
  return std::make_unique<CallbackSource>(device, allocate, release);
}

std::unique_ptr<caching::Source> librarySource(const AllocatorDevice& device, const std::string& path,
                                               const std::string& allocate, const std::string& release,
                                               std::string* problem) {
  const auto failed = [problem] {
    const char* words = dlerror();
    *problem = words ? words : "unknown";
    return nullptr;
  };
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) return failed();
  void* const first = dlsym(library, allocate.c_str());
  if (!first) return failed();
  void* const second = dlsym(library, release.c_str());
  if (!second) return failed();
  return std::make_unique<LibrarySource>(device.driver->info().ordinal, allocate,
                                         reinterpret_cast<LibrarySource::Allocate>(first),
                                         reinterpret_cast<LibrarySource::Release>(second));
}

}  // namespace braid::bindings
