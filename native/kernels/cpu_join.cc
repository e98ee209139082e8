#include <algorithm>
#include <cstring>

#include "kernels/cpu.h"
#include "kernels/element.h"

namespace braid {
namespace {

// Pieces one after the other in each row of the result: of a source, or of one number.
class CpuJoin final : public CpuKernel {
 public:
  explicit CpuJoin(const KernelSpec& spec) : outer_(spec.outer), inner_(spec.inner), type_(spec.input) {
    const auto size = static_cast<std::uint32_t>(elementBytes(type_));
    const auto bytes = [&](std::int64_t length) {
      return static_cast<std::uint64_t>(outer_ * length * inner_) * size;
    };
    for (const JoinPiece& piece : spec.pieces) {
      pieces_.push_back({piece.length * inner_, piece.filled, piece.fill});
      row_ += piece.length;
      if (!piece.filled) extents.push_back(Extent{bytes(piece.length), size});
    }
    readCount = extents.size();
    writeCount = 1;
    extents.push_back(Extent{bytes(row_), size});
    row_ *= inner_;
    movedBytes = 2 * static_cast<double>(extents.back().bytes);
  }

  bool run(const DeviceAddress* addresses, Scratch&, Part part) const override {
    const PartRange rows(part, outer_);
    const std::size_t size = elementBytes(type_);
    std::int64_t at = 0;
    std::size_t source = 0;
    for (const JoinPiece& piece : pieces_) {
      const auto* from = piece.filled ? nullptr : reinterpret_cast<const std::byte*>(addresses[source++]);
      auto* to = reinterpret_cast<std::byte*>(addresses[readCount]);
      for (std::int64_t o = rows.first; o < rows.last; ++o) {
        const std::int64_t start = o * row_ + at;
        if (from)
          std::memcpy(to + static_cast<std::size_t>(start) * size,
                      from + static_cast<std::size_t>(o * piece.length) * size,
                      static_cast<std::size_t>(piece.length) * size);
        else
          fill(addresses[readCount], start, piece);
      }
      at += piece.length;
    }
    return true;
  }

 private:
  void fill(DeviceAddress to, std::int64_t start, const JoinPiece& piece) const {
    const bool whole = type_ == DType::i32 || type_ == DType::u8;
    if (whole)
      fillWith(to, start, piece.length, element::toInt32(piece.fill));
    else
      fillWith(to, start, piece.length, static_cast<float>(piece.fill));
  }

  template <class Value>
  void fillWith(DeviceAddress to, std::int64_t start, std::int64_t length, Value value) const {
    constexpr std::int64_t most = 256;
    Value values[most];
    std::fill_n(values, std::min(most, length), value);
    for (std::int64_t done = 0; done < length; done += most)
      element::store(to, type_, start + done, values, std::min(most, length - done));
  }

  std::int64_t outer_, inner_, row_ = 0;
  DType type_;
  std::vector<JoinPiece> pieces_;  // with the elements of a row as their lengths
};

}  // namespace

CpuKernelResult makeCpuJoin(const KernelSpec& spec) { return std::make_unique<CpuJoin>(spec); }

}  // namespace braid
