#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "driver/kernel_spec.h"

namespace braid::cuda {

inline std::string number(std::int64_t value) { return std::to_string(value); }

inline std::int64_t powerOfTwoAtLeast(std::int64_t value) {
  std::int64_t power = 1;
  while (power < value) power *= 2;
  return power;
}

// The CUDA C++ of an instruction that computes, or of a constant, by the prelude's functions; `name` gives
// the text of an earlier value.
std::string mapExpression(const KernelSpec& spec, std::size_t j,
                          const std::function<std::string(std::int32_t)>& name);

// How partial results of a reduction combine: the neutral element, and the text for `a` and `b`. Sums and
// means, largest and smallest.
std::string neutralText(ReduceHow how, bool whole);
std::string combineText(ReduceHow how, bool whole);

}  // namespace braid::cuda
