#include <algorithm>
#include <cstring>

#include "kernels/cpu.h"

namespace braid {
namespace {

// Rows of a table by their indices. The row of an index outside of the table is zeros: it is never read.
class CpuGather final : public CpuKernel {
 public:
  explicit CpuGather(const KernelSpec& spec)
      : outer_(spec.outer),
        length_(spec.length),
        count_(spec.count),
        row_(static_cast<std::size_t>(spec.inner) * elementBytes(spec.input)) {
    readCount = 2;
    writeCount = 1;
    const auto rows = [this](std::int64_t number) { return static_cast<std::uint64_t>(number) * row_; };
    const auto size = static_cast<std::uint32_t>(elementBytes(spec.input));
    extents = {Extent{rows(outer_ * length_), size}, Extent{static_cast<std::uint64_t>(count_) * 4, 4},
               Extent{rows(outer_ * count_), size}};
    movedBytes = 2 * static_cast<double>(extents[2].bytes);
  }

  bool run(const DeviceAddress* addresses, Scratch&, Part part) const override {
    const auto* table = reinterpret_cast<const std::byte*>(addresses[0]);
    const auto* indices = reinterpret_cast<const std::int32_t*>(addresses[1]);
    auto* to = reinterpret_cast<std::byte*>(addresses[2]);
    const PartRange rows(part, outer_ * count_);
    for (std::int64_t r = rows.first; r < rows.last; ++r) {
      const std::int64_t index = indices[r % count_];
      std::byte* target = to + static_cast<std::size_t>(r) * row_;
      if (index >= 0 && index < length_)
        std::memcpy(target, table + static_cast<std::size_t>(r / count_ * length_ + index) * row_, row_);
      else
        std::memset(target, 0, row_);
    }
    return true;
  }

 private:
  std::int64_t outer_, length_, count_;
  std::size_t row_;  // bytes
};

}  // namespace

CpuKernelResult makeCpuGather(const KernelSpec& spec) { return std::make_unique<CpuGather>(spec); }

}  // namespace braid
