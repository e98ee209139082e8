#pragma once

#include <cstdint>
#include <vector>

#include "executor/program.h"

namespace braid {

// Two NaNs of bf16 or f16, and one NaN of f32: a read before the first write yields a NaN in every float
// type.
constexpr std::uint32_t garbage = 0xFFC0FFC0u;

// Buffers of an arena and outputs on a device have no alloc, so they are poisoned at their first access in a
// tick, on the lane of that access. If by an error of order another buffer still used these bytes, its
// readers would see NaNs; so would lanes of users that read an output.
struct FirstTouch {
  std::size_t command;
  std::uint32_t buffer;
};
// In order of commands.
std::vector<FirstTouch> firstTouches(const Program& program);

}  // namespace braid
