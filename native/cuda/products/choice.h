#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "cuda/products/cublaslt_api.h"

namespace braid::cuda {

// The algorithm for operands aligned to `alignment` bytes at least, and the scratch that it takes.
struct MatmulChoice {
  std::size_t alignment = 1;
  LtAlgorithm algorithm{};
  std::size_t workspaceBytes = 0;
  std::array<std::uint32_t, kAlgorithmAttributes> attributes{};  // which algorithm it is
  bool operator==(const MatmulChoice& other) const {
    return alignment == other.alignment && workspaceBytes == other.workspaceBytes &&
           attributes == other.attributes;
  }
};

// What computes a problem: equal problems get the same, so equal bits.
struct MatmulChosen {
  std::vector<MatmulChoice> choices;  // stricter alignments first
  bool few = false;                   // the kernel for few rows was faster
  bool apart = false;                 // some steps are a kernel after the library's

  // Lines of text, for a file.
  std::string text() const;
  bool parse(const std::string& text);
};

}  // namespace braid::cuda
