#include "cuda/kernel.h"

namespace braid::cuda {

Status copyBytes(const Context& context, CopyKind kind, DeviceAddress to, DeviceAddress from,
                 std::size_t bytes, CUstream stream) {
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
    case CopyKind::hostToHost:
      return context.check(call.cuMemcpyAsync(to, from, bytes, stream), "cuMemcpyAsync");
  }
  return Status::invalidValue;
}

Status CopyKernel::launch(const DeviceAddress* reads, const DeviceAddress* writes, CUstream stream) const {
  Status status = Status::ok;
  for (std::size_t i = 0; i < parts_ && status == Status::ok; ++i)
    status = copyBytes(*context_, kind_, writes[0] + i * bytes_, reads[i], bytes_, stream);
  return status;
}

// Addresses are unified: with pinned memory at one end the driver determines the other. Between two devices
// it needs both contexts, and copies through the host where one device cannot access the other.
Status PeerCopyKernel::launch(const DeviceAddress* reads, const DeviceAddress* writes,
                              CUstream stream) const {
  if (bytes_ == 0) return Status::ok;
  const DriverFunctions& call = context_->call();
  if (!from_ || !to_)
    return context_->check(call.cuMemcpyAsync(writes[0], reads[0], bytes_, stream), "cuMemcpyAsync");
  return context_->check(
      call.cuMemcpyPeerAsync(writes[0], to_->handle(), reads[0], from_->handle(), bytes_, stream),
      "cuMemcpyPeerAsync");
}

Status CopyKernel::node(const DeviceAddress* reads, const DeviceAddress* writes, KernelNode* node) const {
  if (form(reads, writes) != Form::node) return CudaKernel::node(reads, writes, node);
  node->copy(context_->handle(), memoryTo(kind_), writes[0], memoryFrom(kind_), reads[0], bytes_);
  return Status::ok;
}

Status PeerCopyKernel::node(const DeviceAddress* reads, const DeviceAddress* writes, KernelNode* node) const {
  if (form(reads, writes) != Form::node) return CudaKernel::node(reads, writes, node);
  node->copy(context_->handle(), to_ ? kMemoryDevice : kMemoryHost, writes[0],
             from_ ? kMemoryDevice : kMemoryHost, reads[0], bytes_);
  return Status::ok;
}

}  // namespace braid::cuda
