#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace braid {

// The 16-bit floats and the narrowing conversions, exact: to nearest even, subnormals kept, NaN stays NaN.
// All are free of branches that matter, so that loops over them become vector code.

inline float floatFromBf16(std::uint16_t half) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(half) << 16);
}

inline std::uint16_t bf16FromFloat(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const std::uint32_t nan =
      (bits >> 16) | 0x40u;  // quiet, so that a payload in the low bits alone does not become infinity
  return static_cast<std::uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
}

inline float floatFromF16(std::uint16_t half) {
  const std::uint32_t magnitude = static_cast<std::uint32_t>(half & 0x7fffu) << 13;
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000u) << 16;
  // 2^112 moves the exponent from bias 15 to bias 127, and makes subnormals normal; the product is exact.
  const std::uint32_t scaled = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) * 0x1p112f);
  const std::uint32_t special = magnitude | 0x7f800000u;
  return std::bit_cast<float>(((half & 0x7c00u) == 0x7c00u ? special : scaled) | sign);
}

inline std::uint16_t f16FromFloat(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  // Below 2^-14 the result is subnormal: adding 0.5 rounds at 2^-24, which is its last bit.
  const std::uint32_t subnormal =
      std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
  const std::uint32_t normal = (magnitude + 0xfffu + ((magnitude >> 13) & 1u) - 0x38000000u) >> 13;
  std::uint32_t result = magnitude < 0x38800000u ? subnormal : normal;
  result = magnitude >= 0x477ff000u ? 0x7c00u : result;  // 65520 and more round to infinity
  result = magnitude > 0x7f800000u ? (0x7e00u | ((magnitude >> 13) & 0x1ffu)) : result;
  return static_cast<std::uint16_t>(result | sign);
}

// Toward zero, saturating; NaN becomes 0.
inline std::int32_t i32FromFloat(float value) {
  if (!(value > -2147483648.0f)) return value != value ? 0 : std::numeric_limits<std::int32_t>::min();
  if (value >= 2147483648.0f) return std::numeric_limits<std::int32_t>::max();
  return static_cast<std::int32_t>(value);
}

inline std::uint8_t u8FromFloat(float value) {
  const float above = value > 0.0f ? value : 0.0f;
  const float clamped = above < 255.0f ? above : 255.0f;
  return static_cast<std::uint8_t>(static_cast<std::int32_t>(clamped));
}

inline std::uint8_t u8FromI32(std::int32_t value) {
  return static_cast<std::uint8_t>(value < 0 ? 0 : value > 255 ? 255 : value);
}

}  // namespace braid
