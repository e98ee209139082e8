#include <algorithm>
#include <numeric>

#include "kernels/cpu.h"
#include "kernels/element.h"

namespace braid {
namespace {

// Columns reduced side by side. Along the reduced axis the order is always first to last, whatever the shape,
// so that a sum is the same sum on every run. Floats are added in f64 and rounded once, as in the reference.
constexpr std::int64_t kColumns = 512;

template <class Value>
Value combine(ReduceHow how, Value a, Value b) {
  switch (how) {
    case ReduceHow::max: return element::max(a, b);
    case ReduceHow::min: return element::min(a, b);
    default: return element::add(a, b);
  }
}

// In f64 there are sums alone.
template <>
double combine(ReduceHow, double a, double b) {
  return a + b;
}

class CpuReduce final : public CpuKernel {
 public:
  explicit CpuReduce(const KernelSpec& spec)
      : how_(spec.how),
        outer_(spec.outer),
        length_(spec.length),
        inner_(spec.inner),
        input_(spec.input),
        output_(spec.output),
        count_(spec.count) {
    readCount = writeCount = 1;
    const auto in = static_cast<std::uint32_t>(elementBytes(input_)),
               out = static_cast<std::uint32_t>(elementBytes(output_));
    extents = {Extent{static_cast<std::uint64_t>(outer_ * length_ * inner_) * in, in},
               Extent{static_cast<std::uint64_t>(outer_ * count_ * inner_) * out, out}};
    movedBytes = static_cast<double>(extents[0].bytes) + static_cast<double>(extents[1].bytes);
  }

  bool run(const DeviceAddress* addresses, Scratch& scratch, Part part) const override {
    const bool whole = input_ == DType::i32 || input_ == DType::u8;
    if (count_ > 1 && whole)
      sort<std::int32_t>(addresses, scratch, part);
    else if (count_ > 1)
      sort<float>(addresses, scratch, part);
    else if (how_ >= ReduceHow::argmax && whole)
      choose<std::int32_t>(addresses, part);
    else if (how_ >= ReduceHow::argmax)
      choose<float>(addresses, part);
    else if (whole)
      reduce<std::int32_t, std::int32_t>(addresses, part);
    else if (how_ == ReduceHow::sum || how_ == ReduceHow::mean)
      reduce<float, double>(addresses, part);
    else
      reduce<float, float>(addresses, part);
    return true;
  }

 private:
  template <class Element, class Accumulator>
  void reduce(const DeviceAddress* addresses, Part part) const {
    alignas(64) Accumulator total[kColumns];
    alignas(64) Element row[kColumns];
    const PartRange rows(outer_ > 1 ? part : Part::all, outer_);
    const PartRange columns(outer_ > 1 ? Part::all : part, inner_);
    for (std::int64_t o = rows.first; o < rows.last; ++o) {
      for (std::int64_t first = columns.first; first < columns.last; first += kColumns) {
        const std::int64_t count = std::min(kColumns, columns.last - first),
                           start = o * length_ * inner_ + first;
        if (inner_ == 1) {
          total[0] = line<Element, Accumulator>(addresses[0], start, row);
        } else {
          element::load(row, addresses[0], input_, start, count);
          for (std::int64_t i = 0; i < count; ++i) total[i] = row[i];
          for (std::int64_t l = 1; l < length_; ++l) {
            element::load(row, addresses[0], input_, start + l * inner_, count);
            for (std::int64_t i = 0; i < count; ++i) total[i] = combine<Accumulator>(how_, total[i], row[i]);
          }
        }
        if (how_ == ReduceHow::mean)
          for (std::int64_t i = 0; i < count; ++i) total[i] = element::mean(total[i], length_);
        for (std::int64_t i = 0; i < count; ++i) row[i] = static_cast<Element>(total[i]);
        element::store(addresses[1], output_, o * inner_ + first, row, count);
      }
    }
  }

  // Whether `next` takes the place of `best`. The first of equal ones stays, and the first NaN.
  template <class Value>
  bool improves(Value next, Value best) const {
    return best == best && (next != next || (how_ == ReduceHow::argmax ? next > best : next < best));
  }

  template <class Value>
  void choose(const DeviceAddress* addresses, Part part) const {
    alignas(64) Value best[kColumns], row[kColumns];
    alignas(64) std::int32_t place[kColumns];
    const PartRange rows(outer_ > 1 ? part : Part::all, outer_);
    const PartRange columns(outer_ > 1 ? Part::all : part, inner_);
    for (std::int64_t o = rows.first; o < rows.last; ++o) {
      for (std::int64_t first = columns.first; first < columns.last; first += kColumns) {
        const std::int64_t count = std::min(kColumns, columns.last - first),
                           start = o * length_ * inner_ + first;
        if (inner_ == 1) {
          place[0] = chooseInLine<Value>(addresses[0], start, row);
        } else {
          element::load(best, addresses[0], input_, start, count);
          std::fill_n(place, count, 0);
          for (std::int64_t l = 1; l < length_; ++l) {
            element::load(row, addresses[0], input_, start + l * inner_, count);
            for (std::int64_t i = 0; i < count; ++i)
              if (improves(row[i], best[i])) best[i] = row[i], place[i] = static_cast<std::int32_t>(l);
          }
        }
        element::store(addresses[1], output_, o * inner_ + first, place, count);
      }
    }
  }

  // The best elements of each line, best first, in the order of `improves` and then of their places.
  template <class Value>
  void sort(const DeviceAddress* addresses, Scratch& scratch, Part part) const {
    static_assert(sizeof(Value) == sizeof(float));
    float* memory = scratch.floats(2 * static_cast<std::size_t>(length_));
    auto* const values = reinterpret_cast<Value*>(memory);
    auto* const places = reinterpret_cast<std::int32_t*>(memory + length_);
    const auto before = [this, values](std::int32_t p, std::int32_t q) {
      if (improves(values[p], values[q])) return true;
      return !improves(values[q], values[p]) && p < q;
    };
    const PartRange lines(part, outer_ * inner_);
    for (std::int64_t line = lines.first; line < lines.last; ++line) {
      const std::int64_t o = line / inner_, i = line % inner_;
      element::load(values, addresses[0], input_, o * length_ * inner_ + i, length_, inner_);
      std::iota(places, places + length_, 0);
      std::partial_sort(places, places + count_, places + length_, before);
      for (std::int64_t j = 0; j < count_; ++j)
        element::store(addresses[1], output_, (o * count_ + j) * inner_ + i, places + j, 1);
    }
  }

  template <class Value>
  std::int32_t chooseInLine(DeviceAddress source, std::int64_t start, Value* piece) const {
    std::int64_t place = 0;
    Value best{};
    for (std::int64_t done = 0; done < length_; done += kColumns) {
      const std::int64_t count = std::min(kColumns, length_ - done);
      element::load(piece, source, input_, start + done, count);
      for (std::int64_t i = 0; i < count; ++i)
        if (done + i == 0 || improves(piece[i], best)) best = piece[i], place = done + i;
    }
    return static_cast<std::int32_t>(place);
  }

  // Elements that lie side by side, brought in a piece at a time.
  template <class Element, class Accumulator>
  Accumulator line(DeviceAddress source, std::int64_t start, Element* piece) const {
    Accumulator total{};
    for (std::int64_t done = 0; done < length_; done += kColumns) {
      const std::int64_t count = std::min(kColumns, length_ - done);
      element::load(piece, source, input_, start + done, count);
      std::int64_t i = 0;
      if (done == 0) total = piece[i++];
      for (; i < count; ++i) total = combine<Accumulator>(how_, total, piece[i]);
    }
    return total;
  }

  ReduceHow how_;
  std::int64_t outer_, length_, inner_;
  DType input_, output_;
  std::int64_t count_;
};

}  // namespace

CpuKernelResult makeCpuReduce(const KernelSpec& spec) { return std::make_unique<CpuReduce>(spec); }

}  // namespace braid
