#include "cuda/sources/source.h"

#include <algorithm>

#include "cuda/sources/map_code.h"
#include "cuda/sources/prelude.h"

namespace braid::cuda {
namespace {

// How partial results combine, by the prelude's functions. V is float, or int for integers.
constexpr const char* kCommon = R"cuda(
FN V load(T x) { return LOAD(x); }
FN V wider(V a, V b) { return COMBINE; }
FN void finish(V value, U& y) { store((V)(FINISH), y); }
)cuda";

// inner = 1: GROUP threads share a row, neighbours reading neighbours. A group within a warp combines by
// shuffles; a block by shuffles, then its warps' results through shared memory.
constexpr const char* kRows = R"cuda(
template <int WIDTH> FN V row(const T* x, int lane) {
  V value = FIRST;
  const Index packs = LENGTH / WIDTH;
  for (Index i = lane; i < packs; i += GROUP) {
    const Pack<T, WIDTH> pack = *(const Pack<T, WIDTH>*)(x + i * WIDTH);
    #pragma unroll
    for (int j = 0; j < WIDTH; ++j) value = wider(value, load(pack.v[j]));
  }
  #pragma unroll
  for (int step = (GROUP < 32 ? GROUP : 32) / 2; step > 0; step /= 2)
    value = wider(value, __shfl_xor_sync(0xffffffffu, value, step));
  if constexpr (GROUP > 32) {
    __shared__ V partial[GROUP > 32 ? GROUP / 32 : 1];
    if (lane % 32 == 0) partial[lane / 32] = value;
    __syncthreads();
    value = lane < GROUP / 32 ? partial[lane] : (V)(FIRST);
    if (lane < 32) {
      #pragma unroll
      for (int step = 16; step > 0; step /= 2)
        value = wider(value, __shfl_xor_sync(0xffffffffu, value, step));
    }
  }
  return value;
}
template <int WIDTH> FN void rows(const T* x, U* y, Index count) {
  const Index mine = ((Index)blockIdx.x * BLOCK + threadIdx.x) / GROUP;
  const int lane = threadIdx.x % GROUP;
  // Past the end a group repeats the last row: a warp must stay whole for its shuffles.
  const Index at = mine < count ? mine : count - 1;
  const V value = row<WIDTH>(x + at * LENGTH, lane);
  if (mine < count && lane == 0) finish(value, y[mine]);
}
extern "C" __global__ void __launch_bounds__(BLOCK) braid_reduce(const T* x, U* y, Index count) {
  gridDependencySync();
  rows<1>(x, y, count);
}
)cuda";

constexpr const char* kRowsVector = R"cuda(
extern "C" __global__ void __launch_bounds__(BLOCK) braid_reduce_vector(const T* x, U* y, Index count) {
  gridDependencySync();
  rows<VECTOR>(x, y, count);
}
)cuda";

// inner > 1: a block takes 32 columns of one outer index; its warps read whole rows of them, each its own
// share, and their results are combined in order of warp.
constexpr const char* kColumns = R"cuda(
extern "C" __global__ void __launch_bounds__(BLOCK) braid_reduce(const T* x, U* y, Index count) {
  gridDependencySync();
  __shared__ V partial[BLOCK / 32][32];
  const Index strips = (INNER + 31) / 32;
  const Index outer = blockIdx.x / strips;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const Index column = blockIdx.x % strips * 32 + lane;
  V value = FIRST;
  if (column < INNER) {
    const T* at = x + outer * LENGTH * INNER + column;
    for (Index l = warp; l < LENGTH; l += BLOCK / 32) value = wider(value, load(at[l * INNER]));
  }
  partial[warp][lane] = value;
  __syncthreads();
  if (warp == 0 && column < INNER) {
    #pragma unroll
    for (int w = 1; w < BLOCK / 32; ++w) value = wider(value, partial[w][lane]);
    finish(value, y[outer * INNER + column]);
  }
}
)cuda";

std::string define(const char* name, const std::string& value) {
  return "#define " + std::string(name) + " " + value + "\n";
}

}  // namespace

std::string neutralText(ReduceHow how, bool whole) {
  switch (how) {
    case ReduceHow::sum:
    case ReduceHow::mean: return whole ? "0" : "0.0f";
    case ReduceHow::max: return whole ? "(-2147483647 - 1)" : "__uint_as_float(0xff800000u)";
    case ReduceHow::min: return whole ? "2147483647" : "__uint_as_float(0x7f800000u)";
    case ReduceHow::argmax:
    case ReduceHow::argmin: break;  // chooseSource
  }
  return "";
}

std::string combineText(ReduceHow how, bool whole) {
  switch (how) {
    case ReduceHow::sum:
    case ReduceHow::mean: return whole ? "addI(a, b)" : "a + b";
    case ReduceHow::max: return whole ? "maxI(a, b)" : "maxF(a, b)";
    case ReduceHow::min: return whole ? "minI(a, b)" : "minF(a, b)";
    case ReduceHow::argmax:
    case ReduceHow::argmin: break;
  }
  return "";
}

void reduceSource(const KernelSpec& spec, int multiprocessors, KernelSource* source) {
  const bool whole = spec.input == DType::i32 || spec.input == DType::u8;
  const std::size_t bytes = elementBytes(spec.input);
  const std::int64_t width = 16 / static_cast<std::int64_t>(bytes);
  const bool rows = spec.inner == 1;
  const bool vector = rows && spec.length % width == 0 && spec.length > 0;

  // Long rows get a block each, the larger the fewer there are to fill the device with; short ones share a
  // warp.
  std::int64_t block = 256, group = 32;
  if (rows) {
    const std::int64_t turns = vector ? spec.length / width : spec.length;
    group = std::clamp<std::int64_t>(powerOfTwoAtLeast(turns), 1, 32);
    if (turns >= 1024 || (turns > 64 && spec.outer < std::int64_t{8} * multiprocessors)) {
      block = group = spec.outer < std::int64_t{2} * multiprocessors && turns >= 2048 ? 1024 : 256;
    }
  } else {
    const std::int64_t blocks = spec.outer * ((spec.inner + 31) / 32);
    block = spec.length >= 64 && blocks < std::int64_t{4} * multiprocessors ? 1024
            : spec.length >= 8                                              ? 256
                                                                            : 32;
  }

  std::string text = kPrelude;
  const bool wide = spec.outer * spec.length * spec.inner >= (std::int64_t{1} << 30) ||
                    (rows ? spec.outer * group : spec.outer * spec.inner) >= (std::int64_t{1} << 30);
  text += "typedef " + std::string(wide ? "long long" : "int") + " Index;\n";
  text += "typedef " + std::string(cudaTypeName(spec.input)) + " T;\n";
  text += "typedef " + std::string(cudaTypeName(spec.output)) + " U;\n";
  text += "typedef " + std::string(whole ? "int" : "float") + " V;\n";
  text += "constexpr Index LENGTH = " + std::to_string(spec.length) + ";\n";
  text += "constexpr int BLOCK = " + std::to_string(block) + ";\n";
  if (rows) text += "constexpr int GROUP = " + std::to_string(group) + ";\n";
  if (!rows) text += "constexpr Index INNER = " + std::to_string(spec.inner) + ";\n";
  text += define("LOAD", whole ? "loadI" : "loadF");
  text += define("FIRST", neutralText(spec.how, whole));
  text += define("COMBINE", combineText(spec.how, whole));
  const std::string length = std::to_string(spec.length);
  std::string mean = whole ? "value / " + length + "LL" : "(double)value / " + length + ".0";
  if (spec.length == 0) mean = whole ? "0" : "__uint_as_float(0x7fc00000u)";
  text += define("FINISH", spec.how == ReduceHow::mean ? mean : "value");
  text += kCommon;
  text += rows ? kRows : kColumns;
  if (vector) text += "constexpr int VECTOR = " + std::to_string(width) + ";" + kRowsVector;
  source->text = text;
  const std::int64_t threads = rows ? spec.outer * group : spec.outer * ((spec.inner + 31) / 32) * block;
  source->plain = {"braid_reduce", threads, static_cast<unsigned>(block), false};
  if (vector) source->vector = {"braid_reduce_vector", threads, static_cast<unsigned>(block), false};
  source->alignments = {vector ? std::size_t{16} : std::size_t{1}, 1};
  source->byteOffsets = {0, 0};
  source->count = rows ? spec.outer : spec.outer * spec.inner;
  source->wide = wide;
}

}  // namespace braid::cuda
