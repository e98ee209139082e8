#pragma once

#include <cmath>
#include <cstring>
#include <vector>

#include "driver/kernel_spec.h"
#include "kernels/half.h"
#include "test/host/support.h"

namespace braid::test {

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
  static constexpr MapOp kExact[] = {MapOp::neg,    MapOp::abs,   MapOp::sqrt,   MapOp::floor, MapOp::ceil,
                                     MapOp::round,  MapOp::add,   MapOp::sub,    MapOp::mul,   MapOp::div,
                                     MapOp::min,    MapOp::max,   MapOp::lt,     MapOp::le,    MapOp::eq,
                                     MapOp::select, MapOp::toF16, MapOp::toBf16, MapOp::toI32, MapOp::toU8};
  for (std::uint64_t more = 1 + random.below(8); more > 0; --more) {
    const auto earlier = [&] { return static_cast<std::int32_t>(random.below(spec.code.size())); };
    const MapOp op = kExact[random.below(20)];
    const std::int32_t a = earlier(), b = earlier(), c = earlier();
    spec.code.push_back({op, a, b, c, 0});
  }
  const std::size_t results = 1 + random.below(2);
  for (std::size_t r = 0; r < results; ++r) {
    spec.results.push_back(
        {static_cast<std::int32_t>(spec.code.size() - 1 - r), static_cast<DType>(random.below(5))});
  }
  spec.readCount = operands;
  spec.writeCount = results;
  return spec;
}

inline std::int64_t elementsOf(const std::vector<std::int64_t>& shape) {
  std::int64_t count = 1;
  for (std::int64_t size : shape) count *= size;
  return count;
}

inline std::size_t operandBytes(const KernelSpec& spec, std::size_t operand) {
  std::int64_t reach = spec.operands[operand].offset;
  for (std::size_t d = 0; d < spec.shape.size(); ++d)
    reach += spec.operands[operand].strides[d] * (spec.shape[d] - 1);
  return static_cast<std::size_t>(reach + 1) * elementBytes(spec.operands[operand].dtype);
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
