#include "cuda/kernel.h"

namespace braid::cuda {

Status copyBytes(const Context& context, CopyKind kind, DeviceAddress to, DeviceAddress from, std::size_t bytes,
                 CUstream stream) {
  if (bytes == 0) return Status::ok;
  const DriverFunctions& call = context.call();
  switch (kind) {
    case CopyKind::hostToDevice:
      return context.check(call.cuMemcpyHtoDAsync(to, reinterpret_cast<const void*>(from), bytes, stream),
                           "cuMemcpyHtoDAsync");
    case CopyKind::deviceToHost:
      return context.check(call.cuMemcpyDtoHAsync(reinterpret_cast<void*>(to), from, bytes, stream),
                           "cuMemcpyDtoHAsync");
    case CopyKind::deviceToDevice:
      return context.check(call.cuMemcpyDtoDAsync(to, from, bytes, stream), "cuMemcpyDtoDAsync");
    case CopyKind::hostToHost: return context.check(call.cuMemcpyAsync(to, from, bytes, stream), "cuMemcpyAsync");
  }
  return Status::invalidValue;
}

Status CopyKernel::launch(const DeviceAddress* reads, const DeviceAddress* writes, CUstream stream) const {
  return copyBytes(*context_, kind_, writes[0], reads[0], bytes_, stream);
}

}  // namespace braid::cuda
