#include "cuda/sources/prelude.h"
#include "cuda/sources/source.h"

namespace braid::cuda {
namespace {

// S is the type of long sums: double of floats.
//
// inner = 1: GROUP threads a row, ITEMS adjacent elements each, a tile after the other. A thread adds its own
// elements, a warp the sums of its threads by shuffles, and a block those of its warps in shared memory.
constexpr const char* kScanRows = R"cuda(
extern "C" __global__ void __launch_bounds__(256) braid_scan(const T* x, U* y, Index count) {
  gridDependencySync();
  __shared__ V sums[256 / 32];
  const Index mine = ((Index)blockIdx.x * 256 + threadIdx.x) / GROUP;
  const int thread = threadIdx.x % GROUP, lane = threadIdx.x % 32;
  // Past the end a group repeats the last row, and writes nothing: a warp must stay whole for its shuffles.
  const Index row = (mine < count ? mine : count - 1) * LENGTH;
  S carry = 0;
  for (Index first = 0; first < LENGTH; first += GROUP * ITEMS) {
    const Index at = first + thread * ITEMS;
    V own[ITEMS], total = 0;
    #pragma unroll
    for (int j = 0; j < ITEMS; ++j) own[j] = total = ADD(total, at + j < LENGTH ? LOAD(x[row + at + j]) : (V)0);
    V upTo = total;
    #pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const V other = __shfl_up_sync(0xffffffffu, upTo, step);
      if (lane >= step) upTo = ADD(other, upTo);
    }
    V before = __shfl_up_sync(0xffffffffu, upTo, 1);
    if (lane == 0) before = 0;
    V tile = __shfl_sync(0xffffffffu, upTo, 31);
    if (GROUP > 32) {
      if (lane == 31) sums[threadIdx.x / 32] = upTo;
      __syncthreads();
      V earlier = 0;
      tile = 0;
      #pragma unroll
      for (int w = 0; w < GROUP / 32; ++w) {
        if (w == thread / 32) earlier = tile;
        tile = ADD(tile, sums[w]);
      }
      before = ADD(earlier, before);
      __syncthreads();
    }
    #pragma unroll
    for (int j = 0; j < ITEMS; ++j)
      if (mine < count && at + j < LENGTH) store((V)ADD(carry, (S)ADD(before, own[j])), y[row + at + j]);
    carry = ADD(carry, (S)tile);
  }
}
)cuda";

// inner > 1: a thread a column; neighbours read neighbours.
constexpr const char* kScanColumns = R"cuda(
extern "C" __global__ void __launch_bounds__(256) braid_scan(const T* x, U* y, Index count) {
  gridDependencySync();
  for (Index i = (Index)blockIdx.x * 256 + threadIdx.x; i < count; i += (Index)gridDim.x * 256) {
    Index at = i / INNER * LENGTH * INNER + i % INNER;
    S total = 0;
    for (Index l = 0; l < LENGTH; ++l, at += INNER) {
      total = ADD(total, (S)LOAD(x[at]));
      store((V)total, y[at]);
    }
  }
}
)cuda";

}  // namespace

void scanSource(const KernelSpec& spec, KernelSource* source) {
  const bool whole = spec.input == DType::i32 || spec.input == DType::u8, rows = spec.inner == 1;
  const std::int64_t group = spec.length > 1024 ? 256 : 32;
  std::string text = kPrelude;
  text += "typedef long long Index;\n";
  text += "typedef " + std::string(cudaTypeName(spec.input)) + " T;\n";
  text += "typedef " + std::string(cudaTypeName(spec.output)) + " U;\n";
  text += "typedef " + std::string(whole ? "int" : "float") + " V;\n";
  text += "typedef " + std::string(whole ? "int" : "double") + " S;\n";
  text += "constexpr Index LENGTH = " + std::to_string(spec.length) + ";\n";
  text += std::string("#define LOAD ") + (whole ? "loadI" : "loadF") + "\n";
  text += std::string("#define ADD(a, b) ") + (whole ? "addI(a, b)" : "((a) + (b))") + "\n";
  if (rows)
    text += "constexpr int GROUP = " + std::to_string(group) + ", ITEMS = 4;\n";
  else
    text += "constexpr Index INNER = " + std::to_string(spec.inner) + ";\n";
  source->text = text + (rows ? kScanRows : kScanColumns);
  source->count = spec.outer * spec.inner;
  source->plain = {"braid_scan", source->count * (rows ? group : 1), 256, !rows};
  source->alignments = {1, 1};
  source->byteOffsets = {0, 0};
  source->wide = true;
}

}  // namespace braid::cuda
