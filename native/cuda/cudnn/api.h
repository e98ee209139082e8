#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/api.h"

// The part of cuDNN's graph interface that Braid calls (cudnn_graph.h of cuDNN 9). A problem is a graph of
// operations on tensors, made of descriptors. Attributes are set by number, type and count, so a wrong type
// is an error code, but a wrong number silently another attribute.
namespace braid::cuda {

using cudnnStatus = int;
using CudnnHandle = struct cudnnContext*;
using CudnnRaw = void*;  // cudnnBackendDescriptor_t

inline constexpr cudnnStatus kCudnnSuccess = 0;

// cudnnBackendDescriptorType_t
inline constexpr int kCudnnPointwise = 0, kCudnnConvolution = 1, kCudnnEngine = 2, kCudnnEngineConfig = 3,
                     kCudnnHeuristics = 4, kCudnnPlan = 5, kCudnnKnobChoice = 7,
                     kCudnnConvolutionForward = 10, kCudnnPointwiseOperation = 13, kCudnnOperationGraph = 15,
                     kCudnnVariantPack = 16, kCudnnTensor = 17, kCudnnMatmul = 18, kCudnnMatmulOperation = 19,
                     kCudnnReduction = 21, kCudnnReductionOperation = 22;

// cudnnBackendAttributeType_t; the enumerations are of 32 bits, a boolean of 8
inline constexpr int kCudnnOfHandle = 0, kCudnnOfDataType = 1, kCudnnOfBoolean = 2, kCudnnOfInt64 = 3,
                     kCudnnOfFloat = 4, kCudnnOfPointer = 6, kCudnnOfConvolutionMode = 7,
                     kCudnnOfHeuristicsMode = 8, kCudnnOfKnobType = 9, kCudnnOfNumericalNote = 11,
                     kCudnnOfPointwiseMode = 14, kCudnnOfDescriptor = 15, kCudnnOfReduction = 18;

// cudnnBackendAttributeName_t
namespace cudnn {
inline constexpr int kPointwiseMode = 0, kPointwisePrecision = 1, kPointwiseAxis = 9;
inline constexpr int kConvolutionType = 100, kConvolutionMode = 101, kConvolutionDilations = 102,
                     kConvolutionStrides = 103, kConvolutionAfter = 104, kConvolutionBefore = 105,
                     kConvolutionDims = 106;
inline constexpr int kHeuristicsMode = 200, kHeuristicsGraph = 201, kHeuristicsResults = 202;
inline constexpr int kConfigEngine = 300, kConfigKnobs = 302;
inline constexpr int kPlanHandle = 400, kPlanConfig = 401, kPlanWorkspace = 402;
inline constexpr int kKnobType = 600, kKnobValue = 601;
inline constexpr int kForwardAlpha = 700, kForwardBeta = 701, kForwardConvolution = 702, kForwardW = 703,
                     kForwardX = 704, kForwardY = 705;
inline constexpr int kOperationPointwise = 750, kPointwiseX = 751, kPointwiseB = 752, kPointwiseY = 753,
                     kPointwiseT = 758;
inline constexpr int kGraphHandle = 800, kGraphOperations = 801;
inline constexpr int kTensorAlignment = 900, kTensorType = 901, kTensorSizes = 902, kTensorStrides = 903,
                     kTensorId = 906, kTensorVirtual = 907, kTensorByValue = 908;
inline constexpr int kPackIds = 1000, kPackPointers = 1001, kPackWorkspace = 1003;
inline constexpr int kEngineIndex = 1301, kEngineNotes = 1303;
inline constexpr int kMatmulType = 1500, kMatmulA = 1520, kMatmulB = 1521, kMatmulC = 1522,
                     kOperationMatmul = 1523;
inline constexpr int kReductionOperator = 1600, kReductionType = 1601, kReductionX = 1610, kReductionY = 1611,
                     kOperationReduction = 1612;

// cudnnDataType_t
inline constexpr int kF32 = 0, kF16 = 2, kI32 = 4, kBf16 = 9, kBoolean = 11;
// cudnnPointwiseMode_t
inline constexpr int kAdd = 0, kMultiply = 1, kDivide = 6, kSubtract = 9, kExp = 13, kLog = 15,
                     kGreaterOrEqual = 303, kIndex = 501, kSelect = 601;
// cudnnReduceTensorOp_t
inline constexpr int kSum = 0, kLargest = 3;
// cudnnConvolutionMode_t
inline constexpr int kCrossCorrelation = 1;
// cudnnBackendHeurMode_t: its best, and what it falls back to
inline constexpr int kModeA = 3, kModeFallback = 2;
// cudnnBackendNumericalNote_t; those from kNoteWinograd to kNoteWinogradLast are forms of one
inline constexpr std::int32_t kNoteTensorCore = 0, kNoteDownConverts = 1, kNoteReducedPrecision = 2,
                              kNoteFft = 3, kNoteNondeterministic = 4, kNoteWinograd = 5,
                              kNoteWinogradLast = 8;
}  // namespace cudnn

#define BRAID_CUDNN_FUNCTIONS(X)                                                                          \
  X(cudnnStatus, cudnnCreate, (CudnnHandle * handle))                                                     \
  X(cudnnStatus, cudnnDestroy, (CudnnHandle handle))                                                      \
  X(cudnnStatus, cudnnSetStream, (CudnnHandle handle, CUstream stream))                                   \
  X(std::size_t, cudnnGetVersion, ())                                                                     \
  X(const char*, cudnnGetErrorString, (cudnnStatus status))                                               \
  X(void, cudnnGetLastErrorString, (char* text, std::size_t bytes))                                       \
  X(cudnnStatus, cudnnBackendCreateDescriptor, (int kind, CudnnRaw* descriptor))                          \
  X(cudnnStatus, cudnnBackendDestroyDescriptor, (CudnnRaw descriptor))                                    \
  X(cudnnStatus, cudnnBackendSetAttribute,                                                                \
    (CudnnRaw descriptor, int attribute, int type, std::int64_t count, const void* values))               \
  X(cudnnStatus, cudnnBackendGetAttribute,                                                                \
    (CudnnRaw descriptor, int attribute, int type, std::int64_t most, std::int64_t* count, void* values)) \
  X(cudnnStatus, cudnnBackendFinalize, (CudnnRaw descriptor))                                             \
  X(cudnnStatus, cudnnBackendExecute, (CudnnHandle handle, CudnnRaw plan, CudnnRaw pack))

struct CudnnFunctions {
#define BRAID_FIELD(result, name, arguments) result(*name) arguments = nullptr;
  BRAID_CUDNN_FUNCTIONS(BRAID_FIELD)
#undef BRAID_FIELD
};

}  // namespace braid::cuda
