#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "driver/driver.h"

namespace braid {

// Scratch memory of a kernel while it runs. Each worker thread has one, which only grows, so that no launch
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

// The bytes that one operand of a kernel touches, from its address on, and the alignment of that address.
struct Extent {
  std::uint64_t bytes = 0;
  std::uint32_t alignment = 1;
};

// How much of a piece of work is done: all at once, or one half now and the other later, as on a device that
// takes its time. Both halves, in turn, do what all does, bit for bit.
enum class Part : unsigned char { all, first, second };

// The things that a part has of so many. A single one is in the second half.
struct PartRange {
  PartRange(Part part, std::int64_t count)
      : first(part == Part::second ? count / 2 : 0), last(part == Part::first ? count / 2 : count) {}
  std::int64_t first, last;
};

// A kernel that the CPU computes. Immutable.
class CpuKernel {
 public:
  virtual ~CpuKernel() = default;
  // `addresses`: the reads, then the writes. A half reads operands for its own results only. A kernel that
  // cannot be divided is all in the second half. False if a user's reference threw. Throws std::bad_alloc
  // where scratch is missing.
  virtual bool run(const DeviceAddress* addresses, Scratch& scratch, Part part) const = 0;

  std::vector<Extent> extents;  // reads, then writes
  std::size_t readCount = 0, writeCount = 0;
  bool reachesPeers = false;  // touches other devices' memory too
  bool callsUser = false;     // run() waits for a user's reference
  double flops = 0;           // of a matmul
  double movedBytes = 0;      // of everything else
};

using CpuKernelResult = std::unique_ptr<CpuKernel>;

// Checks the spec (kernels/check.h). After a failure `*detail` describes the error.
Status prepareCpu(CpuKernelResult* kernel, const KernelSpec& spec, HostCallback callback,
                  std::string* detail);

// One for each kind of kernel. They trust the spec, which prepareCpu has checked.
CpuKernelResult makeCpuCopy(const KernelSpec& spec);
CpuKernelResult makeCpuMap(const KernelSpec& spec);
CpuKernelResult makeCpuMapRows(const KernelSpec& spec);  // of maps that `hasRows`
CpuKernelResult makeCpuMatmul(const KernelSpec& spec);
CpuKernelResult makeCpuAttention(const KernelSpec& spec);
CpuKernelResult makeCpuAttentionGradient(const KernelSpec& spec);  // of any other result
CpuKernelResult makeCpuConv(const KernelSpec& spec);
CpuKernelResult makeCpuChoose(const KernelSpec& spec);
CpuKernelResult makeCpuScan(const KernelSpec& spec);
CpuKernelResult makeCpuGather(const KernelSpec& spec);
CpuKernelResult makeCpuScatterAdd(const KernelSpec& spec);
CpuKernelResult makeCpuAppend(const KernelSpec& spec);
CpuKernelResult makeCpuJoin(const KernelSpec& spec);
CpuKernelResult makeCpuRandom(const KernelSpec& spec);

// Whether the processor has AVX2. The arithmetic is the same either way, since no multiply is fused with an
// add.
bool cpuHasAvx2();

}  // namespace braid
