#include "cuda/sources/map_code.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <utility>

#include "cuda/sources/source.h"
#include "kernels/half.h"
#include "kernels/map_rows.h"

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
    case MapOp::floorDiv: return "floorDivF($a, $b)";
    case MapOp::mod: return "modF($a, $b)";
    case MapOp::lt: return "isLess($a, $b)";
    case MapOp::le: return "isAtMost($a, $b)";
    case MapOp::eq: return "isEqual($a, $b)";
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
    case MapOp::floorDiv: return "floorDivI($a, $b)";
    case MapOp::mod: return "modI($a, $b)";
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

// Where the value is rounded to bf16 at once: the processor's own approximations, whose error is a hundredth
// to an eighth of a step of bf16. That of an exponential is a hundredth of a step of f16.
const char* roundedPattern(MapOp op) {
  switch (op) {
    case MapOp::tanh: return "tanhNear($a)";
    case MapOp::sigmoid: return "sigmoidNear($a)";
    default: return nullptr;
  }
}

// What adds, subtracts, multiplies and compares two pairs of a narrow type: the result is what f32 yields,
// rounded, since f32 has more than twice the digits.
const char* pairFunction(MapOp op) {
  switch (op) {
    case MapOp::add: return "sumOf";
    case MapOp::sub: return "differenceOf";
    case MapOp::mul: return "productOf";
    case MapOp::max: return "mostOf";
    case MapOp::min: return "leastOf";
    default: return nullptr;
  }
}

bool isNarrow(DType type) { return type == DType::bf16 || type == DType::f16; }
DType roundsTo(MapOp op) {
  return op == MapOp::toBf16 ? DType::bf16 : op == MapOp::toF16 ? DType::f16 : DType::f32;
}

std::string filled(const char* pattern, const std::function<std::string(char)>& argument) {
  std::string text;
  for (const char* at = pattern; *at; ++at) text += *at == '$' ? argument(*++at) : std::string(1, *at);
  return text;
}

std::int32_t argumentOf(const MapInstruction& instruction, char which) {
  return which == 'a' ? instruction.a : which == 'b' ? instruction.b : instruction.c;
}

std::uint16_t narrowBits(float value, DType type) {
  return type == DType::bf16 ? bf16FromFloat(value) : f16FromFloat(value);
}
float fromNarrow(std::uint16_t bits, DType type) {
  return type == DType::bf16 ? floatFromBf16(bits) : floatFromF16(bits);
}

}  // namespace

// Negative indices are large as unsigned numbers.
std::string insideText(const MapIndex& index, const std::string& name) {
  return "(unsigned)" + name + " <= " + number(std::min<std::int64_t>(index.length - 1, INT32_MAX)) + "u";
}
std::string stepText(const MapIndex& index, const std::string& name) {
  return "(Index)" + name + " * " + number(index.step);
}

MapCode::MapCode(const KernelSpec& spec, std::vector<bool> isRow) : spec_(spec), isRow_(std::move(isRow)) {
  const std::size_t count = spec.code.size();
  isRow_.resize(count);
  held_.assign(count, DType::f32);
  // A value that nothing reads is not computed either.
  rounded_.assign(count, true);
  for (const MapInstruction& instruction : spec.code)
    if (instruction.op != MapOp::toBf16)
      forArguments(instruction, [&](std::size_t argument) { rounded_[argument] = false; });
  for (const MapResult& result : spec.results)
    if (result.dtype != DType::bf16) rounded_[static_cast<std::size_t>(result.value)] = false;
  if (spec.computeInt) return;
  // Products and quotients keep a relative error, and so do sums of exponentials, which are positive.
  coarse_.assign(count, true);
  for (const MapResult& result : spec.results)
    if (!isNarrow(result.dtype)) coarse_[static_cast<std::size_t>(result.value)] = false;
  for (std::size_t j = count; j-- > 0;) {
    const MapOp op = spec.code[j].op;
    forArguments(spec.code[j], [&](std::size_t argument) {
      const bool sums = op == MapOp::rowSum || op == MapOp::rowMean;
      const bool keeps =
          op == MapOp::mul || op == MapOp::div || (sums && spec.code[argument].op == MapOp::exp);
      if (!isNarrow(roundsTo(op)) && !(keeps && coarse_[j])) coarse_[argument] = false;
    });
  }
  for (const DType type : {DType::bf16, DType::f16}) {
    std::vector<bool>& exact = exact_[type == DType::f16];
    exact.resize(count);
    for (std::size_t j = 0; j < count; ++j) exact[j] = isExactly(j, type);
  }
  for (std::size_t j = 0; j < count; ++j) {
    const MapInstruction& instruction = spec.code[j];
    if (isRow_[j] || instruction.op == MapOp::constant) continue;
    if (instruction.op == MapOp::operand) {
      const DType type = spec.operands[static_cast<std::size_t>(instruction.a)].dtype;
      if (isNarrow(type)) held_[j] = type;
    } else if (isNarrow(roundsTo(instruction.op))) {
      held_[j] = roundsTo(instruction.op);
    } else if (instruction.op == MapOp::max || instruction.op == MapOp::min) {
      for (const DType type : {DType::bf16, DType::f16})
        if (takesBoth(j, type)) held_[j] = type;
    }
    pairs_ = pairs_ || held_[j] != DType::f32;
  }
  for (const MapResult& result : spec.results) pairs_ = pairs_ || (!result.row && isNarrow(result.dtype));
}

// One number a row, or a constant, that is a value of this type.
bool MapCode::isExactly(std::size_t j, DType type) const {
  const MapInstruction& instruction = spec_.code[j];
  if (instruction.op == MapOp::constant) {
    const auto value = static_cast<float>(instruction.constant);
    return std::isfinite(value) && fromNarrow(narrowBits(value, type), type) == value;
  }
  if (!isRow_[j]) return false;
  if (instruction.op == MapOp::operand)
    return spec_.operands[static_cast<std::size_t>(instruction.a)].dtype == type;
  return roundsTo(instruction.op) == type;
}

// Whether both arguments can be had as pairs of this type, and not both as numbers that are the same in each
// pair.
bool MapCode::takesBoth(std::size_t j, DType type) const {
  bool held = false, all = true;
  forArguments(spec_.code[j], [&](std::size_t argument) {
    held = held || held_[argument] == type;
    all = all && (held_[argument] == type || exact_[type == DType::f16][argument]);
  });
  return held && all;
}

bool MapCode::isBelowOne(std::size_t j) const {
  if (spec_.computeInt || spec_.code[j].op != MapOp::exp) return false;
  const MapInstruction& below = spec_.code[static_cast<std::size_t>(spec_.code[j].a)];
  if (below.op != MapOp::sub) return false;
  const MapInstruction& most = spec_.code[static_cast<std::size_t>(below.b)];
  return most.op == MapOp::rowMax && most.a == below.a;
}

const char* MapCode::patternOf(std::size_t j) const {
  const MapOp op = spec_.code[j].op;
  if (spec_.computeInt) return intPattern(op);
  if (op == MapOp::exp && coarse_[j]) return isBelowOne(j) ? "expBelowOne($a)" : "expNear($a)";
  const char* near = rounded_[j] ? roundedPattern(op) : nullptr;
  return near ? near : floatPattern(op);
}

std::string MapCode::element(std::size_t j, const Name& name) const {
  const MapInstruction& instruction = spec_.code[j];
  if (instruction.op == MapOp::constant)
    return spec_.computeInt ? intLiteral(instruction.constant) : floatLiteral(instruction.constant);
  return filled(patternOf(j), [&](char which) { return name(argumentOf(instruction, which)); });
}

std::string MapCode::pairType(std::size_t j) const {
  return "Pair<" + std::string(cudaTypeName(held_[j])) + ">";
}

// An argument as a pair of a narrow type.
std::string MapCode::argument(std::int32_t of, DType as, const Name& name) const {
  const MapInstruction& instruction = spec_.code[static_cast<std::size_t>(of)];
  const std::string type = "<" + std::string(cudaTypeName(as)) + ">";
  if (instruction.op == MapOp::constant) {
    const std::uint32_t bits = narrowBits(static_cast<float>(instruction.constant), as);
    return "Pair" + type + "{" + number(bits * 0x10001u) + "u}";
  }
  return isRow_[static_cast<std::size_t>(of)] ? "both" + type + "(" + name(of) + ")" : name(of);
}

std::string MapCode::pair(std::size_t j, const Name& name) const {
  const MapInstruction& instruction = spec_.code[j];
  const auto called = [&](const char* function, std::size_t of, DType type) {
    return std::string(function) + "(" + argument(spec_.code[of].a, type, name) + ", " +
           argument(spec_.code[of].b, type, name) + ")";
  };
  if (const DType type = roundsTo(instruction.op); isNarrow(type)) {
    const auto of = static_cast<std::size_t>(instruction.a);
    if (held_[of] == type) return name(instruction.a);
    const char* function = pairFunction(spec_.code[of].op);
    if (function && !isRow_[of] && takesBoth(of, type)) return called(function, of, type);
    return "rounded<" + std::string(cudaTypeName(type)) + ">(" + name(instruction.a) + ")";
  }
  if (held_[j] != DType::f32) return called(pairFunction(instruction.op), j, held_[j]);
  const auto argumentText = [](char which) { return std::string(1, which); };
  static constexpr const char* kParameters[] = {"", "float a", "float a, float b",
                                                "float a, float b, float c"};
  const int arity = arityOf(instruction.op);
  std::string text = "each([](" + std::string(kParameters[arity]) + ") { return " +
                     filled(patternOf(j), argumentText) + "; }";
  for (int i = 0; i < arity; ++i) text += ", " + name(argumentOf(instruction, "abc"[i]));
  return text + ")";
}

std::string neutralText(MapOp reduction, bool whole) {
  if (reduction == MapOp::rowMax) return whole ? "(-2147483647 - 1)" : "__uint_as_float(0xff800000u)";
  if (reduction == MapOp::rowMin) return whole ? "2147483647" : "__uint_as_float(0x7f800000u)";
  return whole ? "0" : "0.0f";
}

std::string combineText(MapOp reduction, bool whole) {
  if (reduction == MapOp::rowMax) return whole ? "maxI(a, b)" : "maxF(a, b)";
  if (reduction == MapOp::rowMin) return whole ? "minI(a, b)" : "minF(a, b)";
  return whole ? "addI(a, b)" : "a + b";
}

}  // namespace braid::cuda
