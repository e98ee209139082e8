#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>

#include "cuda/sources/map_code.h"
#include "cuda/sources/prelude.h"
#include "cuda/sources/source.h"
#include "cuda/sources/tensor_cores.h"

// Convolutions, three ways. A group's filters are a matrix of filters × terms, and what terms meet at places
// is one of terms × places, over all images; their product is the result. The second matrix is never in
// memory: a tile of it is read from x where it is needed (implicit GEMM).

namespace braid::cuda {
namespace conv {
namespace {

// What all three begin with. Inner holds places, terms and the offsets inside of a group of an image.
constexpr const char* kCommon = R"cuda(
constexpr bool HAS_MASK = TAPS <= 64;
// A term: a channel and a tap, which is an element of the kernel; -1: there is no such term. The offset leads
// from the corner at which the kernel lies to the element of x.
struct Term { Inner offset, tap; };
FN Term termOf(Inner channel, Inner tap) {
  const Inner z = tap / (KERNEL1 * KERNEL2) * DILATION0, y = tap / KERNEL2 % KERNEL1 * DILATION1;
  return {channel * CHANNEL_STEP + ((z * INPUT1 + y) * INPUT2 + tap % KERNEL2 * DILATION2) * STEP, tap};
}
FN Inner numberOf(Inner channel, Inner tap) { return LAST ? tap * CHANNELS + channel : channel * TAPS + tap; }
FN Term termOf(Inner term) {
  if (term >= TERMS) return {0, -1};
  return LAST ? termOf(term % CHANNELS, term / CHANNELS) : termOf(term / TAPS, term % TAPS);
}
// A place: where it is in y, the corner at which the kernel lies in x, which may be outside of it, and which
// taps are inside.
struct Place { const T* x; Inner image, at, corner, z, y, column; Mask mask; bool is; };
FN bool meets(const Place& place, Inner tap) {
  const Inner z = place.z + tap / (KERNEL1 * KERNEL2) * DILATION0;
  const Inner y = place.y + tap / KERNEL2 % KERNEL1 * DILATION1, x = place.column + tap % KERNEL2 * DILATION2;
  return place.is && z >= 0 && z < INPUT0 && y >= 0 && y < INPUT1 && x >= 0 && x < INPUT2;
}
FN Place placeOf(const T* x, Index group, Inner place) {
  Place made;
  made.is = place < BATCH * PLACES;
  made.image = place / PLACES, made.at = place % PLACES;
  made.z = made.at / (OUTPUT1 * OUTPUT2) * STRIDE0 - BEFORE0;
  made.y = made.at / OUTPUT2 % OUTPUT1 * STRIDE1 - BEFORE1;
  made.column = made.at % OUTPUT2 * STRIDE2 - BEFORE2;
  made.x = x + made.image * GROUPS * (CHANNELS * INPUTS) + group * CHANNELS * CHANNEL_STEP;
  made.corner = ((made.z * INPUT1 + made.y) * INPUT2 + made.column) * STEP;
  made.mask = 0;
  if (HAS_MASK)
    for (int tap = 0; tap < TAPS; ++tap)
      if (meets(made, tap)) made.mask |= (Mask)1 << tap;
  return made;
}
// The element of x that a term meets at a place; zero where it is outside.
FN T elementOf(const Place& place, const Term& term) {
  if (term.tap < 0) return T();
  const bool inside = HAS_MASK ? (place.mask >> term.tap & 1) != 0 : meets(place, term.tap);
  return inside ? place.x[place.corner + term.offset] : T();
}
// Where a result is in y: of a place, over all images, and of the first filters of a group.
FN Index resultAt(Index place, Index group, Inner filter) {
  const Index channel = group * FILTERS + filter;
  return LAST ? place * (GROUPS * FILTERS) + channel
              : (place / PLACES * (GROUPS * FILTERS) + channel) * PLACES + place % PLACES;
}
)cuda";

// 64 filters by 64 places, a 16 × 16 grid of threads, each with 4 × 4 of the sums. Any type, any size.
constexpr const char* kPlain = R"cuda(
extern "C" __global__ void __launch_bounds__(256) braid_conv(const T* x, const T* w, T* y, Index count) {
  gridDependencySync();
  __shared__ float left[16][68], right[16][64];
  const Index tilesF = (FILTERS + 63) / 64, tilesP = ((Index)BATCH * PLACES + 63) / 64, block = blockIdx.x;
  const Inner filter0 = block % tilesF * 64, place0 = block / tilesF % tilesP * 64;
  const Index group = block / tilesF / tilesP;
  const int x4 = threadIdx.x % 16 * 4, y4 = threadIdx.x / 16 * 4, own = threadIdx.x % 64;
  const Place place = placeOf(x, group, place0 + own);
  w += (group * FILTERS + filter0) * TERMS;
  float sum[4][4] = {};
  for (Inner term0 = 0; term0 < TERMS; term0 += 16) {
    __syncthreads();
    for (int i = threadIdx.x; i < 1024; i += 256) {
      const int row = i / 16, term = i % 16;
      const bool is = filter0 + row < FILTERS && term0 + term < TERMS;
      left[term][row] = is ? loadF(w[(Index)row * TERMS + term0 + term]) : 0.0f;
    }
    for (int i = threadIdx.x / 64; i < 16; i += 4) right[i][own] = loadF(elementOf(place, termOf(term0 + i)));
    __syncthreads();
    for (int k = 0; k < 16; ++k)
      for (int i = 0; i < 4; ++i)
        for (int j = 0; j < 4; ++j) sum[i][j] = fmaf(left[k][y4 + i], right[k][x4 + j], sum[i][j]);
  }
  for (int j = 0; j < 4; ++j) {
    const Inner to = place0 + x4 + j;
    if (to >= BATCH * PLACES) continue;
    for (int i = 0; i < 4; ++i)
      if (filter0 + y4 + i < FILTERS)
        store(sum[i][j], y[resultAt(to, group, filter0 + y4 + i)]);
  }
}
)cuda";

// Few filters in a group, as where each channel has its own: a thread makes one element of the result.
constexpr const char* kDirect = R"cuda(
extern "C" __global__ void __launch_bounds__(256) braid_conv(const T* x, const T* w, T* y, Index count) {
  gridDependencySync();
  const Index element = (Index)blockIdx.x * 256 + threadIdx.x;
  if (element >= (Index)BATCH * GROUPS * FILTERS * PLACES) return;
  const Index all = GROUPS * FILTERS, row = element / PLACES, channel = LAST ? element % all : row % all;
  const Place place =
      placeOf(x, channel / FILTERS, LAST ? element / all : row / all * PLACES + element % PLACES);
  w += channel * TERMS;
  float sum = 0.0f;
  for (Inner i = 0; i < CHANNELS; ++i)
    #pragma unroll UNROLL
    for (Inner tap = 0; tap < TAPS; ++tap)
      sum = fmaf(loadF(w[numberOf(i, tap)]), loadF(elementOf(place, termOf(i, tap))), sum);
  store(sum, y[element]);
}
)cuda";

// Few channels and few filters in a group: a thread makes the results of EACH places in TOGETHER groups.
// Channels that are last lie beside each other for neighbouring groups, so LANES neighbouring threads have
// these; else neighbouring threads have neighbouring places, and LANES and TOGETHER are 1. Filters are in
// shared memory, a term of all of them after the other, one word longer than it is, so that threads that
// write a filter's terms use different banks.
constexpr const char* kGrouped = R"cuda(
constexpr int ROWS = 256 / LANES, WIDTH = TOGETHER * CHANNELS, TERM = FILTERS * TOGETHER * LANES + 1;

template <bool WIDE> FN void convolve(const T* x, const T* w, T* y) {
  __shared__ float filters[TERMS * TERM];
  constexpr Index tilesP = ((Index)BATCH * PLACES + ROWS * EACH - 1) / (ROWS * EACH);
  const Index block = blockIdx.x, group0 = block / tilesP * (LANES * TOGETHER);
  const Index groups = GROUPS - group0 < LANES * TOGETHER ? GROUPS - group0 : LANES * TOGETHER;
  const Inner place0 = block % tilesP * (ROWS * EACH);
  w += group0 * FILTERS * TERMS;
  for (int i = threadIdx.x; i < groups * FILTERS * TERMS; i += 256)
    filters[i % TERMS * TERM + i / TERMS % FILTERS * (LANES * TOGETHER) + i / TERMS / FILTERS] = loadF(w[i]);
  const int first = threadIdx.x % LANES * TOGETHER, row = threadIdx.x / LANES;
  const bool is = first < groups;
  const Index group = group0 + (is ? first : 0);
  Place places[EACH];
  #pragma unroll
  for (int j = 0; j < EACH; ++j) places[j] = placeOf(x, group, place0 + j * ROWS + row);
  float sum[EACH][TOGETHER * FILTERS] = {};
  __syncthreads();
  #pragma unroll UNROLL
  for (Inner tap = 0; tap < TAPS; ++tap) {
    float met[EACH][WIDTH];
    #pragma unroll
    for (int j = 0; j < EACH; ++j) {
      Pack<T, WIDE ? WIDTH : 1> pack = {};
      const Place& place = places[j];
      if (WIDE && (place.mask >> tap & 1) != 0)
        pack = *(const Pack<T, WIDE ? WIDTH : 1>*)(place.x + (place.corner + termOf(0, tap).offset));
      #pragma unroll
      for (int c = 0; c < WIDTH; ++c)
        met[j][c] = loadF(WIDE ? pack.v[WIDE ? c : 0] : elementOf(place, termOf(c, tap)));
    }
    #pragma unroll
    for (int i = 0; i < WIDTH * FILTERS; ++i) {
      const int c = i / TOGETHER % CHANNELS, f = i / TOGETHER / CHANNELS, t = i % TOGETHER;
      const float by = filters[numberOf(c, tap) * TERM + f * (LANES * TOGETHER) + first + t];
      #pragma unroll
      for (int j = 0; j < EACH; ++j)
        sum[j][t * FILTERS + f] = fmaf(by, met[j][t * CHANNELS + c], sum[j][t * FILTERS + f]);
    }
  }
  #pragma unroll
  for (int j = 0; j < EACH; ++j) {
    if (!is || !places[j].is) continue;
    const Inner to = place0 + j * ROWS + row;
    if (WIDE) {
      Pack<T, WIDE ? TOGETHER * FILTERS : 1> made;
      #pragma unroll
      for (int f = 0; f < (WIDE ? TOGETHER * FILTERS : 1); ++f) store(sum[j][f], made.v[f]);
      *(Pack<T, WIDE ? TOGETHER * FILTERS : 1>*)(y + resultAt(to, group, 0)) = made;
    } else {
      #pragma unroll
      for (int f = 0; f < TOGETHER * FILTERS; ++f) store(sum[j][f], y[resultAt(to, group, f)]);
    }
  }
}
extern "C" __global__ void __launch_bounds__(256) braid_conv(const T* x, const T* w, T* y, Index count) {
  gridDependencySync();
  convolve<false>(x, w, y);
}
)cuda";

// Where the channels and the filters of a group are read and written at once.
constexpr const char* kGroupedWide = R"cuda(
extern "C" __global__ void __launch_bounds__(256) braid_conv_wide(const T* x, const T* w, T* y, Index) {
  gridDependencySync();
  convolve<true>(x, w, y);
}
)cuda";

// BLOCK_F filters by BLOCK_P places. A warp has 16 · TILES_F by 16 · TILES_P of the sums. While one tile of
// 32 terms is multiplied, the next one is read; its terms are looked up in a table that is made two tiles
// ahead. Rows in shared memory are 16 bytes longer than their elements, so that the eight rows of a matrix
// lie in different banks.
constexpr const char* kTensor = R"cuda(
constexpr int DEPTH = 32, PITCH_F = DEPTH + 8, PITCH_P = BLOCK_P + 8;
constexpr int WARPS_P = BLOCK_P / (16 * TILES_P), THREADS = 32 * WARPS_P * (BLOCK_F / (16 * TILES_F));
// Elements of a tile for each thread, which has one place.
constexpr int EACH_P = DEPTH * BLOCK_P / THREADS, EACH_F = DEPTH * BLOCK_F / THREADS;
constexpr int STEP_P = THREADS / BLOCK_P;

template <bool WIDE> FN void convolve(const T* x, const T* w, T* y) {
  alignas(16) __shared__ u16 left[2][BLOCK_F * PITCH_F];
  alignas(16) __shared__ u16 right[2][DEPTH * PITCH_P];
  __shared__ Term terms[2][DEPTH];
  const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32, g = lane / 4, p = lane % 4 * 2;
  const Index tilesF = (FILTERS + BLOCK_F - 1) / BLOCK_F, block = blockIdx.x;
  const Index tilesP = ((Index)BATCH * PLACES + BLOCK_P - 1) / BLOCK_P;
  const Inner filter0 = block % tilesF * BLOCK_F, place0 = block / tilesF % tilesP * BLOCK_P;
  const Index group = block / tilesF / tilesP;
  const int firstF = warp / WARPS_P * 16 * TILES_F, firstP = warp % WARPS_P * 16 * TILES_P;
  const int column = thread % BLOCK_P, row0 = thread / BLOCK_P;
  const Place place = placeOf(x, group, place0 + column);
  const u16* filters = (const u16*)w + (group * FILTERS + filter0) * TERMS;

  T metNow[EACH_P];
  u16 filtersNow[WIDE ? 1 : EACH_F];
  const auto read = [&](Inner term0, int to) {
    if (WIDE) {
      #pragma unroll
      for (int i = thread; i < BLOCK_F * (DEPTH / 8); i += THREADS) {
        const int row = i / (DEPTH / 8), term = i % (DEPTH / 8) * 8;
        const bool is = filter0 + row < FILTERS && term0 + term < TERMS;
        const u16* from = filters + (is ? (Index)row * TERMS + term0 + term : 0);
        copyAsync(left[to] + row * PITCH_F + term, from, is);
      }
      commitCopies();
    } else {
      #pragma unroll
      for (int i = 0; i < EACH_F; ++i) {
        const int row = (thread + i * THREADS) / DEPTH, term = (thread + i * THREADS) % DEPTH;
        const bool is = filter0 + row < FILTERS && term0 + term < TERMS;
        filtersNow[i] = is ? filters[(Index)row * TERMS + term0 + term] : (u16)0;
      }
    }
    #pragma unroll
    for (int i = 0; i < EACH_P; ++i) metNow[i] = elementOf(place, terms[to][row0 + i * STEP_P]);
  };
  const auto keep = [&](int to) {
    if (!WIDE) {
      #pragma unroll
      for (int i = 0; i < EACH_F; ++i)
        left[to][(thread + i * THREADS) / DEPTH * PITCH_F + (thread + i * THREADS) % DEPTH] = filtersNow[i];
    }
    #pragma unroll
    for (int i = 0; i < EACH_P; ++i) right[to][(row0 + i * STEP_P) * PITCH_P + column] = metNow[i].bits;
    if (WIDE) awaitCopies<0>();
  };

  float sum[TILES_F][2 * TILES_P][4] = {};
  if (thread < DEPTH) terms[0][thread] = termOf(thread), terms[1][thread] = termOf(thread + DEPTH);
  __syncthreads();
  read(0, 0);
  keep(0);
  __syncthreads();
  int now = 0;
  for (Inner term0 = 0; term0 < TERMS; term0 += DEPTH, now ^= 1) {
    const bool more = term0 + DEPTH < TERMS;
    if (more) read(term0 + DEPTH, now ^ 1);
    #pragma unroll
    for (int s = 0; s < DEPTH / 16; ++s) {
      unsigned a[TILES_F][4];
      #pragma unroll
      for (int t = 0; t < TILES_F; ++t)
        loadMatrices(a[t], left[now] + (firstF + t * 16 + lane % 16) * PITCH_F + s * 16 + lane / 16 * 8);
      #pragma unroll
      for (int n = 0; n < TILES_P; ++n) {
        unsigned b[4];
        loadTransposed(b, right[now] + (s * 16 + lane % 16) * PITCH_P + firstP + n * 16 + lane / 16 * 8);
        #pragma unroll
        for (int t = 0; t < TILES_F; ++t) {
          multiply(sum[t][2 * n], a[t], b[0], b[1]);
          multiply(sum[t][2 * n + 1], a[t], b[2], b[3]);
        }
      }
    }
    // Nobody reads these terms any more: the tile that is multiplied was read before the last barrier.
    if (thread < DEPTH && more) terms[now][thread] = termOf(term0 + 2 * DEPTH + thread);
    if (more) keep(now ^ 1);
    __syncthreads();
  }
  #pragma unroll
  for (int n = 0; n < 2 * TILES_P; ++n)
    #pragma unroll
    for (int e = 0; e < 2; ++e) {
      const Inner to = place0 + firstP + n * 8 + p + e;
      if (to >= BATCH * PLACES) continue;
      T* results = y + resultAt(to, group, filter0);
      #pragma unroll
      for (int t = 0; t < TILES_F; ++t)
        #pragma unroll
        for (int h = 0; h < 2; ++h) {
          const int filter = firstF + t * 16 + g + h * 8;
          if (filter0 + filter < FILTERS) store(sum[t][n][h * 2 + e], results[filter * (Index)FILTER_STEP]);
        }
    }
}
extern "C" __global__ void __launch_bounds__(THREADS) braid_conv(const T* x, const T* w, T* y, Index count) {
  gridDependencySync();
  convolve<false>(x, w, y);
}
)cuda";

// Where filters are read by 16 bytes.
constexpr const char* kTensorWide = R"cuda(
extern "C" __global__ void __launch_bounds__(THREADS) braid_conv_wide(const T* x, const T* w, T* y, Index) {
  gridDependencySync();
  convolve<true>(x, w, y);
}
)cuda";

// Whether 32 bits hold every place, term and offset, with some of a tile beyond the last one.
bool isSmall(const KernelSpec& spec) {
  constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max() / 2;
  // Of channels that are last, offsets lead over those of all groups.
  std::int64_t padded = spec.conv.channels * (spec.conv.channelsLast ? spec.conv.groups : 1);
  for (const ConvDim& dim : spec.conv.spatial) padded *= dim.before + dim.input + dim.after;
  return padded <= most && spec.conv.filters <= most && spec.batch * spec.conv.outputs() <= most &&
         spec.conv.channels * spec.conv.taps() <= most;
}

std::string constants(const KernelSpec& spec) {
  const ConvSpec& one = spec.conv;
  const char* inner = isSmall(spec) ? "int" : "long long";
  std::string text = "typedef long long Index;\ntypedef " + std::string(inner) + " Inner;\n";
  text += "typedef " + std::string(cudaTypeName(spec.input)) + " T;\n";
  text += "typedef unsigned " + std::string(one.taps() <= 32 ? "int" : "long long") + " Mask;\n";
  text += constant("Index", "GROUPS", one.groups);
  // From one element to the next: along a line of x, of its channels, and of the filters in y.
  text += constant("bool", "LAST", one.channelsLast ? 1 : 0);
  text += constant("Inner", "STEP", one.channelsLast ? one.groups * one.channels : 1);
  text += constant("Inner", "CHANNEL_STEP", one.channelsLast ? 1 : one.inputs());
  text += constant("Inner", "FILTER_STEP", one.channelsLast ? 1 : one.outputs());
  for (const auto& [name, value] : {std::pair{"BATCH", spec.batch},
                                    {"CHANNELS", one.channels},
                                    {"FILTERS", one.filters},
                                    {"INPUTS", one.inputs()},
                                    {"TAPS", one.taps()},
                                    {"TERMS", one.channels * one.taps()},
                                    {"PLACES", one.outputs()}})
    text += constant("Inner", name, value);
  // Every convolution has three dimensions, the outer ones of size 1 where it has fewer. A step that is never
  // taken may be larger than Inner.
  for (std::size_t d = 0; d < 3; ++d) {
    const std::size_t missing = 3 - one.spatial.size();
    const ConvDim dim = d < missing ? ConvDim() : one.spatial[d - missing];
    const std::string number = std::to_string(d);
    text += constant("Inner", "INPUT" + number, dim.input) + constant("Inner", "BEFORE" + number, dim.before);
    text += constant("Inner", "STRIDE" + number, dim.output() > 1 ? dim.stride : 1);
    text += constant("Inner", "DILATION" + number, dim.kernel > 1 ? dim.dilation : 1);
    if (d == 0) continue;
    text +=
        constant("Inner", "KERNEL" + number, dim.kernel) + constant("Inner", "OUTPUT" + number, dim.output());
  }
  return text;
}

// The tile of a block of threads.
struct Tile {
  std::int64_t filters, places, tilesF, tilesP;
  std::int64_t threads() const { return 32 * (filters / (16 * tilesF)) * (places / (16 * tilesP)); }
  std::int64_t blocks(const KernelSpec& spec) const {
    const ConvSpec& one = spec.conv;
    return (one.filters + filters - 1) / filters * ((spec.batch * one.outputs() + places - 1) / places) *
           one.groups;
  }
};

// The largest one that fits the filters and leaves no multiprocessor without a block.
Tile tileOf(const KernelSpec& spec, int multiprocessors) {
  constexpr Tile kLarge{128, 128, 4, 2}, kMedium{64, 128, 2, 2}, kSmall{64, 64, 2, 2}, kFlat{32, 128, 2, 2},
      kFlattest{16, 128, 1, 2};
  if (spec.conv.filters <= 16) return kFlattest;
  if (spec.conv.filters <= 32) return kFlat;
  if (spec.conv.filters > 64 && kLarge.blocks(spec) >= multiprocessors) return kLarge;
  return kMedium.blocks(spec) >= multiprocessors ? kMedium : kSmall;
}

// Filters in a group for which products would be of zeros mostly.
constexpr std::int64_t kFewFilters = 2;
// Channels, and filters, that a thread has at once, each of them in registers; and its places.
constexpr std::int64_t kMostGrouped = 8, kEach = 2;
// Products of a place that are written out.
constexpr std::int64_t kMostUnrolled = 640;
constexpr std::int64_t kSharedBytes = 48 * 1024;

// Whether a thread has whole groups. Of channels that are not last it gains nothing by that for one or two
// filters.
bool isGrouped(const KernelSpec& spec) {
  const ConvSpec& one = spec.conv;
  return one.filters <= kMostGrouped && one.channels <= kMostGrouped && one.taps() <= 64 &&
         (one.channelsLast || one.filters > kFewFilters);
}

bool isPowerOfTwo(std::int64_t count) { return std::has_single_bit(static_cast<std::uint64_t>(count)); }

// The groups of a thread, and the neighbouring threads that have neighbouring groups.
struct Groups {
  std::int64_t together = 1, lanes = 1;
};

Groups groupsOf(const KernelSpec& spec) {
  const ConvSpec& one = spec.conv;
  Groups made;
  if (!one.channelsLast) return made;
  if (isPowerOfTwo(one.channels) && isPowerOfTwo(one.filters))
    while (2 * made.together * std::max(one.channels, one.filters) <= kMostGrouped &&
           one.groups % (2 * made.together) == 0)
      made.together *= 2;
  const std::int64_t threads = std::min<std::int64_t>(32, one.groups / made.together);
  made.lanes = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(threads)));
  const auto bytes = [&] {
    return one.channels * one.taps() * (one.filters * made.together * made.lanes + 1) * 4;
  };
  while (made.lanes > 1 && bytes() > kSharedBytes) made.lanes /= 2;
  return made;
}

}  // namespace
}  // namespace conv

void convSource(const KernelSpec& spec, int architecture, int multiprocessors, KernelSource* source) {
  const ConvSpec& one = spec.conv;
  std::string text = kPrelude + conv::constants(spec) + conv::kCommon;
  const std::int64_t results = spec.batch * one.groups * one.filters * one.outputs();
  source->alignments = {1, 16, 1};
  if (conv::isGrouped(spec)) {
    const conv::Groups made = conv::groupsOf(spec);
    const std::int64_t places = 256 / made.lanes * conv::kEach, groups = made.lanes * made.together;
    const std::int64_t blocks =
        (one.groups + groups - 1) / groups * ((spec.batch * one.outputs() + places - 1) / places);
    const std::int64_t products = one.channels * one.filters * made.together * one.taps();
    text += constant("int", "LANES", made.lanes) + constant("int", "TOGETHER", made.together) +
            constant("int", "EACH", conv::kEach) +
            constant("int", "UNROLL", products <= conv::kMostUnrolled ? one.taps() : 1) + conv::kGrouped;
    source->plain = {"braid_conv", blocks * 256, 256, false};
    if (one.channelsLast && conv::isPowerOfTwo(one.channels) && conv::isPowerOfTwo(one.filters)) {
      text += conv::kGroupedWide;
      source->vector = {"braid_conv_wide", blocks * 256, 256, false};
      const auto pack = [&](std::int64_t elements) {
        return std::min<std::size_t>(
            16, static_cast<std::size_t>(elements * made.together) * elementBytes(spec.input));
      };
      source->alignments = {pack(one.channels), 1, pack(one.filters)};
    }
  } else if (one.filters <= conv::kFewFilters) {
    text += constant("int", "UNROLL", one.taps() <= 64 ? one.taps() : 1) + conv::kDirect;
    source->plain = {"braid_conv", (results + 255) / 256 * 256, 256, false};
  } else if (spec.input != DType::f32 && architecture >= 80) {
    const conv::Tile tile = conv::tileOf(spec, multiprocessors);
    text += constant("int", "BLOCK_F", tile.filters) + constant("int", "BLOCK_P", tile.places) +
            constant("int", "TILES_F", tile.tilesF) + constant("int", "TILES_P", tile.tilesP);
    text += tensorCoresText(spec.input) + conv::kTensor;
    const auto block = static_cast<unsigned>(tile.threads());
    const std::int64_t threads = tile.blocks(spec) * block;
    source->plain = {"braid_conv", threads, block, false};
    if (one.channels * one.taps() % 8 == 0) {
      text += conv::kTensorWide;
      source->vector = {"braid_conv_wide", threads, block, false};
    }
  } else {
    text += conv::kPlain;
    source->plain = {"braid_conv", conv::Tile{64, 64, 1, 1}.blocks(spec) * 256, 256, false};
  }
  source->text = std::move(text);
  source->byteOffsets.assign(3, 0);
  source->count = results;
  source->wide = true;
}

}  // namespace braid::cuda
