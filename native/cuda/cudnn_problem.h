#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cuda/cudnn.h"

namespace braid::cuda {

// What a kernel computes, as a graph of cuDNN's, and what is needed to try it out. The kernel's reads and
// then its writes are the operands of the graph, each from its offset on.
struct CudnnProblem {
  std::unique_ptr<CudnnGraph> graph;
  DType type = DType::f32;
  std::size_t reads = 0;
  std::vector<std::size_t> offsets, bytes;  // of each operand; its bytes begin at the offset
  std::size_t workspace = 0;                // that the kernel has for the library, as its last write
};

// Attention that cuDNN computes as Braid means it: many queries of f16 or bf16, each of which sees a key; no
// mask, no length, and nothing appended. False elsewhere, and where the library refuses the graph.
bool isForCudnn(const KernelSpec& spec, int architecture);
bool describeAttention(std::shared_ptr<CudnnSession> session, const KernelSpec& spec, CudnnProblem* problem);

// Operations of floating-point arithmetic that a kernel takes.
double flopsOf(const KernelSpec& spec);

}  // namespace braid::cuda
