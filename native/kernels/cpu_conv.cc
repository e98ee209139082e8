#include <algorithm>
#include <cstring>

#include "kernels/cpu.h"
#include "kernels/element.h"
#include "kernels/product_tile.h"

// A convolution as products: for each image and group the filters, filters × terms, meet a matrix of terms ×
// places, whose element is that of x which the term meets at the place, or 0. Only a block of that matrix
// exists at a time. Each element of y adds its terms in order of channel, then of the place in the kernel,
// with a rounding after each multiply and each add, whatever the blocks and whatever the processor. Of
// channels that are last it adds them in order of the place, then of the channel: as the filters have them.

namespace braid {
namespace conv {
namespace {

constexpr std::int64_t kRows = 96, kDepth = 256,
                       kColumns = 512;  // of one block of filters, of terms, of places

std::int64_t padded(std::int64_t value, std::int64_t unit) { return (value + unit - 1) / unit * unit; }

class CpuConv final : public CpuKernel {
 public:
  explicit CpuConv(const KernelSpec& spec)
      : one_(spec.conv),
        type_(spec.input),
        batch_(spec.batch),
        inputs_(one_.inputs()),
        terms_(one_.channels * one_.taps()),
        places_(one_.outputs()),
        step_(one_.channelsLast ? one_.groups * one_.channels : 1),
        tile_(productTile()) {
    readCount = 2;
    writeCount = 1;
    // Every convolution has three dimensions, the outer ones of size 1 where it has fewer.
    std::copy(one_.spatial.begin(), one_.spatial.end(), dims_ + 3 - one_.spatial.size());
    const auto element = static_cast<std::uint32_t>(elementBytes(type_));
    for (const std::int64_t count :
         {batch_ * one_.groups * one_.channels * inputs_, one_.groups * one_.filters * terms_,
          batch_ * one_.groups * one_.filters * places_})
      extents.push_back(Extent{static_cast<std::uint64_t>(count) * element, element});
    flops = 2.0 * static_cast<double>(batch_ * one_.groups * one_.filters * places_) *
            static_cast<double>(terms_);
  }

  bool run(const DeviceAddress* addresses, Scratch& scratch, Part part) const override {
    // A channel of y.
    const PartRange range(part, batch_ * one_.groups * one_.filters);
    if (range.first == range.last) return true;
    const std::int64_t columns = std::min(padded(places_, kProductColumns), kColumns),
                       depth = std::min(terms_, kDepth),
                       rows = std::min(padded(one_.filters, kProductRows), kRows);
    float* memory =
        scratch.floats(static_cast<std::size_t>(depth * columns + rows * depth + one_.filters * columns));
    const Panels panels{memory, memory + depth * columns, memory + depth * columns + rows * depth};
    for (std::int64_t layer = range.first / one_.filters; layer * one_.filters < range.last; ++layer) {
      const std::int64_t start = layer * one_.filters, first = std::max(range.first - start, std::int64_t{0}),
                         last = std::min(range.last - start, one_.filters);
      for (std::int64_t place = 0; place < places_; place += kColumns)
        convolve(addresses, panels, layer, first, last, place);
    }
    return true;
  }

 private:
  struct Panels {
    float *x, *w;
    float* y;  // filters × (places of this block), the sums so far
  };

  // Filters first to last of a group of an image, which is the layer, at the places of a block.
  void convolve(const DeviceAddress* addresses, const Panels& panels, std::int64_t layer, std::int64_t first,
                std::int64_t last, std::int64_t place) const {
    const std::int64_t columns = std::min(kColumns, places_ - place),
                       stride = padded(columns, kProductColumns), group = layer % one_.groups;
    std::memset(panels.y, 0, static_cast<std::size_t>(one_.filters * stride) * sizeof(float));
    for (std::int64_t term = 0; term < terms_; term += kDepth) {
      const std::int64_t depth = std::min(kDepth, terms_ - term);
      packPlaces(panels.x, addresses[0], layer, term, depth, place, columns);
      for (std::int64_t row = first; row < last; row += kRows) {
        const std::int64_t rows = std::min(kRows, last - row);
        packFilters(panels.w, addresses[1], group * one_.filters + row, rows, term, depth);
        for (std::int64_t c = 0; c < columns; c += kProductColumns)
          for (std::int64_t r = 0; r < rows; r += kProductRows)
            tile_(std::min(kProductRows, rows - r), panels.w + r * depth, panels.x + c * depth,
                  panels.y + (row + r) * stride + c, stride, depth);
      }
    }
    if (one_.channelsLast)
      storeLast(addresses[2], panels.y, stride, layer, first, last, place, columns);
    else
      for (std::int64_t row = first; row < last; ++row)
        element::store(addresses[2], type_, (layer * one_.filters + row) * places_ + place,
                       panels.y + row * stride, columns);
  }

  // The filters of a place lie side by side.
  void storeLast(DeviceAddress base, const float* sums, std::int64_t stride, std::int64_t layer,
                 std::int64_t first, std::int64_t last, std::int64_t place, std::int64_t columns) const {
    constexpr std::int64_t most = 256;
    alignas(64) float line[most];
    const std::int64_t image = layer / one_.groups, group = layer % one_.groups;
    for (std::int64_t c = 0; c < columns; ++c)
      for (std::int64_t from = first; from < last; from += most) {
        const std::int64_t count = std::min(most, last - from);
        for (std::int64_t i = 0; i < count; ++i) line[i] = sums[(from + i) * stride + c];
        element::store(base, type_,
                       ((image * places_ + place + c) * one_.groups + group) * one_.filters + from, line,
                       count);
      }
  }

  // Filters in tiles of six: for each term the six side by side. Those beyond the last are left as they are.
  void packFilters(float* to, DeviceAddress base, std::int64_t filter, std::int64_t rows, std::int64_t term,
                   std::int64_t depth) const {
    alignas(64) float line[kDepth];
    for (std::int64_t r = 0; r < rows; ++r) {
      element::load(line, base, type_, (filter + r) * terms_ + term, depth);
      float* target = to + r / kProductRows * kProductRows * depth + r % kProductRows;
      for (std::int64_t i = 0; i < depth; ++i) target[i * kProductRows] = line[i];
    }
  }

  // Places in tiles of sixteen: for each term what it meets at sixteen of them, with zeros beyond the last.
  void packPlaces(float* to, DeviceAddress base, std::int64_t layer, std::int64_t term, std::int64_t depth,
                  std::int64_t place, std::int64_t columns) const {
    alignas(64) float line[kColumns];
    const std::int64_t width = padded(columns, kProductColumns), taps = one_.taps();
    std::fill(line + columns, line + width, 0.0f);
    for (std::int64_t i = 0; i < depth; ++i) {
      const std::int64_t number = term + i,
                         channel = one_.channelsLast ? number % one_.channels : number / taps;
      std::int64_t tap = one_.channelsLast ? number / one_.channels : number % taps, taps3[3];
      for (int d = 2; d >= 0; --d) taps3[d] = tap % dims_[d].kernel, tap /= dims_[d].kernel;
      const std::int64_t start = one_.channelsLast ? layer / one_.groups * inputs_ * step_ +
                                                         layer % one_.groups * one_.channels + channel
                                                   : (layer * one_.channels + channel) * inputs_;
      meet(line, base, start, taps3, place, columns);
      for (std::int64_t c = 0; c < width; c += kProductColumns)
        std::memcpy(to + c * depth + i * kProductColumns, line + c, kProductColumns * sizeof(float));
    }
  }

  // What an element of the kernel meets at places that follow one another, line by line, in the channel of x
  // that starts there.
  void meet(float* to, DeviceAddress base, std::int64_t start, const std::int64_t (&tap)[3],
            std::int64_t place, std::int64_t count) const {
    const ConvDim& inner = dims_[2];
    const std::int64_t width = inner.output(), height = dims_[1].output();
    while (count > 0) {
      const std::int64_t x = place % width, y = place / width % height, z = place / width / height;
      const std::int64_t run = std::min(count, width - x);
      const std::int64_t i = z * dims_[0].stride + tap[0] * dims_[0].dilation - dims_[0].before,
                         j = y * dims_[1].stride + tap[1] * dims_[1].dilation - dims_[1].before;
      const std::int64_t shift = tap[2] * inner.dilation - inner.before;
      std::int64_t first = 0, last = 0;  // of the run, the places inside of x
      if (i >= 0 && i < dims_[0].input && j >= 0 && j < dims_[1].input) {
        // x + first is the first place whose element is not before the first one of the line.
        first = std::clamp((-shift + inner.stride - 1) / inner.stride - x, std::int64_t{0}, run);
        if (shift >= 0) first = 0;
        last = shift >= inner.input
                   ? first
                   : std::clamp((inner.input - 1 - shift) / inner.stride + 1 - x, first, run);
      }
      std::fill(to, to + first, 0.0f);
      if (last > first)
        element::load(
            to + first, base, type_,
            start + ((i * dims_[1].input + j) * inner.input + (x + first) * inner.stride + shift) * step_,
            last - first, inner.stride * step_);
      std::fill(to + last, to + run, 0.0f);
      to += run, place += run, count -= run;
    }
  }

  ConvSpec one_;
  DType type_;
  std::int64_t batch_, inputs_, terms_, places_,
      step_;  // step: from one element of a channel of x to the next
  ConvDim dims_[3];
  ProductTile tile_;
};

}  // namespace
}  // namespace conv

CpuKernelResult makeCpuConv(const KernelSpec& spec) { return std::make_unique<conv::CpuConv>(spec); }

}  // namespace braid
