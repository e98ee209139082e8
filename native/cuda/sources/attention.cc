#include <algorithm>
#include <cmath>

#include "cuda/sources/attention.h"
#include "cuda/sources/cluster.h"
#include "cuda/sources/map_code.h"
#include "cuda/sources/prelude.h"
#include "cuda/sources/source.h"
#include "cuda/sources/tensor_cores.h"

// Attention, three ways. None keeps scores in memory: each walks over the keys and holds, for each query, the
// largest score so far, the sum of the weights relative to it, and the weighted sum of the values.

namespace braid::cuda {
namespace attention {
namespace {

// 64 queries by 64 keys, a 16 × 16 grid of threads, each with 4 × 4 of the scores and of 64 columns of the
// result. Any type, any size.
constexpr const char* kPlain = R"cuda(
extern "C" __global__ void __launch_bounds__(256) braid_attention(PARAMETERS) {
  gridDependencySync();
  __shared__ float left[16][68], right[16][68], weights[64][68];
  const int x = threadIdx.x % 16, y4 = threadIdx.x / 16 * 4, x4 = x * 4;
  const Index columns = (VALUE + 63) / 64, layers = BATCH * HEADS, block = blockIdx.x;
  const Index column0 = block % columns * 64, layer = block / columns % layers;
  const Index query0 = block / columns / layers * 64;
  const Index batch = layer / HEADS, head = layer % HEADS, group = head / (HEADS / GROUPS);
  q += batch * Q0 + head * Q1;
  k += batch * K0 + group * K1;
  v += batch * V0 + group * V1;
  const Index there = thereOf(length);
  const Index end = endOf(there, query0 + 63 < QUERIES ? query0 + 63 : QUERIES - 1);
  float sum[4][4] = {}, most[4], total[4] = {};
  for (int i = 0; i < 4; ++i) most[i] = -infinity();
  for (Index key0 = 0; key0 < end; key0 += 64) {
    float score[4][4] = {};
    for (Index d0 = 0; d0 < SIZE; d0 += 16) {
      __syncthreads();
      for (int i = threadIdx.x; i < 1024; i += 256) {
        const int row = i / 16, d = i % 16;
        const bool inside = d0 + d < SIZE;
        left[d][row] = inside && query0 + row < QUERIES ? loadF(q[(query0 + row) * Q2 + d0 + d]) : 0.0f;
        right[d][row] = inside && key0 + row < end ? loadF(k[(key0 + row) * K2 + d0 + d]) : 0.0f;
      }
      __syncthreads();
      for (int d = 0; d < 16; ++d)
        for (int i = 0; i < 4; ++i)
          for (int j = 0; j < 4; ++j) score[i][j] = fmaf(left[d][y4 + i], right[d][x4 + j], score[i][j]);
    }
    for (int i = 0; i < 4; ++i) {
      const Index query = query0 + y4 + i;
      const Index own = query < QUERIES ? endOf(there, query) : 0;
      float largest = most[i];
      for (int j = 0; j < 4; ++j) {
        const Index key = key0 + x4 + j;
        const bool seen = key < own && isSeen(mask, batch, head, query, key);
        score[i][j] = seen ? score[i][j] * SCALE : -infinity();
        largest = fmaxf(largest, score[i][j]);
      }
      for (int step = 8; step > 0; step /= 2)
        largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, step));
      const float base = largest == -infinity() ? 0.0f : largest, shrink = expf(most[i] - base);
      most[i] = largest;
      total[i] *= shrink;
      for (int j = 0; j < 4; ++j) {
        const float weight = expf(score[i][j] - base);
        weights[x4 + j][y4 + i] = weight;
        total[i] += weight;
        sum[i][j] *= shrink;
      }
    }
    for (int k0 = 0; k0 < 64; k0 += 16) {
      __syncthreads();
      for (int i = threadIdx.x; i < 1024; i += 256) {
        const Index key = key0 + k0 + i / 64, column = column0 + i % 64;
        right[i / 64][i % 64] = key < end && column < VALUE ? loadF(v[key * V2 + column]) : 0.0f;
      }
      __syncthreads();
      for (int d = 0; d < 16; ++d)
        for (int i = 0; i < 4; ++i)
          for (int j = 0; j < 4; ++j)
            sum[i][j] = fmaf(weights[k0 + d][y4 + i], right[d][x4 + j], sum[i][j]);
    }
  }
  for (int i = 0; i < 4; ++i) {
    for (int step = 8; step > 0; step /= 2) total[i] += __shfl_xor_sync(0xffffffffu, total[i], step);
    const Index query = query0 + y4 + i;
    if (query >= QUERIES) continue;
    if (LOGGED && column0 == 0 && x == 0) ownLogs[layer * QUERIES + query] = logf(total[i]) + most[i];
    for (int j = 0; j < 4; ++j) {
      const Index column = column0 + x4 + j;
      if (column < VALUE) store(sum[i][j] / total[i], y[batch * Y0 + head * Y1 + query * Y2 + column]);
    }
  }
}
)cuda";

// Few queries: what takes time is to read the keys and values once, so these are spread over all threads.
// LANES threads share a key, 8 elements each; the others of the block have other keys, the other blocks of a
// cluster other parts of them. That one block may have a multiprocessor to itself lets the compiler keep all
// reads of a turn in registers. Threads have sums of their own, which are added up last: in a warp by
// shuffles, in a block by shared memory, in a cluster by reading one another's.
constexpr const char* kFew = R"cuda(
constexpr int SLOTS = 256 / LANES, COLUMNS = LANES * 8, UNROLL = ROWS == 1 ? 4 : 2;

#ifndef BRAID_EMULATED
FN float exp2Of(float x) { float y; asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
#endif
// What one reader of keys has of a row: scores and weights are powers of two.
struct Seen { float most, total; };
// How much the sums of a part count where the largest score of all is `most`.
FN float shareOf(float own, float most) { return exp2Of(own - (most == -infinity() ? 0.0f : most)); }

template <bool WIDE, int LENGTH> FN Pack<T, 8> eight(const T* row, int column) {
  Pack<T, 8> read;
  if (WIDE) {
    if (column < LENGTH) return *(const Pack<T, 8>*)(row + column);
    for (int i = 0; i < 8; ++i) read.v[i] = T();
    return read;
  }
  for (int i = 0; i < 8; ++i) read.v[i] = column + i < LENGTH ? row[column + i] : T();
  return read;
}

// Rows that are appended take the place of those in memory, which one block of a group writes meanwhile.
FN void append(T* to, const T* rows, Index first, Index step, int row) {
  for (Index i = threadIdx.x; i < APPENDED * row; i += 256) {
    const Index place = first + i / row;
    if (place >= 0 && place < KEYS) to[place * step + i % row] = rows[i];
  }
}

template <bool WIDE>
FN void attend(const T* q, const T* k, const T* v, const M* mask, const int* length, const T* newK,
               const T* newV, const int* at, T* y, float* ownLogs, T* ownK, T* ownV) {
  __shared__ float sums[8][ROWS][COLUMNS], own[ROWS][COLUMNS], most[8][ROWS], total[8][ROWS];
  __shared__ float ownMost[ROWS], ownTotal[ROWS];
  constexpr Index SHARED = HEADS / GROUPS, ALL = SHARED * QUERIES, CHUNKS = (ALL + ROWS - 1) / ROWS;
  const int slot = threadIdx.x / LANES, column = threadIdx.x % LANES * 8, warp = threadIdx.x / 32;
  const Index unit = blockIdx.x / CLUSTER, layer = unit / CHUNKS, row0 = unit % CHUNKS * ROWS;
  const Index batch = layer / GROUPS, group = layer % GROUPS;
  const unsigned rank = rankOf();
  k += batch * K0 + group * K1;
  v += batch * V0 + group * V1;
  const Index first = APPENDED > 0 ? *at : 0;
  if (APPENDED > 0) newK += layer * APPENDED * SIZE, newV += layer * APPENDED * VALUE;
  const Index there = thereOf(length), share = (there + CLUSTER - 1) / CLUSTER;
  const Index from = rank * share, to = from + share < there ? from + share : there;

  float query[ROWS][8], sum[ROWS][8] = {};
  Seen seen[ROWS];
  #pragma unroll
  for (int r = 0; r < ROWS; ++r) {
    const Index row = row0 + r < ALL ? row0 + r : ALL - 1;
    const T* from = q + batch * Q0 + (group * SHARED + row / QUERIES) * Q1 + row % QUERIES * Q2;
    const Pack<T, 8> read = eight<WIDE, SIZE>(from, column);
    #pragma unroll
    for (int i = 0; i < 8; ++i) query[r][i] = loadF(read.v[i]) * (SCALE * 1.4426950408889634f);
    seen[r] = {-infinity(), 0.0f};
  }
  // Threads of a warp take equally many turns: they shuffle.
  for (Index key0 = from; key0 < to; key0 += SLOTS * UNROLL) {
    Pack<T, 8> keys[UNROLL], values[UNROLL];
    #pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
      // Without a branch all of them are under way at once: past the end the last is read again.
      const Index key = key0 + u * SLOTS + slot, place = key < to ? key : to - 1;
      const Index fresh = place - first;
      const bool isNew = APPENDED > 0 && fresh >= 0 && fresh < APPENDED;
      keys[u] = eight<WIDE, SIZE>(isNew ? newK + fresh * SIZE : k + place * K2, column);
      values[u] = eight<WIDE, VALUE>(isNew ? newV + fresh * VALUE : v + place * V2, column);
    }
    #pragma unroll
    for (int r = 0; r < ROWS; ++r) {
      const Index row = row0 + r < ALL ? row0 + r : ALL - 1, head = group * SHARED + row / QUERIES;
      const Index end = endOf(there, row % QUERIES);
      float score[UNROLL], largest = seen[r].most;
      #pragma unroll
      for (int u = 0; u < UNROLL; ++u) {
        const Index key = key0 + u * SLOTS + slot;
        float dot = 0.0f;
        #pragma unroll
        for (int i = 0; i < 8; ++i) dot = fmaf(query[r][i], loadF(keys[u].v[i]), dot);
        #pragma unroll
        for (int step = LANES / 2; step > 0; step /= 2) dot += __shfl_xor_sync(0xffffffffu, dot, step);
        const bool counts = key < to && key < end && isSeen(mask, batch, head, row % QUERIES, key);
        score[u] = counts ? dot : -infinity();
        largest = fmaxf(largest, score[u]);
      }
      const float shrink = shareOf(seen[r].most, largest);
      seen[r].most = largest;
      seen[r].total *= shrink;
      #pragma unroll
      for (int i = 0; i < 8; ++i) sum[r][i] *= shrink;
      #pragma unroll
      for (int u = 0; u < UNROLL; ++u) {
        const float weight = shareOf(score[u], largest);
        seen[r].total += weight;
        #pragma unroll
        for (int i = 0; i < 8; ++i) sum[r][i] = fmaf(weight, loadF(values[u].v[i]), sum[r][i]);
      }
    }
  }
  if (APPENDED > 0 && rank == CLUSTER - 1 && row0 == 0) {
    append(ownK + batch * K0 + group * K1, newK, first, K2, SIZE);
    append(ownV + batch * V0 + group * V1, newV, first, V2, VALUE);
  }
  // The slots of a warp.
  #pragma unroll
  for (int r = 0; r < ROWS; ++r) {
    float largest = seen[r].most;
    #pragma unroll
    for (int step = 16; step >= LANES; step /= 2)
      largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, step));
    const float factor = shareOf(seen[r].most, largest);
    float whole = seen[r].total * factor;
    #pragma unroll
    for (int i = 0; i < 8; ++i) sum[r][i] *= factor;
    #pragma unroll
    for (int step = 16; step >= LANES; step /= 2) {
      whole += __shfl_xor_sync(0xffffffffu, whole, step);
      #pragma unroll
      for (int i = 0; i < 8; ++i) sum[r][i] += __shfl_xor_sync(0xffffffffu, sum[r][i], step);
    }
    if (threadIdx.x % 32 < LANES) {
      for (int i = 0; i < 8; ++i) sums[warp][r][column + i] = sum[r][i];
      if (column == 0) most[warp][r] = largest, total[warp][r] = whole;
    }
  }
  __syncthreads();
  // The warps of a block.
  for (int i = threadIdx.x; i < ROWS * COLUMNS; i += 256) {
    const int r = i / COLUMNS, c = i % COLUMNS;
    float largest = most[0][r], whole = 0.0f, value = 0.0f;
    for (int w = 1; w < 8; ++w) largest = fmaxf(largest, most[w][r]);
    for (int w = 0; w < 8; ++w) {
      const float factor = shareOf(most[w][r], largest);
      whole = fmaf(factor, total[w][r], whole);
      value = fmaf(factor, sums[w][r][c], value);
    }
    own[r][c] = value;
    if (c == 0) ownMost[r] = largest, ownTotal[r] = whole;
  }
  clusterBarrier();
  // The blocks of a cluster.
  for (int i = threadIdx.x; rank == 0 && i < ROWS * VALUE; i += 256) {
    const int r = i / VALUE, c = i % VALUE;
    const Index row = row0 + r;
    float value = 0.0f, whole = 0.0f, parts[CLUSTER], largest = -infinity();
    #pragma unroll
    for (int b = 0; b < CLUSTER; ++b) {
      parts[b] = ofRank(&ownMost[r], b);
      largest = fmaxf(largest, parts[b]);
    }
    #pragma unroll
    for (int b = 0; b < CLUSTER; ++b) {
      const float factor = shareOf(parts[b], largest);
      whole = fmaf(factor, ofRank(&ownTotal[r], b), whole);
      value = fmaf(factor, ofRank(&own[r][c], b), value);
    }
    if (LOGGED && c == 0 && row < ALL)
      ownLogs[(batch * HEADS + group * SHARED) * QUERIES + row] = (log2f(whole) + largest) * 0.6931471805599453f;
    if (row < ALL)
      store(value / whole, y[batch * Y0 + (group * SHARED + row / QUERIES) * Y1 + row % QUERIES * Y2 + c]);
  }
  clusterBarrier();  // a block stays until the others have read what it has
}

extern "C" __global__ void __launch_bounds__(256, 1) IN_CLUSTERS braid_attention(PARAMETERS) {
  gridDependencySync();
  attend<false>(q, k, v, mask, length, newK, newV, at, y, ownLogs, ownK, ownV);
}
)cuda";

constexpr const char* kFewWide = R"cuda(
extern "C" __global__ void __launch_bounds__(256, 1) IN_CLUSTERS braid_attention_wide(PARAMETERS) {
  gridDependencySync();
  attend<true>(q, k, v, mask, length, newK, newV, at, y, ownLogs, ownK, ownV);
}
)cuda";

// The form of FlashAttention-2 (Dao, 2023). A block has 4 warps of 16 · TILES queries each, which lie in
// registers, and walks over tiles of TILE_KEYS keys and values, the next of which are copied while one is
// multiplied. Rows in shared memory are 16 bytes longer than their elements, so that the eight rows of a
// matrix lie in different banks.
constexpr const char* kTensor = R"cuda(
#ifndef BRAID_EMULATED
FN float exp2Of(float x) { float y; asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
#endif

constexpr int PITCH_K = SIZE + 8, PITCH_V = VALUE + 8, WARP_ROWS = 16 * TILES, BLOCK_ROWS = 4 * WARP_ROWS;
constexpr int KEY_TILES = TILE_KEYS / 8, VALUE_TILES = VALUE / 8;

FN void loadTile(u16* toKeys, u16* toValues, const u16* keys, const u16* values, Index key0, Index there) {
  #pragma unroll
  for (int i = threadIdx.x; i < TILE_KEYS * (SIZE / 8); i += 128) {
    const int row = i / (SIZE / 8), column = i % (SIZE / 8) * 8;
    const bool is = key0 + row < there;
    copyAsync(toKeys + row * PITCH_K + column, keys + (is ? key0 + row : 0) * K2 + column, is);
  }
  #pragma unroll
  for (int i = threadIdx.x; i < TILE_KEYS * (VALUE / 8); i += 128) {
    const int row = i / (VALUE / 8), column = i % (VALUE / 8) * 8;
    const bool is = key0 + row < there;
    copyAsync(toValues + row * PITCH_V + column, values + (is ? key0 + row : 0) * V2 + column, is);
  }
  commitCopies();
}

extern "C" __global__ void __launch_bounds__(128) braid_attention_wide(PARAMETERS) {
  gridDependencySync();
  alignas(16) __shared__ u16 keyTiles[2][TILE_KEYS * PITCH_K];
  alignas(16) __shared__ u16 valueTiles[2][TILE_KEYS * PITCH_V];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, p = lane % 4 * 2;
  const Index layers = BATCH * HEADS, blocks = (QUERIES + BLOCK_ROWS - 1) / BLOCK_ROWS;
  // The last queries, which see most keys, come first.
  const Index layer = blockIdx.x % layers, block0 = (blocks - 1 - blockIdx.x / layers) * BLOCK_ROWS;
  const Index batch = layer / HEADS, head = layer % HEADS, group = head / (HEADS / GROUPS);
  const Index first = block0 + warp * WARP_ROWS;
  const u16* queries = (const u16*)q + batch * Q0 + head * Q1;
  const u16* keys = (const u16*)k + batch * K0 + group * K1;
  const u16* values = (const u16*)v + batch * V0 + group * V1;
  const Index there = thereOf(length);
  const Index end = endOf(there, (block0 + BLOCK_ROWS < QUERIES ? block0 + BLOCK_ROWS : QUERIES) - 1);
  // What the last query of this warp sees.
  const Index own = first < QUERIES ? endOf(there, (first + WARP_ROWS < QUERIES ? first + WARP_ROWS : QUERIES) - 1) : 0;

  unsigned left[TILES][SIZE / 16][4];
  #pragma unroll
  for (int t = 0; t < TILES; ++t)
    #pragma unroll
    for (int s = 0; s < SIZE / 16; ++s)
      #pragma unroll
      for (int i = 0; i < 4; ++i) {
        const Index row = first + t * 16 + g + i % 2 * 8;
        const unsigned both =
            row < QUERIES ? *(const unsigned*)(queries + row * Q2 + s * 16 + p + i / 2 * 8) : 0u;
        left[t][s][i] = NEGATIVE ? both ^ 0x80008000u : both;  // the scale below is above 0
      }
  float sum[TILES][VALUE_TILES][4] = {}, most[TILES][2], total[TILES][2] = {};
  #pragma unroll
  for (int t = 0; t < TILES; ++t) most[t][0] = most[t][1] = -infinity();

  if (end > 0) loadTile(keyTiles[0], valueTiles[0], keys, values, 0, there);
  int now = 0;
  for (Index key0 = 0; key0 < end; key0 += TILE_KEYS, now ^= 1) {
    if (key0 + TILE_KEYS < end) {
      loadTile(keyTiles[now ^ 1], valueTiles[now ^ 1], keys, values, key0 + TILE_KEYS, there);
      awaitCopies<1>();
    } else {
      awaitCopies<0>();
    }
    __syncthreads();
    if (key0 < own) {
      float score[TILES][KEY_TILES][4] = {};
      #pragma unroll
      for (int s = 0; s < SIZE / 16; ++s)
        #pragma unroll
        for (int n = 0; n < KEY_TILES / 2; ++n) {
          unsigned right[4];
          const int row = n * 16 + lane / 16 * 8 + lane % 8;
          loadMatrices(right, keyTiles[now] + row * PITCH_K + s * 16 + lane / 8 % 2 * 8);
          #pragma unroll
          for (int t = 0; t < TILES; ++t) {
            multiply(score[t][2 * n], left[t][s], right[0], right[1]);
            multiply(score[t][2 * n + 1], left[t][s], right[2], right[3]);
          }
        }
      if (MASKED || key0 + TILE_KEYS > there || (CAUSAL && key0 + TILE_KEYS > there - QUERIES + first + 1)) {
        #pragma unroll
        for (int t = 0; t < TILES; ++t)
          #pragma unroll
          for (int n = 0; n < KEY_TILES; ++n)
            #pragma unroll
            for (int i = 0; i < 4; ++i) {
              const Index query = first + t * 16 + g + i / 2 * 8, key = key0 + n * 8 + p + i % 2;
              const bool seen =
                  query < QUERIES && key < endOf(there, query) && isSeen(mask, batch, head, query, key);
              if (!seen) score[t][n][i] = -infinity();
            }
      }
      #pragma unroll
      for (int t = 0; t < TILES; ++t)
        #pragma unroll
        for (int h = 0; h < 2; ++h) {
          float largest = most[t][h];
          #pragma unroll
          for (int n = 0; n < KEY_TILES; ++n)
            largest = fmaxf(largest, fmaxf(score[t][n][2 * h], score[t][n][2 * h + 1]));
          largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 1));
          largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 2));
          const float base = largest == -infinity() ? 0.0f : largest * EXPONENT;
          const float shrink = exp2Of(fmaf(most[t][h], EXPONENT, -base));
          most[t][h] = largest;
          float weights = 0.0f;
          #pragma unroll
          for (int n = 0; n < KEY_TILES; ++n)
            #pragma unroll
            for (int i = 2 * h; i < 2 * h + 2; ++i) {
              score[t][n][i] = exp2Of(fmaf(score[t][n][i], EXPONENT, -base));
              weights += score[t][n][i];
            }
          total[t][h] = fmaf(total[t][h], shrink, weights);
          #pragma unroll
          for (int n = 0; n < VALUE_TILES; ++n) sum[t][n][2 * h] *= shrink, sum[t][n][2 * h + 1] *= shrink;
        }
      #pragma unroll
      for (int s = 0; s < TILE_KEYS / 16; ++s) {
        unsigned weights[TILES][4];
        #pragma unroll
        for (int t = 0; t < TILES; ++t)
          #pragma unroll
          for (int i = 0; i < 4; ++i)
            weights[t][i] =
                packed(score[t][2 * s + i / 2][i % 2 * 2], score[t][2 * s + i / 2][i % 2 * 2 + 1]);
        #pragma unroll
        for (int n = 0; n < VALUE_TILES / 2; ++n) {
          unsigned right[4];
          const int row = s * 16 + lane / 8 % 2 * 8 + lane % 8;
          loadTransposed(right, valueTiles[now] + row * PITCH_V + n * 16 + lane / 16 * 8);
          #pragma unroll
          for (int t = 0; t < TILES; ++t) {
            multiply(sum[t][2 * n], weights[t], right[0], right[1]);
            multiply(sum[t][2 * n + 1], weights[t], right[2], right[3]);
          }
        }
      }
    }
    __syncthreads();
  }
  #pragma unroll
  for (int t = 0; t < TILES; ++t)
    #pragma unroll
    for (int h = 0; h < 2; ++h) {
      float whole = total[t][h];
      whole += __shfl_xor_sync(0xffffffffu, whole, 1);
      whole += __shfl_xor_sync(0xffffffffu, whole, 2);
      const float part = 1.0f / whole;
      const Index query = first + t * 16 + g + h * 8;
      if (query >= QUERIES) continue;
      if (LOGGED && p == 0)
        ownLogs[layer * QUERIES + query] = fmaf(most[t][h], EXPONENT, log2f(whole)) * 0.6931471805599453f;
      u16* row = (u16*)y + batch * Y0 + head * Y1 + query * Y2 + p;
      #pragma unroll
      for (int n = 0; n < VALUE_TILES; ++n)
        *(unsigned*)(row + n * 8) = packed(sum[t][n][2 * h] * part, sum[t][n][2 * h + 1] * part);
    }
}
)cuda";

bool onTensorCores(const KernelSpec& spec, int architecture) {
  const AttentionSpec& one = spec.attention;
  // A scale of 0 has no exponent by which -∞ could be multiplied.
  return attentionFitsTensorCores(spec, architecture) && std::abs(static_cast<float>(one.scale)) > 1e-30f &&
         std::abs(one.scale) < 1e30;
}

constexpr std::int64_t kFewRows = 16, kFewSize = 256;

void fewSource(const KernelSpec& spec, int architecture, int multiprocessors, std::string text,
               KernelSource* source) {
  const AttentionSpec& one = spec.attention;
  const std::int64_t all = one.heads / one.groups * one.queries, rows = std::min<std::int64_t>(all, 4);
  const std::int64_t units = spec.batch * one.groups * ((all + rows - 1) / rows);
  std::int64_t lanes = 1, cluster = 1;
  while (lanes * 8 < std::max(one.size, one.valueSize)) lanes *= 2;
  // Clusters came with 9.0. A block should have some keys for each of its threads' slots.
  while (architecture >= 90 && cluster < 8 && units * cluster < multiprocessors &&
         one.keys >= 2 * cluster * (256 / lanes))
    cluster *= 2;
  text += constant("int", "LANES", lanes) + constant("int", "ROWS", rows);
  source->text = text + clusterText(cluster) + kFew + (isWideAttention(spec) ? kFewWide : "");
  const std::int64_t threads = units * cluster * 256;
  source->plain = {"braid_attention", threads, 256, false};
  if (isWideAttention(spec)) source->vector = {"braid_attention_wide", threads, 256, false};
}

void manySource(const KernelSpec& spec, int architecture, int multiprocessors, std::string text,
                KernelSource* source) {
  const AttentionSpec& one = spec.attention;
  const std::int64_t layers = spec.batch * one.heads;
  const auto blocks = [&one, layers](std::int64_t rows) { return (one.queries + rows - 1) / rows * layers; };
  source->plain = {"braid_attention", blocks(64) * ((one.valueSize + 63) / 64) * 256, 256, false};
  if (onTensorCores(spec, architecture)) {
    const bool narrow = std::max(one.size, one.valueSize) <= 64;
    // Two tiles of queries read keys and values half as often; more than that would not stay in registers.
    const std::int64_t tiles = narrow && blocks(128) >= multiprocessors ? 2 : 1;
    text += constant("int", "TILES", tiles) + constant("int", "TILE_KEYS", narrow ? 64 : 32);
    text += tensorCoresText(spec.input) + kTensor;
    source->vector = {"braid_attention_wide", blocks(64 * tiles) * 128, 128, false};
  }
  source->text = text + kPlain;
}

}  // namespace
}  // namespace attention

bool isFewQueries(const KernelSpec& spec) {
  const AttentionSpec& one = spec.attention;
  return one.heads / one.groups * one.queries <= attention::kFewRows &&
         std::max(one.size, one.valueSize) <= attention::kFewSize;
}

void attentionSource(const KernelSpec& spec, int architecture, int multiprocessors, KernelSource* source) {
  const AttentionSpec& one = spec.attention;
  const std::string text = attentionText(spec);
  if (one.result != AttentionResult::attended)
    attentionGradientSource(spec, architecture, text, source);
  else if (isFewQueries(spec))
    attention::fewSource(spec, architecture, multiprocessors, text, source);
  else
    attention::manySource(spec, architecture, multiprocessors, text, source);
  const auto bytes = static_cast<std::int64_t>(elementBytes(spec.input));
  const auto pointer = [source](std::int64_t offset, std::size_t alignment) {
    source->alignments.push_back(alignment);
    source->byteOffsets.push_back(offset);
  };
  for (const AttentionOperand* operand : {&one.q, &one.k, &one.v}) pointer(operand->offset * bytes, 16);
  for (const bool other : {one.masked, one.counted})
    if (other) pointer(0, 1);
  if (one.appended > 0) pointer(0, 16), pointer(0, 16), pointer(0, 1);
  if (one.isGradient()) pointer(one.dy.offset * bytes, 16), pointer(0, 4), pointer(0, 4);
  pointer(one.y.offset * static_cast<std::int64_t>(elementBytes(one.resultType(spec.input))), 16);
  if (one.logs) pointer(0, 4);
  if (one.withValues) pointer(one.dv.offset * bytes, 16);
  if (one.appended > 0)
    for (const AttentionOperand* operand : {&one.k, &one.v}) pointer(operand->offset * bytes, 16);
  source->count = spec.batch * one.resultHeads() * one.resultRows();
  source->wide = !isSmallAttention(spec);
}

}  // namespace braid::cuda
