#pragma once

#include <cstdint>

namespace braid {

// The products of attention on the processor: c[rows][width] += a[rows][depth] · b[depth][width], where the
// rows of a are `strideA` apart and the width is a multiple of 16. The products are added in order of the
// depth, with a rounding after each multiply and each add.
using AttentionTile = void (*)(std::int64_t rows, const float* a, std::int64_t strideA, const float* b,
                               std::int64_t width, float* c, std::int64_t depth);
// The one for this processor; all yield the same bits.
AttentionTile attentionTile();

inline std::int64_t paddedToTile(std::int64_t width) { return (width + 15) / 16 * 16; }

}  // namespace braid
