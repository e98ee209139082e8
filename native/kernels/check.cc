#include "kernels/check.h"

#include <algorithm>
#include <initializer_list>

#include "kernels/map_rows.h"

namespace braid {
namespace {

using Problem = std::optional<std::string>;

constexpr std::size_t mostRank = 8;
constexpr std::size_t mostInstructions = std::size_t{1} << 16;
constexpr int mostPasses = 64;
constexpr std::int64_t mostBytes = std::int64_t{1} << 53;

template <class Integer>
std::string show(Integer value) {
  return std::to_string(value);
}

// Multiplies sizes; false when one is not positive or the product is more than memory can ever hold.
bool product(std::initializer_list<std::int64_t> sizes, std::int64_t* result) {
  std::int64_t total = 1;
  for (const std::int64_t size : sizes)
    if (size <= 0 || __builtin_mul_overflow(total, size, &total) || total > mostBytes) return false;
  *result = total;
  return true;
}

bool isFloat(DType type) { return type == DType::f32 || type == DType::f16 || type == DType::bf16; }

Problem checkCounts(const KernelSpec& spec, std::size_t reads, std::size_t writes) {
  // Specs in tests may leave the run's counts at 0.
  if (spec.readCount == 0 && spec.writeCount == 0) return std::nullopt;
  if (spec.readCount == reads && spec.writeCount == writes) return std::nullopt;
  return "the run has " + show(spec.readCount) + " reads and " + show(spec.writeCount) +
         " writes, the kernel wants " + show(reads) + " and " + show(writes);
}

// Of a kernel that may have a workspace, as its last write.
Problem checkWorkspace(const KernelSpec& spec, std::size_t reads, std::size_t writes) {
  if (spec.workspace > static_cast<std::uint64_t>(mostBytes)) return "the workspace is too large";
  return checkCounts(spec, reads, writes + (spec.workspace > 0 ? 1 : 0));
}

Problem checkCopy(const KernelSpec& spec) {
  if (spec.bytes > static_cast<std::uint64_t>(mostBytes)) return "copy: too many bytes";
  if (spec.direction < 0 || spec.direction > 3) return "copy: unknown direction " + show(spec.direction);
  if (spec.parts == 0 || spec.bytes % spec.parts != 0)
    return "copy: " + show(spec.bytes) + " bytes are not " + show(spec.parts) + " equal parts";
  return checkCounts(spec, spec.parts, 1);
}

Problem checkOperand(const KernelSpec& spec, std::size_t index) {
  const MapOperand& operand = spec.operands[index];
  const std::string name = "map: operand " + show(index);
  if (elementBytes(operand.dtype) == 0) return name + " has an unknown element type";
  if (operand.strides.size() != spec.shape.size())
    return name + " has another number of strides than the shape has sizes";
  std::int64_t least = operand.offset, most = operand.offset;
  const auto extends = [&](std::int64_t size, std::int64_t stride) {
    std::int64_t reach = 0;
    if (__builtin_mul_overflow(stride, size - 1, &reach)) return false;
    std::int64_t& end = reach < 0 ? least : most;
    return !__builtin_add_overflow(end, reach, &end);
  };
  for (std::size_t d = 0; d < spec.shape.size(); ++d)
    if (!extends(spec.shape[d], operand.strides[d])) return name + ": strides overflow";
  if (operand.indexed) {
    const auto& [by, length, step] = *operand.indexed;
    if (by >= spec.operands.size())
      return name + " is indexed by operand " + show(by) + " of " + show(spec.operands.size());
    if (spec.operands[by].dtype != DType::i32 || spec.operands[by].indexed)
      return name + " is indexed by operand " + show(by) + ", which is not of i32 or is indexed itself";
    if (length <= 0) return name + " is indexed with a length that is not positive";
    if (!extends(length, step)) return name + ": strides overflow";
  }
  if (least < 0) return name + " reaches before its start";
  if (most >= mostBytes) return name + " reaches too far";
  return std::nullopt;
}

Problem checkInstruction(const KernelSpec& spec, std::size_t index) {
  const MapInstruction& instruction = spec.code[index];
  const std::string name = "map: instruction " + show(index);
  if (instruction.op > MapOp::rowMin) return name + " has an unknown operation";
  if (isRowReduction(instruction.op) && spec.shape.empty())
    return name + " reduces rows, and the shape has no dimension";
  if (instruction.op == MapOp::operand &&
      (instruction.a < 0 || static_cast<std::size_t>(instruction.a) >= spec.operands.size()))
    return name + " names operand " + show(instruction.a) + " of " + show(spec.operands.size());
  if (instruction.op == MapOp::index &&
      (instruction.a < 0 || static_cast<std::size_t>(instruction.a) >= spec.shape.size()))
    return name + " names dimension " + show(instruction.a) + " of " + show(spec.shape.size());
  const std::int32_t arguments[] = {instruction.a, instruction.b, instruction.c};
  for (int argument = 0; argument < arityOf(instruction.op); ++argument)
    if (arguments[argument] < 0 || static_cast<std::size_t>(arguments[argument]) >= index)
      return name + " names value " + show(arguments[argument]) + ", which is not an earlier one";
  return std::nullopt;
}

Problem checkMap(const KernelSpec& spec) {
  if (spec.shape.size() > mostRank) return "map: rank " + show(spec.shape.size()) + ", at most 8 is possible";
  std::int64_t count = 1;
  for (const std::int64_t size : spec.shape)
    if (!product({count, size}, &count))
      return "map: shape has a size that is not positive, or too many elements";
  for (std::size_t i = 0; i < spec.operands.size(); ++i)
    if (Problem problem = checkOperand(spec, i)) return problem;
  if (spec.code.size() > mostInstructions) return "map: more than 65536 instructions";
  for (std::size_t j = 0; j < spec.code.size(); ++j)
    if (Problem problem = checkInstruction(spec, j)) return problem;
  if (spec.results.empty()) return "map: no results";
  for (const MapResult& result : spec.results) {
    if (result.value < 0 || static_cast<std::size_t>(result.value) >= spec.code.size())
      return "map: a result names value " + show(result.value) + " of " + show(spec.code.size());
    if (elementBytes(result.dtype) == 0) return "map: a result has an unknown element type";
  }
  if (hasRows(spec)) {
    if (spec.shape.empty()) return "map: a result is one number a row, and the shape has no dimension";
    if (spec.axis < -1 || spec.axis >= static_cast<std::int32_t>(spec.shape.size()))
      return "map: rows along dimension " + show(spec.axis) + " of " + show(spec.shape.size());
    const MapRows rows(spec);
    if (rows.passes > mostPasses) return "map: more than 64 reductions that follow from one another";
    for (const MapResult& result : spec.results)
      if (result.row && !rows.isRow[static_cast<std::size_t>(result.value)])
        return "map: value " + show(result.value) + " is not one number a row";
  }
  return checkCounts(spec, spec.operands.size(), spec.results.size());
}

Problem checkMatmul(const KernelSpec& spec) {
  std::int64_t ignored = 0;
  if (spec.m <= 0 || spec.n <= 0 || spec.k <= 0 || spec.batch <= 0)
    return "matmul: m, n, k and batch must be positive";
  struct Side {
    const char* name;
    const MatmulOperand& operand;
    std::int64_t rows, columns;
  };
  const auto side = [](const char* name, const MatmulOperand& operand, bool transposed, std::int64_t rows,
                       std::int64_t columns) {
    return transposed ? Side{name, operand, columns, rows} : Side{name, operand, rows, columns};
  };
  for (const Side& side :
       {side("a", spec.a, spec.transposeA, spec.m, spec.k),
        side("b", spec.b, spec.transposeB, spec.k, spec.n), side("c", spec.c, false, spec.m, spec.n)}) {
    const std::string name = std::string("matmul: ") + side.name;
    if (!isFloat(side.operand.dtype)) return name + " must be f32, f16 or bf16";
    if (!product({side.rows, side.columns}, &ignored)) return name + " has too many elements";
    if (side.operand.batchStride < 0) return name + " has a negative batch stride";
    if (side.operand.batchStride > 0 && !product({side.operand.batchStride, spec.batch}, &ignored))
      return name + " reaches too far";
    const std::int64_t row = side.operand.rowStride;
    if (row != 0 && row < side.columns)
      return name + " has rows of " + show(side.columns) + " elements and a row stride of " + show(row);
    if (row > 0 && !product({row, side.rows}, &ignored)) return name + " reaches too far";
    if (side.operand.offset < 0 || side.operand.offset > mostBytes) return name + " starts out of memory";
  }
  if (spec.c.rowStride != 0 || spec.c.offset != 0) return "matmul: c has no row stride and no offset";
  if (spec.batch > 1 && spec.c.batchStride < spec.m * spec.n) return "matmul: the batches of c overlap";
  if (2.0 * static_cast<double>(spec.m) * static_cast<double>(spec.n) * static_cast<double>(spec.k) > 9e18)
    return "matmul: too large";
  if (spec.epilogue.residual && spec.epilogue.activation != Activation::none)
    return "matmul: an epilogue has an activation or a residual, not both";
  if (spec.epilogue.auxiliary && spec.epilogue.activation == Activation::none)
    return "matmul: an auxiliary output is what an activation is computed of, and there is none";
  return checkWorkspace(spec, 2 + spec.epilogue.reads(), spec.epilogue.writes());
}

// Whether a strided operand of these sizes is not negative and ends in memory.
bool reaches(std::initializer_list<std::int64_t> sizes, const std::int64_t* strides, std::int64_t from) {
  std::int64_t end = from, d = 0;
  if (from < 0) return false;
  for (const std::int64_t size : sizes) {
    std::int64_t span = 0;
    const std::int64_t stride = strides[d++];
    if (stride < 0 || __builtin_mul_overflow(stride, size - 1, &span) ||
        __builtin_add_overflow(end, span, &end) || end > mostBytes)
      return false;
  }
  return true;
}

Problem checkAttention(const KernelSpec& spec) {
  const AttentionSpec& one = spec.attention;
  std::int64_t ignored = 0;
  if (!product({spec.batch, one.heads, one.queries, one.size}, &ignored) ||
      !product({spec.batch, one.groups, one.keys, one.size}, &ignored) ||
      !product({spec.batch, one.groups, one.keys, one.valueSize}, &ignored) ||
      !product({spec.batch, one.heads, one.queries, one.valueSize}, &ignored))
    return "attention: sizes must be positive, and not too many elements";
  if (one.keys > INT32_MAX) return "attention: i32 cannot hold the number of keys";
  if (one.heads % one.groups != 0)
    return "attention: " + show(one.heads) + " heads cannot share " + show(one.groups) + " groups evenly";
  if (!isFloat(spec.input)) return "attention: queries, keys and values are f32, f16 or bf16";
  if (one.masked && one.maskType != DType::u8 && one.maskType != DType::i32)
    return "attention: a mask is u8 or i32";
  if (!reaches({spec.batch, one.heads, one.queries}, one.q.strides.data(), one.q.offset) ||
      !reaches({spec.batch, one.groups, one.keys}, one.k.strides.data(), one.k.offset) ||
      !reaches({spec.batch, one.groups, one.keys}, one.v.strides.data(), one.v.offset) ||
      !reaches({spec.batch, one.resultHeads(), one.resultRows()}, one.y.strides.data(), one.y.offset) ||
      !reaches({spec.batch, one.groups, one.keys}, one.dv.strides.data(), one.dv.offset) ||
      !reaches({spec.batch, one.heads, one.queries}, one.dy.strides.data(), one.dy.offset) ||
      !reaches({spec.batch, one.heads, one.queries, one.keys}, one.maskStrides.data(), 0))
    return "attention: an operand reaches before its start or too far";
  if (one.result != AttentionResult::attended && (one.appended > 0 || spec.workspace > 0))
    return "attention: rows are appended, and a library's scratch is offered, where values are attended";
  if (one.logs && (one.result != AttentionResult::attended || one.appended > 0))
    return "attention: logarithms are written beside attended values, where no rows are appended";
  if (one.withValues && one.result != AttentionResult::byKeys)
    return "attention: the gradient of the values is written beside that of the keys";
  if (one.appended < 0 || one.appended > one.keys)
    return "attention: " + show(one.appended) + " rows appended to " + show(one.keys) + " keys";
  if (one.appended > 0 &&
      (one.heads / one.groups * one.queries > 16 || std::max(one.size, one.valueSize) > 256))
    return "attention: rows are appended where at most 16 queries share keys of at most 256 elements";
  return checkWorkspace(spec, one.reads(), one.writes());
}

Problem checkConv(const KernelSpec& spec) {
  const ConvSpec& one = spec.conv;
  if (one.spatial.empty() || one.spatial.size() > 3)
    return "conv: " + show(one.spatial.size()) + " spatial dimensions, 1 to 3 are possible";
  if (!isFloat(spec.input)) return "conv: elements are f32, f16 or bf16";
  std::int64_t inputs = 1, taps = 1, outputs = 1, padded = one.channels, ignored = 0;
  for (const ConvDim& dim : one.spatial) {
    // None of these sums and products overflows.
    std::int64_t reach = 0;
    if (dim.before < 0 || dim.after < 0 || dim.before > mostBytes || dim.after > mostBytes)
      return "conv: the padding is negative or too large";
    if (dim.stride <= 0 || dim.dilation <= 0 || !product({inputs, dim.input}, &inputs) ||
        !product({taps, dim.kernel}, &taps))
      return "conv: sizes, strides and dilations must be positive, and not too many elements";
    if (__builtin_mul_overflow(dim.dilation, dim.kernel - 1, &reach) ||
        reach >= dim.before + dim.input + dim.after)
      return "conv: a kernel is larger than its padded input";
    if (!product({outputs, dim.output()}, &outputs) ||
        !product({padded, dim.before + dim.input + dim.after}, &padded))
      return "conv: too many elements";
  }
  std::int64_t sum = 0;  // terms of all sums
  if (!product({spec.batch, one.groups, one.channels, inputs}, &ignored) ||
      !product({one.groups, one.filters, one.channels, taps}, &ignored) ||
      !product({spec.batch, one.groups, one.filters, outputs}, &sum))
    return "conv: sizes must be positive, and not too many elements";
  if (2.0 * static_cast<double>(sum) * static_cast<double>(one.channels) * static_cast<double>(taps) > 9e18)
    return "conv: too large";
  return checkWorkspace(spec, 2, 1);
}

Problem checkReduce(const KernelSpec& spec) {
  std::int64_t ignored = 0;
  if (!product({spec.outer, spec.length, spec.inner}, &ignored))
    return "reduce: outer, length and inner must be positive, and not too many elements";
  if (elementBytes(spec.input) == 0 || elementBytes(spec.output) == 0) return "reduce: unknown element type";
  if (spec.how > ReduceHow::argmin) return "reduce: unknown kind";
  if (spec.how >= ReduceHow::argmax && spec.output != DType::i32) return "reduce: a position is of i32";
  if (spec.how >= ReduceHow::argmax && spec.length > INT32_MAX) return "reduce: i32 cannot hold the position";
  if (spec.count < 1 || spec.count > (spec.how >= ReduceHow::argmax ? spec.length : 1))
    return "reduce: " + show(spec.count) + " positions of " + show(spec.length) + " elements";
  return checkCounts(spec, 1, 1);
}

Problem checkScan(const KernelSpec& spec) {
  std::int64_t ignored = 0;
  if (!product({spec.outer, spec.length, spec.inner}, &ignored))
    return "scan: outer, length and inner must be positive, and not too many elements";
  if (elementBytes(spec.input) == 0 || elementBytes(spec.output) == 0) return "scan: unknown element type";
  return checkCounts(spec, 1, 1);
}

Problem checkJoin(const KernelSpec& spec) {
  std::int64_t total = 0, ignored = 0;
  std::size_t sources = 0;
  for (const JoinPiece& piece : spec.pieces) {
    if (piece.length <= 0 || __builtin_add_overflow(total, piece.length, &total))
      return "join: a piece has a length that is not positive, or too many elements";
    sources += piece.filled ? 0 : 1;
  }
  if (spec.pieces.empty()) return "join: no pieces";
  if (!product({spec.outer, total, spec.inner}, &ignored))
    return "join: outer and inner must be positive, and not too many elements";
  if (elementBytes(spec.input) == 0) return "join: unknown element type";
  return checkCounts(spec, sources, 1);
}

Problem checkGather(const KernelSpec& spec) {
  std::int64_t ignored = 0;
  if (!product({spec.outer, spec.length, spec.inner}, &ignored) ||
      !product({spec.outer, spec.count, spec.inner}, &ignored))
    return "gather: outer, length, inner and count must be positive, and not too many elements";
  if (elementBytes(spec.input) == 0) return "gather: unknown element type";
  return checkCounts(spec, 2, 1);
}

Problem checkScatterAdd(const KernelSpec& spec) {
  std::int64_t ignored = 0;
  if (!product({spec.outer, spec.length, spec.inner}, &ignored) ||
      !product({spec.outer, spec.count, spec.inner}, &ignored))
    return "scatterAdd: outer, length, inner and count must be positive, and not too many elements";
  if (elementBytes(spec.input) == 0 || elementBytes(spec.output) == 0)
    return "scatterAdd: unknown element type";
  if (spec.count > INT32_MAX) return "scatterAdd: i32 cannot hold the place of a row";
  return checkCounts(spec, 3, 1);
}

Problem checkAppend(const KernelSpec& spec) {
  std::int64_t ignored = 0;
  if (!product({spec.outer, spec.length, spec.inner}, &ignored) ||
      !product({spec.outer, spec.count, spec.inner}, &ignored))
    return "append: outer, length, inner and count must be positive, and not too many elements";
  if (elementBytes(spec.input) == 0) return "append: unknown element type";
  return checkCounts(spec, 3, 1);
}

Problem checkRandom(const KernelSpec& spec) {
  std::int64_t ignored = 0;
  if (!product({spec.count}, &ignored)) return "random: count must be positive, and not too many elements";
  if (spec.output == DType::u8 || elementBytes(spec.output) == 0)
    return "random: numbers are of f32, f16, bf16 or i32";
  return checkCounts(spec, 2, 1);
}

Problem checkCuda(const KernelSpec& spec) {
  if (spec.name.empty()) return "a user's kernel must have a name";
  for (int axis = 0; axis < 3; ++axis)
    if (spec.grid[axis] == 0 || spec.block[axis] == 0)
      return "kernel " + spec.name + ": grid and block sizes must be at least 1";
  return std::nullopt;
}

}  // namespace

std::optional<std::string> checkKernel(const KernelSpec& spec) {
  switch (spec.kind) {
    case KernelSpec::Kind::copy: return checkCopy(spec);
    case KernelSpec::Kind::map: return checkMap(spec);
    case KernelSpec::Kind::matmul: return checkMatmul(spec);
    case KernelSpec::Kind::attention: return checkAttention(spec);
    case KernelSpec::Kind::conv: return checkConv(spec);
    case KernelSpec::Kind::reduce: return checkReduce(spec);
    case KernelSpec::Kind::scan: return checkScan(spec);
    case KernelSpec::Kind::gather: return checkGather(spec);
    case KernelSpec::Kind::scatterAdd: return checkScatterAdd(spec);
    case KernelSpec::Kind::append: return checkAppend(spec);
    case KernelSpec::Kind::join: return checkJoin(spec);
    case KernelSpec::Kind::random: return checkRandom(spec);
    case KernelSpec::Kind::cuda: return checkCuda(spec);
  }
  return "unknown kind of kernel";
}

}  // namespace braid
