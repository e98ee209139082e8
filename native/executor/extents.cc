#include "executor/extents.h"

#include "kernels/check.h"

namespace braid {
namespace {

// Of an operand with so many elements. No overflow: the spec has been checked.
std::uint64_t bytesOf(std::int64_t elements, DType type) {
  return static_cast<std::uint64_t>(elements) * elementBytes(type);
}

void mapExtents(const KernelSpec& spec, Extents* extents) {
  std::int64_t count = 1;
  for (const std::int64_t size : spec.shape) count *= size;
  for (const MapOperand& operand : spec.operands) {
    std::int64_t furthest = operand.offset;
    for (std::size_t d = 0; d < spec.shape.size(); ++d) {
      if (operand.strides[d] > 0) furthest += operand.strides[d] * (spec.shape[d] - 1);
    }
    extents->reads.push_back(bytesOf(furthest + 1, operand.dtype));
  }
  for (const MapResult& result : spec.results) extents->writes.push_back(bytesOf(count, result.dtype));
}

void matmulExtents(const KernelSpec& spec, Extents* extents) {
  const auto reach = [&](const MatmulOperand& operand, std::int64_t rows, std::int64_t columns) {
    return bytesOf(rows * columns + (spec.batch - 1) * operand.batchStride, operand.dtype);
  };
  extents->reads = {reach(spec.a, spec.m, spec.k), reach(spec.b, spec.k, spec.n)};
  extents->writes = {reach(spec.c, spec.m, spec.n)};
  if (spec.workspace > 0) extents->writes.push_back(spec.workspace);
}

}  // namespace

std::optional<std::string> extentsOf(const KernelSpec& spec, Extents* extents) {
  if (auto problem = checkKernel(spec)) return problem;
  switch (spec.kind) {
    case KernelSpec::Kind::copy: {
      extents->reads.assign(spec.parts, spec.bytes / spec.parts);
      extents->writes = {spec.bytes};
      break;
    }
    case KernelSpec::Kind::map: mapExtents(spec, extents); break;
    case KernelSpec::Kind::matmul: matmulExtents(spec, extents); break;
    case KernelSpec::Kind::reduce:
      extents->reads = {bytesOf(spec.outer * spec.length * spec.inner, spec.input)};
      extents->writes = {bytesOf(spec.outer * spec.inner, spec.output)};
      break;
    case KernelSpec::Kind::cuda: extents->unknown = true; break;
  }
  return std::nullopt;
}

}  // namespace braid
