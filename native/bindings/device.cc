#include "bindings/device.h"

#include "bindings/failure_object.h"
#include "bindings/handle.h"
#include "bindings/native_program.h"
#include "bindings/sequence.h"

namespace braid::bindings {
namespace {

Driver& opened(const Napi::CallbackInfo& info, const Device& device) {
  if (device.closed) throw Napi::Error::New(info.Env(), "the device is closed");
  return device.memory->driver();
}

Napi::Value memory(const Napi::CallbackInfo& info) {
  const auto device = self<Device>(info);
  Driver& driver = opened(info, *device);
  std::size_t free = 0, total = 0;
  Status status = driver.bind();
  if (status == Status::ok) status = driver.memInfo(&free, &total);
  if (status != Status::ok) throw failureObject(info.Env(), failureOf(driver, status, "memInfo"));
  Napi::Object result = Napi::Object::New(info.Env());
  result.Set("free", static_cast<double>(free));
  result.Set("total", static_cast<double>(total));
  return result;
}

Napi::Value program(const Napi::CallbackInfo& info) {
  const auto device = self<Device>(info);
  opened(info, *device);
  return openProgram(info.Env(), device, info[0], info[1]);
}

Napi::Value sequence(const Napi::CallbackInfo& info) {
  const auto device = self<Device>(info);
  opened(info, *device);
  return sequenceObject(info.Env(), *device);
}

Napi::Value close(const Napi::CallbackInfo& info) {
  const auto device = self<Device>(info);
  if (device->programs > 0)
    throw Napi::Error::New(info.Env(), "a program is open on this device: close it first");
  device->closed = true;
  device->memory.reset();
  return info.Env().Undefined();
}

}  // namespace

Napi::Object deviceInfo(Napi::Env env, const DeviceInfo& info, std::size_t freeBytes) {
  Napi::Object result = Napi::Object::New(env);
  result.Set("kind", info.kind);
  result.Set("name", info.name);
  result.Set("ordinal", static_cast<double>(info.ordinal));
  result.Set("totalBytes", static_cast<double>(info.totalBytes));
  result.Set("freeBytes", static_cast<double>(freeBytes));
  result.Set("computeCapability",
             info.kind == "cuda" ? std::to_string(info.computeMajor) + "." + std::to_string(info.computeMinor)
                                 : std::string());
  result.Set("multiprocessors", static_cast<double>(info.multiprocessors));
  result.Set("driverVersion", static_cast<double>(info.driverVersion));
  result.Set("pageBytes", static_cast<double>(info.pageBytes));
  return result;
}

Napi::Object deviceObject(Napi::Env env, std::shared_ptr<DeviceMemory> memory, caching::MemPool* pool) {
  auto device = std::make_shared<Device>();
  device->memory = std::move(memory);
  device->pool = pool;
  Driver& driver = device->memory->driver();
  std::size_t free = 0, total = 0;
  Status status = driver.bind();
  if (status == Status::ok) status = driver.memInfo(&free, &total);
  if (status != Status::ok) throw failureObject(env, failureOf(driver, status, "memInfo"));
  const Napi::Object info = deviceInfo(env, driver.info(), free);
  Napi::Object object = handle(env, std::move(device));
  object.DefineProperty(Napi::PropertyDescriptor::Value("info", info, napi_enumerable));
  define<bindings::memory>(object, "memory");
  define<program>(object, "program");
  define<sequence>(object, "sequence");
  define<close>(object, "close");
  return object;
}

}  // namespace braid::bindings
