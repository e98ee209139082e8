#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "driver/kernel_spec.h"

namespace braid::cuda {

inline std::string number(std::int64_t value) { return std::to_string(value); }

inline std::string constant(const char* type, const std::string& name, std::int64_t value) {
  return "constexpr " + std::string(type) + " " + name + " = " + number(value) + ";\n";
}

inline std::int64_t powerOfTwoAtLeast(std::int64_t value) {
  std::int64_t power = 1;
  while (power < value) power *= 2;
  return power;
}

// Whether an index is inside of a table, and how much further on its row begins; in the index type `Index`.
std::string insideText(const MapIndex& index, const std::string& name);
std::string stepText(const MapIndex& index, const std::string& name);

// The instructions of a map as CUDA C++, by the prelude's functions; `name` gives the text of an earlier
// value.
class MapCode {
 public:
  using Name = std::function<std::string(std::int32_t)>;
  // `isRow`: values that are one number a row; none where a map has no rows.
  explicit MapCode(const KernelSpec& spec, std::vector<bool> isRow = {});

  // Of one element: an instruction that computes, or a constant.
  std::string element(std::size_t j, const Name& name) const;

  // Whether two elements at a time take fewer instructions: some of the values are of bf16 or f16.
  bool pairs() const { return pairs_; }
  // Of two elements at a time, each argument of which is a pair, a constant, or one number a row.
  std::string pair(std::size_t j, const Name& name) const;
  // bf16 or f16: both elements of this value lie in one word; f32: they are two floats.
  DType heldAs(std::size_t j) const { return held_[j]; }
  // Whether an error of 2^-18 of this value is lost where all that is made of it is rounded to 16 bits.
  bool isCoarse(std::size_t j) const { return coarse_[j]; }
  // Whether it is the exponential of how far a number lies below the largest one of its row: 1 at most.
  bool isBelowOne(std::size_t j) const;
  std::string pairType(std::size_t j) const;

 private:
  std::string argument(std::int32_t of, DType as, const Name& name) const;
  const char* patternOf(std::size_t j) const;
  bool isExactly(std::size_t j, DType type) const;
  bool takesBoth(std::size_t j, DType type) const;

  const KernelSpec& spec_;
  std::vector<bool> isRow_;
  std::vector<bool> rounded_;  // by value: all that reads it rounds it to bf16
  std::vector<bool> coarse_;
  std::vector<DType> held_;
  std::vector<bool> exact_[2];  // by value: it is a value of bf16, of f16
  bool pairs_ = false;
};

// How partial results of a reduction of rows combine: the neutral element, and the text for `a` and `b`.
std::string neutralText(MapOp reduction, bool whole);
std::string combineText(MapOp reduction, bool whole);

}  // namespace braid::cuda
