#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "driver/driver.h"
#include "kernels/half.h"

// The arithmetic of one element, as JavaScript's Math and Math.fround have it: a plan on the host device then
// yields bit for bit what `interpret` yields. Compiled with -ffp-contract=off, as a fused multiply-add would
// round once where JavaScript rounds twice. Functions beyond the four operations and the root go through
// double precision, as JavaScript's do.
namespace braid::element {

inline float add(float a, float b) { return a + b; }
inline double add(double a, double b) { return a + b; }
inline std::int32_t wrap(std::uint32_t bits) { return static_cast<std::int32_t>(bits); }
inline std::int32_t add(std::int32_t a, std::int32_t b) {
  return wrap(static_cast<std::uint32_t>(a) + static_cast<std::uint32_t>(b));
}

// NaN wins, and -0 is less than +0; equal numbers differ at most in the sign of zero.
inline float max(float a, float b) {
  const std::uint32_t x = std::bit_cast<std::uint32_t>(a), y = std::bit_cast<std::uint32_t>(b);
  const float larger = a > b ? a : a == b ? std::bit_cast<float>(x & y) : b;
  return a != a ? a : larger;
}
inline float min(float a, float b) {
  const std::uint32_t x = std::bit_cast<std::uint32_t>(a), y = std::bit_cast<std::uint32_t>(b);
  const float smaller = a < b ? a : a == b ? std::bit_cast<float>(x | y) : b;
  return a != a ? a : smaller;
}
inline std::int32_t max(std::int32_t a, std::int32_t b) { return a > b ? a : b; }
inline std::int32_t min(std::int32_t a, std::int32_t b) { return a < b ? a : b; }

inline double mean(double total, std::int64_t length) { return total / static_cast<double>(length); }
inline std::int32_t mean(std::int32_t total, std::int64_t length) {
  return static_cast<std::int32_t>(static_cast<std::int64_t>(total) / length);
}

// JavaScript's ToInt32: modulo 2^32.
inline std::int32_t toInt32(double value) {
  if (!std::isfinite(value)) return 0;
  return wrap(
      static_cast<std::uint32_t>(static_cast<std::int64_t>(std::fmod(std::trunc(value), 4294967296.0))));
}

inline void narrow(float value, float* to) { *to = value; }
inline void narrow(float value, std::int32_t* to) { *to = i32FromFloat(value); }
inline void narrow(float value, std::uint8_t* to) { *to = u8FromFloat(value); }
inline void narrow(std::int32_t value, float* to) { *to = static_cast<float>(value); }
inline void narrow(std::int32_t value, std::int32_t* to) { *to = value; }
inline void narrow(std::int32_t value, std::uint8_t* to) { *to = u8FromI32(value); }

template <class From, class To, class Convert>
void convertEach(const From* from, const std::int64_t* places, To* __restrict to, std::int64_t count,
                 Convert convertOne) {
  for (std::int64_t i = 0; i < count; ++i)
    if (places[i] < 0)
      to[i] = To{};
    else
      convertOne(from[places[i]], to + i);
}

template <class From, class To, class Convert>
void convert(const From* from, std::int64_t stride, To* __restrict to, std::int64_t count,
             Convert convertOne) {
  if (stride == 1)
    for (std::int64_t i = 0; i < count; ++i) convertOne(from[i], to + i);
  else
    for (std::int64_t i = 0; i < count; ++i) convertOne(from[i * stride], to + i);
}

// Calls `read` with elements in memory and with what widens one to the type of the computation (float or
// i32).
template <class To, class Read>
void widening(DeviceAddress base, DType type, Read read) {
  const auto plain = [](auto value, To* target) { narrow(value, target); };
  switch (type) {
    case DType::u8:
      return read(reinterpret_cast<const std::uint8_t*>(base),
                  [](std::uint8_t value, To* target) { *target = static_cast<To>(value); });
    case DType::i32: return read(reinterpret_cast<const std::int32_t*>(base), plain);
    case DType::f32: return read(reinterpret_cast<const float*>(base), plain);
    case DType::f16:
      return read(reinterpret_cast<const std::uint16_t*>(base),
                  [](std::uint16_t value, To* target) { narrow(floatFromF16(value), target); });
    case DType::bf16:
      return read(reinterpret_cast<const std::uint16_t*>(base),
                  [](std::uint16_t value, To* target) { narrow(floatFromBf16(value), target); });
  }
}

// Reads `count` elements, widened. The address is aligned to the element.
template <class To>
void load(To* to, DeviceAddress base, DType type, std::int64_t start, std::int64_t count,
          std::int64_t stride = 1) {
  widening<To>(base, type, [&](const auto* from, auto convertOne) {
    convert(from + start, stride, to, count, convertOne);
  });
}

// The same of elements at these places; 0 where a place is below 0.
template <class To>
void loadEach(To* to, DeviceAddress base, DType type, const std::int64_t* places, std::int64_t count) {
  widening<To>(base, type,
               [&](const auto* from, auto convertOne) { convertEach(from, places, to, count, convertOne); });
}

// Writes `count` adjacent elements, narrowed as kernel-spec.ts specifies.
template <class From>
void store(DeviceAddress base, DType type, std::int64_t start, const From* from, std::int64_t count) {
  const auto plain = [](From value, auto* target) { narrow(value, target); };
  switch (type) {
    case DType::u8: return convert(from, 1, reinterpret_cast<std::uint8_t*>(base) + start, count, plain);
    case DType::i32: return convert(from, 1, reinterpret_cast<std::int32_t*>(base) + start, count, plain);
    case DType::f32: return convert(from, 1, reinterpret_cast<float*>(base) + start, count, plain);
    case DType::f16:
      return convert(
          from, 1, reinterpret_cast<std::uint16_t*>(base) + start, count,
          [](From value, std::uint16_t* target) { *target = f16FromFloat(static_cast<float>(value)); });
    case DType::bf16:
      return convert(
          from, 1, reinterpret_cast<std::uint16_t*>(base) + start, count,
          [](From value, std::uint16_t* target) { *target = bf16FromFloat(static_cast<float>(value)); });
  }
}

}  // namespace braid::element
