#include <algorithm>

#include "kernels/cpu.h"
#include "kernels/element.h"

namespace braid {
namespace {

// Columns whose sums are carried side by side.
constexpr std::int64_t kColumns = 512;

// Sums of the elements up to each place along the middle of outer x length x inner, in the order of a plain
// loop.
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
      scan<std::int32_t>(addresses, part);
    else
      scan<float>(addresses, part);
    return true;
  }

 private:
  template <class Value>
  void scan(const DeviceAddress* addresses, Part part) const {
    const PartRange rows(outer_ > 1 ? part : Part::all, outer_);
    const PartRange columns(outer_ > 1 ? Part::all : part, inner_);
    for (std::int64_t o = rows.first; o < rows.last; ++o) {
      const std::int64_t start = o * length_ * inner_;
      if (inner_ == 1 && columns.first < columns.last) {
        line<Value>(addresses, start);
        continue;
      }
      for (std::int64_t first = columns.first; first < columns.last; first += kColumns)
        strip<Value>(addresses, start + first, std::min(kColumns, columns.last - first));
    }
  }

  // Elements that lie side by side, a piece at a time.
  template <class Value>
  void line(const DeviceAddress* addresses, std::int64_t start) const {
    alignas(64) Value piece[kColumns];
    Value total{};
    for (std::int64_t done = 0; done < length_; done += kColumns) {
      const std::int64_t count = std::min(kColumns, length_ - done);
      element::load(piece, addresses[0], input_, start + done, count);
      for (std::int64_t i = 0; i < count; ++i) piece[i] = total = element::add(total, piece[i]);
      element::store(addresses[1], output_, start + done, piece, count);
    }
  }

  template <class Value>
  void strip(const DeviceAddress* addresses, std::int64_t start, std::int64_t count) const {
    alignas(64) Value total[kColumns]{}, row[kColumns];
    for (std::int64_t l = 0; l < length_; ++l) {
      element::load(row, addresses[0], input_, start + l * inner_, count);
      for (std::int64_t i = 0; i < count; ++i) total[i] = element::add(total[i], row[i]);
      element::store(addresses[1], output_, start + l * inner_, total, count);
    }
  }

  std::int64_t outer_, length_, inner_;
  DType input_, output_;
};

}  // namespace

CpuKernelResult makeCpuScan(const KernelSpec& spec) { return std::make_unique<CpuScan>(spec); }

}  // namespace braid
