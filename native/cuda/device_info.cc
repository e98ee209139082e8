#include "cuda/driver.h"

namespace braid::cuda {
Status readDeviceInfo(const Context& context, int ordinal, DeviceInfo* info) {
  const DriverFunctions& call = context.call();
  Current current(context);
  char name[256] = "";
  if (const CUresult code = call.cuDeviceGetName(name, sizeof(name), context.device()))
    return context.check(code, "cuDeviceGetName");
  if (const CUresult code = call.cuDeviceTotalMem(&info->totalBytes, context.device()))
    return context.check(code, "cuDeviceTotalMem");
  info->kind = "cuda";
  info->name = name;
  info->ordinal = ordinal;
  info->computeMajor = context.attribute(kComputeMajor);
  info->computeMinor = context.attribute(kComputeMinor);
  info->multiprocessors = context.attribute(kMultiprocessors);
  info->driverVersion = context.library().version;
  if (const CUresult code = call.cuCtxGetStreamPriorityRange(&info->leastPriority, &info->greatestPriority)) {
    return context.check(code, "cuCtxGetStreamPriorityRange");
  }
  info->pageBytes = 0;
  if (context.attribute(kVirtualMemory)) {
    CUmemAllocationProp properties;
    properties.location.id = context.device();
    std::size_t granularity = 0;
    if (call.cuMemGetAllocationGranularity(&granularity, &properties, kGranularityRecommended) == kSuccess)
      info->pageBytes = granularity;
  }
  return Status::ok;
}

}  // namespace braid::cuda
