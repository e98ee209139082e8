#pragma once

#include "cuda/source.h"

namespace braid::cuda {

// One fused elementwise kernel, of a spec that has been checked.
void mapSource(const KernelSpec& spec, KernelSource* source);

}  // namespace braid::cuda
