#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <tuple>
#include <utility>

#include "kernels/cpu_attention.h"

// Attention over blocks of keys: what is kept of the keys so far is, for each query, the largest score, the
// sum of the weights relative to it, and the weighted sum of the values. Scores never leave a block. The
// blocks depend on sizes alone, so equal inputs give equal bits.

namespace braid {
namespace attention {
namespace {

constexpr std::int64_t kKeys = 64, kRows = 24;
constexpr float kNever = -std::numeric_limits<float>::infinity();

class CpuAttention final : public CpuAttentionKernel {
 public:
  explicit CpuAttention(const KernelSpec& spec)
      : CpuAttentionKernel(spec), rows_(spec.batch * one_.heads * one_.queries) {
    flops = 2.0 * static_cast<double>(rows_) * static_cast<double>(one_.keys) *
            static_cast<double>(one_.size + one_.valueSize) * (one_.causal ? 0.5 : 1.0);
  }

  bool run(const DeviceAddress* addresses, Scratch& scratch, Part part) const override {
    // Halves of the queries may read the same new rows: all is in the second half then.
    if (one_.appended > 0 && part == Part::first) return true;
    if (one_.appended > 0) append(addresses);
    const PartRange range(one_.appended > 0 ? Part::all : part, rows_);
    const std::int64_t width = paddedToTile(one_.valueSize);
    float* memory = scratch.floats(static_cast<std::size_t>(one_.size * kKeys + kKeys * width +
                                                            kRows * (one_.size + kKeys + width + 2)));
    Block block{};
    const auto take = [&memory](std::int64_t count) { return std::exchange(memory, memory + count); };
    block.keys = take(one_.size * kKeys), block.values = take(kKeys * width);
    block.queries = take(kRows * one_.size), block.scores = take(kRows * kKeys);
    block.sums = take(kRows * width), block.most = take(kRows), block.totals = take(kRows);
    const std::int64_t there = thereAt(addresses);
    // Rows that follow one another and read the same keys.
    const std::int64_t together = one_.heads / one_.groups * one_.queries;
    for (std::int64_t row = range.first; row < range.last; row += block.rows) {
      block.first = row;
      block.rows = std::min({kRows, range.last - row, together - row % together});
      attend(addresses, block, there);
    }
    return true;
  }

 private:
  // Keys lie by column: [size][kKeys]; values, and the sums, by row of paddedToTile(valueSize).
  struct Block {
    float *keys, *values, *queries, *scores, *sums, *most, *totals;
    std::int64_t first, rows;
  };

  // Rows whose place is outside are not written.
  void append(const DeviceAddress* addresses) const {
    const std::int64_t first = *reinterpret_cast<const std::int32_t*>(addresses[readCount - 1]);
    const std::size_t element = elementBytes(type_);
    for (const auto& [operand, row, which] :
         {std::tuple{&one_.k, one_.size, 0u}, std::tuple{&one_.v, one_.valueSize, 1u}}) {
      const auto* from = reinterpret_cast<const std::byte*>(addresses[readCount - 3 + which]);
      auto* to = reinterpret_cast<std::byte*>(addresses[readCount + 1 + which]);
      const std::size_t bytes = static_cast<std::size_t>(row) * element;
      for (std::int64_t layer = 0; layer < batch_ * one_.groups; ++layer)
        for (std::int64_t j = 0; j < one_.appended; ++j, from += bytes) {
          if (first + j < 0 || first + j >= one_.keys) continue;
          const std::int64_t place = at(*operand, layer / one_.groups, layer % one_.groups, first + j);
          std::memcpy(to + static_cast<std::size_t>(place) * element, from, bytes);
        }
    }
  }

  std::int64_t batchOf(std::int64_t row) const { return row / one_.queries / one_.heads; }
  std::int64_t headOf(std::int64_t row) const { return row / one_.queries % one_.heads; }
  void attend(const DeviceAddress* addresses, const Block& block, std::int64_t there) const {
    const std::int64_t width = paddedToTile(one_.valueSize);
    std::fill_n(block.sums, block.rows * width, 0.0f);
    std::fill_n(block.most, block.rows, kNever);
    std::fill_n(block.totals, block.rows, 0.0f);
    std::int64_t end = 0;
    for (std::int64_t r = 0; r < block.rows; ++r) {
      const std::int64_t row = block.first + r;
      element::load(block.queries + r * one_.size, addresses[0], type_,
                    at(one_.q, batchOf(row), headOf(row), row % one_.queries), one_.size);
      end = std::max(end, limit(row % one_.queries, there));
    }
    for (std::int64_t key = 0; key < end; key += kKeys) {
      const std::int64_t keys = std::min(kKeys, end - key);
      take(addresses, block, key, keys);
      std::fill_n(block.scores, block.rows * kKeys, 0.0f);
      accumulate_(block.rows, block.queries, one_.size, block.keys, kKeys, block.scores, one_.size);
      for (std::int64_t r = 0; r < block.rows; ++r) weigh(addresses, block, r, key, keys, there);
      accumulate_(block.rows, block.scores, kKeys, block.values, width, block.sums, kKeys);
    }
    for (std::int64_t r = 0; r < block.rows; ++r) {
      const std::int64_t row = block.first + r;
      float* sums = block.sums + r * width;
      for (std::int64_t n = 0; n < one_.valueSize; ++n) sums[n] /= block.totals[r];
      if (one_.logs)
        reinterpret_cast<float*>(addresses[readCount + 1])[block.first + r] =
            std::log(block.totals[r]) + block.most[r];
      element::store(addresses[readCount], type_, at(one_.y, batchOf(row), headOf(row), row % one_.queries),
                     sums, one_.valueSize);
    }
  }

  // Keys and values of a block, with zeros where there are no more.
  void take(const DeviceAddress* addresses, const Block& block, std::int64_t key, std::int64_t keys) const {
    const std::int64_t batch = batchOf(block.first), group = headOf(block.first) * one_.groups / one_.heads,
                       width = paddedToTile(one_.valueSize);
    if (keys < kKeys) {
      std::fill_n(block.keys, one_.size * kKeys, 0.0f);
      std::fill_n(block.values + keys * width, (kKeys - keys) * width, 0.0f);
    }
    for (std::int64_t j = 0; j < keys; ++j) {
      // The row of the key passes through the place of its values.
      const std::int64_t from = at(one_.k, batch, group, key + j);
      float* line = block.values + j * width;
      for (std::int64_t d = 0; d < one_.size; d += width) {
        const std::int64_t count = std::min(width, one_.size - d);
        element::load(line, addresses[1], type_, from + d, count);
        for (std::int64_t i = 0; i < count; ++i) block.keys[(d + i) * kKeys + j] = line[i];
      }
      std::fill_n(line, width, 0.0f);
      element::load(line, addresses[2], type_, at(one_.v, batch, group, key + j), one_.valueSize);
    }
  }

  // Scores of a row become weights relative to the largest one so far; earlier sums follow it.
  void weigh(const DeviceAddress* addresses, const Block& block, std::int64_t r, std::int64_t key,
             std::int64_t keys, std::int64_t there) const {
    const std::int64_t row = block.first + r, width = paddedToTile(one_.valueSize);
    const std::int64_t batch = batchOf(row), head = headOf(row), query = row % one_.queries;
    const std::int64_t own = std::clamp<std::int64_t>(limit(query, there) - key, 0, keys);
    float* scores = block.scores + r * kKeys;
    float most = block.most[r];
    for (std::int64_t j = 0; j < own; ++j) {
      scores[j] = isSeen(addresses, batch, head, query, key + j) ? scores[j] * scale_ : kNever;
      most = element::max(most, scores[j]);
    }
    std::fill(scores + own, scores + kKeys, kNever);
    // Nothing is seen so far: no score is relative to -∞.
    const float base = most == kNever ? 0.0f : most, shrink = std::exp(block.most[r] - base);
    float total = 0;
    for (std::int64_t j = 0; j < kKeys; ++j) {
      scores[j] = j < own ? std::exp(scores[j] - base) : 0.0f;
      total += scores[j];
    }
    block.most[r] = most;
    block.totals[r] = block.totals[r] * shrink + total;
    if (shrink != 1.0f)
      for (std::int64_t n = 0; n < width; ++n) block.sums[r * width + n] *= shrink;
  }

  const std::int64_t rows_;  // of all batches and heads
};

}  // namespace
}  // namespace attention

CpuKernelResult makeCpuAttention(const KernelSpec& spec) {
  return std::make_unique<attention::CpuAttention>(spec);
}

}  // namespace braid
