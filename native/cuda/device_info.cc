#include "cuda/driver.h"

namespace braid::cuda {
namespace {

// Pieces of work in a stream before a call for one more blocks its caller. Nothing tells it; measured on an H200, CUDA
// 13: the 1,022nd blocks behind one that does not end (spec/decisions.md, 35).
constexpr std::size_t kQueueDepth = 1021;

}  // namespace

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
  info->queueDepth = kQueueDepth;
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
