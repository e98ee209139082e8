#pragma once

#include <algorithm>
#include <vector>

#include "cuda/matmul_problem.h"

namespace braid::cuda {

// Device memory, a stream and two events for trying a product out; all gone at its end.
struct TrialScratch {
  const DriverFunctions& call;
  std::vector<CUdeviceptr> blocks;
  CUstream stream = nullptr;
  CUevent from = nullptr, to = nullptr;

  explicit TrialScratch(const DriverFunctions& functions) : call(functions) {}
  ~TrialScratch() {
    if (stream) call.cuStreamSynchronize(stream);
    for (CUdeviceptr block : blocks) call.cuMemFree(block);
    if (from) call.cuEventDestroy(from);
    if (to) call.cuEventDestroy(to);
    if (stream) call.cuStreamDestroy(stream);
  }
  TrialScratch(const TrialScratch&) = delete;
  TrialScratch& operator=(const TrialScratch&) = delete;

  bool take(std::size_t bytes) {
    CUdeviceptr block = 0;
    if (call.cuMemAlloc(&block, std::max<std::size_t>(bytes, 1)) != kSuccess) return false;
    blocks.push_back(block);
    return true;
  }
};

// The operands of a product, with what lies before their first elements.
struct OperandBytes {
  std::size_t a, b, c;
  explicit OperandBytes(const KernelSpec& spec)
      : a(of(spec.endOfA(), spec.a.dtype)),
        b(of(spec.endOfB(), spec.b.dtype)),
        c(of(spec.endOfC(), spec.c.dtype)) {}

 private:
  static std::size_t of(std::int64_t elements, DType type) {
    return static_cast<std::size_t>(elements) * elementBytes(type);
  }
};

}  // namespace braid::cuda
