#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace braid::cuda {

// One of cuDNN's engines and how it is set: its knobs and their values.
struct CudnnEngine {
  std::int64_t index = -1;
  std::vector<std::pair<std::int32_t, std::int64_t>> knobs;
  bool operator==(const CudnnEngine&) const = default;
};

// What computes a problem that cuDNN has engines for: equal problems get the same, so equal bits.
struct CudnnChosen {
  bool taken = false;  // it was faster than the kernel of Braid's own
  CudnnEngine engine;  // where it is taken
  bool operator==(const CudnnChosen&) const = default;

  // Lines of text, for a file.
  std::string text() const;
  bool parse(const std::string& text);
};

}  // namespace braid::cuda
