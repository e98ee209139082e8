#pragma once

#include "cuda/source.h"

namespace braid::cuda {

// A tiled product for the operand types that cuBLASLt does not multiply, and for k = 0. Sums in f32, in order
// of k.
void matmulSource(const KernelSpec& spec, KernelSource* source);

}  // namespace braid::cuda
