#include "kernels/map_rows.h"

#include <algorithm>

namespace braid {

std::size_t rowAxis(const KernelSpec& spec) {
  return spec.axis < 0 ? spec.shape.size() - 1 : static_cast<std::size_t>(spec.axis);
}

bool hasColumns(const KernelSpec& spec) { return rowAxis(spec) + 1 < spec.shape.size(); }

bool differsAlong(const KernelSpec& spec, std::size_t o, std::size_t d) {
  const MapOperand& operand = spec.operands[o];
  return operand.strides[d] != 0 || (operand.indexed && spec.operands[operand.indexed->by].strides[d] != 0);
}

std::int64_t lastElement(const KernelSpec& spec, const MapOperand& operand) {
  std::int64_t last = operand.offset;
  for (std::size_t d = 0; d < spec.shape.size(); ++d)
    last += std::max<std::int64_t>(0, operand.strides[d] * (spec.shape[d] - 1));
  if (operand.indexed)
    last += std::max<std::int64_t>(0, operand.indexed->step * (operand.indexed->length - 1));
  return last;
}

bool hasRows(const KernelSpec& spec) {
  return std::any_of(spec.code.begin(), spec.code.end(),
                     [](const MapInstruction& each) { return isRowReduction(each.op); }) ||
         std::any_of(spec.results.begin(), spec.results.end(),
                     [](const MapResult& result) { return result.row; });
}

bool isRowOperand(const KernelSpec& spec, std::size_t operand) {
  const std::size_t axis = rowAxis(spec);
  return spec.shape[axis] == 1 || !differsAlong(spec, operand, axis);
}

KernelSpec reductionAsMap(const KernelSpec& spec) {
  const MapOp op = spec.how == ReduceHow::max    ? MapOp::rowMax
                   : spec.how == ReduceHow::min  ? MapOp::rowMin
                   : spec.how == ReduceHow::mean ? MapOp::rowMean
                                                 : MapOp::rowSum;
  KernelSpec rows;
  rows.kind = KernelSpec::Kind::map;
  rows.shape = {spec.outer, spec.length};
  rows.computeInt = spec.input == DType::i32 || spec.input == DType::u8;
  rows.operands = {{spec.input, 0, {spec.length * spec.inner, spec.inner}}};
  if (spec.inner > 1) {
    rows.axis = 1;
    rows.shape.push_back(spec.inner);
    rows.operands[0].strides.push_back(1);
  }
  rows.code = {{MapOp::operand, 0}, {op, 0}};
  rows.results = {{1, spec.output, true}};
  return rows;
}

MapRows::MapRows(const KernelSpec& spec)
    : isRow(spec.code.size()), isRead(spec.code.size()), depth(spec.code.size()) {
  const std::size_t axis = rowAxis(spec);
  length = spec.shape[axis];
  for (std::size_t d = 0; d < spec.shape.size(); ++d) {
    if (d != axis) rows *= spec.shape[d];
    if (d > axis) inner *= spec.shape[d];
  }
  for (std::size_t j = 0; j < spec.code.size(); ++j) {
    const MapInstruction& instruction = spec.code[j];
    bool row = true;
    forArguments(instruction, [&](std::size_t argument) {
      row = row && isRow[argument];
      depth[j] = std::max(depth[j], depth[argument]);
    });
    if (instruction.op == MapOp::operand) row = isRowOperand(spec, static_cast<std::size_t>(instruction.a));
    if (instruction.op == MapOp::index) row = static_cast<std::size_t>(instruction.a) != axis;
    if (isRowReduction(instruction.op)) row = true, ++depth[j];
    isRow[j] = row;
  }
  for (const MapResult& result : spec.results)
    passes = std::max(passes, depth[static_cast<std::size_t>(result.value)] + (result.row ? 0 : 1));
  for (const MapResult& result : spec.results) isRead[static_cast<std::size_t>(result.value)] = true;
  for (std::size_t j = spec.code.size(); j-- > 0;)
    if (isRead[j]) forArguments(spec.code[j], [&](std::size_t argument) { isRead[argument] = true; });
}

bool MapRows::endsPass(const KernelSpec& spec, std::size_t j, int pass) const {
  return isRowReduction(spec.code[j].op) && isRead[j] && depth[j] == pass + 1;
}

std::vector<std::vector<bool>> MapRows::computedIn(const KernelSpec& spec,
                                                   const std::vector<bool>& kept) const {
  const std::size_t count = spec.code.size();
  std::vector<std::vector<bool>> computed(static_cast<std::size_t>(passes), std::vector<bool>(count, false));
  std::vector<bool> stays(count, false);
  for (int pass = 0; pass < passes; ++pass) {
    std::vector<bool>& own = computed[static_cast<std::size_t>(pass)];
    const auto wants = [&](std::size_t value) {
      if (!isRow[value] && !stays[value]) own[value] = true;
    };
    for (std::size_t j = 0; j < count; ++j)
      if (endsPass(spec, j, pass)) wants(static_cast<std::size_t>(spec.code[j].a));
    if (pass + 1 == passes)
      for (const MapResult& result : spec.results)
        if (!result.row) wants(static_cast<std::size_t>(result.value));
    for (std::size_t j = count; j-- > 0;)
      if (own[j]) forArguments(spec.code[j], wants);
    for (std::size_t j = 0; j < count; ++j)
      if (own[j] && kept[j]) stays[j] = true;
  }
  return computed;
}

}  // namespace braid
