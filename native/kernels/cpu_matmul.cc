#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/cpu.h"
#include "kernels/element.h"
#include "kernels/product_tile.h"

// A blocked matrix product: panels of both operands are widened to f32 and laid side by side, then a register
// tile runs over them. Each element of c adds its products in order of k with a rounding after each multiply
// and each add, so the answer is bit for bit that of the three plain loops over Math.fround, whatever the
// blocks and whatever the processor.

namespace braid {
namespace {

constexpr std::int64_t kRows = 96, kDepth = 256, kColumns = 512;  // of one block of a, of both, and of b

std::int64_t roundUp(std::int64_t value, std::int64_t unit) { return (value + unit - 1) / unit * unit; }

class CpuMatmul final : public CpuKernel {
 public:
  explicit CpuMatmul(const KernelSpec& spec) : spec_(spec), tile_(productTile()) {
    readCount = 2 + spec.epilogue.reads();
    writeCount = spec.epilogue.writes();
    const auto extent = [](std::int64_t elements, DType type) {
      const auto bytes = static_cast<std::uint32_t>(elementBytes(type));
      return Extent{static_cast<std::uint64_t>(elements) * bytes, bytes};
    };
    extents = {extent(spec.endOfA(), spec.a.dtype), extent(spec.endOfB(), spec.b.dtype)};
    const Extent c = extent(spec.endOfC(), spec.c.dtype);
    if (spec.epilogue.bias) extents.push_back(extent(spec.n, spec.c.dtype));
    if (spec.epilogue.residual) extents.push_back(c);
    extents.insert(extents.end(), spec.epilogue.writes(), c);
    if (spec.epilogue.auxiliary) extents.back().alignment = kAuxiliaryAlignment;
    flops = 2.0 * static_cast<double>(spec.m) * static_cast<double>(spec.n) * static_cast<double>(spec.k) *
            static_cast<double>(spec.batch);
  }

  bool run(const DeviceAddress* addresses, Scratch& scratch, Part part) const override {
    const PartRange range(part, spec_.m);
    if (range.first == range.last) return true;
    const std::int64_t columns = std::min(roundUp(spec_.n, kProductColumns), kColumns),
                       depth = std::min(spec_.k, kDepth);
    const std::int64_t rows = std::min(roundUp(spec_.m, kProductRows), kRows);
    float* memory =
        scratch.floats(static_cast<std::size_t>(depth * columns + rows * depth + spec_.m * columns));
    Panels panels{memory, memory + depth * columns, memory + depth * columns + rows * depth};
    for (std::int64_t i = 0; i < spec_.batch; ++i)
      for (std::int64_t column = 0; column < spec_.n; column += kColumns)
        multiply(addresses, panels, range, i, column);
    return true;
  }

 private:
  struct Panels {
    float *b, *a;
    float* c;  // m × (columns of this block), the sums so far
  };

  void multiply(const DeviceAddress* addresses, const Panels& panels, const PartRange& range,
                std::int64_t batch, std::int64_t firstColumn) const {
    const std::int64_t columns = std::min(kColumns, spec_.n - firstColumn),
                       stride = roundUp(columns, kProductColumns);
    std::memset(panels.c, 0, static_cast<std::size_t>(spec_.m * stride) * sizeof(float));
    for (std::int64_t k = 0; k < spec_.k; k += kDepth) {
      const std::int64_t depth = std::min(kDepth, spec_.k - k);
      packB(panels.b, addresses[1], spec_.b.offset + batch * spec_.b.batchStride, k, depth, firstColumn,
            columns);
      for (std::int64_t row = range.first; row < range.last; row += kRows) {
        const std::int64_t rows = std::min(kRows, range.last - row);
        packA(panels.a, addresses[0], spec_.a.offset + batch * spec_.a.batchStride, row, rows, k, depth);
        for (std::int64_t c = 0; c < columns; c += kProductColumns)
          for (std::int64_t r = 0; r < rows; r += kProductRows)
            tile_(std::min(kProductRows, rows - r), panels.a + r * depth, panels.b + c * depth,
                  panels.c + (row + r) * stride + c, stride, depth);
      }
    }
    for (std::int64_t row = range.first; row < range.last; ++row) {
      const std::int64_t at = batch * spec_.c.batchStride + row * spec_.n + firstColumn;
      finish(addresses, panels.c + row * stride, at, firstColumn, columns);
      element::store(addresses[readCount], spec_.c.dtype, at, panels.c + row * stride, columns);
    }
  }

  // The epilogue over part of a row, each step rounded as a map would round it.
  void finish(const DeviceAddress* addresses, float* sums, std::int64_t at, std::int64_t column,
              std::int64_t count) const {
    const MatmulEpilogue& epilogue = spec_.epilogue;
    alignas(64) float beside[kColumns];
    if (const auto scale = static_cast<float>(epilogue.scale); scale != 1.0f)
      for (std::int64_t i = 0; i < count; ++i) sums[i] *= scale;
    if (epilogue.bias) {
      element::load(beside, addresses[2], spec_.c.dtype, column, count);
      for (std::int64_t i = 0; i < count; ++i) sums[i] += beside[i];
    }
    if (epilogue.auxiliary) element::store(addresses[readCount + 1], spec_.c.dtype, at, sums, count);
    if (epilogue.activation == Activation::relu)
      for (std::int64_t i = 0; i < count; ++i) sums[i] = element::max(sums[i], 0.0f);
    if (epilogue.activation == Activation::gelu)
      for (std::int64_t i = 0; i < count; ++i) sums[i] = gelu(sums[i]);
    if (epilogue.residual) {
      element::load(beside, addresses[epilogue.bias ? 3 : 2], spec_.c.dtype, at, count);
      for (std::int64_t i = 0; i < count; ++i) sums[i] += beside[i];
    }
  }

  // In the steps of the operator of that name.
  static float gelu(float x) {
    const float inner = (x + x * x * x * 0.044715f) * 0.7978845608028654f;
    return x * 0.5f * (static_cast<float>(std::tanh(static_cast<double>(inner))) + 1.0f);
  }

  // Rows of a in tiles of six: for each k the six rows side by side. Rows beyond the last are left as they
  // are, and not read.
  void packA(float* to, DeviceAddress base, std::int64_t start, std::int64_t row, std::int64_t rows,
             std::int64_t k, std::int64_t depth) const {
    alignas(64) float line[kDepth];
    static_assert(kRows <= kDepth);
    if (spec_.transposeA) {
      const std::int64_t stride = spec_.a.row(spec_.m);
      for (std::int64_t i = 0; i < depth; ++i) {
        element::load(line, base, spec_.a.dtype, start + (k + i) * stride + row, rows);
        for (std::int64_t r = 0; r < rows; ++r)
          to[r / kProductRows * kProductRows * depth + r % kProductRows + i * kProductRows] = line[r];
      }
      return;
    }
    const std::int64_t stride = spec_.a.row(spec_.k);
    for (std::int64_t r = 0; r < rows; ++r) {
      element::load(line, base, spec_.a.dtype, start + (row + r) * stride + k, depth);
      float* target = to + r / kProductRows * kProductRows * depth + r % kProductRows;
      for (std::int64_t i = 0; i < depth; ++i) target[i * kProductRows] = line[i];
    }
  }

  // Columns of b in tiles of sixteen: for each k sixteen columns side by side, with zeros beyond the last.
  void packB(float* to, DeviceAddress base, std::int64_t start, std::int64_t k, std::int64_t depth,
             std::int64_t column, std::int64_t columns) const {
    alignas(64) float line[std::max(kDepth, kColumns)];
    const std::int64_t padded = roundUp(columns, kProductColumns);
    const std::int64_t stride = spec_.b.row(spec_.transposeB ? spec_.k : spec_.n);
    if (spec_.transposeB) {
      for (std::int64_t c = 0; c < padded; ++c) {
        float* target = to + c / kProductColumns * kProductColumns * depth + c % kProductColumns;
        if (c < columns)
          element::load(line, base, spec_.b.dtype, start + (column + c) * stride + k, depth);
        else
          std::fill_n(line, depth, 0.0f);
        for (std::int64_t i = 0; i < depth; ++i) target[i * kProductColumns] = line[i];
      }
      return;
    }
    std::fill_n(line, padded, 0.0f);
    for (std::int64_t i = 0; i < depth; ++i) {
      element::load(line, base, spec_.b.dtype, start + (k + i) * stride + column, columns);
      for (std::int64_t c = 0; c < padded; c += kProductColumns)
        std::memcpy(to + c * depth + i * kProductColumns, line + c, kProductColumns * sizeof(float));
    }
  }

  KernelSpec spec_;
  ProductTile tile_;
};

}  // namespace

CpuKernelResult makeCpuMatmul(const KernelSpec& spec) { return std::make_unique<CpuMatmul>(spec); }

}  // namespace braid
