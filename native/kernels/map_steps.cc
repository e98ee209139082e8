#include "kernels/map_steps.h"

#include <cmath>

#include "kernels/cpu.h"

namespace braid::steps {
namespace {

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }
// JavaScript has NaN where C has 1: a base of 1 or -1 with an exponent that is no finite number.
double power(double a, double b) {
  return std::isnan(b) || (std::fabs(a) == 1.0 && std::isinf(b)) ? std::nan("") : std::pow(a, b);
}

// What remains of a division, exact, and with the sign of the divisor.
float mod(float a, float b) {
  const float rest = std::fmod(a, b);
  return rest != 0.0f && (rest < 0.0f) != (b < 0.0f) ? rest + b : rest;
}
// The quotient of what divides evenly is a whole number but for its rounding.
float floorDiv(float a, float b) {
  if (b == 0.0f) return a / b;
  const float rest = std::fmod(a, b);
  float quotient = (a - rest) / b;
  if (rest != 0.0f && (rest < 0.0f) != (b < 0.0f)) quotient -= 1.0f;
  if (quotient == 0.0f) return std::copysign(0.0f, a / b);
  const float down = std::floor(quotient);
  return quotient - down > 0.5f ? down + 1.0f : down;
}
// Divided by 0 whole numbers are 0; -2^31 divided by -1 wraps.
std::int32_t mod(std::int32_t a, std::int32_t b) {
  if (b == 0 || b == -1) return 0;
  const std::int32_t rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}
std::int32_t floorDiv(std::int32_t a, std::int32_t b) {
  if (b == 0) return 0;
  if (b == -1) return element::wrap(0u - static_cast<std::uint32_t>(a));
  return a / b - static_cast<std::int32_t>(a % b != 0 && (a < 0) != (b < 0));
}

template <class Operation, class T>
inline __attribute__((always_inline)) void each1(T* __restrict to, const T* a, std::int64_t count,
                                                 Operation operation) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = operation(a[i]);
}
template <class Operation, class T>
inline __attribute__((always_inline)) void each2(T* __restrict to, const T* a, const T* b, std::int64_t count,
                                                 Operation operation) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = operation(a[i], b[i]);
}

inline __attribute__((always_inline)) void stepFloat(MapOp op, float* to, const float* a, const float* b,
                                                     const float* c, std::int64_t count) {
  switch (op) {
    case MapOp::operand:
    case MapOp::constant:
    case MapOp::index:
    case MapOp::rowSum:
    case MapOp::rowMean:
    case MapOp::rowMax:
    case MapOp::rowMin: return;
    case MapOp::select:
      for (std::int64_t i = 0; i < count; ++i) to[i] = a[i] != 0.0f ? b[i] : c[i];
      return;
    case MapOp::neg: return each1(to, a, count, [](float x) { return -x; });
    case MapOp::abs: return each1(to, a, count, [](float x) { return std::fabs(x); });
    case MapOp::exp:
      return each1(to, a, count,
                   [](float x) { return static_cast<float>(std::exp(static_cast<double>(x))); });
    case MapOp::log:
      return each1(to, a, count,
                   [](float x) { return static_cast<float>(std::log(static_cast<double>(x))); });
    case MapOp::sqrt: return each1(to, a, count, [](float x) { return std::sqrt(x); });
    case MapOp::rsqrt:
      return each1(to, a, count,
                   [](float x) { return static_cast<float>(1.0 / std::sqrt(static_cast<double>(x))); });
    case MapOp::tanh:
      return each1(to, a, count,
                   [](float x) { return static_cast<float>(std::tanh(static_cast<double>(x))); });
    case MapOp::erf:
      return each1(to, a, count,
                   [](float x) { return static_cast<float>(std::erf(static_cast<double>(x))); });
    case MapOp::sigmoid: return each1(to, a, count, [](float x) { return static_cast<float>(sigmoid(x)); });
    case MapOp::sin:
      return each1(to, a, count,
                   [](float x) { return static_cast<float>(std::sin(static_cast<double>(x))); });
    case MapOp::cos:
      return each1(to, a, count,
                   [](float x) { return static_cast<float>(std::cos(static_cast<double>(x))); });
    case MapOp::floor: return each1(to, a, count, [](float x) { return std::floor(x); });
    case MapOp::ceil: return each1(to, a, count, [](float x) { return std::ceil(x); });
    case MapOp::round: return each1(to, a, count, [](float x) { return std::nearbyint(x); });
    case MapOp::toF16: return each1(to, a, count, [](float x) { return floatFromF16(f16FromFloat(x)); });
    case MapOp::toBf16: return each1(to, a, count, [](float x) { return floatFromBf16(bf16FromFloat(x)); });
    case MapOp::toI32:
      return each1(to, a, count, [](float x) { return static_cast<float>(i32FromFloat(x)); });
    case MapOp::toU8: return each1(to, a, count, [](float x) { return static_cast<float>(u8FromFloat(x)); });
    case MapOp::add: return each2(to, a, b, count, [](float x, float y) { return x + y; });
    case MapOp::sub: return each2(to, a, b, count, [](float x, float y) { return x - y; });
    case MapOp::mul: return each2(to, a, b, count, [](float x, float y) { return x * y; });
    case MapOp::div: return each2(to, a, b, count, [](float x, float y) { return x / y; });
    case MapOp::min: return each2(to, a, b, count, [](float x, float y) { return element::min(x, y); });
    case MapOp::max: return each2(to, a, b, count, [](float x, float y) { return element::max(x, y); });
    case MapOp::pow:
      return each2(to, a, b, count, [](float x, float y) { return static_cast<float>(power(x, y)); });
    case MapOp::floorDiv: return each2(to, a, b, count, [](float x, float y) { return floorDiv(x, y); });
    case MapOp::mod: return each2(to, a, b, count, [](float x, float y) { return mod(x, y); });
    case MapOp::lt: return each2(to, a, b, count, [](float x, float y) { return x < y ? 1.0f : 0.0f; });
    case MapOp::le: return each2(to, a, b, count, [](float x, float y) { return x <= y ? 1.0f : 0.0f; });
    case MapOp::eq: return each2(to, a, b, count, [](float x, float y) { return x == y ? 1.0f : 0.0f; });
  }
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) void stepFloatAvx2(MapOp op, float* to, const float* a, const float* b,
                                                   const float* c, std::int64_t count) {
  stepFloat(op, to, a, b, c, count);
}
#endif
void stepFloatPlain(MapOp op, float* to, const float* a, const float* b, const float* c, std::int64_t count) {
  stepFloat(op, to, a, b, c, count);
}

}  // namespace

void run(MapOp op, float* to, const float* a, const float* b, const float* c, std::int64_t count) {
#if defined(__x86_64__)
  if (cpuHasAvx2()) return stepFloatAvx2(op, to, a, b, c, count);
#endif
  stepFloatPlain(op, to, a, b, c, count);
}

// Whole numbers wrap, as `| 0` has it; functions go through double precision and back by ToInt32.
void run(MapOp op, std::int32_t* to, const std::int32_t* a, const std::int32_t* b, const std::int32_t* c,
         std::int64_t count) {
  using I = std::int32_t;
  using U = std::uint32_t;
  const auto through = [&](double (*function)(double)) {
    for (std::int64_t i = 0; i < count; ++i) to[i] = element::toInt32(function(a[i]));
  };
  switch (op) {
    case MapOp::operand:
    case MapOp::constant:
    case MapOp::index:
    case MapOp::rowSum:
    case MapOp::rowMean:
    case MapOp::rowMax:
    case MapOp::rowMin: return;
    case MapOp::select:
      for (std::int64_t i = 0; i < count; ++i) to[i] = a[i] != 0 ? b[i] : c[i];
      return;
    case MapOp::neg: return each1(to, a, count, [](I x) { return element::wrap(0u - static_cast<U>(x)); });
    case MapOp::abs:
      return each1(to, a, count, [](I x) { return x < 0 ? element::wrap(0u - static_cast<U>(x)) : x; });
    case MapOp::exp: return through([](double x) { return std::exp(x); });
    case MapOp::log: return through([](double x) { return std::log(x); });
    case MapOp::sqrt: return through([](double x) { return std::sqrt(x); });
    case MapOp::rsqrt: return through([](double x) { return 1.0 / std::sqrt(x); });
    case MapOp::tanh: return through([](double x) { return std::tanh(x); });
    case MapOp::erf: return through([](double x) { return std::erf(x); });
    case MapOp::sigmoid: return through([](double x) { return sigmoid(x); });
    case MapOp::sin: return through([](double x) { return std::sin(x); });
    case MapOp::cos: return through([](double x) { return std::cos(x); });
    case MapOp::floor:
    case MapOp::ceil:
    case MapOp::round:
    case MapOp::toI32: return each1(to, a, count, [](I x) { return x; });
    case MapOp::toF16:
      return each1(to, a, count,
                   [](I x) { return i32FromFloat(floatFromF16(f16FromFloat(static_cast<float>(x)))); });
    case MapOp::toBf16:
      return each1(to, a, count,
                   [](I x) { return i32FromFloat(floatFromBf16(bf16FromFloat(static_cast<float>(x)))); });
    case MapOp::toU8: return each1(to, a, count, [](I x) -> I { return u8FromI32(x); });
    case MapOp::add:
      return each2(to, a, b, count,
                   [](I x, I y) { return element::wrap(static_cast<U>(x) + static_cast<U>(y)); });
    case MapOp::sub:
      return each2(to, a, b, count,
                   [](I x, I y) { return element::wrap(static_cast<U>(x) - static_cast<U>(y)); });
    case MapOp::mul:
      return each2(to, a, b, count,
                   [](I x, I y) { return element::wrap(static_cast<U>(x) * static_cast<U>(y)); });
    case MapOp::div:
      return each2(to, a, b, count, [](I x, I y) {
        return y == 0 ? 0 : y == -1 ? element::wrap(0u - static_cast<U>(x)) : x / y;
      });
    case MapOp::min: return each2(to, a, b, count, [](I x, I y) { return x < y ? x : y; });
    case MapOp::max: return each2(to, a, b, count, [](I x, I y) { return x > y ? x : y; });
    case MapOp::pow: return each2(to, a, b, count, [](I x, I y) { return element::toInt32(power(x, y)); });
    case MapOp::floorDiv: return each2(to, a, b, count, [](I x, I y) { return floorDiv(x, y); });
    case MapOp::mod: return each2(to, a, b, count, [](I x, I y) { return mod(x, y); });
    case MapOp::lt: return each2(to, a, b, count, [](I x, I y) -> I { return x < y; });
    case MapOp::le: return each2(to, a, b, count, [](I x, I y) -> I { return x <= y; });
    case MapOp::eq: return each2(to, a, b, count, [](I x, I y) -> I { return x == y; });
  }
}

}  // namespace braid::steps
