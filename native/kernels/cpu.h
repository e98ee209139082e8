#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "driver/driver.h"

namespace braid {

// Memory that a kernel needs while it runs; one for each worker thread, grown only, so that no launch
// allocates in steady state.
class Scratch {
 public:
  // At least `count` floats, aligned to a cache line; their contents are undefined. Earlier pointers become
  // invalid.
  float* floats(std::size_t count) {
    if (count > capacity_) {
      memory_.reset();
      capacity_ = 0;
      const std::size_t bytes = (count * sizeof(float) + 63) / 64 * 64;
      memory_.reset(static_cast<float*>(std::aligned_alloc(64, bytes)));
      if (!memory_) throw std::bad_alloc();
      capacity_ = bytes / sizeof(float);
    }
    return memory_.get();
  }

 private:
  struct Free {
    void operator()(float* memory) const { std::free(memory); }
  };
  std::unique_ptr<float, Free> memory_;
  std::size_t capacity_ = 0;
};

// What one operand of a kernel touches: bytes from its address on, which must be aligned so.
struct Extent {
  std::uint64_t bytes = 0;
  std::uint32_t alignment = 1;
};

// A kernel as the processor computes it. Immutable once made.
class CpuKernel {
 public:
  virtual ~CpuKernel() = default;
  // `addresses`: the reads, then the writes. False if a user's reference threw. Throws std::bad_alloc where
  // scratch is missing.
  virtual bool run(const DeviceAddress* addresses, Scratch& scratch) const = 0;

  std::vector<Extent> extents;  // reads, then writes
  std::size_t readCount = 0, writeCount = 0;
  bool reachesPeers = false;  // touches other devices' memory too
  double flops = 0;           // of a matmul
  double movedBytes = 0;      // of everything else
};

using CpuKernelResult = std::unique_ptr<CpuKernel>;

// Checks the spec (kernels/check.h). On failure `*detail` says which field is wrong, and how.
Status prepareCpu(CpuKernelResult* kernel, const KernelSpec& spec, HostCallback callback,
                  std::string* detail);

// One for each kind; each trusts its spec, as prepareCpu has checked it.
CpuKernelResult makeCpuCopy(const KernelSpec& spec);
CpuKernelResult makeCpuMap(const KernelSpec& spec);
CpuKernelResult makeCpuMatmul(const KernelSpec& spec);
CpuKernelResult makeCpuReduce(const KernelSpec& spec);

// Whether the processor has AVX2; the same arithmetic either way, as no multiply is ever fused with an add.
bool cpuHasAvx2();

}  // namespace braid
