#include <algorithm>

#include "kernels/cpu.h"
#include "kernels/element.h"

namespace braid {
namespace {

// Columns whose sums are carried side by side.
constexpr std::int64_t kColumns = 512;

// Sums of the rows of each index. `order` are the places of the rows in the order of their indices, so the
// rows of one index are neighbours there. Floats are added in f64 and rounded once, as in the reference. A
// place outside of the rows is passed over.
class CpuScatterAdd final : public CpuKernel {
 public:
  explicit CpuScatterAdd(const KernelSpec& spec)
      : outer_(spec.outer),
        length_(spec.length),
        count_(spec.count),
        inner_(spec.inner),
        input_(spec.input),
        output_(spec.output) {
    readCount = 3;
    writeCount = 1;
    const auto in = static_cast<std::uint32_t>(elementBytes(input_)),
               out = static_cast<std::uint32_t>(elementBytes(output_));
    const Extent places{static_cast<std::uint64_t>(count_) * 4, 4};
    extents = {Extent{static_cast<std::uint64_t>(outer_ * count_ * inner_) * in, in}, places, places,
               Extent{static_cast<std::uint64_t>(outer_ * length_ * inner_) * out, out}};
    movedBytes = static_cast<double>(extents[0].bytes) + static_cast<double>(extents[3].bytes);
  }

  bool run(const DeviceAddress* addresses, Scratch&, Part part) const override {
    if (input_ == DType::i32 || input_ == DType::u8)
      add<std::int32_t, std::int32_t>(addresses, part);
    else
      add<float, double>(addresses, part);
    return true;
  }

 private:
  template <class Value, class Sum>
  void add(const DeviceAddress* addresses, Part part) const {
    const auto* indices = reinterpret_cast<const std::int32_t*>(addresses[1]);
    const auto* order = reinterpret_cast<const std::int32_t*>(addresses[2]);
    const auto isRow = [this](std::int64_t place) { return place >= 0 && place < count_; };
    const auto placeOf = [&](std::int64_t key) {
      return std::partition_point(order, order + count_,
                                  [&](std::int32_t place) { return isRow(place) && indices[place] < key; });
    };
    alignas(64) Sum total[kColumns];
    alignas(64) Value row[kColumns];
    const PartRange rows(part, outer_ * length_);
    for (std::int64_t r = rows.first; r < rows.last; ++r) {
      const std::int32_t* const from = placeOf(r % length_);
      const std::int32_t* const to = placeOf(r % length_ + 1);
      for (std::int64_t first = 0; first < inner_; first += kColumns) {
        const std::int64_t columns = std::min(kColumns, inner_ - first);
        std::fill_n(total, columns, Sum{});
        for (const std::int32_t* place = from; place < to; ++place) {
          if (!isRow(*place)) continue;
          element::load(row, addresses[0], input_, (r / length_ * count_ + *place) * inner_ + first, columns);
          for (std::int64_t i = 0; i < columns; ++i)
            total[i] = element::add(total[i], static_cast<Sum>(row[i]));
        }
        for (std::int64_t i = 0; i < columns; ++i) row[i] = static_cast<Value>(total[i]);
        element::store(addresses[3], output_, r * inner_ + first, row, columns);
      }
    }
  }

  std::int64_t outer_, length_, count_, inner_;
  DType input_, output_;
};

}  // namespace

CpuKernelResult makeCpuScatterAdd(const KernelSpec& spec) { return std::make_unique<CpuScatterAdd>(spec); }

}  // namespace braid
