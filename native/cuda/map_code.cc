#include "cuda/map_code.h"

#include <cmath>
#include <cstdio>
#include <cstring>

namespace braid::cuda {
namespace {

std::string floatLiteral(double constant) {
  const float value = static_cast<float>(constant);
  char text[64];
  if (std::isfinite(value)) {
    std::snprintf(text, sizeof(text), value < 0 || std::signbit(value) ? "(%af)" : "%af",
                  static_cast<double>(value));
  } else {
    std::uint32_t bits;
    std::memcpy(&bits, &value, sizeof(bits));
    std::snprintf(text, sizeof(text), "__uint_as_float(0x%xu)", bits);
  }
  return text;
}

// JavaScript's `constant | 0`.
std::string intLiteral(double constant) {
  std::int64_t value = 0;
  if (std::isfinite(constant))
    value = static_cast<std::int64_t>(std::fmod(std::trunc(constant), 4294967296.0));
  return "(int)" + number(static_cast<std::uint32_t>(value)) + "u";
}

// The CUDA C++ of an instruction, with $a, $b and $c for its arguments. Null where this type has no such
// instruction.
const char* floatPattern(MapOp op) {
  switch (op) {
    case MapOp::operand:
    case MapOp::constant:
    case MapOp::index:
    case MapOp::rowSum:
    case MapOp::rowMean:
    case MapOp::rowMax:
    case MapOp::rowMin: return nullptr;
    case MapOp::select: return "$a != 0.0f ? $b : $c";
    case MapOp::neg: return "-$a";
    case MapOp::abs: return "fabsf($a)";
    case MapOp::exp: return "expf($a)";
    case MapOp::log: return "logf($a)";
    case MapOp::sqrt: return "sqrtf($a)";
    case MapOp::rsqrt: return "1.0f / sqrtf($a)";
    case MapOp::tanh: return "tanhf($a)";
    case MapOp::erf: return "erff($a)";
    case MapOp::sigmoid: return "1.0f / (1.0f + expf(-$a))";
    case MapOp::sin: return "sinf($a)";
    case MapOp::cos: return "cosf($a)";
    case MapOp::floor: return "floorf($a)";
    case MapOp::ceil: return "ceilf($a)";
    case MapOp::round: return "rintf($a)";
    case MapOp::toF16: return "asF16($a)";
    case MapOp::toBf16: return "asBf16($a)";
    case MapOp::toI32: return "asI32($a)";
    case MapOp::toU8: return "asU8($a)";
    case MapOp::add: return "$a + $b";
    case MapOp::sub: return "$a - $b";
    case MapOp::mul: return "$a * $b";
    case MapOp::div: return "$a / $b";
    case MapOp::min: return "minF($a, $b)";
    case MapOp::max: return "maxF($a, $b)";
    case MapOp::pow: return "powF($a, $b)";
    case MapOp::lt: return "$a < $b ? 1.0f : 0.0f";
    case MapOp::le: return "$a <= $b ? 1.0f : 0.0f";
    case MapOp::eq: return "$a == $b ? 1.0f : 0.0f";
  }
  return nullptr;
}

const char* intPattern(MapOp op) {
  switch (op) {
    case MapOp::select: return "$a != 0 ? $b : $c";
    case MapOp::neg: return "subI(0, $a)";
    case MapOp::abs: return "absI($a)";
    case MapOp::exp: return "wrap(exp((double)$a))";
    case MapOp::log: return "wrap(log((double)$a))";
    case MapOp::sqrt: return "wrap(sqrt((double)$a))";
    case MapOp::rsqrt: return "wrap(1.0 / sqrt((double)$a))";
    case MapOp::tanh: return "wrap(tanh((double)$a))";
    case MapOp::erf: return "wrap(erf((double)$a))";
    case MapOp::sigmoid: return "wrap(1.0 / (1.0 + exp(-(double)$a)))";
    case MapOp::sin: return "wrap(sin((double)$a))";
    case MapOp::cos: return "wrap(cos((double)$a))";
    case MapOp::floor:
    case MapOp::ceil:
    case MapOp::round:
    case MapOp::toI32: return "$a";
    case MapOp::toF16: return "truncate(asF16((float)$a))";
    case MapOp::toBf16: return "truncate(asBf16((float)$a))";
    case MapOp::toU8: return "asU8($a)";
    case MapOp::div: return "divI($a, $b)";
    case MapOp::pow: return "wrap(powD((double)$a, (double)$b))";
    case MapOp::add: return "addI($a, $b)";
    case MapOp::sub: return "subI($a, $b)";
    case MapOp::mul: return "mulI($a, $b)";
    case MapOp::min: return "minI($a, $b)";
    case MapOp::max: return "maxI($a, $b)";
    case MapOp::lt: return "(int)($a < $b)";
    case MapOp::le: return "(int)($a <= $b)";
    case MapOp::eq: return "(int)($a == $b)";
    case MapOp::operand:
    case MapOp::constant:
    case MapOp::index:
    case MapOp::rowSum:
    case MapOp::rowMean:
    case MapOp::rowMax:
    case MapOp::rowMin: return nullptr;
  }
  return nullptr;
}

}  // namespace

std::string mapExpression(const KernelSpec& spec, std::size_t j,
                          const std::function<std::string(std::int32_t)>& name) {
  const MapInstruction& instruction = spec.code[j];
  if (instruction.op == MapOp::constant)
    return spec.computeInt ? intLiteral(instruction.constant) : floatLiteral(instruction.constant);
  std::string text;
  const char* at = spec.computeInt ? intPattern(instruction.op) : floatPattern(instruction.op);
  for (; *at; ++at) {
    if (*at != '$') {
      text += *at;
    } else {
      ++at;
      text += name(*at == 'a' ? instruction.a : *at == 'b' ? instruction.b : instruction.c);
    }
  }
  return text;
}

}  // namespace braid::cuda
