#pragma once

#include <optional>
#include <string>

#include "driver/kernel_spec.h"

namespace braid {

// Returns the first error of a kernel, naming its field, or nothing. Checks ranks, sizes, overflow, the
// values that instructions name, element types, and the numbers of operands where the spec has them. Every
// device calls this before it prepares a kernel and trusts the spec afterwards, so all devices refuse the
// same. Checked sizes can be multiplied with each other and with an element's bytes, within one operand,
// without overflow.
std::optional<std::string> checkKernel(const KernelSpec& spec);

}  // namespace braid
