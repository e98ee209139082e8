#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cuda/cudnn/graph.h"

namespace braid::cuda {

// What a kernel computes, as a graph of cuDNN's, and what is needed to try it out. The kernel's reads and
// then its writes are the operands of the graph, each from its offset on. The first write is of the type of
// the reads, a second one of f32.
struct CudnnProblem {
  std::unique_ptr<CudnnGraph> graph;
  DType type = DType::f32;
  std::size_t reads = 0;
  std::vector<std::size_t> offsets, bytes;  // of each operand; its bytes begin at the offset
  std::size_t workspace = 0;                // that the kernel has for the library, as its last write
};

// A kind of kernels that the library may compute.
struct CudnnKind {
  // Whether the library computes it as Braid means it.
  bool (*isFor)(const KernelSpec& spec);
  // False where the library refuses the graph.
  bool (*describe)(std::shared_ptr<CudnnSession> session, const KernelSpec& spec, CudnnProblem* problem);
  double (*flops)(const KernelSpec& spec);     // operations of floating-point arithmetic
  std::string (*key)(const KernelSpec& spec);  // all that the time of a launch depends on
  int mostPlans;                               // how many plans are tried at most
};
// Many queries of f16 or bf16, each of which sees a key; no mask, no length, and nothing appended.
extern const CudnnKind kCudnnAttention;
// Of less than 2^31 elements.
extern const CudnnKind kCudnnConv;

}  // namespace braid::cuda
