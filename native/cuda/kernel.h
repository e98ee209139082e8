#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cuda/module.h"
#include "cuda/sources/source.h"
#include "driver/driver.h"

namespace braid::cuda {

// The parameters of a graph's node, and the arguments that they point to until the driver has copied them.
struct KernelNode {
  CUgraphNodeParams params;
  std::vector<std::uint64_t> values;
  std::vector<void*> pointers;
  // Its arguments are all in `values`.
  void kernel(CUfunction function, const unsigned (&grid)[3], const unsigned (&block)[3],
              unsigned sharedBytes);
  void copy(CUcontext context, int toType, DeviceAddress to, int fromType, DeviceAddress from,
            std::size_t bytes);
};

// What a launch needs beyond the table: done by each kind of kernel in its own way, always on the issuing
// thread.
class CudaKernel : public Kernel {
 public:
  virtual Status launch(const DeviceAddress* reads, const DeviceAddress* writes, CUstream stream) const = 0;
  // The same as a graph's node, on any thread, where form() of these addresses is Form::node.
  virtual Status node(const DeviceAddress* /*reads*/, const DeviceAddress* /*writes*/, KernelNode*) const {
    return fail(Status::notSupported, "this kernel is no single node: capture a launch of it");
  }
};

// The arguments of cuLaunchKernel, laid out once: a launch only writes the pointers. Eight bytes a slot, as
// 4-byte arguments are read from a slot's first four.
class Arguments {
 public:
  explicit Arguments(std::size_t slots) : values_(slots), pointers_(slots) {
    for (std::size_t i = 0; i < slots; ++i) pointers_[i] = &values_[i];
  }
  Arguments(const Arguments&) = delete;  // the pointers point into the values
  Arguments& operator=(const Arguments&) = delete;
  std::uint64_t& operator[](std::size_t slot) { return values_[slot]; }
  std::uint64_t* values() { return values_.data(); }
  void** data() { return pointers_.data(); }

 private:
  std::vector<std::uint64_t> values_;
  std::vector<void*> pointers_;
};

// A kernel from a KernelSource: a grid over `count`, the vector variant wherever the addresses allow it.
class GeneratedKernel : public CudaKernel {
 public:
  static Status make(std::shared_ptr<Module> module, const KernelSource& source, std::size_t readCount,
                     const char* call, std::unique_ptr<Kernel>* kernel);
  Status launch(const DeviceAddress* reads, const DeviceAddress* writes, CUstream stream) const override;
  Status node(const DeviceAddress* reads, const DeviceAddress* writes, KernelNode* node) const override;
  // As the prelude's gridDependencySync. Then a launch may start early too, since it waits on the device for
  // the kernel before it in the stream; after anything else the stream's order holds.
  bool waitsForNodes() const override { return module_->context().attribute(kComputeMajor) >= 9; }

 private:
  struct Launch {
    CUfunction function = nullptr;
    unsigned grid = 0, block = 0, sharedBytes = 0;
  };
  // The variant for these addresses; writes the pointers to `arguments`.
  const Launch& choose(const DeviceAddress* reads, const DeviceAddress* writes,
                       std::uint64_t* arguments) const;
  GeneratedKernel(std::shared_ptr<Module> module, const KernelSource& source, std::size_t readCount,
                  const char* call);
  Status prepare(const KernelSource::Variant& variant, Launch* launch) const;

  std::shared_ptr<Module> module_;
  std::size_t readCount_;
  std::vector<std::size_t> masks_;  // alignment less one, for each pointer
  std::vector<std::int64_t> byteOffsets_;
  std::string call_;  // names a failed launch in its detail
  Launch plain_, vector_;
  std::uint64_t count_;          // the last argument
  mutable Arguments arguments_;  // written and read by the issuing thread alone
};

// A user's CUDA C++ kernel: takes pointers, then scalars, with the launch of the spec.
class UserKernel : public CudaKernel {
 public:
  // Checks the launch against the device's and the function's limits.
  static Status make(std::shared_ptr<Module> module, const KernelSpec& spec, std::unique_ptr<Kernel>* kernel);
  Status launch(const DeviceAddress* reads, const DeviceAddress* writes, CUstream stream) const override;
  Status node(const DeviceAddress* reads, const DeviceAddress* writes, KernelNode* node) const override;

 private:
  UserKernel(std::shared_ptr<Module> module, const KernelSpec& spec, CUfunction function);

  std::shared_ptr<Module> module_;
  CUfunction function_;
  std::size_t readCount_, writeCount_;
  std::array<std::uint32_t, 3> grid_, block_;
  std::uint32_t sharedBytes_;
  std::string call_;
  std::vector<std::uint64_t> scalars_;  // the last arguments
  mutable Arguments arguments_;
};

class CopyKernel : public CudaKernel {
 public:
  // From `parts` sources, each of `bytes` bytes, one after the other.
  CopyKernel(std::shared_ptr<Context> context, CopyKind kind, std::size_t parts, std::size_t bytes)
      : context_(std::move(context)), kind_(kind), parts_(parts), bytes_(bytes) {}
  Status launch(const DeviceAddress* reads, const DeviceAddress* writes, CUstream stream) const override;
  std::size_t pieces() const override { return parts_; }
  Form form(const DeviceAddress*, const DeviceAddress*) const override {
    return parts_ == 1 && bytes_ > 0 ? Form::node : Form::captured;
  }
  Status node(const DeviceAddress* reads, const DeviceAddress* writes, KernelNode* node) const override;

 private:
  std::shared_ptr<Context> context_;
  CopyKind kind_;
  std::size_t parts_, bytes_;
};

// A copy where one end at least is memory of another device: of that device's context, or none for pinned
// memory.
class PeerCopyKernel : public CudaKernel {
 public:
  PeerCopyKernel(std::shared_ptr<Context> context, std::shared_ptr<Context> from, std::shared_ptr<Context> to,
                 std::size_t bytes)
      : context_(std::move(context)), from_(std::move(from)), to_(std::move(to)), bytes_(bytes) {}
  Status launch(const DeviceAddress* reads, const DeviceAddress* writes, CUstream stream) const override;
  Form form(const DeviceAddress*, const DeviceAddress*) const override {
    return bytes_ > 0 ? Form::node : Form::captured;
  }
  Status node(const DeviceAddress* reads, const DeviceAddress* writes, KernelNode* node) const override;

 private:
  std::shared_ptr<Context> context_, from_, to_;
  std::size_t bytes_;
};

// Where the bytes of either end of such a copy lie (CUmemorytype).
inline int memoryTo(CopyKind kind) {
  return kind == CopyKind::hostToDevice || kind == CopyKind::deviceToDevice ? kMemoryDevice : kMemoryHost;
}
inline int memoryFrom(CopyKind kind) {
  return kind == CopyKind::deviceToHost || kind == CopyKind::deviceToDevice ? kMemoryDevice : kMemoryHost;
}

// Of `bytes` bytes in the direction named, on a stream; none of 0 bytes.
Status copyBytes(const Context& context, CopyKind kind, DeviceAddress to, DeviceAddress from,
                 std::size_t bytes, CUstream stream);

}  // namespace braid::cuda
