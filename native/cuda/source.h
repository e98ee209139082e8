#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/kernel_spec.h"

namespace braid::cuda {

// The generated text of one kernel and how it wants to be launched. Pure data: made without a device, read in
// tests. Every function takes its pointers (reads, then writes, less those that `operands` leaves out), then
// `count` as the index type.
struct KernelSource {
  struct Variant {
    const char* entry = "";
    std::int64_t threads =
        0;  // wanted in all; the grid covers them, or strides over them where that would be too many
    unsigned block = 256;
    bool strided = true;  // a grid smaller than `threads` still does all the work
  };
  std::string text;
  Variant plain;
  // Of 16-byte accesses; used where every pointer is a multiple of its alignment below. entry "": there is
  // none.
  Variant vector;
  std::vector<std::size_t> alignments;    // bytes, for each pointer; 1: any
  std::vector<std::int64_t> byteOffsets;  // added to each pointer before it is passed
  std::int64_t count = 0;
  bool wide = false;  // the index type is 64 bits
};

const char* cudaTypeName(DType type);  // as in the prelude

}  // namespace braid::cuda
