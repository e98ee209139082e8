#include "cuda/sources/map_code.h"
#include "cuda/sources/prelude.h"
#include "cuda/sources/source.h"

// Kernels that read or write rows by their positions: gather, scatterAdd and append.

namespace braid::cuda {
namespace {

// A thread an element of the result.
constexpr const char* kGather = R"cuda(
extern "C" __global__ void __launch_bounds__(256)
braid_gather(const T* table, const int* indices, T* y, Index count) {
  gridDependencySync();
  for (Index i = (Index)blockIdx.x * 256 + threadIdx.x; i < count; i += (Index)gridDim.x * 256) {
    const Index row = i / INNER, index = indices[ALONG ? i : row % COUNT];
    T value = {};
    if (index >= 0 && index < LENGTH) value = table[(row / COUNT * LENGTH + index) * INNER + i % INNER];
    y[i] = value;
  }
}
)cuda";

// A block has ROWS rows of the result, a warp STRIP columns of one after the other. The rows that are added
// to one are neighbours in the order: each thread finds where those of a row begin, and a warp adds them one
// after the other. Where a row is one element, each lane adds every 32nd of them.
constexpr const char* kScatterAdd = R"cuda(
// The first place in the order whose index is `key` or larger.
FN Index placeOf(const int* indices, const int* order, Index key) {
  Index from = 0, to = COUNT;
  while (from < to) {
    const Index middle = (from + to) / 2, row = order[middle];
    if (row >= 0 && row < COUNT && indices[row] < key) from = middle + 1;
    else to = middle;
  }
  return from;
}
extern "C" __global__ void __launch_bounds__(256)
braid_scatter_add(const T* x, const int* indices, const int* order, U* y, Index count) {
  gridDependencySync();
  __shared__ Index starts[ROWS + 1];
  constexpr Index BLOCKS = (LENGTH + ROWS - 1) / ROWS;
  const Index outer = blockIdx.x / BLOCKS, first = blockIdx.x % BLOCKS * ROWS;
  const T* rows = x + outer * COUNT * INNER;
  U* sums = y + (outer * LENGTH + first) * INNER;
  const int own = LENGTH - first < ROWS ? (int)(LENGTH - first) : ROWS, lane = threadIdx.x % 32;
  if (threadIdx.x <= own) starts[threadIdx.x] = placeOf(indices, order, first + threadIdx.x);
  __syncthreads();
  for (Index item = threadIdx.x / 32; item < own * STRIPS; item += 8) {
    const int row = (int)(item / STRIPS);
    const Index from = starts[row], to = starts[row + 1];
    if (INNER == 1) {
      S total = 0;
      for (Index j = from + lane; j < to; j += 32) {
        const Index place = order[j];
        if (place >= 0 && place < COUNT) total = ADD(total, (S)LOAD(rows[place]));
      }
      #pragma unroll
      for (int step = 16; step > 0; step /= 2) {
        const S other = __shfl_xor_sync(0xffffffffu, total, step);
        total = ADD(total, other);
      }
      if (lane == 0) store((V)total, sums[row]);
      continue;
    }
    const Index column = item % STRIPS * STRIP + lane;
    S totals[STRIP / 32] = {};
    #pragma unroll 4
    for (Index j = from; j < to; ++j) {
      const Index place = order[j];
      if (place < 0 || place >= COUNT) continue;
      #pragma unroll
      for (int e = 0; e < STRIP / 32; ++e)
        if (column + e * 32 < INNER) totals[e] = ADD(totals[e], (S)LOAD(rows[place * INNER + column + e * 32]));
    }
    #pragma unroll
    for (int e = 0; e < STRIP / 32; ++e)
      if (column + e * 32 < INNER) store((V)totals[e], sums[row * INNER + column + e * 32]);
  }
}
)cuda";

// A thread an element of the rows. x and y are one memory; a row outside of it is not written.
constexpr const char* kAppend = R"cuda(
extern "C" __global__ void __launch_bounds__(256)
braid_append(const T* x, const T* rows, const int* at, T* y, Index count) {
  gridDependencySync();
  const Index first = *at;
  for (Index i = (Index)blockIdx.x * 256 + threadIdx.x; i < count; i += (Index)gridDim.x * 256) {
    const Index row = i / INNER, place = first + row % COUNT;
    if (place >= 0 && place < LENGTH) y[(row / COUNT * LENGTH + place) * INNER + i % INNER] = rows[i];
  }
}
)cuda";

}  // namespace

void gatherSource(const KernelSpec& spec, KernelSource* source) {
  std::string text = kPrelude;
  text += "typedef long long Index;\n";
  text += "typedef " + std::string(cudaTypeName(spec.input)) + " T;\n";
  text += constant("Index", "LENGTH", spec.length) + constant("Index", "INNER", spec.inner) +
          constant("Index", "COUNT", spec.count);
  text += "constexpr bool ALONG = " + std::string(spec.along ? "true" : "false") + ";\n";
  source->text = text + kGather;
  source->count = spec.outer * spec.count * spec.inner;
  source->plain = {"braid_gather", source->count, 256, true};
  source->alignments = {1, 1, 1};
  source->byteOffsets = {0, 0, 0};
  source->wide = true;
}

void scatterAddSource(const KernelSpec& spec, int multiprocessors, KernelSource* source) {
  const bool whole = spec.input == DType::i32 || spec.input == DType::u8;
  const std::int64_t strip = spec.inner > 32 ? 128 : 32, strips = (spec.inner + strip - 1) / strip;
  // As many rows a block as leave each multiprocessor a few blocks.
  std::int64_t rows = 32;
  while (rows > 1 && spec.outer * (spec.length / rows) < 4 * multiprocessors) rows /= 2;
  std::string text = kPrelude;
  text += "typedef long long Index;\n";
  text += "typedef " + std::string(cudaTypeName(spec.input)) + " T;\n";
  text += "typedef " + std::string(cudaTypeName(spec.output)) + " U;\n";
  text += "typedef " + std::string(whole ? "int" : "float") + " V;\n";
  text += "typedef " + std::string(whole ? "int" : "double") + " S;\n";
  text += constant("Index", "LENGTH", spec.length) + constant("Index", "INNER", spec.inner) +
          constant("Index", "COUNT", spec.count);
  text +=
      constant("Index", "STRIPS", strips) + constant("int", "STRIP", strip) + constant("int", "ROWS", rows);
  text += std::string("#define LOAD ") + (whole ? "loadI" : "loadF") + "\n";
  text += std::string("#define ADD(a, b) ") + (whole ? "addI(a, b)" : "((a) + (b))") + "\n";
  source->text = text + kScatterAdd;
  source->count = spec.outer * spec.length;
  source->plain = {"braid_scatter_add", spec.outer * ((spec.length + rows - 1) / rows) * 256, 256, false};
  source->alignments = {1, 1, 1, 1};
  source->byteOffsets = {0, 0, 0, 0};
  source->wide = true;
}

void appendSource(const KernelSpec& spec, KernelSource* source) {
  std::string text = kPrelude;
  text += "typedef long long Index;\n";
  text += "typedef " + std::string(cudaTypeName(spec.input)) + " T;\n";
  text += constant("Index", "LENGTH", spec.length) + constant("Index", "INNER", spec.inner) +
          constant("Index", "COUNT", spec.count);
  source->text = text + kAppend;
  source->count = spec.outer * spec.count * spec.inner;
  source->plain = {"braid_append", source->count, 256, true};
  source->alignments = {1, 1, 1, 1};
  source->byteOffsets = {0, 0, 0, 0};
  source->wide = true;
}

}  // namespace braid::cuda
