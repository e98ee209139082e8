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

inline std::size_t operandBytes(const MatmulOperand& operand, std::int64_t rows, std::int64_t columns,
                                std::int64_t batch) {
  const std::int64_t elements = rows * columns + operand.batchStride * (batch - 1);
  return static_cast<std::size_t>(elements) * elementBytes(operand.dtype);
}

}  // namespace braid::cuda
