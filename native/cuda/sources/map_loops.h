#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "driver/kernel_spec.h"

namespace braid::cuda {

// The dimensions of a map, after merging those that have equal strides in every operand, and the strides of
// each operand. Never empty: a scalar is one dimension of one element.
struct MapLoops {
  std::vector<std::int64_t> shape;
  std::vector<std::vector<std::int64_t>> strides;  // of each operand, as many as `shape`
  std::vector<std::optional<MapIndex>> indexed;    // of each operand
  std::int64_t count = 1;
  bool wide = false;  // an index or an offset may not fit 32 bits
  int lanes = 1;      // elements of one 16-byte access; 1: no vector kernel is possible
};

enum class Walk { scalar, dense, strided };

MapLoops mapLoops(const KernelSpec& spec);
// scalar: one element for all; dense: the offset, but for that of a row of a table, is the index itself;
// strided: it is computed from the index's digits.
Walk walkOf(const MapLoops& loops, std::size_t operand);

}  // namespace braid::cuda
