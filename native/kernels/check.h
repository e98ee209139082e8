#pragma once

#include <optional>
#include <string>

#include "kernels/kernel_spec.h"

namespace braid {

// What is wrong with a kernel, in words that name the field, or nothing: ranks, sizes, overflow, which value
// an instruction may name, element types, and the operands of the run where they are given. Every device asks
// this before it prepares a kernel, and trusts the spec from then on; so what one device refuses all refuse.
// Sizes that have passed can be multiplied with each other and with an element's bytes, within one operand,
// without overflow.
std::optional<std::string> checkKernel(const KernelSpec& spec);

}  // namespace braid
