#pragma once

#include "cuda/matmul_problem.h"
#include "cuda/source.h"

namespace braid::cuda {

// Whether relu by each of these choices is max(x, 0) as maps compute it: a NaN stays a NaN, and -0 becomes
// +0. cuBLASLt promises neither, so the problem is run on such operands. False too where it cannot be run;
// *certain becomes false where a call failed.
bool isReluExact(const MatmulProblem& problem, const KernelSpec& spec,
                 const std::vector<MatmulChoice>& choices, bool* certain);

// Whether c has no gaps, so that a map can follow the product where it lies.
bool isDense(const KernelSpec& spec);

// relu of a dense c, as a map from c to c.
void reluSource(const KernelSpec& product, KernelSource* source);

}  // namespace braid::cuda
