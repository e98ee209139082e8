#include <algorithm>

#include "kernels/cpu.h"
#include "kernels/element.h"

namespace braid {
namespace {

// Columns whose sums are carried side by side.
constexpr std::int64_t kColumns = 512;

// Sums of the elements up to each place along the middle of outer x length x inner, from the first to the
// last. Floats are added in f64 and rounded once an element, as in the reference.
class CpuScan final : public CpuKernel {
 public:
  explicit CpuScan(const KernelSpec& spec)
      : outer_(spec.outer),
        length_(spec.length),
        inner_(spec.inner),
        input_(spec.input),
        output_(spec.output) {
    readCount = writeCount = 1;
    const auto in = static_cast<std::uint32_t>(elementBytes(input_)),
               out = static_cast<std::uint32_t>(elementBytes(output_));
    const auto count = static_cast<std::uint64_t>(outer_ * length_ * inner_);
    extents = {Extent{count * in, in}, Extent{count * out, out}};
    movedBytes = static_cast<double>(extents[0].bytes) + static_cast<double>(extents[1].bytes);
  }

  bool run(const DeviceAddress* addresses, Scratch&, Part part) const override {
    if (input_ == DType::i32 || input_ == DType::u8)
      scan<std::int32_t, std::int32_t>(addresses, part);
    else
      scan<float, double>(addresses, part);
    return true;
  }

 private:
  template <class Value, class Sum>
  void scan(const DeviceAddress* addresses, Part part) const {
    const PartRange rows(outer_ > 1 ? part : Part::all, outer_);
    const PartRange columns(outer_ > 1 ? Part::all : part, inner_);
    for (std::int64_t o = rows.first; o < rows.last; ++o) {
      const std::int64_t start = o * length_ * inner_;
      if (inner_ == 1 && columns.first < columns.last) {
        line<Value, Sum>(addresses, start);
        continue;
      }
      for (std::int64_t first = columns.first; first < columns.last; first += kColumns)
        strip<Value, Sum>(addresses, start + first, std::min(kColumns, columns.last - first));
    }
  }

  // Elements that lie side by side, a piece at a time.
  template <class Value, class Sum>
  void line(const DeviceAddress* addresses, std::int64_t start) const {
    alignas(64) Value piece[kColumns];
    Sum total{};
    for (std::int64_t done = 0; done < length_; done += kColumns) {
      const std::int64_t count = std::min(kColumns, length_ - done);
      element::load(piece, addresses[0], input_, start + done, count);
      for (std::int64_t i = 0; i < count; ++i) {
        total = element::add(total, static_cast<Sum>(piece[i]));
        piece[i] = static_cast<Value>(total);
      }
      element::store(addresses[1], output_, start + done, piece, count);
    }
  }

  template <class Value, class Sum>
  void strip(const DeviceAddress* addresses, std::int64_t start, std::int64_t count) const {
    alignas(64) Sum total[kColumns]{};
    alignas(64) Value row[kColumns];
    for (std::int64_t l = 0; l < length_; ++l) {
      element::load(row, addresses[0], input_, start + l * inner_, count);
      for (std::int64_t i = 0; i < count; ++i) {
        total[i] = element::add(total[i], static_cast<Sum>(row[i]));
        row[i] = static_cast<Value>(total[i]);
      }
      element::store(addresses[1], output_, start + l * inner_, row, count);
    }
  }

  std::int64_t outer_, length_, inner_;
  DType input_, output_;
};

}  // namespace

CpuKernelResult makeCpuScan(const KernelSpec& spec) { return std::make_unique<CpuScan>(spec); }

}  // namespace braid
