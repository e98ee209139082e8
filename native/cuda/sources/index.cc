#include "cuda/sources/map_code.h"
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

// Several positions, or few long lines: a block a line. Each turn finds the best of what comes after the last
// one found, so the line is read once a position and nothing is marked.
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

// Many positions of a long line: a block a line. An element is a number whose upper half are its value, the
// better the larger, and whose lower half its place, the earlier the larger. The least of those that are
// chosen is found a byte at a time, by how many elements that agree with the bytes before have which byte
// next. Then they are sorted.
constexpr const char* kSelect = R"cuda(
typedef unsigned long long Element;
FN unsigned rankOfValue(float x) {
  if (x != x) return 0xffffffffu;
  const unsigned bits = x == 0.0f ? 0 : __float_as_uint(x);
  const unsigned ascending = bits >> 31 ? ~bits : bits | 0x80000000u;
  return LARGEST ? ascending : ~ascending;
}
FN unsigned rankOfValue(int x) { return LARGEST ? (unsigned)x ^ 0x80000000u : ~((unsigned)x ^ 0x80000000u); }
FN Element elementOf(V x, Index place) { return (Element)rankOfValue(x) << 32 | (unsigned)~(unsigned)place; }
extern "C" __global__ void __launch_bounds__(BLOCK) braid_choose(const T* x, int* y, Index count) {
  gridDependencySync();
  __shared__ unsigned counts[256], byte, before, within, filled;
  __shared__ Element chosen[SORTED];
  const unsigned thread = threadIdx.x;
  const Index line = blockIdx.x;
  const T* at = x + line / INNER * LENGTH * INNER + line % INNER;
  Element least = 0;
  unsigned left = PLACES;
  for (int shift = 56; shift >= 0; shift -= 8) {
    if (thread < 256) counts[thread] = 0;
    __syncthreads();
    #pragma unroll 4
    for (Index l = thread; l < LENGTH; l += BLOCK) {
      const Element element = elementOf(LOAD(at[l * INNER]), l);
      if (shift == 56 || element >> (shift + 8) == least >> (shift + 8))
        atomicAdd(&counts[element >> shift & 255], 1u);
    }
    __syncthreads();
    // By byte: how many have it or a larger one.
    for (unsigned step = 1; step < 256; step *= 2) {
      const unsigned more = thread + step < 256 ? counts[thread + step] : 0;
      __syncthreads();
      if (thread < 256) counts[thread] += more;
      __syncthreads();
    }
    if (thread < 256) {
      const unsigned larger = thread < 255 ? counts[thread + 1] : 0;
      if (counts[thread] >= left && larger < left) byte = thread, before = larger, within = counts[thread] - larger;
    }
    __syncthreads();
    least |= (Element)byte << shift;
    left -= before;
    if (within == left) break;
  }
  for (unsigned i = thread; i < SORTED; i += BLOCK) chosen[i] = 0;
  if (thread == 0) filled = 0;
  __syncthreads();
  #pragma unroll 4
  for (Index l = thread; l < LENGTH; l += BLOCK) {
    const Element element = elementOf(LOAD(at[l * INNER]), l);
    if (element >= least) chosen[atomicAdd(&filled, 1u)] = element;
  }
  for (unsigned size = 2; size <= SORTED; size *= 2)
    for (unsigned step = size / 2; step > 0; step /= 2) {
      __syncthreads();
      for (unsigned i = thread; i < SORTED; i += BLOCK) {
        const unsigned j = i ^ step;
        const Element a = chosen[i], b = chosen[j];
        if (j > i && (i & size ? a > b : a < b)) chosen[i] = b, chosen[j] = a;
      }
    }
  __syncthreads();
  for (unsigned j = thread; j < PLACES; j += BLOCK)
    y[(line / INNER * PLACES + j) * INNER + line % INNER] = (int)~(unsigned)chosen[j];
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

// Lines that would leave most of a device idle with a warp or a thread each.
constexpr std::int64_t kLongLine = 1024, kFewLines = 1024;
// Positions for which a turn for each would take longer than to select them, and those that can be sorted.
constexpr std::int64_t kFewPlaces = 4, kMostSorted = 1024;

std::string constant(const char* name, std::int64_t value) {
  return "constexpr Index " + std::string(name) + " = " + std::to_string(value) + ";\n";
}

// The longer the line, the more threads share it.
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

void chooseMany(const KernelSpec& spec, const std::string& text, KernelSource* source) {
  const std::int64_t block = spec.length > 8192 ? 1024 : 256;
  source->text = text + constant("PLACES", spec.count) + "constexpr int BLOCK = " + std::to_string(block) +
                 ";\nconstexpr unsigned SORTED = " + std::to_string(powerOfTwoAtLeast(spec.count)) +
                 ";\nconstexpr bool LARGEST = " + (spec.how == ReduceHow::argmax ? "true" : "false") + ";\n" +
                 kSelect;
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
  const bool isLong = spec.length >= kLongLine && spec.outer * spec.inner <= kFewLines;
  if (spec.count >= kFewPlaces && spec.count <= kMostSorted && spec.length > kLongLine)
    return chooseMany(spec, text, source);
  if (spec.count > 1 || isLong) return chooseSeveral(spec, text, source);
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
