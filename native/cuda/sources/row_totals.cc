#include "cuda/sources/row_totals.h"

#include <algorithm>
#include <cctype>

namespace braid::cuda {

std::string RowTotals::started(const std::vector<std::size_t>& reductions) const {
  std::string text;
  for (std::size_t j : reductions)
    text += "  " + std::string(type()) + " t" + number(static_cast<std::int64_t>(j)) + " = " +
            neutralText(spec_.code[j].op, spec_.computeInt) + ";\n";
  return text;
}

std::string RowTotals::combined(std::size_t j, const std::string& of) const {
  const std::string total = "t" + number(static_cast<std::int64_t>(j));
  if (!two_) return total + " = " + combine(j, total, of) + ";\n";
  return "{ const Pair<float> e = " + of + "; " + total + " = " + combine(j, total, "e.x") + "; " + total +
         " = " + combine(j, total, "e.y") + "; }\n";
}

std::string RowTotals::joined(const std::vector<std::size_t>& reductions) const {
  std::string text;
  const auto shuffles = [&](std::size_t j, std::int64_t lanes) {
    const std::string total = "t" + number(static_cast<std::int64_t>(j));
    std::string steps;
    for (std::int64_t step = lanes / 2; step > 0; step /= 2)
      steps += "  " + total + " = " +
               combine(j, total, "__shfl_xor_sync(0xffffffffu, " + total + ", " + number(step) + ")") + ";\n";
    return steps;
  };
  for (std::size_t j : reductions) text += shuffles(j, std::min<std::int64_t>(32, own_.group));
  if (own_.group > 32 && !reductions.empty()) {
    const std::string warps = number(own_.group / 32);
    for (std::size_t j : reductions) {
      const std::string name = number(static_cast<std::int64_t>(j));
      text += "  __shared__ " + std::string(type()) + " s" + name + "[" + warps +
              "];\n  if (lane % 32 == 0) s" + name + "[lane / 32] = t" + name + ";\n";
    }
    text += "  __syncthreads();\n";
    for (std::size_t j : reductions) {
      const std::string name = number(static_cast<std::int64_t>(j));
      text += "  t" + name + " = s" + name + "[lane % " + warps + "];\n" + shuffles(j, own_.group / 32);
    }
  }
  for (std::size_t j : reductions)
    text += "  const " + std::string(type()) + " v" + number(static_cast<std::int64_t>(j)) + " = " +
            finished(j) + ";\n";
  return text;
}

std::string RowTotals::combine(std::size_t j, const std::string& a, const std::string& b) const {
  const std::string pattern = combineText(spec_.code[j].op, spec_.computeInt);
  std::string text;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const bool alone = (i == 0 || !std::isalnum(static_cast<unsigned char>(pattern[i - 1]))) &&
                       (i + 1 == pattern.size() || !std::isalnum(static_cast<unsigned char>(pattern[i + 1])));
    text += alone && pattern[i] == 'a' ? a : alone && pattern[i] == 'b' ? b : std::string(1, pattern[i]);
  }
  return text;
}

std::string RowTotals::finished(std::size_t j) const {
  const std::string total = "t" + number(static_cast<std::int64_t>(j));
  if (spec_.code[j].op != MapOp::rowMean) return total;
  const std::string length = number(rows_.length);
  if (spec_.computeInt) return "(int)(" + total + " / " + length + "LL)";
  // The quotient of two floats is rounded once; a length that is none is divided by in double.
  return rows_.length <= (1 << 24) ? total + " / " + length + ".0f"
                                   : "(float)((double)" + total + " / " + length + ".0)";
}

}  // namespace braid::cuda
