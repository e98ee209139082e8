#pragma once

#include <vector>

#include "driver/kernel_spec.h"

namespace braid {

// The earlier values that an instruction names.
template <class Visit>
void forArguments(const MapInstruction& instruction, Visit visit) {
  const std::int32_t arguments[] = {instruction.a, instruction.b, instruction.c};
  for (int i = 0; i < arityOf(instruction.op); ++i) visit(static_cast<std::size_t>(arguments[i]));
}

// The dimension along which the rows of a map lie, of a shape that has one.
std::size_t rowAxis(const KernelSpec& spec);

// Whether the rows lie side by side: neighbours in memory are of different rows.
bool hasColumns(const KernelSpec& spec);

// Whether operand o of a map has several elements along dimension d, by its strides and its index's.
bool differsAlong(const KernelSpec& spec, std::size_t o, std::size_t d);

// The furthest element that an operand of a map reaches.
std::int64_t lastElement(const KernelSpec& spec, const MapOperand& operand);

// Whether a map reduces along its rows, or writes one number a row.
bool hasRows(const KernelSpec& spec);

// A sum, mean, maximum or minimum as a map of rows. argmax and argmin are no such maps.
KernelSpec reductionAsMap(const KernelSpec& spec);

// How a map with rows is computed: a reduction's value is there when a pass over the row has ended, and what
// is made of it needs another pass.
struct MapRows {
  explicit MapRows(const KernelSpec& spec);

  // Whether value j is a reduction whose pass this is.
  bool endsPass(const KernelSpec& spec, std::size_t j, int pass) const;

  // By pass and value: whether the pass computes it for each element. `kept`: values that stay from the first
  // pass that computes them.
  std::vector<std::vector<bool>> computedIn(const KernelSpec& spec, const std::vector<bool>& kept) const;

  std::int64_t rows = 1, length = 1;
  std::int64_t inner = 1;    // rows that lie side by side
  std::vector<bool> isRow;   // by value: it is one number a row
  std::vector<bool> isRead;  // by value: a result follows from it; others are left out
  std::vector<int> depth;    // by value: how many passes end before it can be computed
  int passes = 0;            // the last one writes the results that have an element for each point
};

// An operand of a map whose element is the same along the row.
bool isRowOperand(const KernelSpec& spec, std::size_t operand);

}  // namespace braid
