#pragma once

#include <cstdint>

namespace braid {

// The register tile of products on the processor: c += a · b, of `rows` rows (at most kProductRows) and
// kProductColumns columns, whose rows in c are `stride` apart. a is packed by k, kProductRows elements each,
// b by k, kProductColumns elements each. The products are added in order of k, with a rounding after each
// multiply and each add.
constexpr std::int64_t kProductRows = 6, kProductColumns = 16;
using ProductTile = void (*)(std::int64_t rows, const float* a, const float* b, float* c, std::int64_t stride,
                             std::int64_t depth);
// The one for this processor; all yield the same bits.
ProductTile productTile();

}  // namespace braid
