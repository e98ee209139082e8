#pragma once

#include "cuda/products/matmul.h"

namespace braid::cuda {

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
  // Whether it may write the auxiliary output of an activation as a matrix like c: that of relu is a mask.
  static bool writesAuxiliary(const KernelSpec& spec);
  Status describe(const KernelSpec& spec);
  // Up to `most` algorithms, best first by the library's own estimate; none found is not an error.
  Status algorithms(std::size_t alignment, std::size_t workspaceBytes, int most,
                    std::vector<MatmulChoice>* found) const;
  // By one thread at a time: the addresses of the bias and the auxiliary output are part of the descriptor.
  Status run(const MatmulChoice& choice, const MatmulAddresses& at, CUstream stream) const;
  const BlasSession& session() const { return *session_; }

 private:
  Status check(cublasStatus code, const char* call) const;
  // Of an operand as it lies in memory, which is a column-major one of `columns` × `rows`.
  Status layout(LtLayout* layout, const MatmulOperand& operand, std::int64_t rows, std::int64_t columns,
                std::int64_t batch) const;
  Status describeAuxiliary(const KernelSpec& spec);
  Status point(int attribute, DeviceAddress address, const char* call) const;
  Status pointAt(DeviceAddress bias, DeviceAddress auxiliary) const;

  std::shared_ptr<BlasSession> session_;

  float alpha_ = 1, beta_ = 0;
  bool bias_ = false, auxiliary_ = false;
  LtMatmulDesc desc_ = nullptr;
  LtLayout a_ = nullptr, b_ = nullptr, c_ = nullptr;
};

}  // namespace braid::cuda
