#include "cuda/sources/prelude.h"
#include "cuda/sources/source.h"

// Kernels that make or read positions: argmax and argmin, with one position or several, gather and append.

namespace braid::cuda {
namespace {

// Whether b at place q takes the place of a at place p. The first of equal ones stays, and the first NaN.
constexpr const char* kImproves = R"cuda(
FN bool improves(V b, Index q, V a, Index p) {
  const bool nanA = a != a, nanB = b != b;
  if (nanA || nanB) return nanB && (!nanA || q < p);
  return BETTER || (b == a && q < p);
}
)cuda";

// inner = 1: a warp a row, its lanes beside each other; every lane has an element, or repeats the row's
// first.
constexpr const char* kChooseRows = R"cuda(
extern "C" __global__ void __launch_bounds__(256) braid_choose(const T* x, int* y, Index count) {
  gridDependencySync();
  const Index mine = ((Index)blockIdx.x * 256 + threadIdx.x) / 32;
  const int lane = threadIdx.x % 32;
  // Past the end a warp repeats the last row: it must stay whole for its shuffles.
  const T* row = x + (mine < count ? mine : count - 1) * LENGTH;
  Index place = lane < LENGTH ? lane : 0;
  V best = LOAD(row[place]);
  for (Index i = place + 32; i < LENGTH; i += 32) {
    const V next = LOAD(row[i]);
    if (improves(next, i, best, place)) best = next, place = i;
  }
  #pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    const V other = __shfl_xor_sync(0xffffffffu, best, step);
    const Index at = __shfl_xor_sync(0xffffffffu, place, step);
    if (improves(other, at, best, place)) best = other, place = at;
  }
  if (mine < count && lane == 0) y[mine] = (int)place;
}
)cuda";

// inner > 1: a thread a column; neighbours read neighbours.
constexpr const char* kChooseColumns = R"cuda(
extern "C" __global__ void __launch_bounds__(256) braid_choose(const T* x, int* y, Index count) {
  gridDependencySync();
  for (Index i = (Index)blockIdx.x * 256 + threadIdx.x; i < count; i += (Index)gridDim.x * 256) {
    const T* at = x + i / INNER * LENGTH * INNER + i % INNER;
    V best = LOAD(at[0]);
    Index place = 0;
    for (Index l = 1; l < LENGTH; ++l) {
      const V next = LOAD(at[l * INNER]);
      if (improves(next, l, best, place)) best = next, place = l;
    }
    y[i] = (int)place;
  }
}
)cuda";

// Several positions: a block a line. Each turn finds the best of what comes after the last one found, so the
// line is read once a position and nothing is marked.
constexpr const char* kChooseSeveral = R"cuda(
struct Best { V value; Index place; };  // no element: a place below 0
FN void keep(Best& a, V value, Index place) {
  if (place >= 0 && (a.place < 0 || improves(value, place, a.value, a.place))) a = {value, place};
}
FN void combine(Best& a) {
  #pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    const V value = __shfl_xor_sync(0xffffffffu, a.value, step);
    const Index place = __shfl_xor_sync(0xffffffffu, a.place, step);
    keep(a, value, place);
  }
}
extern "C" __global__ void __launch_bounds__(BLOCK) braid_choose(const T* x, int* y, Index count) {
  gridDependencySync();
  __shared__ Best found[BLOCK / 32];
  const Index line = blockIdx.x;
  const T* at = x + line / INNER * LENGTH * INNER + line % INNER;
  Best last = {V(), -1};
  for (Index j = 0; j < PLACES; ++j) {
    Best best = {V(), -1};
    for (Index l = threadIdx.x; l < LENGTH; l += BLOCK) {
      const V next = LOAD(at[l * INNER]);
      if (last.place < 0 || improves(last.value, last.place, next, l)) keep(best, next, l);
    }
    combine(best);
    if (threadIdx.x % 32 == 0) found[threadIdx.x / 32] = best;
    __syncthreads();
    last = threadIdx.x % 32 < BLOCK / 32 ? found[threadIdx.x % 32] : Best{V(), -1};
    combine(last);
    if (threadIdx.x == 0) y[(line / INNER * PLACES + j) * INNER + line % INNER] = (int)last.place;
    __syncthreads();
  }
}
)cuda";

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

std::string constant(const char* name, std::int64_t value) {
  return "constexpr Index " + std::string(name) + " = " + std::to_string(value) + ";\n";
}

// The larger the line, the more threads share it.
void chooseSeveral(const KernelSpec& spec, const std::string& text, KernelSource* source) {
  const std::int64_t block = spec.length > 8192   ? 1024
                             : spec.length > 1024 ? 256
                             : spec.length > 64   ? 64
                                                  : 32;
  source->text = text + constant("PLACES", spec.count) + "constexpr int BLOCK = " + std::to_string(block) +
                 ";\n" + kImproves + kChooseSeveral;
  source->count = spec.outer * spec.inner;
  source->plain = {"braid_choose", source->count * block, static_cast<unsigned>(block), false};
  source->alignments = {1, 1};
  source->byteOffsets = {0, 0};
  source->wide = true;
}

}  // namespace

void chooseSource(const KernelSpec& spec, KernelSource* source) {
  const bool whole = spec.input == DType::i32 || spec.input == DType::u8, rows = spec.inner == 1;
  std::string text = kPrelude;
  text += "typedef long long Index;\n";
  text += "typedef " + std::string(cudaTypeName(spec.input)) + " T;\n";
  text += "typedef " + std::string(whole ? "int" : "float") + " V;\n";
  text += constant("LENGTH", spec.length) + constant("INNER", spec.inner);
  text += std::string("#define LOAD ") + (whole ? "loadI" : "loadF") + "\n";
  text += std::string("#define BETTER ") + (spec.how == ReduceHow::argmax ? "b > a" : "b < a") + "\n";
  if (spec.count > 1) return chooseSeveral(spec, text, source);
  source->text = text + kImproves + (rows ? kChooseRows : kChooseColumns);
  source->count = spec.outer * spec.inner;
  source->plain = {"braid_choose", source->count * (rows ? 32 : 1), 256, !rows};
  source->alignments = {1, 1};
  source->byteOffsets = {0, 0};
  source->wide = true;
}

void gatherSource(const KernelSpec& spec, KernelSource* source) {
  std::string text = kPrelude;
  text += "typedef long long Index;\n";
  text += "typedef " + std::string(cudaTypeName(spec.input)) + " T;\n";
  text += constant("LENGTH", spec.length) + constant("INNER", spec.inner) + constant("COUNT", spec.count);
  text += "constexpr bool ALONG = " + std::string(spec.along ? "true" : "false") + ";\n";
  source->text = text + kGather;
  source->count = spec.outer * spec.count * spec.inner;
  source->plain = {"braid_gather", source->count, 256, true};
  source->alignments = {1, 1, 1};
  source->byteOffsets = {0, 0, 0};
  source->wide = true;
}

void appendSource(const KernelSpec& spec, KernelSource* source) {
  std::string text = kPrelude;
  text += "typedef long long Index;\n";
  text += "typedef " + std::string(cudaTypeName(spec.input)) + " T;\n";
  text += constant("LENGTH", spec.length) + constant("INNER", spec.inner) + constant("COUNT", spec.count);
  source->text = text + kAppend;
  source->count = spec.outer * spec.count * spec.inner;
  source->plain = {"braid_append", source->count, 256, true};
  source->alignments = {1, 1, 1, 1};
  source->byteOffsets = {0, 0, 0, 0};
  source->wide = true;
}

}  // namespace braid::cuda
