#pragma once

#include "cuda/source.h"

namespace braid::cuda {

// One fused elementwise kernel. False, with a reason, where the spec has no meaning.
bool mapSource(const KernelSpec& spec, KernelSource* source, std::string* problem);

}  // namespace braid::cuda
