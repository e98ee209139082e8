#include <algorithm>

#include "cuda/sources/map_code.h"
#include "cuda/sources/prelude.h"
#include "cuda/sources/source.h"

// Kernels that find positions: argmax and argmin, with one position or several.

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

// Many positions: a block a line. An element is a number whose upper half are its value, the better the
// larger, and whose lower half its place, the earlier the larger. Turn after turn, SORTED of the elements
// that are left are chosen and sorted: all, where no more are left; else the least of those that are chosen
// is found a byte at a time, by how many elements that agree with the bytes before have which byte next.
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
// The bits that the values of a line have in common, and the byte below them.
struct Common { Element bits; int shift; };
FN Common commonOf(const T* at) {
  __shared__ unsigned low, high;
  if (threadIdx.x == 0) low = 0xffffffffu, high = 0;
  __syncthreads();
  unsigned least = 0xffffffffu, most = 0;
  #pragma unroll 4
  for (Index l = threadIdx.x; l < LENGTH; l += BLOCK) {
    const unsigned rank = rankOfValue(LOAD(at[l * INNER]));
    least = rank < least ? rank : least, most = rank > most ? rank : most;
  }
  atomicMin(&low, least), atomicMax(&high, most);
  __syncthreads();
  int shift = 24;
  while (shift < 56 && (Element)(low ^ high) << 32 >> (shift + 8)) shift += 8;
  return {shift < 56 ? (Element)high << 32 >> (shift + 8) << (shift + 8) : 0, shift};
}
// The least of the `left` largest elements of a line that are not beyond `most`.
FN Element leastOfLargest(const T* at, Common common, Element most, unsigned left) {
  __shared__ unsigned counts[256], byte, before, within;
  const unsigned thread = threadIdx.x;
  Element least = common.bits;
  for (int shift = common.shift; shift >= 0; shift -= 8) {
    // All places have ones there.
    if (shift < 32 && shift >= PLACE_BITS) {
      least |= (Element)255 << shift;
      continue;
    }
    if (thread < 256) counts[thread] = 0;
    __syncthreads();
    #pragma unroll 4
    for (Index l = thread; l < LENGTH; l += BLOCK) {
      const Element element = elementOf(LOAD(at[l * INNER]), l);
      if (element <= most && (shift == common.shift || element >> (shift + 8) == least >> (shift + 8)))
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
  return least;
}
extern "C" __global__ void __launch_bounds__(BLOCK) braid_choose(const T* x, int* y, Index count) {
  gridDependencySync();
  LAUNCHED_SHARED(memory);
  __shared__ unsigned filled;
  Element* const chosen = (Element*)memory;
  const unsigned thread = threadIdx.x;
  const Index line = blockIdx.x;
  const T* at = x + line / INNER * LENGTH * INNER + line % INNER;
  const Common common = LENGTH > SORTED ? commonOf(at) : Common{0, 0};
  Element most = ~(Element)0;
  for (Index first = 0; first < PLACES; first += SORTED) {
    const unsigned wanted = PLACES - first < SORTED ? PLACES - first : SORTED;
    const Element least = LENGTH - first <= SORTED ? 0 : leastOfLargest(at, common, most, wanted);
    for (unsigned i = thread; i < SORTED; i += BLOCK) chosen[i] = 0;
    if (thread == 0) filled = 0;
    __syncthreads();
    #pragma unroll 4
    for (Index l = thread; l < LENGTH; l += BLOCK) {
      const Element element = elementOf(LOAD(at[l * INNER]), l);
      if (element >= least && element <= most) chosen[atomicAdd(&filled, 1u)] = element;
    }
    for (unsigned size = 2; size <= SORTED; size *= 2)
      for (unsigned step = size / 2; step > 0; step /= 2) {
        __syncthreads();
        #pragma unroll 4
        for (unsigned pair = thread; pair < SORTED / 2; pair += BLOCK) {
          const unsigned i = 2 * pair - (pair & (step - 1)), j = i + step;
          const Element a = chosen[i], b = chosen[j];
          if (i & size ? a > b : a < b) chosen[i] = b, chosen[j] = a;
        }
      }
    __syncthreads();
    for (unsigned j = thread; j < wanted; j += BLOCK)
      y[(line / INNER * PLACES + first + j) * INNER + line % INNER] = (int)~(unsigned)chosen[j];
    most = least - 1;
    __syncthreads();
  }
}
)cuda";

// Lines that would leave most of a device idle with a warp or a thread each.
constexpr std::int64_t kLongLine = 1024, kFewLines = 1024;
// Positions for which a turn for each would take longer than to select them, of a long line and of others.
constexpr std::int64_t kFewPlaces = 4, kFewOfShort = 16;
// Elements that are sorted at a time, at most, where a block may have the memory.
constexpr std::int64_t kMostSorted = 16384, kElementBytes = 8;

// The longer the line, the more threads share it.
void chooseSeveral(const KernelSpec& spec, const std::string& text, KernelSource* source) {
  const std::int64_t block = spec.length > 8192   ? 1024
                             : spec.length > 1024 ? 256
                             : spec.length > 64   ? 64
                                                  : 32;
  source->text = text + constant("Index", "PLACES", spec.count) +
                 "constexpr int BLOCK = " + std::to_string(block) + ";\n" + kImproves + kChooseSeveral;
  source->count = spec.outer * spec.inner;
  source->plain = {"braid_choose", source->count * block, static_cast<unsigned>(block), false};
  source->alignments = {1, 1};
  source->byteOffsets = {0, 0};
  source->wide = true;
}

void chooseMany(const KernelSpec& spec, const std::string& text, std::size_t sharedBytes,
                KernelSource* source) {
  std::int64_t most = kMostSorted;
  // What the kernel has beside them takes some 1 KiB.
  while (most * kElementBytes + 2048 > static_cast<std::int64_t>(sharedBytes)) most /= 2;
  // Where a large part of the line is chosen all of it is sorted.
  const std::int64_t places = powerOfTwoAtLeast(spec.count), all = powerOfTwoAtLeast(spec.length);
  const std::int64_t sorted = all <= most && all <= 8 * places ? all : std::min(most, places);
  const std::int64_t block = spec.length > 8192 || sorted > 2048 ? 1024 : 256;
  int placeBits = 8;
  while (((spec.length - 1) >> placeBits) > 0) placeBits += 8;
  source->text = text + constant("Index", "PLACES", spec.count) + constant("int", "BLOCK", block) +
                 constant("unsigned", "SORTED", sorted) + constant("int", "PLACE_BITS", placeBits) +
                 "constexpr bool LARGEST = " + (spec.how == ReduceHow::argmax ? "true" : "false") + ";\n" +
                 kSelect;
  source->count = spec.outer * spec.inner;
  source->plain = {"braid_choose", source->count * block, static_cast<unsigned>(block), false,
                   static_cast<unsigned>(sorted * kElementBytes)};
  source->alignments = {1, 1};
  source->byteOffsets = {0, 0};
  source->wide = true;
}

}  // namespace

void chooseSource(const KernelSpec& spec, std::size_t sharedBytes, KernelSource* source) {
  const bool whole = spec.input == DType::i32 || spec.input == DType::u8, rows = spec.inner == 1;
  std::string text = kPrelude;
  text += "typedef long long Index;\n";
  text += "typedef " + std::string(cudaTypeName(spec.input)) + " T;\n";
  text += "typedef " + std::string(whole ? "int" : "float") + " V;\n";
  text += constant("Index", "LENGTH", spec.length) + constant("Index", "INNER", spec.inner);
  text += std::string("#define LOAD ") + (whole ? "loadI" : "loadF") + "\n";
  text += std::string("#define BETTER ") + (spec.how == ReduceHow::argmax ? "b > a" : "b < a") + "\n";
  const bool isLong = spec.length >= kLongLine && spec.outer * spec.inner <= kFewLines;
  if (spec.count >= (spec.length > kLongLine ? kFewPlaces : kFewOfShort))
    return chooseMany(spec, text, sharedBytes, source);
  if (spec.count > 1 || isLong) return chooseSeveral(spec, text, source);
  source->text = text + kImproves + (rows ? kChooseRows : kChooseColumns);
  source->count = spec.outer * spec.inner;
  source->plain = {"braid_choose", source->count * (rows ? 32 : 1), 256, !rows};
  source->alignments = {1, 1};
  source->byteOffsets = {0, 0};
  source->wide = true;
}

}  // namespace braid::cuda
