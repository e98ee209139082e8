#pragma once

#include "cuda/products/problem.h"

namespace braid::cuda {

// Runs the candidates on scratch memory, which loads their code onto the device before the first launch. With
// `timed` it keeps only the fastest of those for full alignment. All scratch memory is freed before it
// returns. Without memory, or if a run fails, the library's order is kept: this never fails a preparation,
// but *certain becomes false.
void tune(const MatmulProblem& problem, const KernelSpec& spec, Compiler& compiler, bool timed,
          std::vector<MatmulChoice>* choices, bool* certain);

// Whether the kernel for few rows takes no longer than the library's choice, with weights that no cache
// holds. False too where that cannot be measured; *certain becomes false where a call failed.
bool isFewTaken(const CudaKernel& few, const MatmulProblem& problem, const MatmulChoice& choice,
                const KernelSpec& spec, bool* certain);

}  // namespace braid::cuda
