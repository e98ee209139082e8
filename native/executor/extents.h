#pragma once

#include <optional>
#include <string>
#include <vector>

#include "kernels/kernel_spec.h"

namespace braid {

struct Extents {
  std::vector<std::uint64_t> reads, writes;  // bytes that the kernel touches, from the start of each operand
  bool unknown = false;                      // a user's kernel: what it touches is its own business
};

// How many operands the kernel takes and how far it reaches into each, so that a plan that lies about a size
// is refused and never touches memory that is not its own. On failure: what `checkKernel` says is wrong with
// the kernel itself.
std::optional<std::string> extentsOf(const KernelSpec& spec, Extents* extents);

}  // namespace braid
