#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "kernels/cpu_attention.h"

// What the way back of attention needs, in the order of FlashAttention-2 (Dao, 2023), without scores in
// memory. Rows of the result stay, queries or keys, and tiles of the others pass: of a score s, and of dy ·
// v, follow
//
//   weight = exp(s · scale − logSumExp)      by score = weight · (dy · v − sum of dy · y) · scale
//
// and gradients are sums of weights by dy (of values), or of the latter by keys (of queries) and by queries
// (of keys). The order of additions depends on sizes alone, so equal inputs give equal bits.

namespace braid {
namespace attention {
namespace {

constexpr std::int64_t kTile = 64, kRows = 24;
constexpr float kNever = -std::numeric_limits<float>::infinity();

class CpuAttentionGradient final : public CpuAttentionKernel {
 public:
  explicit CpuAttentionGradient(const KernelSpec& spec)
      : CpuAttentionKernel(spec),
        needsInner_(one_.result == AttentionResult::byQueries || one_.result == AttentionResult::byKeys),
        ofValues_(one_.result == AttentionResult::byValues || one_.withValues),
        rows_(spec.batch * one_.resultHeads() * one_.resultRows()),
        size_(paddedToTile(one_.size)),
        valueSize_(paddedToTile(one_.valueSize)) {
    const double products = 0.5 + (needsInner_ ? 1.0 : 0.0) + (ofValues_ ? 0.5 : 0.0);
    flops = 2.0 * static_cast<double>(spec.batch * one_.heads * one_.queries) *
            static_cast<double>(one_.keys) * static_cast<double>(one_.size + one_.valueSize) * products *
            (one_.causal ? 0.5 : 1.0);
  }

  bool run(const DeviceAddress* addresses, Scratch& scratch, Part part) const override {
    const PartRange range(part, rows_);
    float* memory = scratch.floats(
        static_cast<std::size_t>(2 * kTile * (size_ + valueSize_) +
                                 kRows * (one_.size + one_.valueSize + 2 * kTile + size_ + valueSize_ + 2)));
    const auto take = [&memory](std::int64_t count) { return std::exchange(memory, memory + count); };
    Block block{};
    block.first = {take(kTile * size_), take(kTile * size_)};
    block.second = {take(kTile * valueSize_), take(kTile * valueSize_)};
    block.left = take(kRows * one_.size), block.right = take(kRows * one_.valueSize);
    block.scores = take(kRows * kTile), block.inner = take(kRows * kTile);
    block.sums = take(kRows * size_), block.valueSums = take(kRows * valueSize_), block.most = take(kRows),
    block.totals = take(kRows);
    const std::int64_t there = thereAt(addresses);
    for (std::int64_t row = range.first; row < range.last; row += block.rows) {
      const std::int64_t within = row % one_.resultRows(), layer = row / one_.resultRows();
      block.batch = layer / one_.resultHeads(), block.head = layer % one_.resultHeads();
      block.row = within;
      block.rows = std::min({kRows, range.last - row, one_.resultRows() - within});
      compute(addresses, block, there);
    }
    return true;
  }

 private:
  // Rows that pass: as they are, [kTile][padded], and by column, [size][kTile].
  struct Tile {
    float *rows, *columns;
  };
  struct Block {
    Tile first, second;  // keys and values, or queries and dy
    float *left, *right, *scores, *inner, *sums, *valueSums, *most, *totals;
    std::int64_t batch, head, row, rows;
  };
  struct Source {
    std::size_t index;
    const AttentionOperand* operand;
  };

  // The rows that stay, and those that pass, of each of the two products.
  Source queries() const { return {0, &one_.q}; }
  Source keys() const { return {1, &one_.k}; }
  Source values() const { return {2, &one_.v}; }
  Source given() const { return {readCount - 3, &one_.dy}; }

  void rowsOf(const DeviceAddress* addresses, const Source& source, const Block& block, std::int64_t size,
              float* to) const {
    for (std::int64_t r = 0; r < block.rows; ++r)
      element::load(to + r * size, addresses[source.index], type_,
                    at(*source.operand, block.batch, block.head, block.row + r), size);
  }

  // Zeros where there are no more.
  void tileOf(const DeviceAddress* addresses, const Source& source, const Block& block, std::int64_t head,
              std::int64_t first, std::int64_t count, std::int64_t size, const Tile& tile) const {
    const std::int64_t padded = paddedToTile(size);
    std::fill_n(tile.rows, kTile * padded, 0.0f);
    for (std::int64_t j = 0; j < count; ++j)
      element::load(tile.rows + j * padded, addresses[source.index], type_,
                    at(*source.operand, block.batch, head, first + j), size);
    for (std::int64_t d = 0; d < size; ++d)
      for (std::int64_t j = 0; j < kTile; ++j) tile.columns[d * kTile + j] = tile.rows[j * padded + d];
  }

  void compute(const DeviceAddress* addresses, const Block& block, std::int64_t there) const {
    const bool byKeys = one_.standsByKeys();
    std::fill_n(block.sums, block.rows * size_, 0.0f);
    std::fill_n(block.valueSums, block.rows * valueSize_, 0.0f);
    std::fill_n(block.most, block.rows, kNever);
    std::fill_n(block.totals, block.rows, 0.0f);
    rowsOf(addresses, byKeys ? keys() : queries(), block, one_.size, block.left);
    if (needsInner_) rowsOf(addresses, byKeys ? values() : given(), block, one_.valueSize, block.right);
    const std::int64_t shared = one_.heads / one_.groups;
    if (byKeys) {
      // The first query that sees the first of these keys.
      const std::int64_t first = block.row >= there ? one_.queries
                                 : one_.causal ? std::max<std::int64_t>(0, block.row - there + one_.queries)
                                               : 0;
      for (std::int64_t h = 0; h < shared; ++h)
        for (std::int64_t j = first / kTile * kTile; j < one_.queries; j += kTile)
          pass(addresses, block, block.head * shared + h, block.head * shared + h, j,
               std::min(kTile, one_.queries - j), there);
    } else {
      const std::int64_t end = limit(block.row + block.rows - 1, there);
      for (std::int64_t j = 0; j < end; j += kTile)
        pass(addresses, block, block.head, block.head / shared, j, std::min(kTile, end - j), there);
    }
    const auto write = [&](std::size_t index, const AttentionOperand& to, DType type, std::int64_t r,
                           const float* from, std::int64_t count) {
      element::store(addresses[readCount + index], type, at(to, block.batch, block.head, block.row + r), from,
                     count);
    };
    for (std::int64_t r = 0; r < block.rows; ++r) {
      float* sums = block.sums + r * size_;
      if (needsInner_)
        for (std::int64_t n = 0; n < one_.size; ++n) sums[n] *= scale_;
      if (!one_.isGradient()) sums[0] = std::log(block.totals[r]) + block.most[r];
      if (needsInner_ || !one_.isGradient())
        write(0, one_.y, one_.resultType(type_), r, sums, one_.resultRow());
      if (ofValues_)
        write(needsInner_ ? 1 : 0, needsInner_ ? one_.dv : one_.y, type_, r, block.valueSums + r * valueSize_,
              one_.valueSize);
    }
  }

  // A tile of rows of `source`, a head or a group, whose scores are those of the head.
  void pass(const DeviceAddress* addresses, const Block& block, std::int64_t head, std::int64_t source,
            std::int64_t first, std::int64_t count, std::int64_t there) const {
    const bool byKeys = one_.standsByKeys(), isGradient = one_.isGradient();
    tileOf(addresses, byKeys ? queries() : keys(), block, source, first, count, one_.size, block.first);
    if (isGradient)
      tileOf(addresses, byKeys ? given() : values(), block, source, first, count, one_.valueSize,
             block.second);
    std::fill_n(block.scores, block.rows * kTile, 0.0f);
    accumulate_(block.rows, block.left, one_.size, block.first.columns, kTile, block.scores, one_.size);
    if (needsInner_) {
      std::fill_n(block.inner, block.rows * kTile, 0.0f);
      accumulate_(block.rows, block.right, one_.valueSize, block.second.columns, kTile, block.inner,
                  one_.valueSize);
    }
    const std::int64_t layer = (block.batch * one_.heads + head) * one_.queries;
    const auto* logs = reinterpret_cast<const float*>(addresses[readCount - 2]) + layer;
    const auto* products = reinterpret_cast<const float*>(addresses[readCount - 1]) + layer;
    for (std::int64_t r = 0; r < block.rows; ++r) {
      float* scores = block.scores + r * kTile;
      const auto sees = [&](std::int64_t j) {
        const std::int64_t query = byKeys ? first + j : block.row + r;
        const std::int64_t key = byKeys ? block.row + r : first + j;
        return j < count && key < limit(query, there) && isSeen(addresses, block.batch, head, query, key);
      };
      if (!isGradient) {
        add(block, r, scores, sees);
        continue;
      }
      for (std::int64_t j = 0; j < kTile; ++j) {
        const bool seen = sees(j);
        const std::int64_t query = byKeys ? first + j : block.row + r;
        scores[j] = seen ? std::exp(scores[j] * scale_ - logs[query]) : 0.0f;
        float& inner = block.inner[r * kTile + j];
        inner = seen && needsInner_ ? scores[j] * (inner - products[query]) : 0.0f;
      }
    }
    if (ofValues_)
      accumulate_(block.rows, block.scores, kTile, block.second.rows, valueSize_, block.valueSums, kTile);
    if (needsInner_) accumulate_(block.rows, block.inner, kTile, block.first.rows, size_, block.sums, kTile);
  }

  // Scores of a row are added to its sum of exponentials, which is relative to the largest one so far.
  template <typename Sees>
  void add(const Block& block, std::int64_t r, const float* scores, const Sees& sees) const {
    float most = block.most[r];
    for (std::int64_t j = 0; j < kTile; ++j)
      if (sees(j)) most = element::max(most, scores[j] * scale_);
    const float base = most == kNever ? 0.0f : most;
    float total = block.totals[r] * std::exp(block.most[r] - base);
    for (std::int64_t j = 0; j < kTile; ++j)
      if (sees(j)) total += std::exp(scores[j] * scale_ - base);
    block.most[r] = most;
    block.totals[r] = total;
  }

  const bool needsInner_, ofValues_;
  const std::int64_t rows_;              // of all batches and heads
  const std::int64_t size_, valueSize_;  // padded
};

}  // namespace
}  // namespace attention

CpuKernelResult makeCpuAttentionGradient(const KernelSpec& spec) {
  return std::make_unique<attention::CpuAttentionGradient>(spec);
}

}  // namespace braid
