#include <algorithm>
#include <numeric>

#include "kernels/cpu.h"
#include "kernels/element.h"

// Kernels that find positions: argmax and argmin, with one position or several.

namespace braid {
namespace {

// Columns that are searched side by side.
constexpr std::int64_t kColumns = 512;

class CpuChoose final : public CpuKernel {
 public:
  explicit CpuChoose(const KernelSpec& spec)
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
    else if (whole)
      choose<std::int32_t>(addresses, part);
    else
      choose<float>(addresses, part);
    return true;
  }

 private:
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

  ReduceHow how_;
  std::int64_t outer_, length_, inner_;
  DType input_, output_;
  std::int64_t count_;
};

}  // namespace

CpuKernelResult makeCpuChoose(const KernelSpec& spec) { return std::make_unique<CpuChoose>(spec); }

}  // namespace braid
