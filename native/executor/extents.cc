#include "executor/extents.h"

namespace braid {
namespace {

constexpr std::uint64_t most = std::uint64_t{1} << 53;

// Products that would pass 2^53 bytes stick there; no buffer is as long.
std::uint64_t times(std::uint64_t a, std::uint64_t b) { return a != 0 && b > most / a ? most : a * b; }

bool arguments(const MapInstruction& instruction, std::size_t index, std::size_t operands) {
  const auto earlier = [&](std::int32_t value) { return value >= 0 && static_cast<std::size_t>(value) < index; };
  switch (instruction.op) {
    case MapOp::operand: return instruction.a >= 0 && static_cast<std::size_t>(instruction.a) < operands;
    case MapOp::constant: return true;
    case MapOp::select: return earlier(instruction.a) && earlier(instruction.b) && earlier(instruction.c);
    default: return earlier(instruction.a) && (instruction.op < MapOp::add || earlier(instruction.b));
  }
}

std::optional<std::string> mapExtents(const KernelSpec& spec, Extents* extents) {
  std::uint64_t count = 1;
  for (const std::int64_t size : spec.shape) {
    if (size < 1) return "shape has a size below 1";
    count = times(count, static_cast<std::uint64_t>(size));
  }
  if (count >= most) return "shape has more than 2^53 elements";
  for (std::size_t i = 0; i < spec.operands.size(); ++i) {
    const MapOperand& operand = spec.operands[i];
    const std::string where = "operands[" + std::to_string(i) + "]";
    if (operand.strides.size() != spec.shape.size()) return where + ".strides must have the length of shape";
    __int128 low = operand.offset, high = operand.offset;
    for (std::size_t d = 0; d < spec.shape.size(); ++d) {
      const __int128 reach = static_cast<__int128>(spec.shape[d] - 1) * operand.strides[d];
      (reach < 0 ? low : high) += reach;
    }
    if (low < 0) return where + " reaches before its buffer";
    if (high >= static_cast<__int128>(most)) return where + " reaches beyond 2^53 elements";
    extents->reads.push_back(times(static_cast<std::uint64_t>(high) + 1, elementBytes(operand.dtype)));
  }
  for (std::size_t i = 0; i < spec.code.size(); ++i) {
    if (!arguments(spec.code[i], i, spec.operands.size())) return "code[" + std::to_string(i) + "] names a value that is not there yet";
  }
  for (std::size_t i = 0; i < spec.results.size(); ++i) {
    const MapResult& result = spec.results[i];
    if (result.value < 0 || static_cast<std::size_t>(result.value) >= spec.code.size()) {
      return "results[" + std::to_string(i) + "].value names no instruction";
    }
    extents->writes.push_back(times(count, elementBytes(result.dtype)));
  }
  return std::nullopt;
}

std::optional<std::string> matmulExtents(const KernelSpec& spec, Extents* extents) {
  if (spec.m < 1 || spec.n < 1 || spec.k < 1 || spec.batch < 1) return "m, n, k and batch must be at least 1";
  if (spec.a.batchStride < 0 || spec.b.batchStride < 0 || spec.c.batchStride < 0) return "a batchStride must not be negative";
  const auto reach = [&](const MatmulOperand& operand, std::int64_t rows, std::int64_t columns) {
    const std::uint64_t one = times(static_cast<std::uint64_t>(rows), static_cast<std::uint64_t>(columns));
    const std::uint64_t before = times(static_cast<std::uint64_t>(spec.batch - 1), static_cast<std::uint64_t>(operand.batchStride));
    return times(one + before, elementBytes(operand.dtype));
  };
  extents->reads = {reach(spec.a, spec.m, spec.k), reach(spec.b, spec.k, spec.n)};
  extents->writes = {reach(spec.c, spec.m, spec.n)};
  if (spec.workspace > 0) extents->writes.push_back(spec.workspace);
  return std::nullopt;
}

std::optional<std::string> reduceExtents(const KernelSpec& spec, Extents* extents) {
  if (spec.outer < 1 || spec.length < 1 || spec.inner < 1) return "outer, length and inner must be at least 1";
  const std::uint64_t out = times(static_cast<std::uint64_t>(spec.outer), static_cast<std::uint64_t>(spec.inner));
  extents->reads = {times(times(out, static_cast<std::uint64_t>(spec.length)), elementBytes(spec.input))};
  extents->writes = {times(out, elementBytes(spec.output))};
  return std::nullopt;
}

std::optional<std::string> cudaExtents(const KernelSpec& spec, Extents* extents) {
  if (spec.name.empty()) return "name is empty";
  for (int axis = 0; axis < 3; ++axis) {
    if (spec.grid[axis] < 1 || spec.block[axis] < 1) return "grid and block sizes must be at least 1";
  }
  extents->unknown = true;
  return std::nullopt;
}

}  // namespace

std::optional<std::string> extentsOf(const KernelSpec& spec, Extents* extents) {
  switch (spec.kind) {
    case KernelSpec::Kind::copy:
      extents->reads = {spec.bytes};
      extents->writes = {spec.bytes};
      return std::nullopt;
    case KernelSpec::Kind::map: return mapExtents(spec, extents);
    case KernelSpec::Kind::matmul: return matmulExtents(spec, extents);
    case KernelSpec::Kind::reduce: return reduceExtents(spec, extents);
    case KernelSpec::Kind::cuda: return cudaExtents(spec, extents);
  }
  return "unknown kind";
}

}  // namespace braid
