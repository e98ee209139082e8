#include "kernels/cpu.h"
#include "test/cuda/emulated.h"

// The kernels of convolutions: the host device's against the definition, and those of a GPU as text, run on
// the processor, against the host's.

namespace braid::test {
namespace {

using namespace braid::cuda;

struct Case {
  const char* name;
  DType type;
  std::int64_t batch, groups, channels, filters;
  std::vector<ConvDim> spatial;  // input, kernel, stride, dilation, before, after
  int multiprocessors = 1;       // of the GPU; few: large tiles
  bool last = false;             // the channels
};

const std::vector<Case> kCases = {
    {"the first of a network", DType::bf16, 2, 1, 3, 70, {{19, 7, 2, 1, 3, 3}, {17, 7, 2, 1, 3, 3}}},
    {"large tiles, filters by 16 bytes", DType::f16, 2, 1, 16, 140, {{9, 3, 1, 1, 1, 1}, {8, 3, 1, 1, 1, 1}}},
    {"large tiles, odd filters", DType::bf16, 1, 1, 5, 129, {{12, 3, 1, 1, 1, 1}, {12, 3, 1, 1, 1, 1}}},
    {"small tiles", DType::f16, 1, 1, 8, 64, {{9, 3, 1, 1, 1, 1}, {9, 3, 1, 1, 1, 1}}, 132},
    {"medium tiles, pointwise", DType::bf16, 3, 1, 64, 50, {{7, 1, 1, 1, 0, 0}, {7, 1, 1, 1, 0, 0}}},
    {"flat tiles, a stride", DType::f16, 2, 1, 9, 20, {{11, 3, 2, 1, 1, 1}, {11, 3, 2, 1, 1, 1}}},
    {"flattest tiles, groups", DType::bf16, 2, 3, 8, 5, {{7, 3, 1, 2, 2, 2}, {6, 2, 1, 1, 0, 1}}},
    {"groups of many filters", DType::f16, 1, 2, 3, 70, {{9, 3, 1, 1, 1, 1}, {9, 3, 1, 1, 1, 1}}},
    {"one dimension", DType::bf16, 2, 1, 4, 33, {{101, 10, 5, 1, 2, 0}}},
    {"three dimensions, more than 64 taps",
     DType::f16,
     1,
     1,
     2,
     17,
     {{6, 5, 1, 1, 2, 2}, {5, 4, 1, 1, 2, 1}, {6, 4, 2, 1, 2, 2}}},
    {"taps that need 64 bits", DType::bf16, 1, 1, 2, 17, {{9, 7, 1, 1, 3, 3}, {9, 7, 1, 1, 3, 3}}},
    {"a place for each image", DType::f16, 3, 1, 24, 24, {{4, 4, 1, 1, 0, 0}, {4, 4, 3, 1, 0, 0}}},
    {"nothing but zeros at some places", DType::bf16, 1, 1, 4, 20, {{1, 2, 1, 1, 4, 4}, {2, 3, 1, 3, 7, 3}}},
    {"plain", DType::f32, 2, 1, 5, 70, {{9, 3, 1, 1, 1, 1}, {9, 3, 1, 1, 1, 1}}},
    {"plain, groups and a stride", DType::f32, 2, 2, 3, 7, {{13, 3, 2, 2, 1, 1}, {6, 3, 1, 1, 1, 1}}},
    {"grouped", DType::bf16, 2, 3, 4, 4, {{7, 3, 1, 2, 2, 2}, {6, 2, 1, 1, 0, 1}}},
    {"grouped, odd", DType::f32, 1, 2, 3, 5, {{9, 3, 2, 1, 1, 1}}},
    {"by channel", DType::f16, 2, 20, 1, 1, {{9, 3, 1, 1, 1, 1}, {9, 3, 1, 1, 1, 1}}},
    {"two filters a channel", DType::f32, 1, 7, 1, 2, {{9, 3, 2, 1, 0, 1}, {9, 5, 1, 1, 2, 2}}},
    {"one filter of many channels", DType::bf16, 1, 1, 40, 1, {{5, 3, 1, 1, 1, 1}, {5, 9, 1, 1, 4, 4}}},
    // Two billion zeros around the input: offsets need 64 bits.
    {"far away", DType::f32, 1, 1, 1, 3, {{3, 2, 1, 2000000000, 1000000000, 1000000001}}},
    {"far away, tensor cores", DType::f16, 1, 1, 2, 3, {{3, 2, 1, 2000000000, 1000000000, 1000000001}}},
};

// Of channels that are last the definition is the same; they are held against the host's kernel alone.
const std::vector<Case> kLast = {
    {"grouped, more groups than lanes",
     DType::bf16,
     1,
     34,
     4,
     4,
     {{5, 3, 1, 1, 1, 1}, {6, 3, 2, 1, 1, 1}},
     1,
     true},
    {"grouped, fewer groups than lanes",
     DType::f32,
     2,
     3,
     2,
     8,
     {{7, 3, 1, 2, 2, 2}, {6, 2, 1, 1, 0, 1}},
     1,
     true},
    {"grouped, lanes by shared memory",
     DType::f16,
     1,
     33,
     8,
     8,
     {{3, 3, 1, 1, 1, 1}, {4, 3, 1, 1, 1, 1}},
     1,
     true},
    {"grouped, odd", DType::bf16, 1, 5, 3, 7, {{9, 5, 2, 1, 2, 2}}, 1, true},
    {"by channel", DType::bf16, 2, 40, 1, 1, {{9, 7, 1, 1, 3, 3}, {9, 7, 1, 1, 3, 3}}, 1, true},
    {"by channel, far apart", DType::f32, 1, 2, 1, 1, {{3, 9, 1, 1, 4, 4}, {3, 8, 1, 1, 4, 3}}, 1, true},
    {"tiles", DType::f16, 2, 2, 9, 20, {{11, 3, 2, 1, 1, 1}, {11, 3, 2, 1, 1, 1}}, 1, true},
};

KernelSpec specOf(const Case& one) {
  KernelSpec spec;
  spec.kind = KernelSpec::Kind::conv;
  spec.batch = one.batch;
  spec.input = one.type;
  spec.conv.groups = one.groups, spec.conv.channels = one.channels, spec.conv.filters = one.filters;
  spec.conv.spatial = one.spatial;
  spec.conv.channelsLast = one.last;
  return spec;
}

std::vector<std::vector<std::uint8_t>> readsOf(const KernelSpec& spec, Random& random) {
  const ConvSpec& one = spec.conv;
  std::vector<std::vector<std::uint8_t>> reads;
  for (const std::int64_t count : {spec.batch * one.groups * one.channels * one.inputs(),
                                   one.groups * one.filters * one.channels * one.taps()})
    reads.push_back(
        randomBytes(random, spec.input, static_cast<std::size_t>(count) * elementBytes(spec.input), false));
  return reads;
}

std::size_t resultBytes(const KernelSpec& spec) {
  const ConvSpec& one = spec.conv;
  return static_cast<std::size_t>(spec.batch * one.groups * one.filters * one.outputs()) *
         elementBytes(spec.input);
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

// One element by the definition, in the order in which the host adds: by channel, then by place in the
// kernel.
float elementBy(const KernelSpec& spec, const std::vector<std::vector<std::uint8_t>>& reads,
                std::int64_t element) {
  const ConvSpec& one = spec.conv;
  std::int64_t place = element % one.outputs(), row = element / one.outputs();
  const std::int64_t filter = row % (one.groups * one.filters), image = row / (one.groups * one.filters),
                     group = filter / one.filters, taps = one.taps();
  std::vector<std::int64_t> at(one.spatial.size());
  for (std::size_t d = at.size(); d-- > 0; place /= one.spatial[d].output())
    at[d] = place % one.spatial[d].output();
  float sum = 0;
  for (std::int64_t channel = 0; channel < one.channels; ++channel)
    for (std::int64_t tap = 0; tap < taps; ++tap) {
      std::int64_t from = (image * one.groups + group) * one.channels + channel, rest = tap, step = taps;
      bool inside = true;
      for (std::size_t d = 0; d < at.size(); ++d) {
        const ConvDim& dim = one.spatial[d];
        step /= dim.kernel;
        const std::int64_t i = at[d] * dim.stride + rest / step * dim.dilation - dim.before;
        rest %= step;
        inside = inside && i >= 0 && i < dim.input;
        from = from * dim.input + i;
      }
      const std::int64_t weight = (filter * one.channels + channel) * taps + tap;
      const auto value = [&](std::size_t read, std::int64_t index) {
        return static_cast<float>(elementOf(reads[read], spec.input, static_cast<std::size_t>(index)));
      };
      sum += value(1, weight) * (inside ? value(0, from) : 0.0f);
    }
  return sum;
}

TEST(HostConv, AddsByChannelThenByPlaceInTheKernelBitForBit) {
  Random random{11};
  for (const Case& one : kCases) {
    const KernelSpec spec = specOf(one);
    auto reads = readsOf(spec, random);
    const auto found = answerOf(spec, reads, Part::all, std::vector<std::uint8_t>(resultBytes(spec)));
    const std::size_t count = found.size() / elementBytes(one.type);
    for (std::size_t e = 0; e < count; ++e) {
      const float sum = elementBy(spec, reads, static_cast<std::int64_t>(e));
      const float rounded = one.type == DType::f32   ? sum
                            : one.type == DType::f16 ? floatFromF16(f16FromFloat(sum))
                                                     : floatFromBf16(bf16FromFloat(sum));
      ASSERT_EQ(static_cast<float>(elementOf(found, one.type, e)), rounded) << one.name << ", element " << e;
    }
  }
}

TEST(HostConv, YieldsTheSameInTwoParts) {
  Random random{12};
  for (const Case& one : kCases) {
    const KernelSpec spec = specOf(one);
    auto reads = readsOf(spec, random);
    const std::vector<std::uint8_t> empty(resultBytes(spec));
    const auto whole = answerOf(spec, reads, Part::all, empty);
    const auto half = answerOf(spec, reads, Part::first, empty);
    EXPECT_EQ(firstDifference(answerOf(spec, reads, Part::second, half), whole, one.type), -1) << one.name;
  }
}

TEST(HostConv, RefusesSizesThatNoMemoryHolds) {
  const auto problem = [](const std::function<void(ConvSpec&)>& change) {
    KernelSpec spec = specOf(kCases[0]);
    change(spec.conv);
    CpuKernelResult kernel;
    std::string detail;
    return prepareCpu(&kernel, spec, {}, &detail) == Status::ok ? "" : detail;
  };
  constexpr std::int64_t large = (std::int64_t{1} << 53) - 1;
  EXPECT_EQ(problem([](ConvSpec&) {}), "");
  EXPECT_NE(problem([](ConvSpec& one) { one.spatial.clear(); }), "");
  EXPECT_NE(problem([](ConvSpec& one) { one.spatial.resize(4); }), "");
  EXPECT_NE(problem([](ConvSpec& one) { one.spatial[0].stride = 0; }), "");
  EXPECT_NE(problem([](ConvSpec& one) { one.spatial[0].stride = -1; }), "");
  EXPECT_NE(problem([](ConvSpec& one) { one.spatial[0].dilation = 0; }), "");
  EXPECT_NE(problem([](ConvSpec& one) { one.spatial[0].dilation = large; }), "");
  EXPECT_NE(problem([](ConvSpec& one) { one.spatial[0].before = -1; }), "");
  EXPECT_NE(problem([](ConvSpec& one) { one.spatial[0].kernel = 27; }), "");
  EXPECT_NE(problem([](ConvSpec& one) { one.spatial[0].kernel = large; }), "");
  for (std::int64_t ConvDim::*field : {&ConvDim::input, &ConvDim::before, &ConvDim::after})
    EXPECT_NE(problem([&](ConvSpec& one) { one.spatial[0].*field = one.spatial[1].*field = large; }), "");
  for (std::int64_t ConvSpec::*field : {&ConvSpec::groups, &ConvSpec::channels, &ConvSpec::filters}) {
    EXPECT_NE(problem([&](ConvSpec& one) { one.*field = large; }), "");
    EXPECT_NE(problem([&](ConvSpec& one) { one.*field = 0; }), "");
  }
  // A stride beyond the input is no error: there is one place.
  EXPECT_EQ(problem([](ConvSpec& one) { one.spatial[0].stride = large; }), "");
}

TEST(CudaConv, MeansWhatTheHostsKernelMeans) {
  std::vector<Case> cases = kCases;
  cases.insert(cases.end(), kLast.begin(), kLast.end());
  Emulation emulation("conv");
  Random random{20261125};
  std::vector<std::vector<std::uint8_t>> wanted;
  std::vector<KernelSource> sources;
  std::size_t tensor = 0, wide = 0;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const Case& one = cases[i];
    const KernelSpec spec = specOf(one);
    KernelSource& source = sources.emplace_back();
    convSource(spec, i % 2 == 0 ? 80 : 90, one.multiprocessors, &source);
    tensor += source.text.find("mma.sync") != std::string::npos ? 1 : 0;
    wide += *source.vector.entry ? 1 : 0;
    auto reads = readsOf(spec, random);
    wanted.push_back(answerOf(spec, reads, Part::all, std::vector<std::uint8_t>(resultBytes(spec))));
    const std::string isBf16 = one.type == DType::bf16 ? "true" : "false";
    emulation.add("c" + std::to_string(i), source, {"const T", "const T", "T"}, reads, wanted.back().size(),
                  "static void multiply(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) { "
                  "multiplyAs(c, a, b0, b1, " +
                      isBf16 + "); }\n");
  }
  EXPECT_GE(tensor, 10u);
  EXPECT_GE(wide, 6u);
  ASSERT_TRUE(emulation.run());
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const Case& one = cases[i];
    const double terms = static_cast<double>(one.channels * specOf(one).conv.taps());
    // Terms are at most 16, and are added in another order.
    const double sums = 64 * terms * 0x1p-24;
    for (const KernelSource::Variant& variant : {sources[i].plain, sources[i].vector}) {
      if (!*variant.entry) continue;
      const auto found = emulation.result("c" + std::to_string(i), variant.entry, wanted[i].size());
      for (std::size_t e = 0; e < found.size() / elementBytes(one.type); ++e) {
        const double is = elementOf(found, one.type, e), want = elementOf(wanted[i], one.type, e);
        const double type = one.type == DType::f32 ? 0 : one.type == DType::bf16 ? 0x1p-7 : 0x1p-10;
        ASSERT_LE(std::abs(is - want), sums + type * std::abs(want))
            << one.name << ", " << variant.entry << ", element " << e;
      }
    }
  }
}

// A variant by packs is for addresses that are multiples of them only.
TEST(CudaConv, ReadsPacksWhereRowsAllowIt) {
  const auto sourceOf = [](const Case& one) {
    KernelSource source;
    convSource(specOf(one), 90, one.multiprocessors, &source);
    return source;
  };
  for (const Case& one : kCases) {
    const KernelSource source = sourceOf(one);
    const bool isGrouped =
        one.filters > 2 && one.filters <= 8 && one.channels <= 8 && specOf(one).conv.taps() <= 64;
    const bool even =
        one.channels * specOf(one).conv.taps() % 8 == 0 && one.filters > 2 && one.type != DType::f32;
    EXPECT_EQ(*source.vector.entry != 0, even && !isGrouped) << one.name;
    EXPECT_EQ(source.alignments[1], 16u);
  }
  using Alignments = std::vector<std::size_t>;
  EXPECT_EQ(sourceOf(kLast[0]).alignments, (Alignments{16, 1, 16}));
  EXPECT_EQ(sourceOf(kLast[1]).alignments, (Alignments{8, 1, 16}));
  EXPECT_EQ(*sourceOf(kLast[3]).vector.entry, 0);
}

}  // namespace
}  // namespace braid::test
