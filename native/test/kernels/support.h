#pragma once

#include <bit>
#include <cstring>
#include <vector>

#include "kernels/half.h"
#include "test/cuda/specs.h"
#include "test/host/support.h"

// Values of every element type in a device's memory.

namespace braid::test {

inline float widen(DeviceAddress memory, DType type, std::int64_t i) {
  switch (type) {
    case DType::u8: return reinterpret_cast<const std::uint8_t*>(memory)[i];
    case DType::i32: return static_cast<float>(reinterpret_cast<const std::int32_t*>(memory)[i]);
    case DType::f16: return floatFromF16(reinterpret_cast<const std::uint16_t*>(memory)[i]);
    case DType::bf16: return floatFromBf16(reinterpret_cast<const std::uint16_t*>(memory)[i]);
    case DType::f32: return reinterpret_cast<const float*>(memory)[i];
  }
  return 0;
}

inline std::vector<float> widened(DeviceAddress memory, DType type, std::int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) values[static_cast<std::size_t>(i)] = widen(memory, type, i);
  return values;
}

// The bits that a result of this type has for the value.
inline std::uint32_t narrow(float value, DType type) {
  switch (type) {
    case DType::u8: return u8FromFloat(value);
    case DType::i32: return static_cast<std::uint32_t>(i32FromFloat(value));
    case DType::f16: return f16FromFloat(value);
    case DType::bf16: return bf16FromFloat(value);
    case DType::f32: return std::bit_cast<std::uint32_t>(value);
  }
  return 0;
}

inline std::uint32_t bitsAt(DeviceAddress memory, DType type, std::int64_t i) {
  switch (elementBytes(type)) {
    case 1: return reinterpret_cast<const std::uint8_t*>(memory)[i];
    case 2: return reinterpret_cast<const std::uint16_t*>(memory)[i];
    default: return reinterpret_cast<const std::uint32_t*>(memory)[i];
  }
}

inline bool sameNumber(std::uint32_t a, std::uint32_t b, DType type) {
  if (a == b) return true;
  const auto nan = [type](std::uint32_t bits) {
    if (type == DType::f32) return (bits & 0x7fffffffu) > 0x7f800000u;
    if (type == DType::f16) return (bits & 0x7fffu) > 0x7c00u;
    return type == DType::bf16 && (bits & 0x7fffu) > 0x7f80u;
  };
  return nan(a) && nan(b);
}

inline DeviceAddress randomMemory(Driver& driver, DType type, std::int64_t count, Random& random) {
  const DeviceAddress memory = allocate(driver, static_cast<std::size_t>(count) * elementBytes(type));
  for (std::int64_t i = 0; i < count; ++i) {
    const float value = random.real() * 4;
    const auto bits = type == DType::u8 || type == DType::i32 ? static_cast<std::uint32_t>(random.below(200))
                                                              : narrow(value, type);
    std::memcpy(reinterpret_cast<void*>(memory + static_cast<std::uint64_t>(i) * elementBytes(type)), &bits,
                elementBytes(type));
  }
  return memory;
}

inline constexpr DType kTypes[] = {DType::u8, DType::i32, DType::f16, DType::bf16, DType::f32};

inline KernelSpec binary(MapOp op, std::int64_t count, DType type, bool whole) {
  KernelSpec spec;
  spec.kind = KernelSpec::Kind::map;
  spec.shape = {count};
  spec.computeInt = whole;
  spec.operands = {{type, 0, {1}}, {type, 0, {1}}};
  spec.code = {{MapOp::operand, 0}, {MapOp::operand, 1}, {op, 0, 1}};
  spec.results = {{2, type}};
  return spec;
}

inline KernelSpec product(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t batch, bool transposed,
                          DType type) {
  KernelSpec spec;
  spec.kind = KernelSpec::Kind::matmul;
  spec.m = m;
  spec.n = n;
  spec.k = k;
  spec.batch = batch;
  spec.transposeB = transposed;
  spec.a = {type, m * k};
  spec.b = {type, k * n};
  spec.c = {type, m * n};
  return spec;
}

}  // namespace braid::test
