#pragma once

#include <cstdint>
#include <string>

#include "cuda/sources/row_plan.h"

namespace braid::cuda {

// Where a row lies in the operands and results of a map, as text: `p` and `q` are their pointers, `a` and `b`
// where the row starts in them, `k` counts the packs of a thread.
class RowOperands {
 public:
  RowOperands(const RowPlan& plan, const Division& own)
      : plan_(plan), spec_(plan.spec), rows_(plan.rows), own_(own) {}

  std::string parameters() const;
  // Where the row starts in each operand and result.
  std::string starts() const;
  // The element of an operand that is the same along the row.
  std::string rowElement(std::int32_t operand) const;
  // Reads a pack, or its elements one by one.
  std::string load(const std::string& to, std::int32_t operand) const;
  // The first element of a pack.
  std::string at() const;
  // The types of an operand, and of packs of an operand and of a result.
  std::string typeOf(std::size_t o) const;
  std::string packOfOperand(std::size_t o) const;
  std::string packOfResult(std::size_t r) const;

 private:
  bool isBroadcast(std::size_t o) const;
  std::string startOf(std::size_t o) const;
  bool isRowIndexed(std::size_t o) const;
  std::string guarded(std::size_t o, const std::string& read, const std::string& type) const;
  std::string along(std::size_t o) const;

  const RowPlan& plan_;
  const KernelSpec& spec_;
  const MapRows& rows_;
  const Division& own_;
};

}  // namespace braid::cuda
