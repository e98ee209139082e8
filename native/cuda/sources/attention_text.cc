#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iterator>

#include "cuda/sources/attention.h"
#include "cuda/sources/map_code.h"
#include "cuda/sources/prelude.h"

namespace braid::cuda {
namespace attention {
namespace {

// `false` leaves every shape to plain arithmetic.
constexpr bool kTensorCores = true;

// What all kernels begin with. `mask` and `length` are parameters where the spec has them.
constexpr const char* kCommon = R"cuda(
FN float infinity() { return __uint_as_float(0x7f800000u); }
// How many keys are there.
FN Index thereOf(const int* length) {
  if (!COUNTED) return KEYS;
  const Index given = *length;
  return given < 0 ? 0 : given > KEYS ? KEYS : given;
}
// How many of them a query may see by its place.
FN Index endOf(Index there, Index query) {
  if (!CAUSAL) return there;
  const Index end = there - QUERIES + query + 1;
  return end < 0 ? 0 : end > there ? there : end;
}
FN bool isSeen(const M* mask, Index batch, Index head, Index query, Index key) {
  return !MASKED || mask[batch * MASK0 + head * MASK1 + query * MASK2 + key * MASK3] != 0;
}
)cuda";

std::string hexFloat(double value) {
  char text[64];
  // Hexadecimal: nothing is rounded twice.
  std::snprintf(text, sizeof text, "%af", static_cast<double>(static_cast<float>(value)));
  return text;
}

std::string constants(const KernelSpec& spec) {
  const AttentionSpec& one = spec.attention;
  std::string text = isSmallAttention(spec) ? "typedef int Index;\n" : "typedef long long Index;\n";
  text += "typedef " + std::string(cudaTypeName(spec.input)) + " T;\n";
  text += "typedef " + std::string(cudaTypeName(one.masked ? one.maskType : DType::u8)) + " M;\n";
  text += "typedef " + std::string(cudaTypeName(one.resultType(spec.input))) + " R;\n";
  text += constant("Index", "BATCH", spec.batch) + constant("Index", "HEADS", one.heads) +
          constant("Index", "GROUPS", one.groups) + constant("Index", "QUERIES", one.queries) +
          constant("Index", "KEYS", one.keys);
  const bool small = std::max(one.size, one.valueSize) <= INT32_MAX;
  text += constant(small ? "int" : "Index", "SIZE", one.size) +
          constant(small ? "int" : "Index", "VALUE", one.valueSize);
  const auto strides = [&text](const char* name, const auto& values) {
    for (std::size_t d = 0; d < values.size(); ++d)
      text += constant("Index", (name + std::to_string(d)).c_str(), values[d]);
  };
  strides("Q", one.q.strides), strides("K", one.k.strides), strides("V", one.v.strides);
  strides("Y", one.y.strides), strides("DY", one.dy.strides), strides("DV", one.dv.strides),
      strides("MASK", one.maskStrides);
  text += constant("bool", "CAUSAL", one.causal) + constant("bool", "MASKED", one.masked) +
          constant("bool", "COUNTED", one.counted) + constant("bool", "LOGGED", one.logs) +
          constant("bool", "WITH_VALUES", one.withValues) + constant("bool", "NEGATIVE", one.scale < 0);
  text += "constexpr float SCALE = " + hexFloat(one.scale) + ";\n";
  text += "constexpr float EXPONENT = " + hexFloat(std::abs(one.scale) * 1.4426950408889634) + ";\n";
  if (!one.masked) text += "constexpr const M* mask = nullptr;\n";
  if (!one.counted) text += "constexpr const int* length = nullptr;\n";
  text += constant("Index", "APPENDED", one.appended);
  if (one.appended == 0)
    text +=
        "constexpr const T* newK = nullptr, *newV = nullptr;\nconstexpr const int* at = nullptr;\n"
        "constexpr T* ownK = nullptr, *ownV = nullptr;\n";
  if (!one.isGradient())
    text += "constexpr const T* dy = nullptr;\nconstexpr const float *logs = nullptr, *products = nullptr;\n";
  if (!one.logs) text += "constexpr float* ownLogs = nullptr;\n";
  if (!one.withValues) text += "constexpr T* dv = nullptr;\n";
  text += "#define PARAMETERS const T* q, const T* k, const T* v, ";
  text += one.masked ? "const M* mask, " : "";
  text += one.counted ? "const int* length, " : "";
  if (one.appended > 0)
    return text + "const T* newK, const T* newV, const int* at, T* y, T* ownK, T* ownV, Index count\n";
  if (one.isGradient()) text += "const T* dy, const float* logs, const float* products, ";
  return text + "R* y, " + (one.logs ? "float* ownLogs, " : "") + (one.withValues ? "T* dv, " : "") +
         "Index count\n";
}

}  // namespace
}  // namespace attention

std::string attentionText(const KernelSpec& spec) {
  return kPrelude + attention::constants(spec) + attention::kCommon;
}

bool isSmallAttention(const KernelSpec& spec) {
  const AttentionSpec& one = spec.attention;
  const std::int64_t ends[] = {one.q.end(spec.batch, one.heads, one.queries, one.size),
                               one.k.end(spec.batch, one.groups, one.keys, one.size),
                               one.v.end(spec.batch, one.groups, one.keys, one.valueSize),
                               one.dy.end(spec.batch, one.heads, one.queries, one.valueSize),
                               one.dv.end(spec.batch, one.groups, one.keys, one.valueSize),
                               one.resultEnd(spec.batch),
                               one.maskEnd(spec.batch),
                               spec.batch * one.heads * one.queries};
  // The position of rows that are appended is any number of 32 bits.
  return one.appended == 0 && *std::max_element(std::begin(ends), std::end(ends)) <= INT32_MAX / 2;
}

bool isWideAttention(const KernelSpec& spec) {
  const AttentionSpec& one = spec.attention;
  const auto unit = static_cast<std::int64_t>(16 / elementBytes(spec.input));
  const auto fits = [unit](const AttentionOperand& operand) {
    return std::all_of(operand.strides.begin(), operand.strides.end(),
                       [unit](std::int64_t stride) { return stride % unit == 0; });
  };
  return one.size % 8 == 0 && one.valueSize % 8 == 0 && fits(one.q) && fits(one.k) && fits(one.v) &&
         fits(one.dy) && fits(one.dv) && (one.result == AttentionResult::logSumExp || fits(one.y));
}

bool attentionFitsTensorCores(const KernelSpec& spec, int architecture) {
  const AttentionSpec& one = spec.attention;
  return attention::kTensorCores && architecture >= 80 && spec.input != DType::f32 && isWideAttention(spec) &&
         one.size % 16 == 0 && one.valueSize % 16 == 0 && one.size <= 128 && one.valueSize <= 128;
}

}  // namespace braid::cuda
