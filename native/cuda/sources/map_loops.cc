#include "cuda/sources/map_loops.h"

#include <algorithm>
#include <cstdlib>

namespace braid::cuda {
namespace {

// One access is 16 bytes of the smallest type, and never more than 8 elements: wider ones cost registers and
// gain nothing.
int lanesOf(const KernelSpec& spec) {
  std::size_t smallest = 4;
  for (const MapOperand& operand : spec.operands) smallest = std::min(smallest, elementBytes(operand.dtype));
  for (const MapResult& result : spec.results) smallest = std::min(smallest, elementBytes(result.dtype));
  return smallest == 4 ? 4 : 8;
}

}  // namespace

MapLoops mapLoops(const KernelSpec& spec) {
  MapLoops loops;
  loops.strides.resize(spec.operands.size());
  for (const MapOperand& operand : spec.operands) loops.indexed.push_back(operand.indexed);
  for (std::size_t d = 0; d < spec.shape.size(); ++d) {
    const std::int64_t size = spec.shape[d];
    loops.count *= size;
    if (size == 1) continue;
    bool joins = !loops.shape.empty();
    for (std::size_t o = 0; joins && o < spec.operands.size(); ++o) {
      joins = loops.strides[o].back() == spec.operands[o].strides[d] * size;
    }
    if (joins) {
      loops.shape.back() *= size;
      for (std::size_t o = 0; o < spec.operands.size(); ++o)
        loops.strides[o].back() = spec.operands[o].strides[d];
    } else {
      loops.shape.push_back(size);
      for (std::size_t o = 0; o < spec.operands.size(); ++o)
        loops.strides[o].push_back(spec.operands[o].strides[d]);
    }
  }
  if (loops.shape.empty()) {
    loops.shape.push_back(1);
    for (auto& strides : loops.strides) strides.push_back(0);
  }

  // Half of the range: a grid's stride is added before the bound is checked.
  constexpr std::int64_t kNarrow = std::int64_t{1} << 30;
  std::int64_t furthest = loops.count;
  for (std::size_t o = 0; o < loops.strides.size(); ++o) {
    const auto& strides = loops.strides[o];
    std::int64_t reach = 0;
    for (std::size_t d = 0; d < strides.size(); ++d) reach += std::abs(strides[d]) * (loops.shape[d] - 1);
    if (loops.indexed[o]) reach += std::abs(loops.indexed[o]->step) * (loops.indexed[o]->length - 1);
    furthest = std::max(furthest, reach);
  }
  loops.wide = furthest >= kNarrow;

  const int lanes = lanesOf(spec);
  const std::int64_t inner = loops.shape.back();
  bool vector = loops.count >= lanes && (loops.shape.size() == 1 || inner % lanes == 0);
  for (std::size_t o = 0; o < loops.strides.size(); ++o) {
    const auto& strides = loops.strides[o];
    vector = vector && (strides.back() == 1 || strides.back() == 0);
    // Each row must start at a multiple of the access, since only the alignment of the first row is checked.
    for (std::size_t d = 0; vector && strides.back() == 1 && d + 1 < strides.size(); ++d)
      vector = strides[d] % lanes == 0;
    // An access has one index.
    if (const auto& index = loops.indexed[o])
      vector =
          vector && loops.strides[index->by].back() == 0 && (strides.back() == 0 || index->step % lanes == 0);
  }
  loops.lanes = vector ? lanes : 1;
  return loops;
}

Walk walkOf(const MapLoops& loops, std::size_t operand) {
  const auto isScalar = [&](std::size_t o) {
    return std::all_of(loops.strides[o].begin(), loops.strides[o].end(),
                       [](std::int64_t stride) { return stride == 0; });
  };
  const auto& index = loops.indexed[operand];
  if (isScalar(operand) && (!index || isScalar(index->by))) return Walk::scalar;
  const auto& strides = loops.strides[operand];
  std::int64_t expected = 1;
  for (std::size_t d = strides.size(); d-- > 0; expected *= loops.shape[d]) {
    if (strides[d] != expected) return Walk::strided;
  }
  return Walk::dense;
}

}  // namespace braid::cuda
