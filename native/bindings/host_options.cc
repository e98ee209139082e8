#include "bindings/host_options.h"

#include "bindings/convert.h"

namespace braid::bindings {

Failure openFailure(Status status, const char* op, std::string detail) {
  Failure failure;
  failure.code = statusName(status);
  failure.op = op;
  failure.detail = std::move(detail);
  return failure;
}

HostOptions hostOptions(Napi::Value value) {
  HostOptions options;
  if (absent(value)) return options;
  const Napi::Object given = objectAt(value, "options");
  if (const Napi::Value ordinal = given.Get("ordinal"); !absent(ordinal))
    options.ordinal = static_cast<int>(integerAt(ordinal, "options.ordinal", 0, 9999));
  if (const Napi::Value memory = given.Get("memory"); !absent(memory))
    options.memoryBytes = sizeAt(memory, "options.memory");
  options.copyBytesPerSecond =
      numberOr(given.Get("copyRate"), "options.copyRate", options.copyBytesPerSecond);
  options.flopsPerSecond = numberOr(given.Get("flopRate"), "options.flopRate", options.flopsPerSecond);
  options.deviceBytesPerSecond =
      numberOr(given.Get("deviceRate"), "options.deviceRate", options.deviceBytesPerSecond);
  if (const Napi::Value jitter = given.Get("jitter"); !absent(jitter))
    options.jitterSeed = sizeAt(jitter, "options.jitter");
  options.jitterMicroseconds =
      numberOr(given.Get("jitterMicroseconds"), "options.jitterMicroseconds", options.jitterMicroseconds);
  if (const Napi::Value depth = given.Get("queueDepth"); !absent(depth))
    options.queueDepth = sizeAt(depth, "options.queueDepth");
  options.poison = flagOr(given.Get("poison"), "options.poison", false);
  const Napi::Value faults = given.Get("faults");
  if (absent(faults)) return options;
  const Napi::Array list = arrayAt(faults, "options.faults");
  for (std::uint32_t i = 0; i < list.Length(); ++i) {
    const std::string where = item("options.faults", i);
    const Napi::Object fault = objectAt(list.Get(i), where);
    HostOptions::Fault one;
    one.call = textAt(fault.Get("call"), where + ".call");
    one.nth = static_cast<std::uint64_t>(integerAt(fault.Get("nth"), where + ".nth", 1, INT64_C(1) << 53));
    if (const Napi::Value status = fault.Get("status"); !absent(status))
      one.status = static_cast<Status>(integerAt(status, where + ".status", 1, 999));
    one.delayMicroseconds = numberOr(fault.Get("delayMicroseconds"), where + ".delayMicroseconds", 0);
    options.faults.push_back(std::move(one));
  }
  return options;
}

}  // namespace braid::bindings
