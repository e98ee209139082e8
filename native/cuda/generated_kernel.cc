#include <algorithm>

#include "cuda/kernel.h"

namespace braid::cuda {

GeneratedKernel::GeneratedKernel(std::shared_ptr<Module> module, const KernelSource& source,
                                 std::size_t readCount, const char* call)
    : module_(std::move(module)),
      readCount_(readCount),
      byteOffsets_(source.byteOffsets),
      call_(call),
      // Right for a 32-bit index too: the low half comes first on every machine that CUDA runs on.
      count_(static_cast<std::uint64_t>(source.count)),
      arguments_(source.byteOffsets.size() + 1) {
  for (std::size_t alignment : source.alignments) masks_.push_back(alignment - 1);
  arguments_[source.byteOffsets.size()] = count_;
}

Status GeneratedKernel::prepare(const KernelSource::Variant& variant, Launch* launch) const {
  if (const Status status = module_->function(variant.entry, &launch->function); status != Status::ok)
    return status;
  const Context& context = module_->context();
  const std::int64_t blocks = (variant.threads + variant.block - 1) / variant.block;
  // Enough to fill the device many times over; a strided kernel's later turns cost less than more blocks
  // would.
  const std::int64_t most =
      variant.strided ? std::int64_t{64} * std::max(1, context.attribute(kMultiprocessors)) : 0x7fffffff;
  if (!variant.strided && blocks > most)
    return fail(Status::invalidValue, "the grid of " + call_ + " would be too large");
  launch->grid = static_cast<unsigned>(std::min(blocks, most));
  launch->block = variant.block;
  launch->sharedBytes = variant.sharedBytes;
  if (variant.sharedBytes == 0) return Status::ok;
  return context.check(context.call().cuFuncSetAttribute(launch->function, kFunctionMaxDynamicShared,
                                                         static_cast<int>(variant.sharedBytes)),
                       "cuFuncSetAttribute");
}

Status GeneratedKernel::make(std::shared_ptr<Module> module, const KernelSource& source,
                             std::size_t readCount, const char* call, std::unique_ptr<Kernel>* kernel) {
  std::unique_ptr<GeneratedKernel> made(new GeneratedKernel(std::move(module), source, readCount, call));
  if (const Status status = made->prepare(source.plain, &made->plain_); status != Status::ok) return status;
  if (*source.vector.entry) {
    if (const Status status = made->prepare(source.vector, &made->vector_); status != Status::ok)
      return status;
  }
  *kernel = std::move(made);
  return Status::ok;
}

const GeneratedKernel::Launch& GeneratedKernel::choose(const DeviceAddress* reads,
                                                       const DeviceAddress* writes,
                                                       std::uint64_t* arguments) const {
  std::uint64_t astray = 0;
  for (std::size_t i = 0; i < byteOffsets_.size(); ++i) {
    const DeviceAddress base = i < readCount_ ? reads[i] : writes[i - readCount_];
    arguments[i] = base + static_cast<std::uint64_t>(byteOffsets_[i]);
    astray |= arguments[i] & masks_[i];
  }
  return vector_.function && astray == 0 ? vector_ : plain_;
}

Status GeneratedKernel::launch(const DeviceAddress* reads, const DeviceAddress* writes,
                               CUstream stream) const {
  const Launch& chosen = choose(reads, writes, arguments_.values());
  const Context& context = module_->context();
  const DriverFunctions& call = context.call();
  if (!waitsForNodes())
    return context.check(call.cuLaunchKernel(chosen.function, chosen.grid, 1, 1, chosen.block, 1, 1,
                                             chosen.sharedBytes, stream, arguments_.data(), nullptr),
                         call_.c_str());
  CUlaunchAttribute early;
  early.id = kLaunchProgrammatic;
  early.programmaticStreamSerialization = 1;
  CUlaunchConfig config;
  config.gridX = chosen.grid, config.blockX = chosen.block;
  config.sharedBytes = chosen.sharedBytes;
  config.stream = stream;
  config.attributes = &early, config.attributeCount = 1;
  return context.check(call.cuLaunchKernelEx(&config, chosen.function, arguments_.data(), nullptr),
                       call_.c_str());
}

Status GeneratedKernel::node(const DeviceAddress* reads, const DeviceAddress* writes,
                             KernelNode* node) const {
  node->values.resize(byteOffsets_.size() + 1);
  const Launch& chosen = choose(reads, writes, node->values.data());
  node->values.back() = count_;
  node->kernel(chosen.function, {chosen.grid, 1, 1}, {chosen.block, 1, 1}, chosen.sharedBytes);
  return Status::ok;
}

}  // namespace braid::cuda
