#include <algorithm>
#include <cstdio>

#include "cuda/sources/cluster.h"
#include "cuda/sources/prelude.h"
#include "cuda/sources/source.h"

namespace braid::cuda {
namespace {

// What follows the sum of an element.
constexpr const char* kFinish = R"cuda(
FN float gelu(float x) {
  return x * 0.5f * (tanhf((x + x * x * x * 0.044715f) * 0.7978845608028654f) + 1.0f);
}
FN void finish(float sum, float bias, float residual, C* c, C* auxiliary, Index at) {
  sum *= SCALE;
  if (BIAS) sum += bias;
  if (AUXILIARY) store(sum, auxiliary[at]);
  sum = RELU ? maxF(sum, 0.0f) : GELU ? gelu(sum) : sum;
  store(RESIDUAL ? sum + residual : sum, c[at]);
}
)cuda";

// Few rows: what takes time is to read b once. So it is spread over as many threads as there are, with 16
// bytes an access, and each thread asks for several before it uses the first. So there is no branch between
// these: past the ends of b they read its last elements once more. The barrier of a warp that follows keeps
// the compiler from moving them to where they are used, which it does to save registers. Of what follows the
// sum, each element is asked for at the beginning too.
//
// Here b is n × k: SPLIT warps share a column of c.
constexpr const char* kFewByColumns = R"cuda(
constexpr int COLUMNS = 8 / SPLIT;
extern "C" __global__ void __launch_bounds__(256, 1)
braid_matmul_few(const A* a, const B* b, PARAMETERS Index count) {
  gridDependencySync();
  __shared__ float parts[8][M];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, own = threadIdx.x / M;
  const Index column0 = (Index)blockIdx.x * COLUMNS, column = column0 + warp / SPLIT;
  const Index row = threadIdx.x % M, last = column0 + own;
  const bool ends = own < COLUMNS && last < N;
  const float shift = BIAS && ends ? loadF(bias[last]) : 0.0f;
  const float rest = RESIDUAL && ends ? loadF(residual[row * N + last]) : 0.0f;
  float sum[M] = {};
  const Index first = (warp % SPLIT * 32 + lane) * E;
  b += (column < N ? column : N - 1) * ROW_B;
  for (int turn = 0; turn < ALL; turn += TURNS) {
    Pack<B, E> right[TURNS];
    #pragma unroll
    for (int t = 0; t < TURNS; ++t) {
      const Index k = first + (Index)(turn + t) * STEP;
      right[t] = *(const Pack<B, E>*)(b + (EXACT || k < K ? k : K - E));
    }
    #pragma unroll
    for (int t = 0; t < TURNS; ++t) {
      const Index k = first + (Index)(turn + t) * STEP;
      if (!EXACT && k >= K) continue;
      #pragma unroll
      for (int r = 0; r < M; ++r) {
        const Pack<A, E> left = *(const Pack<A, E>*)(a + r * ROW_A + k);
        #pragma unroll
        for (int i = 0; i < E; ++i) sum[r] = fmaf(loadF(left.v[i]), loadF(right[t].v[i]), sum[r]);
      }
    }
  }
  #pragma unroll
  for (int r = 0; r < M; ++r) {
    #pragma unroll
    for (int step = 16; step > 0; step /= 2) sum[r] += __shfl_xor_sync(0xffffffffu, sum[r], step);
    if (lane == 0) parts[warp][r] = sum[r];
  }
  __syncthreads();
  if (!ends) return;
  float whole = 0.0f;
  #pragma unroll
  for (int s = 0; s < SPLIT; ++s) whole += parts[own * SPLIT + s][row];
  finish(whole, shift, rest, c, auxiliary, row * N + last);
}
)cuda";

// Here b is k × n: a block has 8 · E columns of c, 32 of its threads' rows of b at a time, and the blocks of
// a cluster have a part of the rows each, whose sums are added by reading one another's.
constexpr const char* kFewByRows = R"cuda(
constexpr int COLUMNS = 8 * E;
extern "C" __global__ void __launch_bounds__(256, 1) IN_CLUSTERS
braid_matmul_few(const A* a, const B* b, PARAMETERS Index count) {
  gridDependencySync();
  __shared__ float parts[8][M][COLUMNS], own[M][COLUMNS];
  const unsigned rank = rankOf();
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, mine = threadIdx.x % 8 * E;
  const Index column0 = (Index)(blockIdx.x / CLUSTER) * COLUMNS, column = column0 + mine;
  const int row = threadIdx.x / COLUMNS, place = threadIdx.x % COLUMNS;
  const Index last = column0 + place;
  const bool ends = rank == 0 && row < M && last < N;
  const float shift = BIAS && ends ? loadF(bias[last]) : 0.0f;
  const float rest = RESIDUAL && ends ? loadF(residual[row * N + last]) : 0.0f;
  float sum[M][E] = {};
  const Index first = rank * 32 + threadIdx.x / 8;
  b += column < N ? column : N - E;
  for (int turn = 0; turn < ALL; turn += TURNS) {
    Pack<B, E> right[TURNS];
    float left[TURNS][M];
    #pragma unroll
    for (int t = 0; t < TURNS; ++t) {
      const Index k = first + (Index)(turn + t) * STEP, own = EXACT || k < K ? k : K - 1;
      right[t] = *(const Pack<B, E>*)(b + own * ROW_B);
      #pragma unroll
      for (int r = 0; r < M; ++r) left[t][r] = loadF(a[r * ROW_A + own]);
    }
    #pragma unroll
    for (int t = 0; t < TURNS; ++t) {
      if (!EXACT && first + (Index)(turn + t) * STEP >= K) continue;
      #pragma unroll
      for (int r = 0; r < M; ++r)
        #pragma unroll
        for (int i = 0; i < E; ++i) sum[r][i] = fmaf(left[t][r], loadF(right[t].v[i]), sum[r][i]);
    }
  }
  #pragma unroll
  for (int r = 0; r < M; ++r)
    #pragma unroll
    for (int i = 0; i < E; ++i) {
      #pragma unroll
      for (int step = 16; step >= 8; step /= 2) sum[r][i] += __shfl_xor_sync(0xffffffffu, sum[r][i], step);
      if (lane < 8) parts[warp][r][mine + i] = sum[r][i];
    }
  __syncthreads();
  if (row < M) {
    float whole = 0.0f;
    #pragma unroll
    for (int w = 0; w < 8; ++w) whole += parts[w][row][place];
    own[row][place] = whole;
  }
  clusterBarrier();
  if (ends) {
    float whole = 0.0f;
    #pragma unroll
    for (int block = 0; block < CLUSTER; ++block) whole += ofRank(&own[row][place], block);
    finish(whole, shift, rest, c, auxiliary, row * N + last);
  }
  clusterBarrier();  // a block stays until the first has read what it has
}
)cuda";

// A block makes one 64 × 64 tile of c, a thread 4 × 4 elements of it, walking along k in steps of 16. Past
// the edges the tiles hold zeros. Which index of an operand runs fastest across threads depends on its
// layout, so that its reads stay side by side.
constexpr const char* kBody = R"cuda(
constexpr int TILE = 64, STEP = 16;
// TILE lines of an operand along k, from line0 and k0 on: ACROSS, lines lie side by side in memory.
template <bool ACROSS, class T>
FN void fetch(float (&to)[STEP][TILE + 4], const T* from, Index line0, Index lines, Index k0, Index pitch) {
  #pragma unroll
  for (int i = threadIdx.x; i < TILE * STEP; i += 256) {
    const int line = ACROSS ? i % TILE : i / STEP, k = ACROSS ? i / TILE : i % STEP;
    const bool inside = line0 + line < lines && k0 + k < K;
    to[k][line] = inside ? loadF(from[ACROSS ? (k0 + k) * pitch + line0 + line : (line0 + line) * pitch + k0 + k]) : 0.0f;
  }
}
extern "C" __global__ void __launch_bounds__(256)
braid_matmul(const A* a, const B* b, PARAMETERS Index count) {
  gridDependencySync();
  __shared__ float left[STEP][TILE + 4], right[STEP][TILE + 4];
  const Index tilesN = (N + TILE - 1) / TILE, tilesM = (M + TILE - 1) / TILE;
  const Index tile = blockIdx.x, layer = tile / (tilesM * tilesN);
  const Index row0 = tile / tilesN % tilesM * TILE, column0 = tile % tilesN * TILE;
  const int x = threadIdx.x % 16 * 4, y = threadIdx.x / 16 * 4;
  a += layer * STRIDE_A;
  b += layer * STRIDE_B;
  float sum[4][4] = {};
  for (Index k0 = 0; k0 < K; k0 += STEP) {
    fetch<TRANSPOSE_A>(left, a, row0, M, k0, ROW_A);
    fetch<!TRANSPOSE_B>(right, b, column0, N, k0, ROW_B);
    __syncthreads();
    #pragma unroll
    for (int k = 0; k < STEP; ++k)
      #pragma unroll
      for (int i = 0; i < 4; ++i)
        #pragma unroll
        for (int j = 0; j < 4; ++j) sum[i][j] = fmaf(left[k][y + i], right[k][x + j], sum[i][j]);
    __syncthreads();
  }
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 4; ++j) {
      const Index row = row0 + y + i, column = column0 + x + j;
      if (row >= M || column >= N) continue;
      const Index at = layer * STRIDE_C + row * N + column;
      finish(sum[i][j], BIAS ? loadF(bias[column]) : 0.0f, RESIDUAL ? loadF(residual[at]) : 0.0f, c, auxiliary, at);
    }
}
)cuda";

constexpr std::int64_t kFewRows = 4;

// The types, sizes and steps of a product.
std::string productText(const KernelSpec& spec) {
  std::string text = kPrelude;
  text += "typedef long long Index;\n";
  text += "typedef " + std::string(cudaTypeName(spec.a.dtype)) + " A;\n";
  text += "typedef " + std::string(cudaTypeName(spec.b.dtype)) + " B;\n";
  text += "typedef " + std::string(cudaTypeName(spec.c.dtype)) + " C;\n";
  const auto constant = [&](const char* name, std::int64_t value) {
    text += "constexpr Index " + std::string(name) + " = " + std::to_string(value) + ";\n";
  };
  constant("M", spec.m);
  constant("N", spec.n);
  constant("K", spec.k);
  constant("STRIDE_A", spec.a.batchStride);
  constant("STRIDE_B", spec.b.batchStride);
  constant("STRIDE_C", spec.c.batchStride);
  constant("ROW_A", spec.a.row(spec.transposeA ? spec.m : spec.k));
  constant("ROW_B", spec.b.row(spec.transposeB ? spec.k : spec.n));
  text += "constexpr bool TRANSPOSE_A = " + std::string(spec.transposeA ? "true" : "false") + ";\n";
  text += "constexpr bool TRANSPOSE_B = " + std::string(spec.transposeB ? "true" : "false") + ";\n";
  const MatmulEpilogue& epilogue = spec.epilogue;
  const auto flag = [&](const char* name, bool value) {
    text += "constexpr bool " + std::string(name) + " = " + (value ? "true" : "false") + ";\n";
  };
  flag("BIAS", epilogue.bias), flag("RESIDUAL", epilogue.residual);
  flag("AUXILIARY", epilogue.auxiliary);
  flag("RELU", epilogue.activation == Activation::relu);
  flag("GELU", epilogue.activation == Activation::gelu);
  char scale[64];
  std::snprintf(scale, sizeof scale, "%af", static_cast<double>(static_cast<float>(epilogue.scale)));
  text += "constexpr float SCALE = " + std::string(scale) + ";\n";
  if (!epilogue.bias) text += "constexpr const C* bias = nullptr;\n";
  if (!epilogue.residual) text += "constexpr const C* residual = nullptr;\n";
  if (!epilogue.auxiliary) text += "constexpr C* auxiliary = nullptr;\n";
  text += std::string("#define PARAMETERS ") + (epilogue.bias ? "const C* bias, " : "") +
          (epilogue.residual ? "const C* residual, " : "") + "C* c, " +
          (epilogue.auxiliary ? "C* auxiliary, " : "") + "\n";
  return text + kFinish;
}

// The pointers of a product's kernel.
void pointers(const KernelSpec& spec, KernelSource* source) {
  const std::size_t count = 2 + spec.epilogue.reads() + spec.epilogue.writes();
  source->alignments.assign(count, 1);
  source->byteOffsets.assign(count, 0);
  source->byteOffsets[0] = spec.a.offset * static_cast<std::int64_t>(elementBytes(spec.a.dtype));
  source->byteOffsets[1] = spec.b.offset * static_cast<std::int64_t>(elementBytes(spec.b.dtype));
}

}  // namespace

bool fewRowsSource(const KernelSpec& spec, int architecture, int multiprocessors, KernelSource* source) {
  const auto unit = static_cast<std::int64_t>(16 / elementBytes(spec.b.dtype));
  const std::int64_t along = spec.transposeB ? spec.k : spec.n;
  if (spec.m > kFewRows || spec.batch > 1 || spec.transposeA || spec.a.dtype != spec.b.dtype ||
      along % unit != 0 || spec.b.row(unit) % unit != 0 || (spec.transposeB && spec.a.row(unit) % unit != 0))
    return false;
  std::string text = productText(spec);
  const auto number = [&text](const char* name, std::int64_t value) {
    text += "constexpr int " + std::string(name) + " = " + std::to_string(value) + ";\n";
  };
  // The accesses of a thread, and how many are under way at a time: further rows take registers from them.
  const auto turns = [&](std::int64_t step) {
    const std::int64_t all = (spec.k + step - 1) / step, most = spec.m == 1 ? 12 : 4;
    number("E", unit), number("STEP", step), number("ALL", all), number("TURNS", std::min(all, most));
    text += "constexpr bool EXACT = " +
            std::string(spec.k % step == 0 && all % std::min(all, most) == 0 ? "true" : "false") + ";\n";
  };
  std::int64_t blocks = 0;
  if (spec.transposeB) {
    std::int64_t split = 1;
    while (split < 8 && spec.n * split < std::int64_t{16} * multiprocessors && spec.k >= 64 * split * unit)
      split *= 2;
    number("SPLIT", split), turns(split * 32 * unit);
    text += kFewByColumns;
    blocks = (spec.n + 8 / split - 1) / (8 / split);
  } else {
    std::int64_t cluster = 1;
    blocks = (spec.n + 8 * unit - 1) / (8 * unit);
    // Clusters came with 9.0.
    while (architecture >= 90 && cluster < 8 && blocks * cluster < multiprocessors && spec.k >= 64 * cluster)
      cluster *= 2;
    turns(cluster * 32);
    text += clusterText(cluster) + kFewByRows;
    blocks *= cluster;
  }
  source->text = text;
  source->plain = {"braid_matmul_few", blocks * 256, 256, false};
  pointers(spec, source);
  source->count = blocks;
  source->wide = true;
  return true;
}

void matmulSource(const KernelSpec& spec, KernelSource* source) {
  source->text = productText(spec) + kBody;
  const std::int64_t tiles = (spec.m + 63) / 64 * ((spec.n + 63) / 64) * spec.batch;
  source->plain = {"braid_matmul", tiles * 256, 256, false};
  pointers(spec, source);
  source->count = tiles;
  source->wide = true;
}

}  // namespace braid::cuda
