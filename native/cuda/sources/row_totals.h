#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cuda/sources/row_plan.h"

namespace braid::cuda {

// The reductions of a row, as text: each thread has a total `t` of its elements, and the threads of a row
// join theirs.
class RowTotals {
 public:
  // `two`: elements come two at a time.
  RowTotals(const RowPlan& plan, const Division& own, bool two)
      : spec_(plan.spec), rows_(plan.rows), own_(own), two_(two) {}

  // Totals of no element.
  std::string started(const std::vector<std::size_t>& reductions) const;
  // The total of reduction j with one element more, or two.
  std::string combined(std::size_t j, const std::string& of) const;
  // The totals of all threads of a row, the same in each of them.
  std::string joined(const std::vector<std::size_t>& reductions) const;

 private:
  const char* type() const { return spec_.computeInt ? "int" : "float"; }
  std::string combine(std::size_t j, const std::string& a, const std::string& b) const;
  std::string finished(std::size_t j) const;

  const KernelSpec& spec_;
  const MapRows& rows_;
  const Division& own_;
  const bool two_;
};

}  // namespace braid::cuda
