#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace braid {

// Mirrors dsl/ir/kernel-spec.ts field by field; each field is documented there.
enum class DType : std::uint8_t { u8, i32, f16, bf16, f32 };

inline std::size_t elementBytes(DType type) {
  switch (type) {
    case DType::u8: return 1;
    case DType::f16:
    case DType::bf16: return 2;
    case DType::i32:
    case DType::f32: return 4;
  }
  return 0;
}

enum class MapOp : std::uint8_t {
  operand,
  constant,
  index,
  select,
  neg,
  abs,
  exp,
  log,
  sqrt,
  rsqrt,
  tanh,
  erf,
  sigmoid,
  sin,
  cos,
  floor,
  ceil,
  round,
  toF16,
  toBf16,
  toI32,
  toU8,
  add,
  sub,
  mul,
  div,
  min,
  max,
  pow,
  floorDiv,
  mod,
  lt,
  le,
  eq,
  rowSum,
  rowMean,
  rowMax,
  rowMin,
};

inline bool isRowReduction(MapOp op) { return op >= MapOp::rowSum; }

// How many earlier values an instruction names.
inline int arityOf(MapOp op) {
  if (op <= MapOp::index) return 0;
  if (op == MapOp::select) return 3;
  return op >= MapOp::add && op <= MapOp::eq ? 2 : 1;
}

struct MapInstruction {
  MapOp op = MapOp::constant;
  // operand: a is its number; index: a is the dimension; others: earlier values
  std::int32_t a = 0, b = 0, c = 0;
  double constant = 0;
};

struct MapIndex {
  std::size_t by = 0;  // an operand of i32 that is not indexed
  std::int64_t length = 1, step = 0;
};
struct MapOperand {
  DType dtype = DType::f32;
  std::int64_t offset = 0;
  std::vector<std::int64_t> strides;
  std::optional<MapIndex> indexed{};
};
struct MapResult {
  std::int32_t value = 0;
  DType dtype = DType::f32;
  bool row = false;
};

enum class ReduceHow : std::uint8_t { sum, mean, max, min, argmax, argmin };

struct MatmulOperand {
  DType dtype = DType::f32;
  std::int64_t batchStride = 0;
  // From a row, as it lies in memory, to the next; 0: rows of `columns` elements follow one another.
  std::int64_t rowStride = 0;
  std::int64_t offset = 0;
  std::int64_t row(std::int64_t columns) const { return rowStride == 0 ? columns : rowStride; }
  // One beyond the last element of `batch` matrices of rows × columns as they lie in memory.
  std::int64_t end(std::int64_t batch, std::int64_t rows, std::int64_t columns) const {
    return offset + (batch - 1) * batchStride + (rows - 1) * row(columns) + columns;
  }
};

enum class Activation : std::uint8_t { none, relu, gelu };

// c is activation(scale · product + bias) + residual. Gelu is its form by tanh.
inline constexpr std::uint32_t kAuxiliaryAlignment = 16;  // bytes
struct MatmulEpilogue {
  double scale = 1;
  bool bias = false, residual = false;  // further reads, in this order, of the type of c
  bool auxiliary = false;  // the second write, laid out as c, is what the activation is computed of
  Activation activation = Activation::none;
  std::size_t reads() const { return (bias ? 1u : 0u) + (residual ? 1u : 0u); }
  std::size_t writes() const { return auxiliary ? 2u : 1u; }
};

struct CudaScalar {
  bool isFloat = false;
  std::int32_t i32 = 0;
  float f32 = 0;
};

// Of a join: the next source, or a number.
struct JoinPiece {
  std::int64_t length = 0;
  bool filled = false;
  double fill = 0;
};

// The first element, and the strides over batch, heads and rows.
struct AttentionOperand {
  std::int64_t offset = 0;
  std::array<std::int64_t, 3> strides{};
  // One beyond the last element of rows of `row` elements.
  std::int64_t end(std::int64_t batch, std::int64_t heads, std::int64_t rows, std::int64_t row) const {
    return offset + strides[0] * (batch - 1) + strides[1] * (heads - 1) + strides[2] * (rows - 1) + row;
  }
};

// What a kernel of attention writes: the attended values; or, for the way back, the logarithm of each query's
// sum of exponentials, or the gradient of one operand.
enum class AttentionResult : std::uint8_t { attended, logSumExp, byQueries, byKeys, byValues };

struct AttentionSpec {
  std::int64_t heads = 1, groups = 1, queries = 1, keys = 1, size = 1, valueSize = 1;
  bool causal = false;
  double scale = 1;
  AttentionResult result = AttentionResult::attended;
  // Where the result is a gradient, that of the attended values (dy), and for each query the logarithm above
  // and the sum of dy · y, both dense and of f32, are the last reads.
  AttentionOperand q, k, v, y, dy;
  // A second write: the logarithms beside the attended values, or the gradient of the values beside that of
  // the keys.
  bool logs = false, withValues = false;
  AttentionOperand dv;
  bool masked = false, counted = false;  // a mask, and a length, follow the values
  DType maskType = DType::u8;
  std::array<std::int64_t, 4> maskStrides{};
  // Rows that are written into the keys and values first. Then these rows and their position are the last
  // reads, and the memory of the keys and of the values is written too.
  std::int64_t appended = 0;
  bool isGradient() const { return result >= AttentionResult::byQueries; }
  bool standsByKeys() const { return result >= AttentionResult::byKeys; }
  // The result is heads × rows × elements in each batch.
  std::int64_t resultHeads() const { return standsByKeys() ? groups : heads; }
  std::int64_t resultRows() const { return standsByKeys() ? keys : queries; }
  std::int64_t resultRow() const {
    switch (result) {
      case AttentionResult::logSumExp: return 1;
      case AttentionResult::byQueries:
      case AttentionResult::byKeys: return size;
      default: return valueSize;
    }
  }
  std::int64_t resultEnd(std::int64_t batch) const {
    return y.end(batch, resultHeads(), resultRows(), resultRow());
  }
  DType resultType(DType input) const { return result == AttentionResult::logSumExp ? DType::f32 : input; }
  std::size_t reads() const {
    return 3u + (masked ? 1u : 0u) + (counted ? 1u : 0u) + (appended > 0 || isGradient() ? 3u : 0u);
  }
  std::size_t writes() const { return appended > 0 ? 3 : logs || withValues ? 2 : 1; }
  std::int64_t maskEnd(std::int64_t batch) const {
    return maskStrides[0] * (batch - 1) + maskStrides[1] * (heads - 1) + maskStrides[2] * (queries - 1) +
           maskStrides[3] * (keys - 1) + 1;
  }
};

// One spatial dimension of a convolution.
struct ConvDim {
  std::int64_t input = 1, kernel = 1, stride = 1, dilation = 1, before = 0, after = 0;
  std::int64_t output() const { return (before + input + after - dilation * (kernel - 1) - 1) / stride + 1; }
};

struct ConvSpec {
  std::int64_t groups = 1, channels = 1, filters = 1;  // channels of x and of y in each group
  std::vector<ConvDim> spatial;
  bool channelsLast = false;  // the last dimension of x, w and y; else the second
  // Elements of a channel of x, of a channel of a filter, and of a channel of y.
  std::int64_t inputs() const {
    std::int64_t count = 1;
    for (const ConvDim& dim : spatial) count *= dim.input;
    return count;
  }
  std::int64_t taps() const {
    std::int64_t count = 1;
    for (const ConvDim& dim : spatial) count *= dim.kernel;
    return count;
  }
  std::int64_t outputs() const {
    std::int64_t count = 1;
    for (const ConvDim& dim : spatial) count *= dim.output();
    return count;
  }
};

struct KernelSpec {
  enum class Kind : std::uint8_t {
    copy,
    map,
    matmul,
    attention,
    conv,
    reduce,
    scan,
    gather,
    scatterAdd,
    append,
    join,
    random,
    cuda
  };
  Kind kind = Kind::copy;

  // copy. The bytes written; of several parts each is a read of its own, all of one size. (cuda: those of all
  // operands, which the host device's rate counts.) Direction: set by
  // the executor from the buffers' spaces before prepare; 0 hostToDevice, 1 deviceToHost, 2 deviceToDevice, 3
  // hostToHost.
  std::uint64_t bytes = 0;
  std::size_t parts = 1;
  int direction = 2;

  // map
  std::vector<std::int64_t> shape;
  std::int32_t axis = -1;  // the dimension along which rows lie; -1: the last one
  bool computeInt = false;
  std::vector<MapOperand> operands;
  std::vector<MapInstruction> code;
  std::vector<MapResult> results;

  // matmul, attention and conv: bytes of scratch that the last write offers to a library; 0: no such write
  std::uint64_t workspace = 0;

  // matmul
  std::int64_t m = 0, n = 0, k = 0, batch = 1;
  bool transposeA = false, transposeB = false;
  MatmulOperand a, b, c;
  MatmulEpilogue epilogue;
  // One beyond the last element of each.
  std::int64_t endOfA() const { return transposeA ? a.end(batch, k, m) : a.end(batch, m, k); }
  std::int64_t endOfB() const { return transposeB ? b.end(batch, n, k) : b.end(batch, k, n); }
  std::int64_t endOfC() const { return c.end(batch, m, n); }

  // attention, with batch as above and the element type `input`
  AttentionSpec attention;

  // conv, with batch as above and the element type `input`
  ConvSpec conv;

  // reduce and scan
  ReduceHow how = ReduceHow::sum;
  std::int64_t outer = 0, length = 0, inner = 0;
  DType input = DType::f32, output = DType::f32;

  // reduce: how many positions argmax and argmin write. gather, with outer, length and inner as above and the
  // element type `input`: how many indices, and whether each element has its own.
  // append and scatterAdd, likewise: how many rows. scatterAdd has the element types `input` and `output`.
  std::int64_t count = 1;
  bool along = false;

  // join, with outer and inner as above and the element type `input`
  std::vector<JoinPiece> pieces;

  // random, with count as above and the element type `output`
  std::uint64_t seed = 0;
  std::uint32_t stream = 0;

  // cuda
  std::string name, source;
  std::array<std::uint32_t, 3> grid{1, 1, 1}, block{1, 1, 1};
  std::uint32_t sharedBytes = 0;
  std::vector<CudaScalar> scalars;

  std::size_t readCount = 0, writeCount = 0;  // of the run that launches it; filled by the binding
  bool reachesPeers = false;                  // touches memory of other devices; set by the executor
};

}  // namespace braid
