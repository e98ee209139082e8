#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/api.h"

// The part of cuBLASLt that Braid calls (cublasLt.h of CUDA 12 and 13). Descriptors are opaque; attributes
// are set by number and size, so a wrong size is an error code, but a wrong number silently another
// attribute.
namespace braid::cuda {

using cublasStatus = int;
using LtHandle = struct cublasLtContext*;
using LtMatmulDesc = struct LtMatmulDescOpaque*;
using LtLayout = struct LtLayoutOpaque*;
using LtPreference = struct LtPreferenceOpaque*;

// The library leaves some of these bytes as they were, so equal algorithms may differ here.
struct LtAlgorithm {
  std::uint64_t data[8];
};

struct LtHeuristic {
  LtAlgorithm algorithm;
  std::size_t workspaceBytes;
  cublasStatus state;  // of this result; the others hold only where it is success
  float waves;
  int reserved[4];
};
static_assert(sizeof(LtHeuristic) == 96);

inline constexpr cublasStatus kCublasSuccess = 0, kCublasAllocFailed = 3, kCublasNotSupported = 15;
// cublasComputeType_t; true f32 for f32 operands, not TF32
inline constexpr int kCompute32F = 68;
// cudaDataType
inline constexpr int kReal32F = 0, kReal16F = 2, kReal16BF = 14;
// cublasOperation_t
inline constexpr std::int32_t kTranspose = 1;
// cublasLtMatmulDescAttributes_t; values are int32
inline constexpr int kDescTransA = 3, kDescTransB = 4;
// uint32, a cublasLtEpilogue_t, and a pointer
inline constexpr int kDescEpilogue = 7, kDescBias = 8;
// a pointer aligned to 16 bytes, and int64 that are multiples of 8
inline constexpr int kDescAuxiliary = 11, kDescAuxiliaryRow = 12, kDescAuxiliaryBatchStride = 13;
// cublasLtEpilogue_t, whose sum is all of them; gelu is the form by tanh. The auxiliary output of gelu is
// what it is computed of, that of relu one bit an element.
inline constexpr std::uint32_t kEpilogueRelu = 2, kEpilogueBias = 4, kEpilogueGelu = 32,
                               kEpilogueAuxiliary = 128;
// cublasLtMatrixLayoutAttribute_t; int32 and int64
inline constexpr int kLayoutBatchCount = 5, kLayoutBatchStride = 6;
// cublasLtMatmulPreferenceAttributes_t; size_t, uint32, and four uint32
inline constexpr int kPreferenceWorkspace = 1, kPreferenceReductions = 3, kPreferenceAlignA = 5,
                     kPreferenceAlignB = 6, kPreferenceAlignC = 7, kPreferenceAlignD = 8;
// cublasLtMatmulAlgoConfigAttributes_t, 0 to 8: four bytes each, the last two 2. They name an algorithm.
inline constexpr int kAlgorithmAttributes = 9, kAlgorithmInnerShape = 7;
// cublasLtReductionScheme_t: partial sums are kept in f32, not in the output's type
inline constexpr std::uint32_t kReductionComputeType = 2;

#define BRAID_CUBLASLT_FUNCTIONS(X)                                                                         \
  X(cublasStatus, cublasLtCreate, (LtHandle * handle))                                                      \
  X(cublasStatus, cublasLtDestroy, (LtHandle handle))                                                       \
  X(std::size_t, cublasLtGetVersion, ())                                                                    \
  X(const char*, cublasLtGetStatusString, (cublasStatus status))                                            \
  X(cublasStatus, cublasLtMatmulDescCreate, (LtMatmulDesc * desc, int computeType, int scaleType))          \
  X(cublasStatus, cublasLtMatmulDescDestroy, (LtMatmulDesc desc))                                           \
  X(cublasStatus, cublasLtMatmulDescSetAttribute,                                                           \
    (LtMatmulDesc desc, int attribute, const void* value, std::size_t bytes))                               \
  X(cublasStatus, cublasLtMatrixLayoutCreate,                                                               \
    (LtLayout * layout, int type, std::uint64_t rows, std::uint64_t columns, std::int64_t leading))         \
  X(cublasStatus, cublasLtMatrixLayoutDestroy, (LtLayout layout))                                           \
  X(cublasStatus, cublasLtMatrixLayoutSetAttribute,                                                         \
    (LtLayout layout, int attribute, const void* value, std::size_t bytes))                                 \
  X(cublasStatus, cublasLtMatmulPreferenceCreate, (LtPreference * preference))                              \
  X(cublasStatus, cublasLtMatmulPreferenceDestroy, (LtPreference preference))                               \
  X(cublasStatus, cublasLtMatmulPreferenceSetAttribute,                                                     \
    (LtPreference preference, int attribute, const void* value, std::size_t bytes))                         \
  X(cublasStatus, cublasLtMatmulAlgoGetHeuristic,                                                           \
    (LtHandle handle, LtMatmulDesc desc, LtLayout a, LtLayout b, LtLayout c, LtLayout d,                    \
     LtPreference preference, int wanted, LtHeuristic* results, int* found))                                \
  X(cublasStatus, cublasLtMatmulAlgoConfigGetAttribute,                                                     \
    (const LtAlgorithm* algorithm, int attribute, void* value, std::size_t bytes, std::size_t* written))    \
  X(cublasStatus, cublasLtMatmul,                                                                           \
    (LtHandle handle, LtMatmulDesc desc, const void* alpha, const void* a, LtLayout aLayout, const void* b, \
     LtLayout bLayout, const void* beta, const void* c, LtLayout cLayout, void* d, LtLayout dLayout,        \
     const LtAlgorithm* algorithm, void* workspace, std::size_t workspaceBytes, CUstream stream))

struct CublasLtFunctions {
#define BRAID_FIELD(result, name, arguments) result(*name) arguments = nullptr;
  BRAID_CUBLASLT_FUNCTIONS(BRAID_FIELD)
#undef BRAID_FIELD
};

}  // namespace braid::cuda
