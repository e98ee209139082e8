#pragma once

#include "cuda/source.h"

namespace braid::cuda {

// A reduction over the middle of outer × length × inner. The order of additions depends on the sizes alone,
// so equal inputs give equal bits.
void reduceSource(const KernelSpec& spec, int multiprocessors, KernelSource* source);

}  // namespace braid::cuda
