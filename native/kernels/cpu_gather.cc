#include <algorithm>
#include <cstring>

#include "kernels/cpu.h"

namespace braid {
namespace {

// Rows of a table by their indices, or elements by an index each. An index outside of the table takes zeros:
// nothing is read.
class CpuGather final : public CpuKernel {
 public:
  explicit CpuGather(const KernelSpec& spec)
      : outer_(spec.outer),
        length_(spec.length),
        count_(spec.count),
        inner_(spec.inner),
        along_(spec.along),
        element_(elementBytes(spec.input)),
        row_(static_cast<std::size_t>(spec.inner) * element_) {
    readCount = 2;
    writeCount = 1;
    const auto rows = [this](std::int64_t number) { return static_cast<std::uint64_t>(number) * row_; };
    const auto size = static_cast<std::uint32_t>(elementBytes(spec.input));
    extents = {Extent{rows(outer_ * length_), size},
               Extent{static_cast<std::uint64_t>(along_ ? outer_ * count_ * inner_ : count_) * 4, 4},
               Extent{rows(outer_ * count_), size}};
    movedBytes = 2 * static_cast<double>(extents[2].bytes);
  }

  bool run(const DeviceAddress* addresses, Scratch&, Part part) const override {
    const auto* table = reinterpret_cast<const std::byte*>(addresses[0]);
    const auto* indices = reinterpret_cast<const std::int32_t*>(addresses[1]);
    auto* to = reinterpret_cast<std::byte*>(addresses[2]);
    if (along_) return each(table, indices, to, part);
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
  bool each(const std::byte* table, const std::int32_t* indices, std::byte* to, Part part) const {
    switch (element_) {
      case 1: return each<std::uint8_t>(table, indices, to, part);
      case 2: return each<std::uint16_t>(table, indices, to, part);
      default: return each<std::uint32_t>(table, indices, to, part);
    }
  }

  template <class Bits>
  bool each(const std::byte* table, const std::int32_t* indices, std::byte* to, Part part) const {
    const auto* from = reinterpret_cast<const Bits*>(table);
    auto* target = reinterpret_cast<Bits*>(to);
    const PartRange rows(part, outer_ * count_);
    for (std::int64_t r = rows.first; r < rows.last; ++r)
      for (std::int64_t i = 0; i < inner_; ++i) {
        const std::int64_t index = indices[r * inner_ + i];
        const bool inside = index >= 0 && index < length_;
        target[r * inner_ + i] = inside ? from[(r / count_ * length_ + index) * inner_ + i] : Bits{0};
      }
    return true;
  }

  std::int64_t outer_, length_, count_, inner_;
  bool along_;
  std::size_t element_, row_;  // bytes
};

}  // namespace

CpuKernelResult makeCpuGather(const KernelSpec& spec) { return std::make_unique<CpuGather>(spec); }

}  // namespace braid
