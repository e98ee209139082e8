#include "bindings/checks.h"

#include "bindings/convert.h"
#include "bindings/failure_object.h"

namespace braid::bindings {

void checkOpen(Napi::Env env, const AllocatorDevice& device) {
  if (device.refusal() == 0) return;
  if (device.refusal() == static_cast<int>(Refusal::closed))
    throw Napi::Error::New(env, "the device is closed");
  Napi::Error error = Napi::Error::New(env,
                                       "the device waits for the function that calls it (a pool's allocate "
                                       "or release, or a kernel's reference)");
  error.Set("code", "REENTRANT");
  throw error;
}

void checkBound(Napi::Env env, AllocatorDevice& device) {
  checkOpen(env, device);
  checkStatus(env, device, device.driver->bind(), "bind");
}

void checkStatus(Napi::Env env, AllocatorDevice& device, Status status, const char* op) {
  if (status != Status::ok) throw failureObject(env, failureOf(*device.driver, status, op));
}

Lane& laneAt(Napi::Value number, const AllocatorDevice& device) {
  Lane* const lane = device.lane(numberAt(number, "lane"));
  if (!lane || lane->retired) throw Napi::RangeError::New(number.Env(), "there is no such lane");
  return *lane;
}

}  // namespace braid::bindings
