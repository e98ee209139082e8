#include "cuda/sources/row_operands.h"

#include <algorithm>

#include "cuda/sources/source.h"

namespace braid::cuda {

std::string RowOperands::parameters() const {
  std::string text;
  // What is the same for all rows is written by none, so it may be read at any time.
  for (std::size_t o = 0; o < spec_.operands.size(); ++o)
    text += "const " + typeOf(o) + "* " + (isBroadcast(o) ? "__restrict__ " : "") + "p" + number(o) + ", ";
  for (std::size_t r = 0; r < spec_.results.size(); ++r)
    text += std::string(cudaTypeName(spec_.results[r].dtype)) + "* q" + number(r) + ", ";
  return text;
}

std::string RowOperands::starts() const {
  std::string text;
  const auto& shape = plan_.outer.shape;
  for (std::size_t d = shape.size(); d-- > 0;) {
    const std::string rest = d + 1 == shape.size() ? "row" : "r" + number(d + 1);
    const auto used = [&](std::size_t o) { return plan_.outer.strides[o][d] != 0; };
    bool any = false;
    for (std::size_t o = 0; o < spec_.operands.size(); ++o) any = any || used(o);
    if (any)
      text += "  const Index x" + number(d) + " = " + rest + (d == 0 ? "" : " % " + number(shape[d])) + ";\n";
    if (d > 0) text += "  const Index r" + number(d) + " = " + rest + " / " + number(shape[d]) + ";\n";
  }
  for (const bool indexed : {false, true})
    for (std::size_t o = 0; o < spec_.operands.size(); ++o)
      if (spec_.operands[o].indexed.has_value() == indexed) text += startOf(o);
  for (std::size_t r = 0; r < spec_.results.size(); ++r)
    if (!spec_.results[r].row)
      text += "  " + std::string(cudaTypeName(spec_.results[r].dtype)) + "* const b" + number(r) + " = q" +
              number(r) + " + row * " + number(rows_.length) + ";\n";
  return text;
}

std::string RowOperands::startOf(std::size_t o) const {
  std::string text;
  const std::string name = number(o);
  const auto& index = spec_.operands[o].indexed;
  if (isRowIndexed(o))
    text += "  const int n" + name + " = *a" + number(index->by) + ";\n  const bool w" + name + " = " +
            insideText(*index, "n" + name) + ";\n";
  text += "  const " + typeOf(o) + "* " + (isBroadcast(o) ? "__restrict__ " : "") + "const a" + name +
          " = p" + name;
  for (std::size_t d = 0; d < plan_.outer.shape.size(); ++d)
    if (plan_.outer.strides[o][d] != 0)
      text += " + x" + number(d) + " * " + number(plan_.outer.strides[o][d]);
  if (isRowIndexed(o)) text += " + (w" + name + " ? " + stepText(*index, "n" + name) + " : 0)";
  return text + ";\n";
}

std::string RowOperands::rowElement(std::int32_t operand) const {
  const auto o = static_cast<std::size_t>(operand);
  return guarded(o, "*a" + number(operand), typeOf(o));
}

std::string RowOperands::load(const std::string& to, std::int32_t operand) const {
  const auto o = static_cast<std::size_t>(operand);
  const std::string from = "a" + number(operand);
  if (own_.width > 1) {
    const std::string type = "Pack<" + typeOf(o) + ", " + number(own_.width) + ">";
    // A row that is longer than the registers leaves the cache to what all rows read, as a scale.
    const bool isLong = own_.shared > 0 || (own_.held > 0 && own_.held < own_.packs);
    const std::string read = isLong && !isBroadcast(o) ? "passing" : "*";
    return to + " = " + guarded(o, read + "((const " + type + "*)(" + from + " + " + at() + "))", type) +
           ";\n";
  }
  const auto& index = spec_.operands[o].indexed;
  if (!index || isRowIndexed(o))
    return to + ".v[0] = " + guarded(o, from + "[" + along(o) + "]", typeOf(o)) + ";\n";
  return "{ const int i = a" + number(index->by) + "[" + along(index->by) + "]; " + to +
         ".v[0] = " + insideText(*index, "i") + " ? " + from + "[" + along(o) + " + " +
         stepText(*index, "i") + "] : " + typeOf(o) + "{}; }\n";
}

// How far from its start on an element of the row lies in an operand.
std::string RowOperands::along(std::size_t o) const {
  const std::int64_t stride = spec_.operands[o].strides.back();
  return stride == 1 ? at() : "(Index)(" + at() + ") * " + number(stride);
}

std::string RowOperands::at() const {
  return "((Index)k * " + number(own_.group) + " + lane) * " + number(own_.width);
}

// Whether an operand has one index for the row: then `w` says whether that is inside of the table.
bool RowOperands::isRowIndexed(std::size_t o) const {
  const auto& index = spec_.operands[o].indexed;
  return index && isRowOperand(spec_, index->by);
}

// What is read where the operand's index for the row is inside of its table, else zeros.
std::string RowOperands::guarded(std::size_t o, const std::string& read, const std::string& type) const {
  return isRowIndexed(o) ? "w" + number(o) + " ? " + read + " : " + type + "{}" : read;
}

// Whether an operand is the same in all rows.
bool RowOperands::isBroadcast(std::size_t o) const {
  const auto& strides = plan_.outer.strides[o];
  return plan_.rows.rows > 1 &&
         std::all_of(strides.begin(), strides.end(), [](std::int64_t stride) { return stride == 0; });
}

std::string RowOperands::typeOf(std::size_t o) const { return cudaTypeName(spec_.operands[o].dtype); }

std::string RowOperands::packOfOperand(std::size_t o) const {
  return "Pack<" + typeOf(o) + ", " + number(own_.width) + ">";
}

std::string RowOperands::packOfResult(std::size_t r) const {
  return "Pack<" + std::string(cudaTypeName(spec_.results[r].dtype)) + ", " + number(own_.width) + ">";
}

}  // namespace braid::cuda
