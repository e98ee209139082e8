#include "kernels/product_tile.h"

#include "kernels/cpu.h"

namespace braid {
namespace product {
namespace {

using Vector = float __attribute__((vector_size(32), aligned(4)));
constexpr std::int64_t kLanes = 8, kVectors = kProductColumns / kLanes;

// c[Rows][16] += a[depth][6] · b[depth][16], both packed.
template <int Rows>
inline __attribute__((always_inline)) void tile(const float* a, const float* b, float* c, std::int64_t stride,
                                                std::int64_t depth) {
  Vector sum[Rows][kVectors];
  for (int r = 0; r < Rows; ++r)
    for (int v = 0; v < kVectors; ++v)
      sum[r][v] = *reinterpret_cast<const Vector*>(c + r * stride + v * kLanes);
  for (std::int64_t k = 0; k < depth; ++k) {
    const Vector b0 = *reinterpret_cast<const Vector*>(b), b1 = *reinterpret_cast<const Vector*>(b + kLanes);
    for (int r = 0; r < Rows; ++r) {
      sum[r][0] += a[r] * b0;
      sum[r][1] += a[r] * b1;
    }
    a += kProductRows;
    b += kProductColumns;
  }
  for (int r = 0; r < Rows; ++r)
    for (int v = 0; v < kVectors; ++v) *reinterpret_cast<Vector*>(c + r * stride + v * kLanes) = sum[r][v];
}

inline __attribute__((always_inline)) void tileOf(std::int64_t rows, const float* a, const float* b, float* c,
                                                  std::int64_t stride, std::int64_t depth) {
  switch (rows) {
    case 1: return tile<1>(a, b, c, stride, depth);
    case 2: return tile<2>(a, b, c, stride, depth);
    case 3: return tile<3>(a, b, c, stride, depth);
    case 4: return tile<4>(a, b, c, stride, depth);
    case 5: return tile<5>(a, b, c, stride, depth);
    default: return tile<6>(a, b, c, stride, depth);
  }
}

void tilePlain(std::int64_t rows, const float* a, const float* b, float* c, std::int64_t stride,
               std::int64_t depth) {
  tileOf(rows, a, b, c, stride, depth);
}
#if defined(__x86_64__)
// AVX2 without FMA, on purpose.
__attribute__((target("avx2"))) void tileAvx2(std::int64_t rows, const float* a, const float* b, float* c,
                                              std::int64_t stride, std::int64_t depth) {
  tileOf(rows, a, b, c, stride, depth);
}
#endif

}  // namespace
}  // namespace product

ProductTile productTile() {
#if defined(__x86_64__)
  if (cpuHasAvx2()) return product::tileAvx2;
#endif
  return product::tilePlain;
}

}  // namespace braid
