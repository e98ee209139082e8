#include "kernels/attention_tile.h"

#include "kernels/cpu.h"

namespace braid {
namespace attention {
namespace {

using Vector = float __attribute__((vector_size(32), aligned(4)));
constexpr std::int64_t kLanes = 8, kTileRows = 4, kTileVectors = 2;

// c[rows][width] += a[rows][depth] · b[depth][width], where the width is a multiple of 16.
template <int Rows>
inline __attribute__((always_inline)) void tile(const float* a, std::int64_t strideA, const float* b,
                                                std::int64_t width, float* c, std::int64_t depth) {
  Vector sum[Rows][kTileVectors];
  for (int r = 0; r < Rows; ++r)
    for (int v = 0; v < kTileVectors; ++v)
      sum[r][v] = *reinterpret_cast<const Vector*>(c + r * width + v * kLanes);
  for (std::int64_t k = 0; k < depth; ++k) {
    const Vector b0 = *reinterpret_cast<const Vector*>(b + k * width),
                 b1 = *reinterpret_cast<const Vector*>(b + k * width + kLanes);
    for (int r = 0; r < Rows; ++r) {
      sum[r][0] += a[r * strideA + k] * b0;
      sum[r][1] += a[r * strideA + k] * b1;
    }
  }
  for (int r = 0; r < Rows; ++r)
    for (int v = 0; v < kTileVectors; ++v) *reinterpret_cast<Vector*>(c + r * width + v * kLanes) = sum[r][v];
}

inline __attribute__((always_inline)) void accumulate(std::int64_t rows, const float* a, std::int64_t strideA,
                                                      const float* b, std::int64_t width, float* c,
                                                      std::int64_t depth) {
  for (std::int64_t r = 0; r < rows; r += kTileRows)
    for (std::int64_t w = 0; w < width; w += kTileVectors * kLanes) {
      const float* left = a + r * strideA;
      float* to = c + r * width + w;
      switch (rows - r) {
        case 1: tile<1>(left, strideA, b + w, width, to, depth); break;
        case 2: tile<2>(left, strideA, b + w, width, to, depth); break;
        case 3: tile<3>(left, strideA, b + w, width, to, depth); break;
        default: tile<4>(left, strideA, b + w, width, to, depth);
      }
    }
}

void accumulatePlain(std::int64_t rows, const float* a, std::int64_t strideA, const float* b,
                     std::int64_t width, float* c, std::int64_t depth) {
  accumulate(rows, a, strideA, b, width, c, depth);
}
#if defined(__x86_64__)
__attribute__((target("avx2"))) void accumulateAvx2(std::int64_t rows, const float* a, std::int64_t strideA,
                                                    const float* b, std::int64_t width, float* c,
                                                    std::int64_t depth) {
  accumulate(rows, a, strideA, b, width, c, depth);
}
#endif

}  // namespace
}  // namespace attention

AttentionTile attentionTile() {
#if defined(__x86_64__)
  if (cpuHasAvx2()) return attention::accumulateAvx2;
#endif
  return attention::accumulatePlain;
}

}  // namespace braid
