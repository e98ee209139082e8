#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "driver/driver.h"
#include "kernels/element.h"

// What the interpreters of elementwise kernels share: how operands and indices are read, and one instruction
// over a block of elements.

namespace braid::steps {

// An operand as it is read: sizes of 1 dropped, neighbouring dimensions merged where one stride covers both.
struct Source {
  std::size_t read = 0;
  DType dtype = DType::f32;
  std::int64_t offset = 0;
  std::vector<std::int64_t> sizes, strides;  // innermost last; empty: the same element everywhere
};

// Over the first `rank` dimensions of the kernel's shape.
inline Source normalise(const KernelSpec& spec, std::size_t read, std::size_t rank) {
  const MapOperand& operand = spec.operands[read];
  Source source{read, operand.dtype, operand.offset, {}, {}};
  for (std::size_t d = 0; d < rank; ++d) {
    const std::int64_t size = spec.shape[d], stride = operand.strides[d];
    if (size == 1) continue;
    if (!source.sizes.empty() && source.strides.back() == stride * size) {
      source.sizes.back() *= size;
      source.strides.back() = stride;
    } else {
      source.sizes.push_back(size);
      source.strides.push_back(stride);
    }
  }
  if (source.sizes.size() == 1 && source.strides[0] == 0) source.sizes.clear(), source.strides.clear();
  return source;
}

// Elements `first` to `first + count` of the row-major order, read run by run along the innermost dimension.
template <class T>
void readStrided(T* to, DeviceAddress base, const Source& source, std::int64_t first, std::int64_t count) {
  if (source.sizes.empty()) return element::load(to, base, source.dtype, source.offset, count, 0);
  const std::size_t rank = source.sizes.size();
  std::int64_t index[8], at = source.offset;
  std::int64_t rest = first;
  for (std::size_t d = rank; d-- > 0;) {
    index[d] = rest % source.sizes[d];
    rest /= source.sizes[d];
    at += index[d] * source.strides[d];
  }
  const std::int64_t width = source.sizes[rank - 1], step = source.strides[rank - 1];
  while (count > 0) {
    const std::int64_t run = std::min(count, width - index[rank - 1]);
    element::load(to, base, source.dtype, at, run, step);
    to += run;
    count -= run;
    if (count == 0) return;
    at -= index[rank - 1] * step;  // back to the start of the innermost row
    index[rank - 1] = 0;
    for (std::size_t d = rank - 1; d-- > 0;) {
      at += source.strides[d];
      if (++index[d] < source.sizes[d]) break;
      at -= source.sizes[d] * source.strides[d];
      index[d] = 0;
    }
  }
}

// The indices along one dimension, whose elements are `inner` apart, from the element `first` on.
template <class T>
void readIndex(T* to, std::int64_t size, std::int64_t inner, std::int64_t first, std::int64_t count) {
  std::int64_t index = first / inner % size, within = first % inner;
  for (std::int64_t i = 0; i < count; ++i) {
    to[i] = static_cast<T>(index);
    if (++within < inner) continue;
    within = 0;
    if (++index == size) index = 0;
  }
}

// One instruction that computes, over `count` elements. `to` is none of its arguments.
void run(MapOp op, float* to, const float* a, const float* b, const float* c, std::int64_t count);
void run(MapOp op, std::int32_t* to, const std::int32_t* a, const std::int32_t* b, const std::int32_t* c,
         std::int64_t count);

}  // namespace braid::steps
