#include <algorithm>
#include <cstring>

#include "kernels/cpu.h"

namespace braid {
namespace {

// Rows written at a position, in the memory of the first read, which the write is too. A row outside of it is
// not written.
class CpuAppend final : public CpuKernel {
 public:
  explicit CpuAppend(const KernelSpec& spec)
      : outer_(spec.outer),
        length_(spec.length),
        count_(spec.count),
        row_(static_cast<std::size_t>(spec.inner) * elementBytes(spec.input)) {
    readCount = 3;
    writeCount = 1;
    const auto bytes = [this](std::int64_t rows) { return static_cast<std::uint64_t>(rows) * row_; };
    const auto size = static_cast<std::uint32_t>(elementBytes(spec.input));
    const Extent whole{bytes(outer_ * length_), size};
    extents = {whole, Extent{bytes(outer_ * count_), size}, Extent{4, 4}, whole};
    movedBytes = 2 * static_cast<double>(extents[1].bytes);
  }

  bool run(const DeviceAddress* addresses, Scratch&, Part part) const override {
    const auto* rows = reinterpret_cast<const std::byte*>(addresses[1]);
    auto* to = reinterpret_cast<std::byte*>(addresses[3]);
    const std::int64_t at = *reinterpret_cast<const std::int32_t*>(addresses[2]);
    // The rows that lie inside are neighbours: rows first to last - 1 of each of the outer ones.
    const std::int64_t first = std::clamp<std::int64_t>(-at, 0, count_),
                       last = std::clamp<std::int64_t>(length_ - at, 0, count_);
    if (last <= first) return true;
    const PartRange lines(part, outer_);
    for (std::int64_t o = lines.first; o < lines.last; ++o)
      std::memcpy(to + static_cast<std::size_t>(o * length_ + at + first) * row_,
                  rows + static_cast<std::size_t>(o * count_ + first) * row_,
                  static_cast<std::size_t>(last - first) * row_);
    return true;
  }

 private:
  std::int64_t outer_, length_, count_;
  std::size_t row_;  // bytes
};

}  // namespace

CpuKernelResult makeCpuAppend(const KernelSpec& spec) { return std::make_unique<CpuAppend>(spec); }

}  // namespace braid
