#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>

#include "cuda/library.h"
#include "cuda/sources/map_loops.h"
#include "cuda/sources/prelude.h"
#include "cuda/sources/source.h"
#include "kernels/cpu.h"
#include "test/cuda/emulated_copies.h"
#include "test/cuda/specs.h"

// The generated kernels as text: read, compiled by NVRTC where it is installed, and run on the processor, one
// thread of the grid after another, against the host device's own kernels.

namespace braid::test {
namespace {

using namespace braid::cuda;

KernelSpec mapOf(std::vector<std::int64_t> shape, std::vector<MapOperand> operands) {
  KernelSpec spec;
  spec.kind = KernelSpec::Kind::map;
  spec.shape = std::move(shape);
  spec.operands = std::move(operands);
  spec.code = {{MapOp::operand, 0}};
  spec.results = {{0, DType::bf16}};
  return spec;
}

TEST(CudaMapLoops, JoinDimensionsWithTheSameStrides) {
  const MapLoops dense =
      mapLoops(mapOf({4, 1, 6, 8}, {{DType::f32, 0, {48, 7, 8, 1}}, {DType::f32, 3, {0, 0, 0, 0}}}));
  EXPECT_EQ(dense.shape, (std::vector<std::int64_t>{192}));
  EXPECT_EQ(walkOf(dense, 0), Walk::dense);
  EXPECT_EQ(walkOf(dense, 1), Walk::scalar);
  const MapLoops bias = mapLoops(mapOf({4, 6, 8}, {{DType::f32, 0, {48, 8, 1}}, {DType::f32, 0, {0, 0, 1}}}));
  EXPECT_EQ(bias.shape, (std::vector<std::int64_t>{24, 8}));
  EXPECT_EQ(walkOf(bias, 0), Walk::dense);
  EXPECT_EQ(walkOf(bias, 1), Walk::strided);
  EXPECT_EQ(bias.lanes, 8);
}

TEST(CudaMapLoops, TakeWideAccessesOnlyWhereEveryRowAllowsThem) {
  EXPECT_EQ(mapLoops(mapOf({64, 30}, {{DType::bf16, 0, {32, 1}}})).lanes, 1);  // 30 is no multiple of 8
  EXPECT_EQ(mapLoops(mapOf({64, 32}, {{DType::bf16, 0, {36, 1}}})).lanes, 1);  // nor is 36
  EXPECT_EQ(mapLoops(mapOf({64, 32}, {{DType::bf16, 0, {40, 1}}})).lanes, 8);
  EXPECT_EQ(mapLoops(mapOf({32, 64}, {{DType::bf16, 0, {1, 32}}})).lanes, 1);  // transposed
  EXPECT_EQ(mapLoops(mapOf({1003}, {{DType::bf16, 0, {1}}})).lanes, 8);        // with a tail
}

TEST(CudaMapLoops, TakeWideAccessesOfATableWhereEachIsOfOneRow) {
  const auto table = [](MapIndex index, std::vector<std::int64_t> strides,
                        std::vector<std::int64_t> indices) {
    return mapLoops(
        mapOf({64, 32}, {{DType::bf16, 0, std::move(strides), index}, {DType::i32, 0, std::move(indices)}}));
  };
  EXPECT_EQ(table({1, 9, 32}, {0, 1}, {1, 0}).lanes, 8);
  EXPECT_EQ(table({1, 9, 36}, {0, 1}, {1, 0}).lanes, 1);   // 36 is no multiple of 8
  EXPECT_EQ(table({1, 9, 32}, {0, 1}, {32, 1}).lanes, 1);  // an index an element
  const MapLoops elements = table({1, 9, 1}, {0, 0}, {32, 1});
  EXPECT_EQ(elements.shape, (std::vector<std::int64_t>{2048}));
  EXPECT_EQ(walkOf(elements, 0), Walk::strided);
  EXPECT_EQ(walkOf(table({1, 9, 1}, {0, 0}, {0, 0}), 0), Walk::scalar);
  EXPECT_TRUE(table({1, std::int64_t{1} << 26, 32}, {0, 1}, {1, 0}).wide);
}

TEST(CudaMapLoops, CountIn64BitsOnlyWhereSizesDemandIt) {
  EXPECT_FALSE(mapLoops(mapOf({1 << 20, 512}, {{DType::u8, 0, {512, 1}}})).wide);
  EXPECT_TRUE(mapLoops(mapOf({1 << 21, 1 << 10}, {{DType::u8, 0, {1 << 10, 1}}})).wide);
  EXPECT_TRUE(mapLoops(mapOf({2, 8}, {{DType::u8, 0, {std::int64_t{1} << 31, 1}}})).wide);
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
  return text;
}

// What a CUDA compiler has and a host compiler has not.
constexpr const char* kShim = R"(
#include <cmath>
#include "kernels/half.h"
#include "kernels/map_rows.h"
#define __device__
#define __global__ static
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ static
#define BRAID_EMULATED
#define LAUNCHED_SHARED(name) alignas(16) static unsigned char name[227 << 10]
static struct { unsigned x; } blockIdx, threadIdx, gridDim;
static float __uint_as_float(unsigned bits) { return std::bit_cast<float>(bits); }
static unsigned __float_as_uint(float value) { return std::bit_cast<unsigned>(value); }

// The threads of a block as contexts that take turns. All of them meet at the same places: there each stops
// until the others have come.
#include <ucontext.h>
#include <functional>
#include <vector>
struct Fiber { ucontext_t context; std::vector<char> stack; int turn = 0; bool done = false; };
static std::vector<Fiber> fibers;
static ucontext_t scheduler;
static std::function<void()> body;
static unsigned slots[2][1024];
static void meet() {
  swapcontext(&fibers[threadIdx.x].context, &scheduler);
}
static void __syncthreads() { meet(); }
template <class T> static T __shfl_xor_sync(unsigned, T value, int step) {
  const unsigned self = threadIdx.x;
  unsigned* own = slots[fibers[self].turn++ % 2];
  own[self] = std::bit_cast<unsigned>(value);
  meet();
  return std::bit_cast<T>(own[self ^ step]);
}
static void started() { body(); fibers[threadIdx.x].done = true; meet(); }
static void block(unsigned threads) {
  fibers.assign(threads, {});
  for (Fiber& fiber : fibers) {
    fiber.stack.resize(32768);
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack.data();
    fiber.context.uc_stack.ss_size = fiber.stack.size();
    makecontext(&fiber.context, started, 0);
  }
  for (bool left = true; left;) {
    left = false;
    for (unsigned t = 0; t < threads; ++t)
      if (!fibers[t].done) threadIdx.x = t, swapcontext(&scheduler, &fibers[t].context), left = true;
  }
}
// A library with memory of threads would stay loaded, in the place of the next one of its name.
#define thread_local
)";

// One kernel in a namespace of its own, and a function that runs its whole grid.
std::string hosted(const KernelSource& source, const KernelSpec& spec, const KernelSource::Variant& variant,
                   const std::string& name) {
  const char* entry = variant.entry;
  std::string text = replaced(source.text, "extern \"C\" ", "");
  text = replaced(text, "asm(\"cvt.f32.f16 %0, %1;\" : \"=f\"(y) : \"h\"(x.bits));",
                  "y = braid::floatFromF16(x.bits);");
  text = replaced(text, "asm(\"cvt.rn.f16.f32 %0, %1;\" : \"=h\"(y.bits) : \"f\"(x));",
                  "y.bits = braid::f16FromFloat(x);");
  std::string call = std::string(entry) + "(";
  std::size_t slot = 0;
  for (const MapOperand& operand : spec.operands)
    call += "(const " + std::string(cudaTypeName(operand.dtype)) + "*)p[" + std::to_string(slot++) + "], ";
  for (const MapResult& result : spec.results)
    call += "(" + std::string(cudaTypeName(result.dtype)) + "*)p[" + std::to_string(slot++) + "], ";
  call = replaced(call, entry, name + "::" + entry) + std::to_string(source.count) + ")";
  // Too few blocks on purpose where the grid strides.
  const std::int64_t blocks = variant.threads / variant.block;
  const std::string grid = std::to_string(variant.strided ? std::max<std::int64_t>(1, blocks / 2) : blocks);
  const std::string threads = std::to_string(variant.block);
  const std::string each = variant.strided
                               ? "for (threadIdx.x = 0; threadIdx.x < " + threads + "; ++threadIdx.x) body()"
                               : "block(" + threads + ")";
  return "namespace " + name + " {\n" + text + "}\nextern \"C\" void run_" + name +
         "(char** p) {\n  using namespace " + name + ";\n  body = [=] { " + call +
         "; };\n  gridDim.x = " + grid + ";\n  for (blockIdx.x = 0; blockIdx.x < gridDim.x; ++blockIdx.x) " +
         each + ";\n}\n";
}

using Fill = std::vector<std::uint8_t> (*)(Random&, DType, std::size_t);

// Every kernel of the specs, run on the processor, yields bit for bit what the host device's kernel yields;
// also where each of the first `inPlace` results lies over the operand of its number, on either.
void expectHosts(const std::vector<KernelSpec>& specs, Random& random, Fill fill,
                 Multiprocessors multiprocessors = {132, 100 << 10},
                 const std::vector<std::size_t>& inPlace = {}) {
  const auto folder = std::filesystem::temp_directory_path() / ("braid-map-" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  std::vector<std::string> names;
  std::vector<std::size_t> specOf;
  std::string text = std::string(kShim) + kEmulatedCopies;
  for (std::size_t s = 0; s < specs.size(); ++s) {
    KernelSource source;
    // Of the longest rows some packs are in registers, some in shared memory, some in neither.
    mapSource(specs[s], multiprocessors, &source);
    for (const KernelSource::Variant& variant : {source.plain, source.vector}) {
      if (!*variant.entry) continue;
      names.push_back("k" + std::to_string(names.size()));
      specOf.push_back(s);
      text += hosted(source, specs[s], variant, names.back());
    }
  }
  EXPECT_GT(names.size(), specs.size() + 10);  // some of them have a vector kernel
  std::ofstream(folder / "maps.cc") << text;
  const std::string library = (folder / "maps.so").string();
  const std::string command =
      "c++ -std=c++20 -O1 -w -ffp-contract=off -fno-strict-aliasing -fPIC -shared -I" BRAID_SOURCE_FOLDER
      " " +
      (folder / "maps.cc").string() + " -o " + library;
  ASSERT_EQ(std::system(command.c_str()), 0) << command;
  void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(handle, nullptr) << dlerror();

  for (std::size_t i = 0; i < names.size(); ++i) {
    const KernelSpec& spec = specs[specOf[i]];
    std::string detail;
    CpuKernelResult reference;
    ASSERT_EQ(prepareCpu(&reference, spec, {}, &detail), Status::ok) << detail;
    std::vector<std::vector<std::uint8_t>> reads, wanted, found;
    for (std::size_t o = 0; o < spec.operands.size(); ++o) reads.push_back(operandOf(random, spec, o, fill));
    for (const MapResult& result : spec.results) {
      wanted.emplace_back(resultBytes(spec, result), 0xcd);
      found.push_back(wanted.back());
    }
    std::vector<DeviceAddress> addresses;
    for (auto& read : reads) addresses.push_back(reinterpret_cast<DeviceAddress>(read.data()));
    // Where a read begins is aligned, as the device sees to before it takes the vector kernel.
    struct alignas(64) Line {
      std::uint8_t bytes[64];
    };
    std::vector<std::vector<Line>> aligned;
    std::vector<char*> pointers;
    for (std::size_t o = 0; o < reads.size(); ++o) {
      const std::size_t from =
          static_cast<std::size_t>(spec.operands[o].offset) * elementBytes(spec.operands[o].dtype);
      aligned.emplace_back(reads[o].size() / sizeof(Line) + 1);
      std::memcpy(aligned.back().data(), reads[o].data() + from, reads[o].size() - from);
      pointers.push_back(reinterpret_cast<char*>(aligned.back().data()));
    }
    const std::size_t over = inPlace.empty() ? 0 : inPlace[specOf[i]];
    for (auto& write : wanted) addresses.push_back(reinterpret_cast<DeviceAddress>(write.data()));
    for (std::size_t r = 0; r < found.size(); ++r)
      pointers.push_back(r < over ? pointers[r] : reinterpret_cast<char*>(found[r].data()));
    Scratch scratch;
    ASSERT_TRUE(reference->run(addresses.data(), scratch, Part::all));
    reinterpret_cast<void (*)(char**)>(dlsym(handle, ("run_" + names[i]).c_str()))(pointers.data());
    for (std::size_t r = 0; r < over; ++r) {
      std::memcpy(found[r].data(), pointers[r], found[r].size());
      addresses[reads.size() + r] = addresses[r];
    }
    if (over > 0) {
      ASSERT_TRUE(reference->run(addresses.data(), scratch, Part::all));
      for (std::size_t r = 0; r < over; ++r)
        ASSERT_EQ(firstDifference(reads[r], wanted[r], spec.results[r].dtype), -1)
            << "spec " << specOf[i] << " on the host, result " << r << " in place";
    }
    for (std::size_t r = 0; r < found.size(); ++r) {
      const std::ptrdiff_t at = firstDifference(found[r], wanted[r], spec.results[r].dtype);
      ASSERT_EQ(at, -1) << "spec " << specOf[i] << " as " << names[i] << ", result " << r << ": "
                        << elementOf(found[r], spec.results[r].dtype, static_cast<std::size_t>(at))
                        << " where the host has "
                        << elementOf(wanted[r], spec.results[r].dtype, static_cast<std::size_t>(at)) << " in "
                        << folder;
    }
  }
  dlclose(handle);
  std::filesystem::remove_all(folder);
}

TEST(CudaMapSource, MeansWhatTheHostsKernelsMean) {
  Random random{20261121};
  std::vector<KernelSpec> specs;
  for (std::size_t s = 0; s < 60; ++s) specs.push_back(randomMap(random));
  expectHosts(specs, random,
              [](Random& values, DType type, std::size_t bytes) { return randomBytes(values, type, bytes); });
}

TEST(CudaMapSource, RoundsTwoElementsAtATimeAsTheHostRoundsEach) {
  Random random{20261125};
  std::vector<KernelSpec> specs;
  for (std::size_t s = 0; s < 40; ++s) specs.push_back(roundedMap(random));
  KernelSource source;
  mapSource(specs.front(), 132, &source);
  EXPECT_NE(source.text.find("Pair<"), std::string::npos);
  expectHosts(specs, random,
              [](Random& values, DType type, std::size_t bytes) { return randomBytes(values, type, bytes); });
}

TEST(CudaMapSource, FillsWithoutOperands) {
  Random random{20261126};
  std::vector<KernelSpec> specs;
  for (const DType type : {DType::f32, DType::f16, DType::bf16, DType::i32, DType::u8})
    for (const std::vector<std::int64_t>& shape :
         std::vector<std::vector<std::int64_t>>{{}, {6}, {4096}, {3, 700}}) {
      KernelSpec spec = mapOf(shape, {});
      spec.computeInt = type == DType::i32 || type == DType::u8;
      spec.code = {{MapOp::constant}};
      spec.code[0].constant = spec.computeInt      ? 3
                              : type == DType::f32 ? std::numeric_limits<double>::quiet_NaN()
                                                   : -std::numeric_limits<double>::infinity();
      spec.results = {{0, type}};
      specs.push_back(spec);
    }
  expectHosts(specs, random,
              [](Random& values, DType type, std::size_t bytes) { return randomBytes(values, type, bytes); });
}

TEST(CudaRowSource, MeansWhatTheHostsKernelsMean) {
  Random random{20261123};
  std::vector<KernelSpec> specs;
  for (std::size_t s = 0; s < 100; ++s) specs.push_back(randomRows(random));
  expectHosts(specs, random, wholeBytes);
}

// The promise of dsl/ir/in-place.ts: a result with an element for each point may lie over an operand that has
// its elements in the same places.
TEST(CudaRowSource, WritesOverTheOperandsOfItsPoints) {
  Random random{20261128};
  std::vector<KernelSpec> specs;
  std::vector<std::size_t> inPlace;
  for (std::size_t s = 0; s < 30; ++s) {
    KernelSpec spec = randomRows(random);
    std::size_t over = 0;
    for (std::size_t r = 0; r < spec.results.size() && r < spec.operands.size(); ++r) {
      MapOperand& operand = spec.operands[r];
      // Indices of another operand stay as they are.
      const auto isIndex = [&](const MapOperand& each) { return each.indexed && each.indexed->by == r; };
      if (spec.results[r].row || std::any_of(spec.operands.begin(), spec.operands.end(), isIndex)) break;
      operand.indexed.reset();
      operand.offset = 0;
      std::int64_t stride = 1;
      for (std::size_t d = spec.shape.size(); d-- > 0; stride *= spec.shape[d]) operand.strides[d] = stride;
      spec.results[r].dtype = operand.dtype;
      ++over;
    }
    specs.push_back(spec);
    inPlace.push_back(over);
  }
  // Long rows: in registers, in shared memory and in neither, by packs and by elements.
  for (const std::int64_t length : {2048, 40000, 40001, 65544}) {
    KernelSpec spec = mapOf({3, length}, {{DType::f32, 0, {length, 1}}, {DType::f32, 0, {length, 1}}});
    spec.code = {{MapOp::operand, 0}, {MapOp::operand, 1}, {MapOp::rowMax, 0}, {MapOp::sub, 1, 2},
                 {MapOp::rowMin, 3},  {MapOp::add, 0, 4},  {MapOp::sub, 0, 1}};
    spec.results = {{5, DType::f32}, {6, DType::f32}};
    specs.push_back(spec);
    inPlace.push_back(2);
  }
  EXPECT_GE(std::count(inPlace.begin(), inPlace.end(), 2u), 5);
  expectHosts(specs, random, wholeBytes, {132, 100 << 10}, inPlace);
}

// A norm's result takes fewer registers than the norm's operands: it stays, whole or in part; a divisor of a
// row may be 0.
TEST(CudaRowSource, KeepsAResultInsteadOfItsOperands) {
  Random random{20261126};
  std::vector<KernelSpec> specs;
  for (const DType type : {DType::bf16, DType::f16, DType::f32}) {
    for (const std::int64_t length : {40, 2048, 40000, 65544}) {
      KernelSpec spec =
          mapOf({3, length},
                {{type, 0, {length, 1}}, {type, 0, {0, 1}}, {type, 0, {0, 1}}, {DType::u8, 0, {1, 0}}});
      spec.code = {{MapOp::operand, 0}, {MapOp::operand, 1}, {MapOp::operand, 2}, {MapOp::operand, 3},
                   {MapOp::rowMax, 0},  {MapOp::sub, 0, 4},  {MapOp::mul, 5, 1},  {MapOp::add, 6, 2}};
      if (type != DType::f32) spec.code.push_back({type == DType::bf16 ? MapOp::toBf16 : MapOp::toF16, 7});
      const auto normed = static_cast<std::int32_t>(spec.code.size() - 1);
      spec.code.push_back({MapOp::rowMin, normed});
      spec.code.push_back({MapOp::sub, normed, normed + 1});
      spec.code.push_back({MapOp::rowMax, normed + 2});
      spec.code.push_back({MapOp::div, normed + 2, normed + 3});
      spec.code.push_back({MapOp::div, normed + 4, 3});
      spec.results = {{normed + 4, type}, {normed + 5, DType::f32}};
      KernelSource source;
      mapSource(spec, 132, &source);
      EXPECT_NE(source.text.find(" v" + std::to_string(normed) + "["), std::string::npos) << source.text;
      specs.push_back(spec);
    }
  }
  expectHosts(specs, random, wholeBytes);
}

// A row minus its largest element, by the least of these: it is read once, and has two totals, as a softmax.
KernelSpec rowsOfTwoTotals(std::int64_t rows, std::int64_t length, DType type) {
  KernelSpec spec = mapOf({rows, length}, {{type, 8, {length + 8, 1}}, {DType::f32, 0, {1, 0}}});
  const MapOp rounded = type == DType::bf16 ? MapOp::toBf16 : type == DType::f16 ? MapOp::toF16 : MapOp::abs;
  spec.code = {{MapOp::operand, 0}, {MapOp::operand, 1}, {MapOp::rowMax, 0}, {MapOp::sub, 0, 2},
               {rounded, 3},        {MapOp::rowMin, 4},  {MapOp::div, 4, 5}, {MapOp::mul, 6, 1}};
  spec.results = {{7, type}, {5, DType::f32, true}};
  return spec;
}

bool isCopied(const KernelSpec& spec, Multiprocessors multiprocessors) {
  KernelSource source;
  mapSource(spec, multiprocessors, &source);
  return source.text.find("copyAsync((u16*)&r") != std::string::npos;
}

std::vector<std::uint8_t> oddBytes(Random& random, DType type, std::size_t bytes) {
  std::vector<std::uint8_t> memory = wholeBytes(random, type, bytes);
  if (type != DType::f16 && type != DType::bf16) return memory;
  static constexpr float kOdd[] = {NAN, INFINITY, -INFINITY, -0.0f};
  // A few, so that most rows have none of them.
  for (int i = 0; i < 3; ++i) {
    const float odd = kOdd[random.below(4)];
    const std::uint16_t half = type == DType::f16 ? f16FromFloat(odd) : bf16FromFloat(odd);
    std::memcpy(memory.data() + random.below(bytes / 2) * 2, &half, 2);
  }
  return memory;
}

TEST(CudaRowSource, CopiesARowThroughSharedMemory) {
  const Multiprocessors h100{3, 227 << 10, 90};
  Random random{20261128};
  std::vector<KernelSpec> specs;
  for (const std::int64_t rows : {1, 2, 3, 4, 6, 8}) {
    for (const DType type : {DType::bf16, DType::f16}) {
      const std::int64_t length = type == DType::bf16 ? 65536 : 36872;
      specs.push_back(rowsOfTwoTotals(rows, length, type));
      EXPECT_EQ(isCopied(specs.back(), h100), rows > 1);  // one row may be that of all
    }
  }
  // Rows of several dimensions, some of which the operand has once.
  KernelSpec repeated = rowsOfTwoTotals(1, 49152, DType::bf16);
  repeated.shape = {2, 3, 49152};
  repeated.operands[0].strides = {49160, 0, 1};
  repeated.operands[1].strides = {1, 2, 0};
  EXPECT_TRUE(isCopied(repeated, h100));
  specs.push_back(repeated);
  expectHosts(specs, random, oddBytes, h100);
}

TEST(CudaRowSource, CopiesOnlyWhatABlockHasAloneAndWhole) {
  const Multiprocessors h100{132, 227 << 10, 90};
  const KernelSpec spec = rowsOfTwoTotals(200, 65536, DType::bf16);
  EXPECT_TRUE(isCopied(spec, h100));
  EXPECT_FALSE(isCopied(spec, {132, 227 << 10, 75}));
  EXPECT_FALSE(isCopied(spec, {132, 100 << 10, 90}));
  EXPECT_FALSE(isCopied(rowsOfTwoTotals(200, 32768, DType::bf16), h100));   // two blocks at a time
  EXPECT_FALSE(isCopied(rowsOfTwoTotals(200, 100000, DType::bf16), h100));  // not all in registers
  EXPECT_FALSE(isCopied(rowsOfTwoTotals(200, 65536, DType::f32), h100));
  EXPECT_FALSE(isCopied(rowsOfTwoTotals(200, 32768, DType::f32), h100));
  EXPECT_FALSE(isCopied(rowsOfTwoTotals(200, 65532, DType::bf16), h100));  // no packs
  KernelSpec other = spec;
  other.operands[1] = {DType::bf16, 0, {0, 1}};  // a scale
  EXPECT_FALSE(isCopied(other, h100));
  other = spec;
  other.operands[0].strides[0] = 0;
  EXPECT_FALSE(isCopied(other, h100));
}

// Tokens and positions, embedded and normalised: each thread has the rows of both tables in wide accesses.
TEST(CudaRowSource, ReadsRowsOfTablesInWideAccesses) {
  Random random{20261127};
  std::vector<KernelSpec> specs;
  for (const DType type : {DType::bf16, DType::f32}) {
    for (const std::int64_t length : {64, 768, 4096}) {
      for (const std::int64_t step : {length, length + 1}) {
        KernelSpec spec = mapOf({5, 3, length}, {{type, 8, {0, 0, 1}, MapIndex{1, 7, step}},
                                                 {DType::i32, 0, {3, 1, 0}},
                                                 {type, 0, {0, 0, 1}, MapIndex{3, 3, length}},
                                                 {DType::i32, 0, {0, 1, 0}}});
        spec.code = {{MapOp::operand, 0}, {MapOp::operand, 2}, {MapOp::add, 0, 1},
                     {MapOp::rowMax, 2},  {MapOp::sub, 2, 3},  {MapOp::operand, 1}};
        spec.results = {{4, type}, {2, type}};
        spec.readCount = 4, spec.writeCount = 2;
        KernelSource source;
        mapSource(spec, 132, &source);
        EXPECT_EQ(*source.vector.entry != 0, step == length) << source.text;
        specs.push_back(spec);
      }
    }
  }
  // Some more that have a vector kernel.
  for (int i = 0; i < 12; ++i) specs.push_back(roundedMap(random));
  expectHosts(specs, random, wholeBytes);
}

// Every kind of generated text.
template <class See>
void eachSource(const See& see) {
  const auto sees = [&](const std::string& text, const char* what, int architecture = 80) {
    see(text, what, architecture);
  };
  KernelSource source;
  for (bool whole : {false, true}) {
    KernelSpec spec = mapOf({64, 128}, {{DType::f16, 0, {128, 1}}, {DType::u8, 0, {0, 1}}});
    spec.computeInt = whole;
    spec.code = {
        {MapOp::operand, 0}, {MapOp::operand, 1}, {MapOp::constant, 0, 0, 0, -INFINITY}, {MapOp::index, 1}};
    for (auto op = static_cast<int>(MapOp::select); op <= static_cast<int>(MapOp::eq); ++op) {
      spec.code.push_back({static_cast<MapOp>(op), static_cast<std::int32_t>(spec.code.size() - 1), 0, 1, 0});
    }
    const auto last = static_cast<std::int32_t>(spec.code.size() - 1);
    spec.results = {
        {last, DType::u8}, {last, DType::i32}, {last, DType::f16}, {last, DType::bf16}, {last, DType::f32}};
    source = {};
    mapSource(spec, 132, &source);
    sees(source.text, "map");
  }
  for (const std::int64_t step : {128, 127}) {
    source = {};
    mapSource(mapOf({64, 128}, {{DType::f16, 0, {0, 1}, MapIndex{1, 50, step}}, {DType::i32, 0, {1, 0}}}),
              132, &source);
    sees(source.text, "map of rows of a table");
  }
  Random random{20261124};
  for (int i = 0; i < 12; ++i) {
    source = {};
    mapSource(randomRows(random), 132, &source);
    sees(source.text, "rows");
  }
  source = {};
  mapSource(rowsOfTwoTotals(200, 65536, DType::bf16), {132, 227 << 10, 80}, &source);
  sees(source.text, "rows that are copied");
  for (const auto& [outer, length, inner] :
       {std::tuple{6144, 8192, 1}, {1, 100000, 1}, {5, 7, 1}, {9, 1, 1}, {2, 300, 65}, {1, 3, 40}}) {
    for (DType type : {DType::u8, DType::f16, DType::f32}) {
      KernelSpec spec;
      spec.kind = KernelSpec::Kind::reduce;
      spec.outer = outer, spec.length = length, spec.inner = inner;
      spec.input = type;
      spec.how = type == DType::u8 ? ReduceHow::max : type == DType::f16 ? ReduceHow::min : ReduceHow::mean;
      source = {};
      mapSource(reductionAsMap(spec), 132, &source);
      sees(source.text, "reduce");
    }
  }
  for (const std::int64_t inner : {1, 5}) {
    for (DType type : {DType::u8, DType::bf16}) {
      KernelSpec spec;
      spec.kind = KernelSpec::Kind::reduce;
      spec.how = inner == 1 ? ReduceHow::argmax : ReduceHow::argmin;
      spec.outer = 3, spec.length = 70, spec.inner = inner;
      spec.input = type, spec.output = DType::i32;
      source = {};
      chooseSource(spec, 48 << 10, &source);
      sees(source.text, "argmax");
      spec.kind = KernelSpec::Kind::gather;
      spec.count = 9;
      source = {};
      gatherSource(spec, &source);
      sees(source.text, "gather");
      source = {};
      scatterAddSource(spec, 132, &source);
      sees(source.text, "scatterAdd");
      source = {};
      appendSource(spec, &source);
      sees(source.text, "append");
      spec.along = true;
      source = {};
      gatherSource(spec, &source);
      sees(source.text, "gather along");
      spec.kind = KernelSpec::Kind::reduce;
      source = {};
      chooseSource(spec, 48 << 10, &source);
      sees(source.text, "argmax of several");
      spec.kind = KernelSpec::Kind::scan;
      for (const std::int64_t length : {70, 7000}) {
        spec.length = length;
        source = {};
        scanSource(spec, &source);
        sees(source.text, "scan");
      }
      spec.kind = KernelSpec::Kind::join;
      spec.pieces = {{16, false, 0}, {32, true, 1}, {48, false, 0}};
      source = {};
      joinSource(spec, &source);
      sees(source.text, "join");
    }
  }
  for (DType type : {DType::i32, DType::f32, DType::f16, DType::bf16}) {
    KernelSpec spec;
    spec.kind = KernelSpec::Kind::random;
    spec.count = 70, spec.seed = 0x1fffffffffffff, spec.output = type;
    source = {};
    randomSource(spec, &source);
    sees(source.text, "random");
  }
  for (const std::int64_t queries : {1, 40}) {
    for (DType type : {DType::f32, DType::f16, DType::bf16}) {
      KernelSpec spec;
      spec.kind = KernelSpec::Kind::attention;
      spec.input = type;
      AttentionSpec& one = spec.attention;
      one.heads = 6, one.groups = 2, one.queries = queries, one.keys = 700;
      one.size = 32, one.valueSize = type == DType::f16 ? 33 : 96;
      one.causal = one.masked = one.counted = type == DType::bf16;
      one.appended = queries == 1 ? 3 : 0;
      one.q.strides = one.k.strides = one.v.strides = one.y.strides = {160, 40, 8};
      for (const int architecture : {80, 90}) {
        source = {};
        attentionSource(spec, architecture, 132, &source);
        sees(source.text, "attention", architecture);
      }
    }
  }
  for (const std::int64_t filters : {1, 3, 24, 40, 70, 300}) {
    for (DType type : {DType::f32, DType::f16, DType::bf16}) {
      KernelSpec spec;
      spec.kind = KernelSpec::Kind::conv;
      spec.input = type, spec.batch = 8;
      spec.conv.groups = 2, spec.conv.channels = type == DType::f16 ? 3 : 8, spec.conv.filters = filters;
      spec.conv.spatial = {{30, 3, 2, 2, 1, 1}};
      if (filters > 1) spec.conv.spatial.push_back({40, filters == 40 ? 23 : 5, 1, 1, 2, 2});
      for (const int architecture : {80, 90}) {
        source = {};
        convSource(spec, architecture, filters == 70 ? 132 : 1, &source);
        sees(source.text, "conv", architecture);
      }
    }
  }
  KernelSpec product;
  product.m = 33, product.n = 65, product.k = 17, product.batch = 3;
  product.a.dtype = DType::u8, product.c.dtype = DType::bf16;
  for (const int transposed : {0, 1, 2, 3}) {
    product.transposeB = (transposed & 1) != 0, product.transposeA = (transposed & 2) != 0;
    source = {};
    matmulSource(product, &source);
    sees(source.text, "matmul");
    KernelSpec finished = product;
    finished.epilogue.bias = transposed < 3, finished.epilogue.residual = transposed == 1;
    finished.epilogue.activation = transposed == 2 ? Activation::gelu : Activation::none;
    finished.epilogue.scale = 0.5;
    finished.epilogue.auxiliary = transposed == 2;
    finished.a.rowStride = finished.b.rowStride = 2048, finished.a.offset = 16;
    source = {};
    matmulSource(finished, &source);
    sees(source.text, "matmul with an epilogue");
    finished.m = 3, finished.n = 64, finished.k = 1024, finished.batch = 1;
    finished.a.dtype = finished.b.dtype = DType::bf16;
    for (const int architecture : {80, 90}) {
      source = {};
      if (fewRowsSource(finished, architecture, 132, &source))
        sees(source.text, "matmul of few rows", architecture);
    }
  }
}

TEST(CudaSources, CompileUnderNvrtc) {
  std::string problem;
  const auto nvrtc = NvrtcLibrary::open({}, 13000, &problem);
  if (!nvrtc) GTEST_SKIP() << problem;
  eachSource([&](const std::string& text, const char* what, int architecture) {
    nvrtcProgram program = nullptr;
    ASSERT_EQ(nvrtc->call.nvrtcCreateProgram(&program, text.c_str(), "generated.cu", 0, nullptr, nullptr), 0);
    const std::string target = "--gpu-architecture=compute_" + std::to_string(architecture);
    const char* options[] = {"--std=c++17", target.c_str(), "--fmad=false"};
    const int code = nvrtc->call.nvrtcCompileProgram(program, 3, options);
    std::size_t bytes = 0;
    nvrtc->call.nvrtcGetProgramLogSize(program, &bytes);
    std::string log(bytes, 0);
    nvrtc->call.nvrtcGetProgramLog(program, log.data());
    EXPECT_EQ(code, 0) << what << "\n" << log << "\n" << text;
    nvrtc->call.nvrtcDestroyProgram(&program);
  });
}

// A kernel that touched memory before would read what a node in front of it is still writing
// (NodeParams::early).
TEST(CudaSources, WaitForTheNodesBeforeThemFirst) {
  std::size_t kernels = 0;
  eachSource([&](const std::string& text, const char* what, int) {
    for (std::size_t at = 0; (at = text.find("__global__", at)) != std::string::npos; ++at, ++kernels) {
      const std::size_t body = text.find('{', at) + 1;
      const std::string first = "\n  gridDependencySync();\n";
      EXPECT_EQ(text.substr(body, first.size()), first) << what << "\n" << text.substr(at, 400);
    }
  });
  EXPECT_GT(kernels, 100u);
}

}  // namespace
}  // namespace braid::test
