#pragma once

#include "cuda/matmul.h"

namespace braid::cuda {

inline std::size_t operandBytes(const MatmulOperand& operand, std::int64_t rows, std::int64_t columns,
                                std::int64_t batch) {
  const std::int64_t elements = rows * columns + operand.batchStride * (batch - 1);
  return static_cast<std::size_t>(elements) * elementBytes(operand.dtype);
}

// A row-major product as cuBLASLt's column-major one: cᵀ = bᵀ aᵀ, for which the same bytes serve. Owns the
// descriptors.
class MatmulProblem {
 public:
  explicit MatmulProblem(std::shared_ptr<BlasSession> session) : session_(std::move(session)) {}
  ~MatmulProblem();
  MatmulProblem(const MatmulProblem&) = delete;
  MatmulProblem& operator=(const MatmulProblem&) = delete;

  // Whether cuBLASLt computes it at all: equal float operands, a result of their type or f32, and no scale of
  // 0.
  static bool supported(const KernelSpec& spec);
  Status describe(const KernelSpec& spec);
  // Up to `most` algorithms, best first by the library's own estimate; none found is not an error.
  Status algorithms(std::size_t alignment, std::size_t workspaceBytes, int most,
                    std::vector<MatmulChoice>* found) const;
  // By one thread at a time: the address of the bias is part of the descriptor.
  Status run(const MatmulChoice& choice, const MatmulAddresses& at, CUstream stream) const;
  const BlasSession& session() const { return *session_; }

 private:
  Status check(cublasStatus code, const char* call) const;
  Status layout(LtLayout* layout, DType type, std::int64_t rows, std::int64_t columns, std::int64_t batch,
                std::int64_t stride) const;

  std::shared_ptr<BlasSession> session_;
  Status biasAt(DeviceAddress address) const;

  float alpha_ = 1, beta_ = 0;
  bool bias_ = false;
  LtMatmulDesc desc_ = nullptr;
  LtLayout a_ = nullptr, b_ = nullptr, c_ = nullptr;
};

}  // namespace braid::cuda
