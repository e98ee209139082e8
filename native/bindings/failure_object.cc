#include "bindings/failure_object.h"

namespace braid::bindings {

Napi::Error failureObject(Napi::Env env, const Failure& failure) {
  std::string message = failure.op + ": " + failure.code;
  if (!failure.lane.empty()) message += " on lane " + failure.lane;
  if (!failure.detail.empty()) message += ": " + failure.detail;
  const Napi::Error error = Napi::Error::New(env, message);
  Napi::Object object = error.Value();
  object.Set("code", failure.code);
  object.Set("op", failure.op);
  if (!failure.lane.empty()) object.Set("lane", failure.lane);
  if (!failure.device.empty()) object.Set("device", failure.device);
  if (failure.node >= 0) object.Set("node", static_cast<double>(failure.node));
  if (!failure.detail.empty()) object.Set("detail", failure.detail);
  if (failure.memory) {
    object.Set("wantedBytes", static_cast<double>(failure.wantedBytes));
    object.Set("freeBytes", static_cast<double>(failure.freeBytes));
    if (!failure.holders.empty()) object.Set("holders", failure.holders);
  }
  return error;
}

}  // namespace braid::bindings
