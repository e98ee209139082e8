#include "cuda/products/problem.h"

#include <algorithm>
#include <utility>

namespace braid::cuda {
namespace {

int realType(DType type) {
  switch (type) {
    case DType::f16: return kReal16F;
    case DType::bf16: return kReal16BF;
    default: return kReal32F;
  }
}

bool isFloat(DType type) { return type == DType::f16 || type == DType::bf16 || type == DType::f32; }

}  // namespace

MatmulProblem::~MatmulProblem() {
  const CublasLtFunctions& call = session_->library->call;
  for (LtLayout layout : {a_, b_, c_}) {
    if (layout) call.cublasLtMatrixLayoutDestroy(layout);
  }
  if (desc_) call.cublasLtMatmulDescDestroy(desc_);
}

bool MatmulProblem::supported(const KernelSpec& spec) {
  // Of a product that is scaled by 0 the library reads no operand, so that it would miss a NaN.
  return static_cast<float>(spec.epilogue.scale) != 0 && isFloat(spec.a.dtype) &&
         spec.a.dtype == spec.b.dtype && (spec.c.dtype == spec.a.dtype || spec.c.dtype == DType::f32) &&
         spec.k > 0;
}

bool MatmulProblem::writesAuxiliary(const KernelSpec& spec) {
  return spec.epilogue.activation == Activation::gelu && elementBytes(spec.c.dtype) == 2 && spec.n % 8 == 0 &&
         spec.c.batchStride % 8 == 0;
}

Status MatmulProblem::check(cublasStatus code, const char* call) const {
  if (code == kCublasSuccess) return Status::ok;
  const Status status = code == kCublasAllocFailed    ? Status::outOfMemory
                        : code == kCublasNotSupported ? Status::notSupported
                                                      : Status::unknown;
  return fail(status, std::string(call) + ": cuBLASLt reports " +
                          session_->library->call.cublasLtGetStatusString(code));
}

Status MatmulProblem::layout(LtLayout* layout, const MatmulOperand& operand, std::int64_t rows,
                             std::int64_t columns, std::int64_t batch) const {
  const CublasLtFunctions& call = session_->library->call;
  const std::int64_t stride = operand.batchStride;
  const cublasStatus made =
      call.cublasLtMatrixLayoutCreate(layout, realType(operand.dtype), static_cast<std::uint64_t>(columns),
                                      static_cast<std::uint64_t>(rows), operand.row(columns));
  if (made != kCublasSuccess) return check(made, "cublasLtMatrixLayoutCreate");
  if (batch == 1) return Status::ok;
  const auto count = static_cast<std::int32_t>(batch);
  if (const auto code =
          call.cublasLtMatrixLayoutSetAttribute(*layout, kLayoutBatchCount, &count, sizeof(count))) {
    return check(code, "cublasLtMatrixLayoutSetAttribute(batch count)");
  }
  return check(call.cublasLtMatrixLayoutSetAttribute(*layout, kLayoutBatchStride, &stride, sizeof(stride)),
               "cublasLtMatrixLayoutSetAttribute(batch stride)");
}

Status MatmulProblem::describe(const KernelSpec& spec) {
  const CublasLtFunctions& call = session_->library->call;
  if (const auto code = call.cublasLtMatmulDescCreate(&desc_, kCompute32F, kReal32F))
    return check(code, "cublasLtMatmulDescCreate");
  // b comes first: a row-major k × n matrix is a column-major n × k one.
  const std::int32_t transpose = kTranspose;
  for (const auto& [which, wanted] :
       {std::pair{kDescTransA, spec.transposeB}, {kDescTransB, spec.transposeA}}) {
    if (!wanted) continue;
    if (const auto code = call.cublasLtMatmulDescSetAttribute(desc_, which, &transpose, sizeof(transpose)))
      return check(code, "cublasLtMatmulDescSetAttribute(transpose)");
  }
  const MatmulEpilogue& epilogue = spec.epilogue;
  alpha_ = static_cast<float>(epilogue.scale);
  beta_ = epilogue.residual ? 1 : 0;
  bias_ = epilogue.bias;
  const std::uint32_t steps = (bias_ ? kEpilogueBias : 0) |
                              (epilogue.activation == Activation::relu   ? kEpilogueRelu
                               : epilogue.activation == Activation::gelu ? kEpilogueGelu
                                                                         : 0) |
                              (epilogue.auxiliary ? kEpilogueAuxiliary : 0);
  if (steps != 0)
    if (const auto code = call.cublasLtMatmulDescSetAttribute(desc_, kDescEpilogue, &steps, sizeof(steps)))
      return check(code, "cublasLtMatmulDescSetAttribute(epilogue)");
  Status status = epilogue.auxiliary ? describeAuxiliary(spec) : Status::ok;
  const auto add = [&](LtLayout* made, const MatmulOperand& operand, bool transposed, std::int64_t rows,
                       std::int64_t columns) {
    if (status == Status::ok)
      status = layout(made, operand, transposed ? columns : rows, transposed ? rows : columns, spec.batch);
  };
  add(&b_, spec.b, spec.transposeB, spec.k, spec.n);
  add(&a_, spec.a, spec.transposeA, spec.m, spec.k);
  add(&c_, spec.c, false, spec.m, spec.n);
  return status;
}

Status MatmulProblem::describeAuxiliary(const KernelSpec& spec) {
  auxiliary_ = true;
  const std::int64_t row = spec.n, stride = spec.c.batchStride;
  const auto set = [&](int attribute, const std::int64_t& value) {
    return check(
        session_->library->call.cublasLtMatmulDescSetAttribute(desc_, attribute, &value, sizeof(value)),
        "cublasLtMatmulDescSetAttribute(auxiliary output)");
  };
  const Status status = set(kDescAuxiliaryRow, row);
  return status == Status::ok && spec.batch > 1 ? set(kDescAuxiliaryBatchStride, stride) : status;
}

Status MatmulProblem::point(int attribute, DeviceAddress address, const char* call) const {
  const auto* pointer = reinterpret_cast<const void*>(address);
  return check(
      session_->library->call.cublasLtMatmulDescSetAttribute(desc_, attribute, &pointer, sizeof(pointer)),
      call);
}

Status MatmulProblem::pointAt(DeviceAddress bias, DeviceAddress auxiliary) const {
  Status status = Status::ok;
  if (bias_) status = point(kDescBias, bias, "cublasLtMatmulDescSetAttribute(bias)");
  if (auxiliary_ && status == Status::ok)
    status = point(kDescAuxiliary, auxiliary, "cublasLtMatmulDescSetAttribute(auxiliary output)");
  return status;
}

Status MatmulProblem::algorithms(std::size_t alignment, std::size_t workspaceBytes, int most,
                                 std::vector<MatmulChoice>* found) const {
  const CublasLtFunctions& call = session_->library->call;
  // The library touches neither here; how the addresses are aligned decides which algorithms it offers. An
  // auxiliary output is aligned to 16 bytes at least.
  if (const Status status = pointAt(alignment, std::max<std::size_t>(alignment, kAuxiliaryAlignment));
      status != Status::ok)
    return status;
  LtPreference preference = nullptr;
  if (const auto code = call.cublasLtMatmulPreferenceCreate(&preference))
    return check(code, "cublasLtMatmulPreferenceCreate");
  const auto bytes = static_cast<std::uint32_t>(alignment);
  cublasStatus code = call.cublasLtMatmulPreferenceSetAttribute(preference, kPreferenceWorkspace,
                                                                &workspaceBytes, sizeof(workspaceBytes));
  if (code == kCublasSuccess) {
    code = call.cublasLtMatmulPreferenceSetAttribute(preference, kPreferenceReductions,
                                                     &kReductionComputeType, sizeof(std::uint32_t));
  }
  for (int which : {kPreferenceAlignA, kPreferenceAlignB, kPreferenceAlignC, kPreferenceAlignD}) {
    if (code == kCublasSuccess)
      code = call.cublasLtMatmulPreferenceSetAttribute(preference, which, &bytes, sizeof(bytes));
  }
  std::vector<LtHeuristic> results(static_cast<std::size_t>(most));
  int count = 0;
  const bool searched = code == kCublasSuccess;
  if (searched) {
    code = call.cublasLtMatmulAlgoGetHeuristic(session_->handle, desc_, b_, a_, c_, c_, preference, most,
                                               results.data(), &count);
  }
  call.cublasLtMatmulPreferenceDestroy(preference);
  // What restricts auxiliary outputs is not all written down: any refusal is no algorithm.
  if (searched && (auxiliary_ ? code != kCublasSuccess : code == kCublasNotSupported)) return Status::ok;
  if (code != kCublasSuccess)
    return check(code, searched ? "cublasLtMatmulAlgoGetHeuristic" : "cublasLtMatmulPreferenceSetAttribute");
  for (int i = 0; i < count; ++i) {
    const LtHeuristic& result = results[static_cast<std::size_t>(i)];
    if (result.state == kCublasSuccess && result.workspaceBytes <= workspaceBytes) {
      MatmulChoice choice{alignment, result.algorithm, result.workspaceBytes};
      for (int which = 0; which < kAlgorithmAttributes; ++which) {
        std::size_t written = 0;
        call.cublasLtMatmulAlgoConfigGetAttribute(
            &choice.algorithm, which, &choice.attributes[static_cast<std::size_t>(which)],
            which < kAlgorithmInnerShape ? sizeof(std::uint32_t) : sizeof(std::uint16_t), &written);
      }
      found->push_back(choice);
    }
  }
  return Status::ok;
}

Status MatmulProblem::run(const MatmulChoice& choice, const MatmulAddresses& at, CUstream stream) const {
  if (const Status status = pointAt(at.bias, at.auxiliary); status != Status::ok) return status;
  const auto pointer = [](DeviceAddress address) { return reinterpret_cast<void*>(address); };
  const cublasStatus code = session_->library->call.cublasLtMatmul(
      session_->handle, desc_, &alpha_, pointer(at.b), b_, pointer(at.a), a_, &beta_,
      pointer(beta_ != 0 ? at.residual : at.c), c_, pointer(at.c), c_, &choice.algorithm,
      pointer(choice.workspaceBytes ? at.workspace : 0), choice.workspaceBytes, stream);
  if (code == kCublasSuccess) return Status::ok;
  // "Execution failed" hides the driver's code: if the context is broken, a query of the stream returns it.
  const CUresult driver = session_->context->call().cuStreamQuery(stream);
  if (driver != kSuccess && driver != kNotReady) return session_->context->check(driver, "cublasLtMatmul");
  return check(code, "cublasLtMatmul");
}

}  // namespace braid::cuda
