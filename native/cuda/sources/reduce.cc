#include "cuda/sources/source.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "cuda/sources/map_code.h"
#include "cuda/sources/prelude.h"

namespace braid::cuda {
namespace {

// How partial results combine, by the prelude's functions. V is float, or int for integers. A block takes
// ACROSS packs of WIDTH columns of one outer index. The others of its threads share them: each takes every
// DOWN-th element of its columns, four of which are on their way at a time.
constexpr const char* kColumns = R"cuda(
FN V load(T x) { return LOAD(x); }
FN V wider(V a, V b) { return COMBINE; }
FN void finish(V value, U& y) { store((V)(FINISH), y); }
template <int WIDTH, int ACROSS, int BLOCK> FN void columns(const T* x, U* y, V* partial) {
  constexpr int DOWN = BLOCK / ACROSS, TOGETHER = 4;
  const Index strips = (INNER + ACROSS * WIDTH - 1) / (ACROSS * WIDTH);
  const Index outer = blockIdx.x / strips;
  const int across = threadIdx.x % ACROSS, down = threadIdx.x / ACROSS;
  const Index column = (blockIdx.x % strips * ACROSS + across) * WIDTH;
  V value[WIDTH];
  #pragma unroll
  for (int j = 0; j < WIDTH; ++j) value[j] = FIRST;
  if (column < INNER) {
    const T* at = x + outer * LENGTH * INNER + column;
    for (Index first = down; first < LENGTH; first += DOWN * TOGETHER) {
      Pack<T, WIDTH> packs[TOGETHER];
      #pragma unroll
      for (int n = 0; n < TOGETHER; ++n)
        if (first + n * DOWN < LENGTH) packs[n] = *(const Pack<T, WIDTH>*)(at + (first + n * DOWN) * INNER);
      #pragma unroll
      for (int n = 0; n < TOGETHER; ++n) {
        if (first + n * DOWN >= LENGTH) continue;
        #pragma unroll
        for (int j = 0; j < WIDTH; ++j) value[j] = wider(value[j], load(packs[n].v[j]));
      }
    }
  }
  #pragma unroll
  for (int half = DOWN / 2; half > 0; half /= 2) {
    V* const mine = partial + threadIdx.x;
    __syncthreads();
    #pragma unroll
    for (int j = 0; j < WIDTH; ++j) mine[j * BLOCK] = value[j];
    __syncthreads();
    #pragma unroll
    for (int j = 0; j < WIDTH; ++j)
      if (down < half) value[j] = wider(value[j], mine[j * BLOCK + half * ACROSS]);
  }
  if (down == 0 && column < INNER) {
    #pragma unroll
    for (int j = 0; j < WIDTH; ++j) finish(value[j], y[outer * INNER + column + j]);
  }
}
)cuda";

constexpr const char* kEntry = R"cuda(
extern "C" __global__ void __launch_bounds__(BLOCK) ENTRY(const T* x, U* y, Index count) {
  gridDependencySync();
  __shared__ V partial[BLOCK * WIDTH];
  columns<WIDTH, ACROSS, BLOCK>(x, y, partial);
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

namespace {

MapOp rowOpOf(ReduceHow how) {
  return how == ReduceHow::max    ? MapOp::rowMax
         : how == ReduceHow::min  ? MapOp::rowMin
         : how == ReduceHow::mean ? MapOp::rowMean
                                  : MapOp::rowSum;
}

// Elements that lie side by side, as a map that reduces its rows.
KernelSpec asRows(const KernelSpec& spec, bool whole) {
  KernelSpec rows;
  rows.kind = KernelSpec::Kind::map;
  rows.shape = {spec.outer, spec.length};
  rows.computeInt = whole;
  rows.operands = {{spec.input, 0, {spec.length, 1}}};
  rows.code = {{MapOp::operand, 0}, {rowOpOf(spec.how), 0}};
  rows.results = {{1, spec.output, true}};
  return rows;
}

// The text of a kernel whose threads have `width` columns each.
KernelSource::Variant columnsOf(const KernelSpec& spec, int multiprocessors, std::int64_t width,
                                const char* entry, std::string* text) {
  const std::int64_t across = std::min<std::int64_t>(32, powerOfTwoAtLeast(spec.inner / width));
  const std::int64_t blocks = spec.outer * ((spec.inner + across * width - 1) / (across * width));
  const std::int64_t block = spec.length >= 64 && blocks < std::int64_t{4} * multiprocessors ? 1024
                             : spec.length >= 8                                              ? 256
                                                                                             : 32;
  std::string own = kEntry;
  for (const auto& [name, value] : {std::pair{"BLOCK", std::to_string(block)},
                                    {"WIDTH", std::to_string(width)},
                                    {"ACROSS", std::to_string(across)},
                                    {"ENTRY", std::string(entry)}})
    for (std::size_t at = 0; (at = own.find(name, at)) != std::string::npos; at += value.size())
      own.replace(at, std::strlen(name), value);
  *text += own;
  return {entry, blocks * block, static_cast<unsigned>(block), false};
}

}  // namespace

void reduceSource(const KernelSpec& spec, int multiprocessors, KernelSource* source) {
  const bool whole = spec.input == DType::i32 || spec.input == DType::u8;
  if (spec.inner == 1 && spec.length > 0) return rowSource(asRows(spec, whole), source);
  const std::int64_t width =
      std::min<std::int64_t>(8, 16 / static_cast<std::int64_t>(elementBytes(spec.input)));
  const bool vector = spec.inner % width == 0 && spec.length > 0;
  std::string text = kPrelude;
  const bool wide =
      spec.outer * std::max<std::int64_t>(spec.length, 1) * spec.inner >= (std::int64_t{1} << 30);
  text += "typedef " + std::string(wide ? "long long" : "int") + " Index;\n";
  text += "typedef " + std::string(cudaTypeName(spec.input)) + " T;\n";
  text += "typedef " + std::string(cudaTypeName(spec.output)) + " U;\n";
  text += "typedef " + std::string(whole ? "int" : "float") + " V;\n";
  text += "constexpr Index LENGTH = " + std::to_string(spec.length) + ";\n";
  text += "constexpr Index INNER = " + std::to_string(spec.inner) + ";\n";
  text += define("LOAD", whole ? "loadI" : "loadF");
  text += define("FIRST", neutralText(spec.how, whole));
  text += define("COMBINE", combineText(spec.how, whole));
  const std::string length = std::to_string(spec.length);
  std::string mean = whole ? "value / " + length + "LL" : "(double)value / " + length + ".0";
  if (spec.length == 0) mean = whole ? "0" : "__uint_as_float(0x7fc00000u)";
  text += define("FINISH", spec.how == ReduceHow::mean ? mean : "value");
  text += kColumns;
  source->plain = columnsOf(spec, multiprocessors, 1, "braid_reduce", &text);
  if (vector) source->vector = columnsOf(spec, multiprocessors, width, "braid_reduce_vector", &text);
  source->text = text;
  source->alignments = {vector ? std::size_t{16} : std::size_t{1}, 1};
  source->byteOffsets = {0, 0};
  source->count = spec.outer * spec.inner;
  source->wide = wide;
}

}  // namespace braid::cuda
