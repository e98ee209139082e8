#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "cuda/source.h"
#include "kernels/cpu.h"
#include "test/cuda/specs.h"

// The kernels of attention as text, run on the processor: a thread of the grid is a fiber, and the
// instructions of warps do what the PTX manual says of their fragments. The answers are those of the host
// device's kernel.

namespace braid::test {
namespace {

using namespace braid::cuda;

// What a CUDA compiler has and a host compiler has not, and the functions that the text leaves to us under
// BRAID_EMULATED. Copies land when they are awaited, not before.
constexpr const char* kShim = R"(
#include <ucontext.h>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>
#include "kernels/half.h"
#define BRAID_EMULATED
#define __device__
#define __global__ static
#define __shared__ static
#define __forceinline__ inline
#define __launch_bounds__(threads)
static struct { unsigned x; } blockIdx, threadIdx;
static float __uint_as_float(unsigned bits) { return std::bit_cast<float>(bits); }
static unsigned __float_as_uint(float value) { return std::bit_cast<unsigned>(value); }

struct Fiber { ucontext_t context; std::unique_ptr<char[]> stack; bool done; };
static ucontext_t scheduler;
static std::vector<Fiber> fibers;
static void yield() {
  const unsigned mine = threadIdx.x;
  swapcontext(&fibers[mine].context, &scheduler);
}
struct Barrier {
  int size = 32, count = 0, turn = 0;
  void wait() {
    const int mine = turn;
    if (++count == size) count = 0, ++turn;
    else while (turn == mine) yield();
  }
};
static Barrier blockBarrier, warpBarriers[8];
static void __syncthreads() { blockBarrier.wait(); }
static Barrier& warp() { return warpBarriers[threadIdx.x / 32]; }
static float __shfl_xor_sync(unsigned, float value, int step) {
  static float slots[256];
  slots[threadIdx.x] = value;
  warp().wait();
  const float other = slots[threadIdx.x ^ step];
  warp().wait();
  return other;
}
static float exp2Of(float x) { return std::exp2(x); }
struct Copy { unsigned short* to; const unsigned short* from; bool there; };
static std::vector<std::vector<Copy>> pending[256];
static std::vector<Copy> open_[256];
static void copyAsync(unsigned short* to, const unsigned short* from, bool there) {
  open_[threadIdx.x].push_back({to, from, there});
}
static void commitCopies() {
  pending[threadIdx.x].push_back(std::move(open_[threadIdx.x]));
  open_[threadIdx.x].clear();
}
template <int N> void awaitCopies() {
  auto& groups = pending[threadIdx.x];
  for (; groups.size() > N; groups.erase(groups.begin()))
    for (const Copy& one : groups.front())
      if (one.there) std::memcpy(one.to, one.from, 16);
      else std::memset(one.to, 0, 16);
}
static const unsigned short* matrixRows[256];
template <bool Transposed> void matrices(unsigned (&to)[4], const unsigned short* row) {
  const unsigned lane = threadIdx.x % 32, first = threadIdx.x - lane;
  matrixRows[threadIdx.x] = row;
  warp().wait();
  for (unsigned j = 0; j < 4; ++j) {
    unsigned short half[2];
    for (unsigned e = 0; e < 2; ++e) {
      const unsigned r = lane / 4, c = lane % 4 * 2 + e;
      half[e] = Transposed ? matrixRows[first + j * 8 + c][r] : matrixRows[first + j * 8 + r][c];
    }
    to[j] = half[0] | (unsigned)half[1] << 16;
  }
  warp().wait();
}
static void loadMatrices(unsigned (&to)[4], const unsigned short* row) { matrices<false>(to, row); }
static void loadTransposed(unsigned (&to)[4], const unsigned short* row) { matrices<true>(to, row); }
static float half(unsigned both, int which, bool bf16) {
  const unsigned short bits = which ? both >> 16 : both & 0xffff;
  return bf16 ? braid::floatFromBf16(bits) : braid::floatFromF16(bits);
}
static unsigned packedAs(float low, float high, bool bf16) {
  const auto bits = [bf16](float x) { return bf16 ? braid::bf16FromFloat(x) : braid::f16FromFloat(x); };
  return bits(low) | (unsigned)bits(high) << 16;
}
static void multiplyAs(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1, bool bf16) {
  static unsigned left[256][4], right[256][2];
  const unsigned lane = threadIdx.x % 32, first = threadIdx.x - lane;
  for (int i = 0; i < 4; ++i) left[threadIdx.x][i] = a[i];
  right[threadIdx.x][0] = b0, right[threadIdx.x][1] = b1;
  warp().wait();
  for (int i = 0; i < 4; ++i) {
    const unsigned row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
    for (unsigned k = 0; k < 16; ++k)
      c[i] += half(left[first + row % 8 * 4 + k % 8 / 2][row / 8 + k / 8 * 2], k % 2, bf16) *
              half(right[first + column * 4 + k % 8 / 2][k / 8], k % 2, bf16);
  }
  warp().wait();
}

static void (*kernel)(char**);
static char** arguments;
static void fiber() { kernel(arguments); fibers[threadIdx.x].done = true; }
static void launch(void (*entry)(char**), char** pointers, unsigned blocks, unsigned threads) {
  kernel = entry, arguments = pointers;
  blockBarrier.size = threads;
  fibers.resize(threads);
  for (blockIdx.x = 0; blockIdx.x < blocks; ++blockIdx.x) {
    for (Fiber& each : fibers) {
      if (!each.stack) each.stack.reset(new char[262144]);
      getcontext(&each.context);
      each.context.uc_stack.ss_sp = each.stack.get(), each.context.uc_stack.ss_size = 262144;
      each.context.uc_link = &scheduler;
      each.done = false;
      makecontext(&each.context, fiber, 0);
    }
    for (unsigned left = threads; left > 0;)
      for (unsigned i = 0; i < threads; ++i) {
        if (fibers[i].done) continue;
        threadIdx.x = i;
        swapcontext(&scheduler, &fibers[i].context);
        if (fibers[i].done) --left;
      }
  }
}
static std::vector<char> fileOf(const std::string& path, size_t shift) {
  std::vector<char> bytes(1 << 24);
  std::FILE* file = std::fopen(path.c_str(), "rb");
  char* from = (char*)(((size_t)bytes.data() + 63) / 64 * 64) + shift;
  const size_t length = std::fread(from, 1, (1 << 24) - 128, file);
  std::fclose(file);
  bytes.resize(from - bytes.data() + length);
  return bytes;
}
)";

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
  return text;
}

struct Case {
  const char* name;
  DType type;
  std::int64_t batch, heads, groups, queries, keys, size, valueSize;
  bool causal = false;
  DType mask = DType::f32;  // f32: none
  int length = -1;          // -1: none
  double scale = 0.25;
  bool together = false;  // q, k, v and y lie by tokens, and q, k and v in one row
};

// Of these, each has a kernel on tensor cores, for few queries or of plain arithmetic, or two of them.
const Case kCases[] = {
    {"tensor cores, more keys than queries", DType::bf16, 1, 2, 1, 70, 100, 32, 48, true},
    {"tensor cores, more queries than keys", DType::f16, 2, 2, 2, 150, 90, 64, 64, true},
    {"tensor cores, mask and length", DType::bf16, 2, 2, 1, 33, 100, 128, 16, false, DType::u8, 71, -0.25},
    {"tensor cores, causal, mask and length", DType::f16, 1, 4, 2, 20, 67, 16, 80, true, DType::i32, 50},
    {"tensor cores, no key is there", DType::bf16, 1, 1, 1, 20, 67, 16, 16, false, DType::f32, 0},
    {"tensor cores, by tokens", DType::bf16, 2, 3, 3, 65, 65, 32, 32, true, DType::f32, -1, 0.2, true},
    {"few, a cache", DType::bf16, 1, 3, 3, 1, 300, 64, 64, true, DType::f32, 291},
    {"few, groups", DType::f32, 2, 6, 2, 2, 100, 20, 33, true, DType::i32},
    {"few, wide", DType::f16, 1, 5, 1, 1, 70, 24, 40, false, DType::u8, 33, -0.5},
    {"few, less than a key for each", DType::f32, 1, 1, 1, 3, 2, 256, 8, true},
    {"plain", DType::f32, 1, 2, 1, 67, 130, 20, 70, true, DType::u8, 101},
    {"plain, odd sizes", DType::f16, 1, 2, 2, 35, 65, 33, 17, true},
};

KernelSpec specOf(const Case& one) {
  KernelSpec spec;
  spec.kind = KernelSpec::Kind::attention;
  spec.batch = one.batch;
  spec.input = one.type;
  AttentionSpec& a = spec.attention;
  a.heads = one.heads, a.groups = one.groups, a.queries = one.queries, a.keys = one.keys;
  a.size = one.size, a.valueSize = one.valueSize;
  a.causal = one.causal, a.scale = one.scale;
  a.q.strides = {one.heads * one.queries * one.size, one.queries * one.size, one.size};
  a.k.strides = {one.groups * one.keys * one.size, one.keys * one.size, one.size};
  a.v.strides = {one.groups * one.keys * one.valueSize, one.keys * one.valueSize, one.valueSize};
  a.y.strides = {one.heads * one.queries * one.valueSize, one.queries * one.valueSize, one.valueSize};
  if (one.together) {
    const std::int64_t row = one.heads * one.size;
    a.q.strides = a.k.strides = a.v.strides = {one.queries * 3 * row, one.size, 3 * row};
    a.k.offset = row, a.v.offset = 2 * row;
    a.y.strides = {one.queries * row, one.size, row};
  }
  a.masked = one.mask != DType::f32;
  if (a.masked) {
    a.maskType = one.mask;
    a.maskStrides = {one.heads * one.keys, one.keys, 0, 1};
  }
  a.counted = one.length >= 0;
  return spec;
}

std::vector<std::vector<std::uint8_t>> readsOf(const Case& one, const KernelSpec& spec, Random& random) {
  const AttentionSpec& a = spec.attention;
  std::vector<std::vector<std::uint8_t>> reads;
  const auto values = [&](std::int64_t count, DType type) {
    reads.push_back(randomBytes(random, type, static_cast<std::size_t>(count) * elementBytes(type), false));
  };
  values(a.q.end(one.batch, one.heads, one.queries, one.size), one.type);
  values(a.k.end(one.batch, one.groups, one.keys, one.size), one.type);
  values(a.v.end(one.batch, one.groups, one.keys, one.valueSize), one.type);
  if (a.masked) {
    reads.emplace_back(static_cast<std::size_t>(a.maskEnd(one.batch)) * elementBytes(one.mask));
    for (std::size_t i = 0; i < reads.back().size(); i += elementBytes(one.mask))
      reads.back()[i] = random.below(3) > 0 ? 1 : 0;
  }
  if (a.counted) {
    reads.emplace_back(4);
    std::memcpy(reads.back().data(), &one.length, 4);
  }
  return reads;
}

std::vector<std::uint8_t> answerOf(const KernelSpec& spec, std::vector<std::vector<std::uint8_t>>& reads,
                                   Part part, std::vector<std::uint8_t> into) {
  std::string detail;
  CpuKernelResult kernel;
  EXPECT_EQ(prepareCpu(&kernel, spec, {}, &detail), Status::ok) << detail;
  std::vector<DeviceAddress> addresses;
  for (auto& read : reads) addresses.push_back(reinterpret_cast<DeviceAddress>(read.data()));
  addresses.push_back(reinterpret_cast<DeviceAddress>(into.data()));
  Scratch scratch;
  EXPECT_TRUE(kernel->run(addresses.data(), scratch, part));
  return into;
}

// The kernels of a case in a namespace of their own, each with a function that makes one thread run it.
std::string hosted(const Case& one, const KernelSource& source, const std::string& name) {
  std::string text = replaced(source.text, "extern \"C\" ", "");
  text = replaced(text, "asm(\"cvt.f32.f16 %0, %1;\" : \"=f\"(y) : \"h\"(x.bits));",
                  "y = braid::floatFromF16(x.bits);");
  text = replaced(text, "asm(\"cvt.rn.f16.f32 %0, %1;\" : \"=h\"(y.bits) : \"f\"(x));",
                  "y.bits = braid::f16FromFloat(x);");
  const std::string isBf16 = one.type == DType::bf16 ? "true" : "false";
  const std::string own =
      "static void multiply(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) { multiplyAs(c, "
      "a, "
      "b0, b1, " +
      isBf16 + "); }\nstatic unsigned packed(float low, float high) { return packedAs(low, high, " + isBf16 +
      "); }\n";
  std::string arguments = "(const T*)p[0], (const T*)p[1], (const T*)p[2], ";
  int slot = 3;
  if (one.mask != DType::f32) arguments += "(const M*)p[" + std::to_string(slot++) + "], ";
  if (one.length >= 0) arguments += "(const int*)p[" + std::to_string(slot++) + "], ";
  arguments += "(T*)p[" + std::to_string(slot) + "], 0";
  text = "namespace " + name + " {\n" + own + text;
  for (const KernelSource::Variant& variant : {source.plain, source.vector})
    if (*variant.entry)
      text += std::string("static void run_") + variant.entry + "(char** p) { " + variant.entry + "(" +
              arguments + "); }\n";
  return text + "#undef PARAMETERS\n#undef CLUSTER\n#undef IN_CLUSTERS\n#undef TYPE\n#undef FN\n}\n";
}

TEST(HostAttention, YieldsTheSameInTwoParts) {
  Random random{7};
  for (const Case& one : kCases) {
    const KernelSpec spec = specOf(one);
    auto reads = readsOf(one, spec, random);
    const AttentionSpec& a = spec.attention;
    const std::vector<std::uint8_t> empty(
        static_cast<std::size_t>(a.y.end(one.batch, one.heads, one.queries, one.valueSize)) *
        elementBytes(one.type));
    const auto whole = answerOf(spec, reads, Part::all, empty);
    const auto half = answerOf(spec, reads, Part::first, empty);
    EXPECT_EQ(firstDifference(answerOf(spec, reads, Part::second, half), whole, one.type), -1) << one.name;
  }
}

TEST(CudaAttention, MeansWhatTheHostsKernelMeans) {
  const auto folder =
      std::filesystem::temp_directory_path() / ("braid-attention-" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  Random random{20261123};
  std::string text = kShim, main = "int main() {\n";
  std::vector<std::vector<std::uint8_t>> wanted;
  std::vector<std::size_t> caseOf;
  std::size_t tensor = 0;
  for (std::size_t i = 0; i < std::size(kCases); ++i) {
    const Case& one = kCases[i];
    const KernelSpec spec = specOf(one);
    KernelSource source;
    attentionSource(spec, 80, i % 2 == 0 ? 132 : 1, &source);
    const std::string name = "c" + std::to_string(i);
    text += hosted(one, source, name);
    tensor += source.text.find("mma.sync") != std::string::npos ? 1 : 0;
    auto reads = readsOf(one, spec, random);
    const AttentionSpec& a = spec.attention;
    const std::size_t bytes =
        static_cast<std::size_t>(a.y.end(one.batch, one.heads, one.queries, one.valueSize)) *
        elementBytes(one.type);
    wanted.push_back(answerOf(spec, reads, Part::all, std::vector<std::uint8_t>(bytes)));
    main += "  {\n    std::vector<std::vector<char>> files;\n    std::vector<char*> p;\n";
    for (std::size_t r = 0; r < reads.size(); ++r) {
      const std::string path = (folder / (name + "-" + std::to_string(r))).string();
      std::ofstream(path, std::ios::binary)
          .write(reinterpret_cast<const char*>(reads[r].data()),
                 static_cast<std::streamsize>(reads[r].size()));
      main += "    files.push_back(fileOf(\"" + path +
              "\", 0));\n    p.push_back((char*)(((size_t)files.back()" + ".data() + 63) / 64 * 64) + " +
              std::to_string(source.byteOffsets[r]) + ");\n";
    }
    for (const KernelSource::Variant& variant : {source.plain, source.vector}) {
      if (!*variant.entry) continue;
      const std::string path = (folder / (name + variant.entry)).string();
      main += "    std::vector<char> " + std::string(variant.entry) + "(" + std::to_string(bytes) +
              " + 64);\n    p.push_back((char*)(((size_t)" + variant.entry + ".data() + 63) / 64 * 64));\n" +
              "    launch(" + name + "::run_" + variant.entry + ", p.data(), " +
              std::to_string(variant.threads / variant.block) + ", " + std::to_string(variant.block) +
              ");\n    { std::FILE* to = std::fopen(\"" + path + "\", \"wb\"); std::fwrite(p.back(), 1, " +
              std::to_string(bytes) + ", to); std::fclose(to); p.pop_back(); }\n";
    }
    main += "  }\n";
  }
  EXPECT_GE(tensor, 6u);
  std::ofstream(folder / "attention.cc") << text << main << "}\n";
  const std::string program = (folder / "attention").string();
  const std::string command =
      "c++ -std=c++20 -O1 -w -ffp-contract=off -fno-strict-aliasing -I" BRAID_SOURCE_FOLDER " " +
      (folder / "attention.cc").string() + " -o " + program + " && " + program;
  ASSERT_EQ(std::system(command.c_str()), 0) << command;
  for (std::size_t i = 0; i < std::size(kCases); ++i) {
    const Case& one = kCases[i];
    const KernelSpec spec = specOf(one);
    KernelSource source;
    attentionSource(spec, 80, i % 2 == 0 ? 132 : 1, &source);
    // Values are at most 4. Weights are rounded to the type before they meet them, and the sum is once more.
    const double allowed = one.type == DType::f32 ? 4e-5 : one.type == DType::bf16 ? 0.03 : 0.004;
    for (const KernelSource::Variant& variant : {source.plain, source.vector}) {
      if (!*variant.entry) continue;
      std::ifstream file(folder / ("c" + std::to_string(i) + variant.entry), std::ios::binary);
      std::vector<std::uint8_t> found(wanted[i].size());
      file.read(reinterpret_cast<char*>(found.data()), static_cast<std::streamsize>(found.size()));
      std::size_t numbers = 0;
      for (std::size_t e = 0; e < found.size() / elementBytes(one.type); ++e) {
        const double is = elementOf(found, one.type, e), want = elementOf(wanted[i], one.type, e);
        numbers += std::isnan(want) ? 0 : 1;
        ASSERT_TRUE(std::isnan(want) ? std::isnan(is) : std::abs(is - want) <= allowed)
            << one.name << ", " << variant.entry << ", element " << e << ": " << is << " where the host has "
            << want << " in " << folder;
      }
      EXPECT_EQ(numbers > 0, one.length != 0) << one.name;
    }
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace braid::test
