#include <algorithm>

#include "cuda/sources/attention.h"
#include "cuda/sources/map_code.h"
#include "cuda/sources/tensor_cores.h"

// What the way back of attention needs (native/kernels/cpu_attention_gradient.cc has the arithmetic), two
// ways. Neither keeps scores in memory, nor adds to memory that another block adds to: 64 rows of the result,
// queries or keys, stay with a block, and tiles of the others pass.

namespace braid::cuda {
namespace attention {
namespace {

constexpr const char* kRoles = R"cuda(
// The rows of the result are keys or queries. Weights add up rows of dy (the gradient of the values), or, each
// multiplied by what dy · v is beyond its mean, those of queries or keys; or both.
constexpr bool LOGS = RESULT == 1, BY_KEYS = RESULT >= 3, INNER = RESULT == 2 || RESULT == 3;
constexpr bool GIVEN = RESULT == 4 || WITH_VALUES;
constexpr Index SHARED = HEADS / GROUPS, LAYERS = BATCH * (BY_KEYS ? GROUPS : HEADS);
constexpr Index ALL = BY_KEYS ? KEYS : QUERIES, BLOCKS = (ALL + 63) / 64;

// Where the rows lie that stay, and those that pass, of the product that is a score and of dy · v.
struct Rows { const T* at; Index step; };
struct Places {
  Index batch, head, group, row0;  // the head of the first tile
  Rows stays, staysInner;
  // From which row on what passes is seen, up to which, and how many heads do.
  Index first, end, heads;
};
FN Rows queriesOf(const T* q, Index batch, Index head) { return {q + batch * Q0 + head * Q1, Q2}; }
FN Rows givenOf(const T* dy, Index batch, Index head) { return {dy + batch * DY0 + head * DY1, DY2}; }
FN Rows keysOf(const T* k, Index batch, Index group) { return {k + batch * K0 + group * K1, K2}; }
FN Rows valuesOf(const T* v, Index batch, Index group) { return {v + batch * V0 + group * V1, V2}; }

// Blocks to which most passes come first.
FN Places placesOf(const T* q, const T* k, const T* v, const T* dy, Index there, Index block, Index tile) {
  Places of;
  const Index layer = block % LAYERS, place = block / LAYERS;
  of.batch = layer / (LAYERS / BATCH);
  of.group = BY_KEYS ? layer % GROUPS : layer % HEADS / SHARED;
  of.head = BY_KEYS ? of.group * SHARED : layer % HEADS;
  of.row0 = (BY_KEYS ? place : BLOCKS - 1 - place) * 64;
  if (BY_KEYS) {
    of.stays = keysOf(k, of.batch, of.group);
    of.staysInner = valuesOf(v, of.batch, of.group);
    const Index first = CAUSAL ? of.row0 - there + QUERIES : 0;
    of.first = first <= 0 ? 0 : first / tile * tile;
    of.end = of.row0 < there ? QUERIES : 0;
    of.heads = SHARED;
  } else {
    of.stays = queriesOf(q, of.batch, of.head);
    of.staysInner = givenOf(dy, of.batch, of.head);
    of.first = 0;
    of.end = endOf(there, (of.row0 + 64 < QUERIES ? of.row0 + 64 : QUERIES) - 1);
    of.heads = 1;
  }
  return of;
}
)cuda";

// A 16 × 16 grid of threads, each with 4 × 4 of the scores and of 64 columns of the result. Any type, any
// size.
constexpr const char* kPlainGradient = R"cuda(
// sum[i][j] += left row y4 + i · right row x4 + j, of rows below their ends.
FN void multiplyRows(float (&sum)[4][4], float (&left)[16][68], float (&right)[16][68], Rows a, Index a0,
                     Index endA, Rows b, Index b0, Index endB, Index size, int y4, int x4) {
  for (Index d0 = 0; d0 < size; d0 += 16) {
    __syncthreads();
    for (int i = threadIdx.x; i < 1024; i += 256) {
      const int row = i / 16, d = i % 16;
      const bool inside = d0 + d < size;
      left[d][row] = inside && a0 + row < endA ? loadF(a.at[(a0 + row) * a.step + d0 + d]) : 0.0f;
      right[d][row] = inside && b0 + row < endB ? loadF(b.at[(b0 + row) * b.step + d0 + d]) : 0.0f;
    }
    __syncthreads();
    for (int d = 0; d < 16; ++d)
      for (int i = 0; i < 4; ++i)
        for (int j = 0; j < 4; ++j) sum[i][j] = fmaf(left[d][y4 + i], right[d][x4 + j], sum[i][j]);
  }
}

extern "C" __global__ void __launch_bounds__(256) braid_attention_gradient(PARAMETERS) {
  gridDependencySync();
  __shared__ float left[16][68], right[16][68], weights[64][68];
  const int x = threadIdx.x % 16, y4 = threadIdx.x / 16 * 4, x4 = x * 4;
  // Some parts of the columns are those of one result, others of the other.
  constexpr Index OWN = LOGS ? 1 : INNER ? (SIZE + 63) / 64 : 0, PARTS = OWN + (GIVEN ? (VALUE + 63) / 64 : 0);
  const Index there = thereOf(length), part = blockIdx.x % PARTS, column0 = (part < OWN ? part : part - OWN) * 64;
  const bool given = GIVEN && part >= OWN;
  const Index columns = LOGS ? 1 : given ? VALUE : SIZE;
  const Places of = placesOf(q, k, v, dy, there, blockIdx.x / PARTS, 64);
  const Index last = BY_KEYS ? QUERIES : of.end;
  float sum[4][4] = {}, most[4], total[4] = {};
  for (int i = 0; i < 4; ++i) most[i] = -infinity();
  for (Index h = 0; h < of.heads; ++h)
    for (Index tile0 = of.first; tile0 < of.end; tile0 += 64) {
      const Index head = of.head + h, sums = (of.batch * HEADS + head) * QUERIES;
      const Rows passes = BY_KEYS ? queriesOf(q, of.batch, head) : keysOf(k, of.batch, of.group);
      const Rows passesInner = BY_KEYS ? givenOf(dy, of.batch, head) : valuesOf(v, of.batch, of.group);
      float score[4][4] = {}, inner[4][4] = {};
      multiplyRows(score, left, right, of.stays, of.row0, ALL, passes, tile0, last, SIZE, y4, x4);
      if (INNER && !given)
        multiplyRows(inner, left, right, of.staysInner, of.row0, ALL, passesInner, tile0, last, VALUE, y4, x4);
      for (int i = 0; i < 4; ++i) {
        const Index row = of.row0 + y4 + i;
        float largest = most[i];
        for (int j = 0; j < 4; ++j) {
          const Index other = tile0 + x4 + j;
          const Index query = BY_KEYS ? other : row, key = BY_KEYS ? row : other;
          const bool seen = query < QUERIES && key < endOf(there, query) &&
                            isSeen(mask, of.batch, head, query, key);
          if (LOGS) {
            score[i][j] = seen ? score[i][j] * SCALE : -infinity();
            largest = fmaxf(largest, score[i][j]);
          } else {
            float weight = seen ? expf(score[i][j] * SCALE - logs[sums + query]) : 0.0f;
            if (INNER && !given && seen) weight *= inner[i][j] - products[sums + query];
            weights[x4 + j][y4 + i] = weight;
          }
        }
        if (!LOGS) continue;
        for (int step = 8; step > 0; step /= 2)
          largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, step));
        const float base = largest == -infinity() ? 0.0f : largest;
        total[i] *= expf(most[i] - base);
        most[i] = largest;
        for (int j = 0; j < 4; ++j) total[i] += expf(score[i][j] - base);
      }
      if (LOGS) continue;
      const Rows added = given ? passesInner : passes;
      for (int r0 = 0; r0 < 64; r0 += 16) {
        __syncthreads();
        for (int i = threadIdx.x; i < 1024; i += 256) {
          const Index row = tile0 + r0 + i / 64, column = column0 + i % 64;
          right[i / 64][i % 64] = row < last && column < columns ? loadF(added.at[row * added.step + column]) : 0.0f;
        }
        __syncthreads();
        for (int d = 0; d < 16; ++d)
          for (int i = 0; i < 4; ++i)
            for (int j = 0; j < 4; ++j)
              sum[i][j] = fmaf(weights[r0 + d][y4 + i], right[d][x4 + j], sum[i][j]);
      }
    }
  for (int i = 0; i < 4; ++i) {
    if (LOGS)
      for (int step = 8; step > 0; step /= 2) total[i] += __shfl_xor_sync(0xffffffffu, total[i], step);
    const Index row = of.row0 + y4 + i;
    if (row >= ALL) continue;
    const Index own = BY_KEYS ? of.group : of.head;
    for (int j = 0; j < 4; ++j) {
      const Index column = column0 + x4 + j;
      const float value = LOGS ? logf(total[i]) + most[i] : given ? sum[i][j] : sum[i][j] * SCALE;
      if (column >= columns) continue;
      if (WITH_VALUES && given) store(value, dv[of.batch * DV0 + own * DV1 + row * DV2 + column]);
      else store(value, y[of.batch * Y0 + own * Y1 + row * Y2 + column]);
    }
  }
}
)cuda";

// A block has 4 warps of 16 rows each, which lie in registers, and walks over tiles of the others, the next
// of which are copied while one is multiplied. Rows in shared memory are 16 bytes longer than their elements,
// so that the eight rows of a matrix lie in different banks.
constexpr const char* kTensorGradient = R"cuda(
#ifndef BRAID_EMULATED
FN float exp2Of(float x) { float y; asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
#endif
constexpr int PITCH = SIZE + 8, PITCH_INNER = VALUE + 8;
constexpr int TILE_PARTS = TILE / 8;
constexpr float POWER = SCALE * 1.4426950408889634f;

template <int LENGTH> FN void loadRows(u16* to, Rows rows, Index first, Index end) {
  #pragma unroll
  for (int i = threadIdx.x; i < TILE * (LENGTH / 8); i += 128) {
    const int row = i / (LENGTH / 8), column = i % (LENGTH / 8) * 8;
    const bool is = first + row < end;
    copyAsync(to + row * (LENGTH + 8) + column, (const u16*)rows.at + (is ? first + row : 0) * rows.step + column, is);
  }
}

// 16 rows of a warp as left operands.
template <int LENGTH> FN void keepRows(unsigned (&to)[LENGTH / 16][4], Rows rows, Index first, int g, int p) {
  #pragma unroll
  for (int s = 0; s < LENGTH / 16; ++s)
    #pragma unroll
    for (int i = 0; i < 4; ++i) {
      const Index row = first + g + i % 2 * 8;
      to[s][i] = row < ALL ? *(const unsigned*)((const u16*)rows.at + row * rows.step + s * 16 + p + i / 2 * 8) : 0u;
    }
}

// sum += kept rows · rows of the tile.
template <int LENGTH>
FN void multiplyTile(float (&sum)[TILE_PARTS][4], const unsigned (&kept)[LENGTH / 16][4], const u16* tile, int lane) {
  #pragma unroll
  for (int s = 0; s < LENGTH / 16; ++s)
    #pragma unroll
    for (int n = 0; n < TILE_PARTS / 2; ++n) {
      unsigned right[4];
      loadMatrices(right, tile + (n * 16 + lane / 16 * 8 + lane % 8) * (LENGTH + 8) + s * 16 + lane / 8 % 2 * 8);
      multiply(sum[2 * n], kept[s], right[0], right[1]);
      multiply(sum[2 * n + 1], kept[s], right[2], right[3]);
    }
}

// sum += 16 columns of weights · 16 rows of a tile.
template <int LENGTH, int PARTS>
FN void addRows(float (&sum)[PARTS][4], const float (&low)[4], const float (&high)[4], const u16* tile, int lane) {
  if (PARTS == 1) return;
  const unsigned weights[4] = {packed(low[0], low[1]), packed(low[2], low[3]), packed(high[0], high[1]), packed(high[2], high[3])};
  #pragma unroll
  for (int n = 0; n < PARTS / 2; ++n) {
    unsigned right[4];
    loadTransposed(right, tile + (lane / 8 % 2 * 8 + lane % 8) * (LENGTH + 8) + n * 16 + lane / 16 * 8);
    multiply(sum[2 * n], weights, right[0], right[1]);
    multiply(sum[2 * n + 1], weights, right[2], right[3]);
  }
}
template <int PARTS> FN void writeRow(T* at, const float (&sum)[PARTS][4], int h, float scale) {
  #pragma unroll
  for (int n = 0; n < PARTS; ++n) *(unsigned*)((u16*)at + n * 8) = packed(sum[n][2 * h] * scale, sum[n][2 * h + 1] * scale);
}

extern "C" __global__ void __launch_bounds__(128) braid_attention_gradient_wide(PARAMETERS) {
  gridDependencySync();
  alignas(16) __shared__ u16 tiles[2][TILE * PITCH];
  alignas(16) __shared__ u16 inners[2][LOGS ? 8 : TILE * PITCH_INNER];
  __shared__ float sums[2][2 * TILE];
  const int lane = threadIdx.x % 32, g = lane / 4, p = lane % 4 * 2;
  const Index there = thereOf(length);
  const Places of = placesOf(q, k, v, dy, there, blockIdx.x, TILE);
  const Index first = of.row0 + threadIdx.x / 32 * 16;
  const Index end = of.end > of.first ? of.end : of.first;

  unsigned kept[SIZE / 16][4], keptInner[VALUE / 16][4];
  keepRows<SIZE>(kept, of.stays, first, g, p);
  if (INNER) keepRows<VALUE>(keptInner, of.staysInner, first, g, p);
  // Of the queries, where they stay.
  float ownLogs[2] = {}, ownProducts[2] = {};
  if (!BY_KEYS && !LOGS)
    for (int h = 0; h < 2; ++h) {
      const Index row = first + g + h * 8, place = (of.batch * HEADS + of.head) * QUERIES + row;
      if (row < QUERIES) ownLogs[h] = logs[place] * 1.4426950408889634f, ownProducts[h] = products[place];
    }
  const auto load = [&](Index head, Index tile0, int into) {
    loadRows<SIZE>(tiles[into], BY_KEYS ? queriesOf(q, of.batch, head) : keysOf(k, of.batch, of.group), tile0, of.end);
    if (!LOGS)
      loadRows<VALUE>(inners[into], BY_KEYS ? givenOf(dy, of.batch, head) : valuesOf(v, of.batch, of.group), tile0, of.end);
    if (BY_KEYS && threadIdx.x < 2 * TILE) {
      const Index query = tile0 + threadIdx.x % TILE;
      copyFloatAsync(&sums[into][threadIdx.x],
                     (threadIdx.x < TILE ? logs : products) + (of.batch * HEADS + head) * QUERIES + (query < QUERIES ? query : 0),
                     query < QUERIES);
    }
    commitCopies();
  };

  float sum[INNER ? SIZE / 8 : 1][4] = {}, sumGiven[GIVEN ? VALUE / 8 : 1][4] = {}, most[2] = {-infinity(), -infinity()}, total[2] = {};
  int now = 0;
  const auto productOf = [&](int column, int h) { return BY_KEYS ? sums[now][TILE + column] : ownProducts[h]; };
  Index head = of.head, tile0 = of.first;
  if (end > of.first) load(head, tile0, 0);
  for (; end > of.first && head < of.head + of.heads; now ^= 1) {
    const bool isLastTile = tile0 + TILE >= end;
    const Index nextHead = isLastTile ? head + 1 : head, nextTile = isLastTile ? of.first : tile0 + TILE;
    if (nextHead < of.head + of.heads) {
      load(nextHead, nextTile, now ^ 1);
      awaitCopies<1>();
    } else {
      awaitCopies<0>();
    }
    __syncthreads();
    const Index lastRow = (first + 16 < ALL ? first + 16 : ALL) - 1;
    const Index lastPassing = (tile0 + TILE < of.end ? tile0 + TILE : of.end) - 1;
    // Whether some query sees some key, and whether all see all.
    const Index lowQuery = BY_KEYS ? tile0 : first, highQuery = BY_KEYS ? lastPassing : lastRow;
    const Index lowKey = BY_KEYS ? first : tile0, highKey = BY_KEYS ? first + 15 : tile0 + TILE - 1;
    if (first < ALL && lowKey < endOf(there, highQuery)) {
      float score[TILE_PARTS][4] = {}, inner[TILE_PARTS][4] = {};
      multiplyTile<SIZE>(score, kept, tiles[now], lane);
      if (INNER) multiplyTile<VALUE>(inner, keptInner, inners[now], lane);
      const bool some = MASKED || highKey >= endOf(there, lowQuery) || tile0 + TILE > of.end;
      if (LOGS) {
        #pragma unroll
        for (int n = 0; n < TILE_PARTS; ++n)
          #pragma unroll
          for (int i = 0; i < 4; ++i) {
            const Index query = first + g + i / 2 * 8, key = tile0 + n * 8 + p + i % 2;
            const bool seen = !some || (query < QUERIES && key < endOf(there, query) &&
                                        isSeen(mask, of.batch, head, query, key));
            score[n][i] = seen ? score[n][i] * POWER : -infinity();
          }
        #pragma unroll
        for (int h = 0; h < 2; ++h) {
          float largest = most[h];
          #pragma unroll
          for (int n = 0; n < TILE_PARTS; ++n) largest = fmaxf(largest, fmaxf(score[n][2 * h], score[n][2 * h + 1]));
          largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 1));
          largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 2));
          const float base = largest == -infinity() ? 0.0f : largest;
          float more = 0.0f;
          #pragma unroll
          for (int n = 0; n < TILE_PARTS; ++n) more += exp2Of(score[n][2 * h] - base) + exp2Of(score[n][2 * h + 1] - base);
          total[h] = fmaf(total[h], exp2Of(most[h] - base), more);
          most[h] = largest;
        }
      } else {
        #pragma unroll
        for (int n = 0; n < TILE_PARTS; ++n)
          #pragma unroll
          for (int i = 0; i < 4; ++i) {
            const int at = n * 8 + p + i % 2;
            const float log = BY_KEYS ? sums[now][at] * 1.4426950408889634f : ownLogs[i / 2];
            score[n][i] = exp2Of(fmaf(score[n][i], POWER, -log));
          }
        if (some) {
          #pragma unroll
          for (int n = 0; n < TILE_PARTS; ++n)
            #pragma unroll
            for (int i = 0; i < 4; ++i) {
              const Index row = first + g + i / 2 * 8, other = tile0 + n * 8 + p + i % 2;
              const Index query = BY_KEYS ? other : row, key = BY_KEYS ? row : other;
              const bool seen = query < QUERIES && key < endOf(there, query) && isSeen(mask, of.batch, head, query, key);
              if (!seen) score[n][i] = 0.0f;
            }
        }
        #pragma unroll
        for (int s = 0; s < TILE / 16; ++s) {
          if (GIVEN) addRows<VALUE>(sumGiven, score[2 * s], score[2 * s + 1], inners[now] + s * 16 * PITCH_INNER, lane);
          if (INNER) {
            #pragma unroll
            for (int n = 2 * s; n < 2 * s + 2; ++n)
              #pragma unroll
              for (int i = 0; i < 4; ++i)
                // What is not seen adds nothing, also where the query's product is NaN.
                score[n][i] = score[n][i] == 0.0f ? 0.0f : score[n][i] * (inner[n][i] - productOf(n * 8 + p + i % 2, i / 2));
            addRows<SIZE>(sum, score[2 * s], score[2 * s + 1], tiles[now] + s * 16 * PITCH, lane);
          }
        }
      }
    }
    head = nextHead, tile0 = nextTile;
    __syncthreads();
  }
  #pragma unroll
  for (int h = 0; h < 2; ++h) {
    const Index row = first + g + h * 8;
    if (LOGS) {
      float whole = total[h];
      whole += __shfl_xor_sync(0xffffffffu, whole, 1);
      whole += __shfl_xor_sync(0xffffffffu, whole, 2);
      if (row < ALL && p == 0)
        store((log2f(whole) + most[h]) * 0.6931471805599453f, y[of.batch * Y0 + of.head * Y1 + row * Y2]);
    } else if (row < ALL) {
      const Index own = BY_KEYS ? of.group : of.head;
      T* to = (T*)y + of.batch * Y0 + own * Y1 + row * Y2 + p;
      if (INNER) writeRow(to, sum, h, SCALE);
      else writeRow(to, sumGiven, h, 1.0f);
      if (WITH_VALUES) writeRow(dv + of.batch * DV0 + own * DV1 + row * DV2 + p, sumGiven, h, 1.0f);
    }
  }
}
)cuda";

}  // namespace
}  // namespace attention

void attentionGradientSource(const KernelSpec& spec, int architecture, std::string text,
                             KernelSource* source) {
  const AttentionSpec& one = spec.attention;
  const std::int64_t blocks = spec.batch * one.resultHeads() * ((one.resultRows() + 63) / 64);
  const auto of64 = [](std::int64_t columns) { return (columns + 63) / 64; };
  const std::int64_t parts = of64(one.resultRow()) + (one.withValues ? of64(one.valueSize) : 0);
  text += constant("int", "RESULT", static_cast<std::int64_t>(one.result)) + attention::kRoles;
  source->plain = {"braid_attention_gradient", blocks * parts * 256, 256, false};
  if (attentionFitsTensorCores(spec, architecture)) {
    text += constant("int", "TILE", std::max(one.size, one.valueSize) <= 64 ? 64 : 32);
    text += tensorCoresText(spec.input) + attention::kTensorGradient;
    source->vector = {"braid_attention_gradient_wide", blocks * 128, 128, false};
  }
  source->text = text + attention::kPlainGradient;
}

}  // namespace braid::cuda
