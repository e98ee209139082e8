#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "driver/driver.h"
#include "kernels/element.h"

// What the interpreters of elementwise kernels share: how operands and indices are read, and one instruction
// over a block of elements.

namespace braid::steps {

// What an operand is indexed by, as it is read.
struct Index {
  std::size_t read = 0;
  std::int64_t offset = 0, length = 1, step = 0;
  std::vector<std::int64_t> strides;  // as many as those of the operand
};

// An operand as it is read: sizes of 1 dropped, neighbouring dimensions merged where one stride covers both.
struct Source {
  std::size_t read = 0;
  DType dtype = DType::f32;
  std::int64_t offset = 0;
  std::vector<std::int64_t> sizes, strides;  // innermost last; empty: the same element everywhere
  std::optional<Index> index{};
};

// Over the dimensions of the kernel's shape, but for one.
inline Source normalise(const KernelSpec& spec, std::size_t read, std::optional<std::size_t> without = {}) {
  const MapOperand& operand = spec.operands[read];
  Source source{read, operand.dtype, operand.offset, {}, {}};
  const MapOperand* by = nullptr;
  if (operand.indexed) {
    const MapIndex& index = *operand.indexed;
    by = &spec.operands[index.by];
    source.index = Index{index.by, by->offset, index.length, index.step, {}};
  }
  std::vector<std::int64_t>*const sizes = &source.sizes, *const strides = &source.strides,
                                  *const indices = by ? &source.index->strides : nullptr;
  for (std::size_t d = 0; d < spec.shape.size(); ++d) {
    const std::int64_t size = spec.shape[d], stride = operand.strides[d];
    if (size == 1 || d == without) continue;
    if (!sizes->empty() && strides->back() == stride * size &&
        (!by || indices->back() == by->strides[d] * size)) {
      sizes->back() *= size;
      strides->back() = stride;
      if (by) indices->back() = by->strides[d];
    } else {
      sizes->push_back(size);
      strides->push_back(stride);
      if (by) indices->push_back(by->strides[d]);
    }
  }
  if (sizes->size() == 1 && strides->back() == 0 && (!by || indices->back() == 0)) {
    sizes->clear(), strides->clear();
    if (by) indices->clear();
  }
  return source;
}

// Elements along one dimension, from the one at `at` and the index at `indexAt` on.
template <class T>
void readRun(T* to, const DeviceAddress* addresses, const Source& source, std::int64_t at,
             std::int64_t indexAt, std::int64_t count, std::int64_t step, std::int64_t indexStep) {
  const DeviceAddress base = addresses[source.read];
  if (!source.index) return element::load(to, base, source.dtype, at, count, step);
  const auto* indices = reinterpret_cast<const std::int32_t*>(addresses[source.index->read]) + indexAt;
  const auto placeOf = [&](std::int64_t i) {
    const std::int64_t index = indices[i * indexStep];
    return index >= 0 && index < source.index->length ? at + i * step + index * source.index->step : -1;
  };
  if (indexStep == 0) {
    const std::int64_t place = placeOf(0);
    if (place < 0)
      std::fill_n(to, count, T{});
    else
      element::load(to, base, source.dtype, place, count, step);
    return;
  }
  constexpr std::int64_t kPlaces = 64;
  std::int64_t places[kPlaces];
  for (std::int64_t first = 0; first < count; first += kPlaces) {
    const std::int64_t some = std::min(kPlaces, count - first);
    for (std::int64_t i = 0; i < some; ++i) places[i] = placeOf(first + i);
    element::loadEach(to + first, base, source.dtype, places, some);
  }
}

// Elements `first` to `first + count` of the row-major order, read run by run along the innermost dimension.
template <class T>
void readStrided(T* to, const DeviceAddress* addresses, const Source& source, std::int64_t first,
                 std::int64_t count) {
  std::int64_t at = source.offset, indexAt = source.index ? source.index->offset : 0;
  if (source.sizes.empty()) return readRun(to, addresses, source, at, indexAt, count, 0, 0);
  const std::size_t rank = source.sizes.size();
  const auto move = [&](std::size_t d, std::int64_t by) {
    at += source.strides[d] * by;
    if (source.index) indexAt += source.index->strides[d] * by;
  };
  std::int64_t index[8];
  std::int64_t rest = first;
  for (std::size_t d = rank; d-- > 0;) {
    index[d] = rest % source.sizes[d];
    rest /= source.sizes[d];
    move(d, index[d]);
  }
  const std::int64_t width = source.sizes[rank - 1], step = source.strides[rank - 1],
                     indexStep = source.index ? source.index->strides[rank - 1] : 0;
  while (count > 0) {
    const std::int64_t run = std::min(count, width - index[rank - 1]);
    readRun(to, addresses, source, at, indexAt, run, step, indexStep);
    to += run;
    count -= run;
    if (count == 0) return;
    move(rank - 1, -index[rank - 1]);  // back to the start of the innermost row
    index[rank - 1] = 0;
    for (std::size_t d = rank - 1; d-- > 0;) {
      move(d, 1);
      if (++index[d] < source.sizes[d]) break;
      move(d, -source.sizes[d]);
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
