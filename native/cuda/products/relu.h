#pragma once

#include "cuda/products/problem.h"
#include "cuda/sources/source.h"

namespace braid::cuda {

// Whether relu by each of these choices is max(x, 0) as maps compute it: a NaN stays a NaN, and -0 becomes
// +0. cuBLASLt promises neither, so the problem is run on such operands. False too where it cannot be run;
// *certain becomes false where a call failed.
bool isReluExact(const MatmulProblem& problem, const KernelSpec& spec,
                 const std::vector<MatmulChoice>& choices, bool* certain);

// Whether c has no gaps, so that a map can follow the product where it lies.
bool isDense(const KernelSpec& spec);

// The steps of an epilogue that a kernel does after the library's, where the library does not do them: its
// activation, and in products of several layers its bias too.
bool isBiasApart(const KernelSpec& product);
// The product without them. Its c is the auxiliary output, if that has the bias.
KernelSpec withoutApart(const KernelSpec& product);
// They as a map of what the library wrote, and the bias if it is apart, to c and the auxiliary output, if
// that wants the bias. What it reads may be c.
void apartSource(const KernelSpec& product, KernelSource* source);

}  // namespace braid::cuda
