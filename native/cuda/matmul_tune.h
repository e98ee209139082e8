#pragma once

#include "cuda/matmul_problem.h"

namespace braid::cuda {

// Runs the candidates on scratch memory, so that their code is on the device before the first launch, and
// where `timed` keeps of those for full alignment only the fastest. All scratch is given back before it
// returns. Where there is no room for it, or a run fails, the library's own order stands: this never fails a
// preparation.
void settle(const MatmulProblem& problem, const KernelSpec& spec, Compiler& compiler, bool timed,
            std::vector<MatmulChoice>* choices);

}  // namespace braid::cuda
