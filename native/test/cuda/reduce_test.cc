#include <algorithm>
#include <cstring>
#include <numeric>

#include "kernels/cpu.h"
#include "kernels/map_rows.h"
#include "test/cuda/emulated.h"

// Reductions of columns, and the selection of many positions, as the text for a GPU, run on the processor,
// against the host's kernels. Values are whole numbers, so that every order of additions yields the same.

namespace braid::test {
namespace {

using namespace braid::cuda;

// Whole numbers; of floats a few NaN, infinities and zeros of either sign where `odd`.
std::vector<std::uint8_t> valuesOf(Random& random, const KernelSpec& spec, bool odd) {
  const auto count = static_cast<std::size_t>(spec.outer * spec.length * spec.inner);
  const std::size_t size = elementBytes(spec.input);
  std::vector<std::uint8_t> bytes(count * size);
  static constexpr float kOdd[] = {NAN, -NAN, INFINITY, -INFINITY, 0.0f, -0.0f};
  for (std::size_t e = 0; e < count; ++e) {
    const auto value = static_cast<float>(random.below(16)) - 8.0f;
    const float one = odd && random.below(40) == 0 ? kOdd[random.below(6)] : value;
    std::uint8_t* to = bytes.data() + e * size;
    const auto put = [&](auto stored) { std::memcpy(to, &stored, sizeof stored); };
    switch (spec.input) {
      case DType::u8: put(static_cast<std::uint8_t>(value + 8)); break;
      case DType::i32: put(static_cast<std::int32_t>(value) * 268435456); break;
      case DType::f16: put(f16FromFloat(one)); break;
      case DType::bf16: put(bf16FromFloat(one)); break;
      default: put(one);
    }
  }
  return bytes;
}

// The texts of all specs yield bit for bit what the host's kernels yield.
void expectHosts(const std::string& name, const std::vector<KernelSpec>& specs,
                 const std::vector<KernelSource>& sources, bool odd) {
  Emulation emulation(name);
  Random random{20261126};
  std::vector<std::vector<std::uint8_t>> wanted;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const KernelSpec& spec = specs[i];
    std::vector<std::vector<std::uint8_t>> reads{valuesOf(random, spec, odd)};
    std::string detail;
    CpuKernelResult kernel;
    ASSERT_EQ(prepareCpu(&kernel, spec, {}, &detail), Status::ok) << detail;
    wanted.emplace_back(static_cast<std::size_t>(spec.outer * spec.count * spec.inner) *
                        elementBytes(spec.output));
    const DeviceAddress addresses[] = {reinterpret_cast<DeviceAddress>(reads[0].data()),
                                       reinterpret_cast<DeviceAddress>(wanted[i].data())};
    Scratch scratch;
    ASSERT_TRUE(kernel->run(addresses, scratch, Part::all));
    const std::string input = std::string("const ") + cudaTypeName(spec.input);
    emulation.add("k" + std::to_string(i), sources[i], {input.c_str(), cudaTypeName(spec.output)}, reads,
                  wanted[i].size());
  }
  ASSERT_TRUE(emulation.run());
  for (std::size_t i = 0; i < specs.size(); ++i)
    for (const KernelSource::Variant& variant : {sources[i].plain, sources[i].vector}) {
      if (!*variant.entry) continue;
      const auto found = emulation.result("k" + std::to_string(i), variant.entry, wanted[i].size());
      EXPECT_EQ(firstDifference(found, wanted[i], specs[i].output), -1)
          << "spec " << i << ", " << variant.entry << ": " << specs[i].outer << " × " << specs[i].length
          << " × " << specs[i].inner << ", " << cudaTypeName(specs[i].input);
    }
}

TEST(CudaReduceSource, MeansOfColumnsWhatTheHostsKernelMeans) {
  std::vector<KernelSpec> specs;
  std::vector<KernelSource> sources;
  std::size_t wide = 0;
  for (const auto& [outer, length, inner, multiprocessors] : {std::tuple{1, 700, 8, 132},
                                                              {2, 70, 40, 132},
                                                              {1, 129, 17, 132},
                                                              {3, 9, 300, 132},
                                                              {2, 1, 5, 132},
                                                              {40, 5, 3, 1},
                                                              {1, 2000, 2, 132},
                                                              {2, 65, 64, 1}})
    for (const DType type : {DType::u8, DType::i32, DType::f16, DType::bf16, DType::f32})
      for (const ReduceHow how : {ReduceHow::sum, ReduceHow::max, ReduceHow::min}) {
        KernelSpec& spec = specs.emplace_back();
        spec.kind = KernelSpec::Kind::reduce;
        spec.how = how;
        spec.outer = outer, spec.length = length, spec.inner = inner;
        spec.input = type;
        const bool whole = type == DType::u8 || type == DType::i32;
        spec.output = how != ReduceHow::sum ? type : whole ? DType::i32 : DType::f32;
        mapSource(reductionAsMap(spec), multiprocessors, &sources.emplace_back());
        wide += *sources.back().vector.entry ? 1 : 0;
      }
  EXPECT_GE(wide, 30u);
  expectHosts("reduce", specs, sources, false);
}

// Nothing that counts elements is an int.
TEST(CudaReduceSource, CountsLongColumnsIn64Bits) {
  KernelSpec spec;
  spec.kind = KernelSpec::Kind::reduce;
  spec.how = ReduceHow::max;
  spec.outer = 1, spec.length = (std::int64_t{1} << 31) + 5, spec.inner = 16;
  spec.input = spec.output = DType::u8;
  KernelSource source;
  mapSource(reductionAsMap(spec), 132, &source);
  EXPECT_TRUE(source.wide);
  EXPECT_NE(source.text.find("typedef long long Index"), std::string::npos);
  EXPECT_NE(source.text.find("(Index from = 0;"), std::string::npos);
  EXPECT_NE(source.text.find("((Index)blockIdx.x"), std::string::npos);
}

TEST(CudaScatterAddSource, AddsWhatTheHostAdds) {
  Emulation emulation("scatter-add");
  Random random{20261127};
  struct Case {
    KernelSpec spec;
    KernelSource source;
    std::vector<std::vector<std::uint8_t>> reads;
    std::vector<std::uint8_t> wanted;
  };
  std::vector<Case> cases;
  for (const auto& [outer, length, inner, count] :
       {std::tuple{1, 7, 1, 300}, {2, 5, 40, 30}, {3, 9, 129, 4}, {1, 40, 6, 90}})
    for (const DType type : {DType::u8, DType::i32, DType::f16, DType::bf16, DType::f32}) {
      Case& one = cases.emplace_back();
      KernelSpec& spec = one.spec;
      spec.kind = KernelSpec::Kind::scatterAdd;
      spec.outer = outer, spec.length = length, spec.inner = inner, spec.count = count;
      spec.input = type, spec.output = type == DType::u8 ? DType::i32 : type;
      KernelSpec rows = spec;
      rows.length = count;
      std::vector<std::int32_t> keys(static_cast<std::size_t>(count)), order(keys.size());
      for (auto& key : keys)
        key = static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(length) + 2)) - 1;
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), [&](std::int32_t p, std::int32_t q) {
        return keys[static_cast<std::size_t>(p)] < keys[static_cast<std::size_t>(q)];
      });
      // A place that is none.
      order.back() = count;
      const auto bytesOf = [](const std::vector<std::int32_t>& words) {
        std::vector<std::uint8_t> bytes(words.size() * 4);
        std::memcpy(bytes.data(), words.data(), bytes.size());
        return bytes;
      };
      one.reads = {valuesOf(random, rows, false), bytesOf(keys), bytesOf(order)};
      scatterAddSource(spec, length == 40 ? 1 : 132, &one.source);
      std::string detail;
      CpuKernelResult kernel;
      ASSERT_EQ(prepareCpu(&kernel, spec, {}, &detail), Status::ok) << detail;
      one.wanted.resize(static_cast<std::size_t>(outer * length * inner) * elementBytes(spec.output));
      const auto address = [](std::vector<std::uint8_t>& bytes) {
        return reinterpret_cast<DeviceAddress>(bytes.data());
      };
      const DeviceAddress addresses[] = {address(one.reads[0]), address(one.reads[1]), address(one.reads[2]),
                                         address(one.wanted)};
      Scratch scratch;
      ASSERT_TRUE(kernel->run(addresses, scratch, Part::all));
      const std::string rowType = std::string("const ") + cudaTypeName(type);
      emulation.add("k" + std::to_string(cases.size()), one.source,
                    {rowType.c_str(), "const int", "const int", cudaTypeName(spec.output)}, one.reads,
                    one.wanted.size());
    }
  ASSERT_TRUE(emulation.run());
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const Case& one = cases[i];
    const auto found =
        emulation.result("k" + std::to_string(i + 1), one.source.plain.entry, one.wanted.size());
    EXPECT_EQ(firstDifference(found, one.wanted, one.spec.output), -1) << "case " << i;
  }
}

TEST(CudaChooseSource, SelectsManyPositionsAsTheHostSortsThem) {
  std::vector<KernelSpec> specs;
  std::vector<KernelSource> sources;
  // Of a selection, of a line that is sorted whole, and turn after turn where the memory holds no more.
  for (const auto& [outer, length, inner, count, memory] : {std::tuple{2, 1500, 1, 50, 228 << 10},
                                                            {1, 9000, 1, 4, 228 << 10},
                                                            {1, 1100, 3, 1000, 228 << 10},
                                                            {3, 1025, 1, 1024, 48 << 10},
                                                            {1, 2000, 2, 7, 48 << 10},
                                                            {3, 60, 5, 60, 48 << 10},
                                                            {1, 3001, 1, 3001, 228 << 10},
                                                            {1, 7000, 2, 2100, 10 << 10},
                                                            {2, 1300, 1, 1300, 4 << 10}})
    for (const DType type : {DType::u8, DType::i32, DType::f16, DType::bf16, DType::f32})
      for (const ReduceHow how : {ReduceHow::argmax, ReduceHow::argmin}) {
        KernelSpec& spec = specs.emplace_back();
        spec.kind = KernelSpec::Kind::reduce;
        spec.how = how;
        spec.outer = outer, spec.length = length, spec.inner = inner, spec.count = count;
        spec.input = type, spec.output = DType::i32;
        chooseSource(spec, static_cast<std::size_t>(memory), &sources.emplace_back());
        EXPECT_NE(sources.back().text.find("atomicAdd"), std::string::npos);
      }
  expectHosts("choose", specs, sources, true);
}

}  // namespace
}  // namespace braid::test
