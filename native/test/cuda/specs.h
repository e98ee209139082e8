#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "driver/kernel_spec.h"
#include "kernels/half.h"
#include "kernels/map_rows.h"
#include "test/host/support.h"

namespace braid::test {

// Makes some operands of a map elements of rows of a table. The indices are further operands.
inline void indexSome(Random& random, KernelSpec* spec, bool backwards = false) {
  const std::size_t operands = spec->operands.size();
  for (std::size_t o = 0; o < operands; ++o) {
    if (random.below(3) != 0) continue;
    static constexpr std::int64_t kSteps[] = {8, 64, 200, 3, 1, 0};
    const auto length = 1 + static_cast<std::int64_t>(random.below(6));
    std::int64_t step = kSteps[random.below(6)];
    MapOperand by{DType::i32, static_cast<std::int64_t>(random.below(3)), {}};
    by.strides.assign(spec->shape.size(), 0);
    // 0, 1: an index a row; 2: an index an element; 3: some dimensions have several
    const std::uint64_t kind = random.below(4);
    std::int64_t stride = 1;
    for (std::size_t d = spec->shape.size(); d-- > 0;) {
      if (kind == 3 ? random.below(2) == 0 : kind < 2 && d + 1 == spec->shape.size()) continue;
      by.strides[d] = stride;
      stride *= spec->shape[d];
      if (random.below(4) != 0) spec->operands[o].strides[d] = 0;
    }
    if (backwards && random.below(2) == 0) {
      spec->operands[o].offset += step * (length - 1);
      step = -step;
    }
    spec->operands[o].indexed = MapIndex{spec->operands.size(), length, step};
    spec->operands.push_back(by);
  }
  spec->readCount = spec->operands.size();
}

// Random maps of every storage type and walk (dense, broadcast, transposed, sliced), of instructions that
// IEEE 754 rounds exactly, so that any two devices must agree bit for bit.
inline KernelSpec randomMap(Random& random) {
  KernelSpec spec;
  spec.kind = KernelSpec::Kind::map;
  spec.computeInt = random.below(4) == 0;
  static constexpr std::int64_t kSizes[] = {1, 2, 3, 8, 16, 24, 33, 64};
  const std::size_t rank = random.below(4);
  for (std::size_t d = 0; d < rank; ++d) spec.shape.push_back(kSizes[random.below(8)]);
  const std::size_t operands = 1 + random.below(3);
  for (std::size_t o = 0; o < operands; ++o) {
    MapOperand operand{
        static_cast<DType>(random.below(5)), static_cast<std::int64_t>(random.below(3)) * 4, {}};
    operand.strides.assign(rank, 0);
    const std::uint64_t walk =
        random.below(5);  // 0, 1: dense; 2: some dimensions broadcast; 3: transposed; 4: every other element
    std::int64_t stride = walk == 4 ? 2 : 1;
    for (std::size_t i = 0; i < rank; ++i) {
      const std::size_t d = walk == 3 ? i : rank - 1 - i;
      if (walk == 2 && random.below(2) == 0) continue;
      operand.strides[d] = stride;
      stride *= spec.shape[d];
    }
    spec.operands.push_back(operand);
    spec.code.push_back({MapOp::operand, static_cast<std::int32_t>(o), 0, 0, 0});
  }
  static constexpr double kConstants[] = {0, 1, -1, 0.5, 2, 3.25, -100, 1e9, 1e-9};
  spec.code.push_back({MapOp::constant, 0, 0, 0, kConstants[random.below(9)]});
  static constexpr MapOp kExact[] = {MapOp::neg,      MapOp::abs,   MapOp::sqrt,   MapOp::floor, MapOp::ceil,
                                     MapOp::round,    MapOp::add,   MapOp::sub,    MapOp::mul,   MapOp::div,
                                     MapOp::min,      MapOp::max,   MapOp::lt,     MapOp::le,    MapOp::eq,
                                     MapOp::select,   MapOp::toF16, MapOp::toBf16, MapOp::toI32, MapOp::toU8,
                                     MapOp::floorDiv, MapOp::mod};
  for (std::uint64_t more = 1 + random.below(8); more > 0; --more) {
    const auto earlier = [&] { return static_cast<std::int32_t>(random.below(spec.code.size())); };
    const MapOp op = kExact[random.below(22)];
    const std::int32_t a = earlier(), b = earlier(), c = earlier();
    spec.code.push_back({op, a, b, c, 0});
  }
  const std::size_t results = 1 + random.below(2);
  for (std::size_t r = 0; r < results; ++r) {
    spec.results.push_back(
        {static_cast<std::int32_t>(spec.code.size() - 1 - r), static_cast<DType>(random.below(5))});
  }
  indexSome(random, &spec);
  spec.writeCount = results;
  return spec;
}

// Arithmetic of bf16 or f16 that is rounded after each step, as a fused chain is. A GPU does two elements at
// a time.
inline KernelSpec roundedMap(Random& random) {
  KernelSpec spec;
  spec.kind = KernelSpec::Kind::map;
  spec.shape = {1 + static_cast<std::int64_t>(random.below(5)), 64};
  const bool bf16 = random.below(2) == 0;
  const DType type = bf16 ? DType::bf16 : DType::f16;
  const std::vector<std::vector<std::int64_t>> strides = {{64, 1}, {0, 1}, {1, 0}, {0, 0}};
  for (const auto& own : strides) {
    spec.code.push_back({MapOp::operand, static_cast<std::int32_t>(spec.operands.size()), 0, 0, 0});
    spec.operands.push_back({random.below(8) == 0 ? DType::f32 : type, 0, own});
  }
  static constexpr double kConstants[] = {0, 1.5, -2, 0.1};  // the last is of neither type
  spec.code.push_back({MapOp::constant, 0, 0, 0, kConstants[random.below(4)]});
  static constexpr MapOp kOps[] = {MapOp::add, MapOp::sub, MapOp::mul, MapOp::max, MapOp::min, MapOp::neg};
  for (std::uint64_t left = 3 + random.below(12); left > 0; --left) {
    const auto earlier = [&] { return static_cast<std::int32_t>(random.below(spec.code.size())); };
    const MapOp op = kOps[random.below(6)];
    const std::int32_t a = earlier(), b = earlier();
    spec.code.push_back({op, a, b, 0, 0});
    if (random.below(8) == 0) continue;
    const auto last = static_cast<std::int32_t>(spec.code.size() - 1);
    spec.code.push_back({bf16 ? MapOp::toBf16 : MapOp::toF16, last, 0, 0, 0});
  }
  const auto last = static_cast<std::int32_t>(spec.code.size() - 1);
  spec.results = {{last, type}, {last - 1, static_cast<DType>(random.below(5))}};
  spec.readCount = spec.operands.size();
  spec.writeCount = spec.results.size();
  return spec;
}

// Random maps with rows: reductions of what is computed, of which more is computed, and operands that are the
// same along the row, for all rows, or for both. Of whole numbers from -8 to 8 (`wholeBytes`) every order of
// additions gives the same sums.
inline KernelSpec randomRows(Random& random) {
  KernelSpec spec;
  spec.kind = KernelSpec::Kind::map;
  spec.computeInt = random.below(4) == 0;
  static constexpr std::int64_t kLengths[] = {1,   2,   5,    8,    16,   33,   100,
                                              128, 515, 1000, 1024, 2048, 2050, 9000};
  static constexpr std::int64_t kSizes[] = {1, 2, 3, 7};
  for (std::uint64_t d = random.below(3); d > 0; --d) spec.shape.push_back(kSizes[random.below(4)]);
  spec.shape.push_back(kLengths[random.below(14)]);
  const std::int64_t length = spec.shape.back();
  if (random.below(2) == 0) {
    spec.axis = static_cast<std::int32_t>(spec.shape.size() - 1);
    static constexpr std::int64_t kBeside[] = {2, 5, 8, 16, 40, 300};
    spec.shape.push_back(kBeside[random.below(length > 2000 ? 3 : 6)]);
    if (random.below(3) == 0) spec.shape.push_back(kSizes[random.below(4)]);
  }
  const std::size_t rank = spec.shape.size(), axis = rowAxis(spec);
  std::vector<double> most;  // by value: its magnitude; infinite where it may be no whole number
  const std::size_t operands = 1 + random.below(3);
  for (std::size_t o = 0; o < operands; ++o) {
    MapOperand operand{
        static_cast<DType>(random.below(5)), static_cast<std::int64_t>(random.below(3)) * 4, {}};
    operand.strides.assign(rank, 0);
    // 0, 1: dense; 2: one for each row; 3: the same for all rows; 4: every other element
    const std::uint64_t walk = random.below(5);
    std::int64_t stride = walk == 4 ? 2 : 1;
    for (std::size_t d = rank; d-- > 0;) {
      if ((walk == 2 && d == axis) || (walk == 3 && d != axis)) continue;
      operand.strides[d] = stride;
      stride *= spec.shape[d];
    }
    spec.operands.push_back(operand);
    spec.code.push_back({MapOp::operand, static_cast<std::int32_t>(o), 0, 0, 0});
    most.push_back(8);
  }
  const double infinite = INFINITY;
  spec.code.push_back({MapOp::constant, 0, 0, 0, 3});
  most.push_back(3);
  spec.code.push_back({MapOp::index, static_cast<std::int32_t>(random.below(rank)), 0, 0, 0});
  most.push_back(9000);
  static constexpr MapOp kOps[] = {MapOp::rowSum, MapOp::rowSum, MapOp::rowMax, MapOp::rowMin, MapOp::rowMean,
                                   MapOp::add,    MapOp::sub,    MapOp::mul,    MapOp::min,    MapOp::max,
                                   MapOp::lt,     MapOp::select, MapOp::neg,    MapOp::toBf16, MapOp::div};
  for (std::uint64_t left = 4 + random.below(10); left > 0; --left) {
    const auto earlier = [&] { return static_cast<std::int32_t>(random.below(spec.code.size())); };
    MapOp op = kOps[random.below(15)];
    const std::int32_t a = earlier(), b = earlier(), c = earlier();
    const auto of = [&](std::int32_t value) { return most[static_cast<std::size_t>(value)]; };
    const bool sums = op == MapOp::rowSum || op == MapOp::rowMean;
    // What is rounded where the order of additions differs is left to the largest element.
    if (sums && !spec.computeInt && !(of(a) * static_cast<double>(length) < 1 << 24)) op = MapOp::rowMax;
    spec.code.push_back({op, a, b, c, 0});
    const double larger = std::max(of(a), of(b));
    double bound = of(a);
    if (op == MapOp::rowSum) bound = of(a) * static_cast<double>(length);
    if (op == MapOp::add || op == MapOp::sub) bound = of(a) + of(b);
    if (op == MapOp::mul) bound = of(a) * of(b);
    if (op == MapOp::min || op == MapOp::max) bound = larger;
    if (op == MapOp::select) bound = std::max(of(b), of(c));
    if (op == MapOp::lt) bound = 1;
    if (op == MapOp::rowMean || op == MapOp::div || op == MapOp::toBf16) bound = infinite;
    most.push_back(bound);
  }
  // A sum at the least, then what is made of it.
  const auto last = static_cast<std::int32_t>(spec.code.size() - 1);
  spec.code.push_back({MapOp::rowMax, last, 0, 0, 0});
  spec.code.push_back({MapOp::sub, last, last + 1, 0, 0});
  spec.results.push_back({last + 2, static_cast<DType>(random.below(5))});
  if (random.below(2) == 0) spec.results.push_back({last + 1, static_cast<DType>(random.below(5)), true});
  if (random.below(3) == 0) spec.results.push_back({last, static_cast<DType>(random.below(5))});
  indexSome(random, &spec);
  spec.writeCount = spec.results.size();
  return spec;
}

inline std::int64_t elementsOf(const std::vector<std::int64_t>& shape) {
  std::int64_t count = 1;
  for (std::int64_t size : shape) count *= size;
  return count;
}

inline std::size_t resultBytes(const KernelSpec& spec, const MapResult& result) {
  const std::int64_t count = elementsOf(spec.shape) / (result.row ? spec.shape[rowAxis(spec)] : 1);
  return static_cast<std::size_t>(count) * elementBytes(result.dtype);
}

inline std::size_t operandBytes(const KernelSpec& spec, std::size_t operand) {
  const MapOperand& own = spec.operands[operand];
  return static_cast<std::size_t>(lastElement(spec, own) + 1) * elementBytes(own.dtype);
}

// Where point i of a map reads an operand; -1 where its index is outside of the table.
inline std::int64_t placeOf(const KernelSpec& spec, std::size_t operand, std::int64_t i,
                            const std::vector<DeviceAddress>& reads) {
  const MapOperand& own = spec.operands[operand];
  std::int64_t at = own.offset, rest = i;
  for (std::size_t d = spec.shape.size(); d-- > 0; rest /= spec.shape[d])
    at += rest % spec.shape[d] * own.strides[d];
  if (!own.indexed) return at;
  const auto* indices = reinterpret_cast<const std::int32_t*>(reads[own.indexed->by]);
  const std::int64_t index = indices[placeOf(spec, own.indexed->by, i, reads)];
  return index < 0 || index >= own.indexed->length ? -1 : at + index * own.indexed->step;
}

// Values of a type: small numbers, and one in eight from the corners (zeros of both signs, infinities, NaN,
// the extremes).
inline std::vector<std::uint8_t> randomBytes(Random& random, DType type, std::size_t bytes,
                                             bool corners = true) {
  std::vector<std::uint8_t> memory(bytes);
  static constexpr float kCorners[] = {0.0f,   -0.0f, INFINITY, -INFINITY, NAN,      3.4e38f,
                                       1e-40f, 0.5f,  2.5f,     -1.5f,     65520.0f, 255.5f};
  static constexpr std::int32_t kWhole[] = {0, -1, INT32_MIN, INT32_MAX, 255, 256};
  for (std::size_t at = 0; at < bytes; at += elementBytes(type)) {
    const bool corner = corners && random.below(8) == 0;
    const float value = corner ? kCorners[random.below(12)] : random.real() * 4;
    const std::int32_t whole =
        corner ? kWhole[random.below(6)] : static_cast<std::int32_t>(random.below(2000)) - 1000;
    const std::uint16_t half = type == DType::f16 ? f16FromFloat(value) : bf16FromFloat(value);
    const std::uint8_t byte = static_cast<std::uint8_t>(random.next());
    const void* from = type == DType::f32   ? static_cast<const void*>(&value)
                       : type == DType::i32 ? static_cast<const void*>(&whole)
                       : type == DType::u8  ? static_cast<const void*>(&byte)
                                            : static_cast<const void*>(&half);
    std::memcpy(&memory[at], from, elementBytes(type));
  }
  return memory;
}

// Whole numbers from -8 to 8; of u8 from 0 to 8.
inline std::vector<std::uint8_t> wholeBytes(Random& random, DType type, std::size_t bytes) {
  std::vector<std::uint8_t> memory(bytes);
  for (std::size_t at = 0; at < bytes; at += elementBytes(type)) {
    const std::int32_t whole = static_cast<std::int32_t>(random.below(17)) - 8;
    const auto value = static_cast<float>(whole);
    const std::uint16_t half = type == DType::f16 ? f16FromFloat(value) : bf16FromFloat(value);
    const auto byte = static_cast<std::uint8_t>(whole < 0 ? -whole : whole);
    const void* from = type == DType::f32   ? static_cast<const void*>(&value)
                       : type == DType::i32 ? static_cast<const void*>(&whole)
                       : type == DType::u8  ? static_cast<const void*>(&byte)
                                            : static_cast<const void*>(&half);
    std::memcpy(&memory[at], from, elementBytes(type));
  }
  return memory;
}

// What an operand of a map has. Of indices most are inside of the table, or next to it.
template <class Fill>
std::vector<std::uint8_t> operandOf(Random& random, const KernelSpec& spec, std::size_t operand, Fill fill) {
  std::vector<std::uint8_t> memory = fill(random, spec.operands[operand].dtype, operandBytes(spec, operand));
  for (const MapOperand& each : spec.operands) {
    if (!each.indexed || each.indexed->by != operand) continue;
    for (std::size_t at = 0; at < memory.size(); at += 4) {
      if (random.below(16) == 0) continue;
      const auto index =
          static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(each.indexed->length) + 2)) - 1;
      std::memcpy(&memory[at], &index, 4);
    }
  }
  return memory;
}

inline double elementOf(const std::vector<std::uint8_t>& memory, DType type, std::size_t index) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &memory[index * elementBytes(type)], elementBytes(type));
  switch (type) {
    case DType::u8: return bits;
    case DType::i32: return static_cast<std::int32_t>(bits);
    case DType::f16: return floatFromF16(static_cast<std::uint16_t>(bits));
    case DType::bf16: return floatFromBf16(static_cast<std::uint16_t>(bits));
    case DType::f32: return std::bit_cast<float>(bits);
  }
  return 0;
}

// Equal bit for bit, but for NaN, of which there are many. The index of the first difference, or -1.
inline std::ptrdiff_t firstDifference(const std::vector<std::uint8_t>& a, const std::vector<std::uint8_t>& b,
                                      DType type) {
  const std::size_t bytes = elementBytes(type);
  for (std::size_t at = 0; at < a.size(); at += bytes) {
    if (std::memcmp(&a[at], &b[at], bytes) == 0) continue;
    if (std::isnan(elementOf(a, type, at / bytes)) && std::isnan(elementOf(b, type, at / bytes))) continue;
    return static_cast<std::ptrdiff_t>(at / bytes);
  }
  return -1;
}

}  // namespace braid::test
