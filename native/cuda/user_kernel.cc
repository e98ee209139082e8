#include <cstring>

#include "cuda/kernel.h"

namespace braid::cuda {
namespace {

std::string triple(const std::array<std::uint32_t, 3>& size) {
  return "(" + std::to_string(size[0]) + ", " + std::to_string(size[1]) + ", " + std::to_string(size[2]) +
         ")";
}

}  // namespace

UserKernel::UserKernel(std::shared_ptr<Module> module, const KernelSpec& spec, CUfunction function)
    : module_(std::move(module)),
      function_(function),
      readCount_(spec.readCount),
      writeCount_(spec.writeCount),
      grid_(spec.grid),
      block_(spec.block),
      sharedBytes_(spec.sharedBytes),
      call_("cuLaunchKernel(" + spec.name + ")"),
      arguments_(spec.readCount + spec.writeCount + spec.scalars.size()) {
  for (std::size_t i = 0; i < spec.scalars.size(); ++i) {
    const CudaScalar& scalar = spec.scalars[i];
    std::uint64_t slot = 0;
    std::memcpy(
        &slot, scalar.isFloat ? static_cast<const void*>(&scalar.f32) : static_cast<const void*>(&scalar.i32),
        4);
    scalars_.push_back(slot);
    arguments_[readCount_ + writeCount_ + i] = slot;
  }
}

Status UserKernel::make(std::shared_ptr<Module> module, const KernelSpec& spec,
                        std::unique_ptr<Kernel>* kernel) {
  const Context& context = module->context();
  CUfunction function = nullptr;
  if (const Status status = module->function(spec.name.c_str(), &function); status != Status::ok) {
    if (status != Status::notFound) return status;
    return fail(status, "the source has no function named " + spec.name +
                            ": declare it as extern \"C\" __global__ void " + spec.name + "(...)");
  }
  for (int d = 0; d < 3; ++d) {
    const auto grid = static_cast<std::uint32_t>(context.attribute(kMaxGridX + d));
    const auto block = static_cast<std::uint32_t>(context.attribute(kMaxBlockX + d));
    if (spec.grid[d] == 0 || spec.grid[d] > grid || spec.block[d] == 0 || spec.block[d] > block) {
      return fail(Status::invalidValue,
                  spec.name + " is launched with grid " + triple(spec.grid) + " and block " +
                      triple(spec.block) + "; in dimension " + std::to_string(d) + " the device takes 1 to " +
                      std::to_string(grid) + " blocks of 1 to " + std::to_string(block) + " threads");
    }
  }
  int threads = 0, fixedShared = 0;
  const DriverFunctions& call = context.call();
  if (const CUresult code = call.cuFuncGetAttribute(&threads, kFunctionMaxThreads, function)) {
    return context.check(code, "cuFuncGetAttribute");
  }
  if (const CUresult code = call.cuFuncGetAttribute(&fixedShared, kFunctionStaticShared, function)) {
    return context.check(code, "cuFuncGetAttribute");
  }
  const std::uint64_t perBlock = std::uint64_t{spec.block[0]} * spec.block[1] * spec.block[2];
  if (perBlock > static_cast<std::uint64_t>(threads)) {
    return fail(Status::launchOutOfResources,
                spec.name + " is launched with " + std::to_string(perBlock) +
                    " threads a block; compiled for this device it may have " + std::to_string(threads) +
                    ". Use smaller blocks, or __launch_bounds__ to make it use fewer registers");
  }
  const auto limit = static_cast<std::uint64_t>(context.attribute(kSharedPerBlockOptIn));
  const std::uint64_t shared = std::uint64_t{spec.sharedBytes} + static_cast<std::uint64_t>(fixedShared);
  if (shared > limit) {
    return fail(Status::launchOutOfResources, spec.name + " wants " + std::to_string(shared) +
                                                  " bytes of shared memory a block; the device has " +
                                                  std::to_string(limit));
  }
  if (shared > static_cast<std::uint64_t>(context.attribute(kSharedPerBlock))) {
    // All that there may be, since another launch of the same function may want more than this one.
    const int most = static_cast<int>(limit) - fixedShared;
    const CUresult code = call.cuFuncSetAttribute(function, kFunctionMaxDynamicShared, most);
    if (code != kSuccess) return context.check(code, "cuFuncSetAttribute");
  }
  kernel->reset(new UserKernel(std::move(module), spec, function));
  return Status::ok;
}

Status UserKernel::launch(const DeviceAddress* reads, const DeviceAddress* writes, CUstream stream) const {
  for (std::size_t i = 0; i < readCount_; ++i) arguments_[i] = reads[i];
  for (std::size_t i = 0; i < writeCount_; ++i) arguments_[readCount_ + i] = writes[i];
  const Context& context = module_->context();
  return context.check(
      context.call().cuLaunchKernel(function_, grid_[0], grid_[1], grid_[2], block_[0], block_[1], block_[2],
                                    sharedBytes_, stream, arguments_.data(), nullptr),
      call_.c_str());
}

Status UserKernel::node(const DeviceAddress* reads, const DeviceAddress* writes, KernelNode* node) const {
  node->values.assign(reads, reads + readCount_);
  node->values.insert(node->values.end(), writes, writes + writeCount_);
  node->values.insert(node->values.end(), scalars_.begin(), scalars_.end());
  node->kernel(function_, {grid_[0], grid_[1], grid_[2]}, {block_[0], block_[1], block_[2]}, sharedBytes_);
  return Status::ok;
}

}  // namespace braid::cuda
