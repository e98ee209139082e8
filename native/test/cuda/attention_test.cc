#include "kernels/cpu.h"
#include "test/cuda/emulated.h"

// The kernels of attention as text, run on the processor: a thread of the grid is a fiber, and the
// instructions of warps do what the PTX manual says of their fragments. The answers are those of the host
// device's kernel.

namespace braid::test {
namespace {

using namespace braid::cuda;

struct Case {
  const char* name;
  DType type;
  std::int64_t batch, heads, groups, queries, keys, size, valueSize;
  bool causal = false;
  DType mask = DType::f32;  // f32: none
  int length = -1;          // -1: none
  double scale = 0.25;
  bool together = false;              // q, k, v and y lie by tokens, and q, k and v in one row
  std::int64_t appended = 0, at = 0;  // rows that are written to the keys and values first, and where
  AttentionResult result = AttentionResult::attended;
  bool both = false;  // a second result too
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
    {"few, appended to a cache", DType::bf16, 2, 4, 2, 1, 300, 64, 48, false, DType::f32, 292, 0.25, false, 1,
     291},
    {"few, several rows appended", DType::f16, 1, 3, 3, 5, 90, 16, 32, true, DType::u8, 70, 0.25, false, 5,
     65},
    {"few, rows appended before the start", DType::f32, 2, 2, 1, 2, 40, 20, 33, false, DType::f32, -1, 0.25,
     false, 7, -3},
    {"few, rows appended past the end", DType::bf16, 1, 12, 2, 2, 200, 24, 24, false, DType::f32, 199, 0.25,
     false, 4, 198},
    {"few, appended beyond what is seen", DType::f32, 1, 2, 2, 1, 130, 8, 8, false, DType::f32, 20, 0.25,
     false, 2, 64},
    {"plain", DType::f32, 1, 2, 1, 67, 130, 20, 70, true, DType::u8, 101},
    {"plain, odd sizes", DType::f16, 1, 2, 2, 35, 65, 33, 17, true},
};

// Those, and of some what their ways back need.
std::vector<Case> allCases() {
  std::vector<Case> all(std::begin(kCases), std::end(kCases));
  for (const std::size_t i : {1u, 3u, 5u, 15u})
    for (const AttentionResult result : {AttentionResult::logSumExp, AttentionResult::byQueries,
                                         AttentionResult::byKeys, AttentionResult::byValues}) {
      all.push_back(kCases[i]);
      all.back().result = result;
    }
  for (const std::size_t i : {2u, 8u, 1u, 15u}) {
    all.push_back(kCases[i]);
    all.back().both = true;
    if (i == 1 || i == 15) all.back().result = AttentionResult::byKeys;
  }
  return all;
}

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
  a.appended = one.appended;
  a.result = one.result;
  a.dy = a.y;
  if (a.result == AttentionResult::logSumExp) a.y.strides = {one.heads * one.queries, one.queries, 1};
  if (a.result == AttentionResult::byQueries) a.y = a.q;
  if (a.result == AttentionResult::byKeys) a.y = a.k;
  if (a.result == AttentionResult::byValues) a.y = a.v;
  a.y.offset = 0;
  a.logs = one.both && a.result == AttentionResult::attended;
  a.withValues = one.both && a.result == AttentionResult::byKeys;
  a.dv = a.v;
  a.dv.offset = 0;
  return spec;
}

std::size_t resultBytes(const KernelSpec& spec) {
  const AttentionSpec& a = spec.attention;
  return static_cast<std::size_t>(a.resultEnd(spec.batch)) * elementBytes(a.resultType(spec.input));
}

// Of the second result, if there is one.
std::size_t moreBytes(const KernelSpec& spec) {
  const AttentionSpec& a = spec.attention;
  if (a.logs) return static_cast<std::size_t>(spec.batch * a.heads * a.queries) * 4;
  const auto end = static_cast<std::size_t>(a.dv.end(spec.batch, a.groups, a.keys, a.valueSize));
  return a.withValues ? end * elementBytes(spec.input) : 0;
}

std::vector<std::uint8_t> answerOf(const KernelSpec& spec, std::vector<std::vector<std::uint8_t>>& reads,
                                   Part part, std::vector<std::uint8_t> into,
                                   std::vector<std::uint8_t>* more = nullptr);

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
  if (one.appended > 0) {
    values(one.batch * one.groups * one.appended * one.size, one.type);
    values(one.batch * one.groups * one.appended * one.valueSize, one.type);
    const auto at = static_cast<std::int32_t>(one.at);
    reads.emplace_back(4);
    std::memcpy(reads.back().data(), &at, 4);
  }
  if (a.isGradient()) {
    Case logs = one;
    logs.result = AttentionResult::logSumExp;
    const KernelSpec ofLogs = specOf(logs);
    const auto known = answerOf(ofLogs, reads, Part::all, std::vector<std::uint8_t>(resultBytes(ofLogs)));
    values(a.dy.end(one.batch, one.heads, one.queries, one.valueSize), one.type);
    reads.push_back(known);
    values(one.batch * one.heads * one.queries, DType::f32);
    // A query that sees no key has no value, so the sum of dy · y is none either.
    const float nan = NAN;
    for (std::size_t at = 0; at < known.size(); at += 4)
      if (std::isinf(elementOf(known, DType::f32, at / 4))) std::memcpy(reads.back().data() + at, &nan, 4);
  }
  return reads;
}

std::vector<std::uint8_t> answerOf(const KernelSpec& spec, std::vector<std::vector<std::uint8_t>>& reads,
                                   Part part, std::vector<std::uint8_t> into,
                                   std::vector<std::uint8_t>* more) {
  std::vector<std::uint8_t> unread(moreBytes(spec));
  if (more) more->resize(unread.size());
  std::string detail;
  CpuKernelResult kernel;
  EXPECT_EQ(prepareCpu(&kernel, spec, {}, &detail), Status::ok) << detail;
  std::vector<DeviceAddress> addresses;
  for (auto& read : reads) addresses.push_back(reinterpret_cast<DeviceAddress>(read.data()));
  addresses.push_back(reinterpret_cast<DeviceAddress>(into.data()));
  if (!unread.empty())
    addresses.push_back(reinterpret_cast<DeviceAddress>(more ? more->data() : unread.data()));
  if (spec.attention.appended > 0) addresses.insert(addresses.end(), {addresses[1], addresses[2]});
  Scratch scratch;
  EXPECT_TRUE(kernel->run(addresses.data(), scratch, part));
  return into;
}

TEST(HostAttention, YieldsTheSameInTwoParts) {
  Random random{7};
  for (const Case& one : allCases()) {
    const KernelSpec spec = specOf(one);
    auto reads = readsOf(one, spec, random);
    const std::vector<std::uint8_t> empty(resultBytes(spec));
    const DType type = spec.attention.resultType(one.type);
    std::vector<std::uint8_t> more, halves;
    const auto whole = answerOf(spec, reads, Part::all, empty, &more);
    const auto half = answerOf(spec, reads, Part::first, empty, &halves);
    EXPECT_EQ(firstDifference(answerOf(spec, reads, Part::second, half, &halves), whole, type), -1)
        << one.name;
    EXPECT_EQ(more, halves) << one.name;
  }
}

// What a kernel does that appends is what two kernels for that and one without them do.
TEST(HostAttention, AppendsBeforeItReads) {
  Random random{8};
  for (const Case& one : kCases) {
    if (one.appended == 0) continue;
    KernelSpec spec = specOf(one);
    auto reads = readsOf(one, spec, random), apart = reads;
    const std::vector<std::uint8_t> empty(resultBytes(spec));
    const auto whole = answerOf(spec, reads, Part::all, empty);
    const std::size_t rows = apart.size() - 3;
    for (const std::size_t which : {0, 1}) {
      KernelSpec append;
      append.kind = KernelSpec::Kind::append;
      append.outer = one.batch * one.groups, append.length = one.keys, append.count = one.appended;
      append.inner = which == 0 ? one.size : one.valueSize, append.input = one.type;
      std::string detail;
      CpuKernelResult kernel;
      ASSERT_EQ(prepareCpu(&kernel, append, {}, &detail), Status::ok) << detail;
      std::vector<DeviceAddress> addresses;
      for (auto* each : {&apart[1 + which], &apart[rows + which], &apart.back(), &apart[1 + which]})
        addresses.push_back(reinterpret_cast<DeviceAddress>(each->data()));
      Scratch scratch;
      ASSERT_TRUE(kernel->run(addresses.data(), scratch, Part::all));
    }
    EXPECT_EQ(apart[1], reads[1]) << one.name;
    EXPECT_EQ(apart[2], reads[2]) << one.name;
    spec.attention.appended = 0;
    apart.resize(rows);
    EXPECT_EQ(firstDifference(answerOf(spec, apart, Part::all, empty), whole, one.type), -1) << one.name;
  }
}

// How many elements are finite. Weights are rounded to the type before they are multiplied, and the sum is
// once more.
std::size_t compare(const Case& one, const std::vector<std::uint8_t>& wanted, DType type,
                    const std::vector<std::uint8_t>& found) {
  double largest = 4;
  std::size_t numbers = 0;
  const std::size_t count = wanted.size() / elementBytes(type);
  for (std::size_t e = 0; e < count; ++e)
    if (const double each = std::abs(elementOf(wanted, type, e)); std::isfinite(each))
      largest = std::max(largest, each), ++numbers;
  const double allowed = largest * (type == DType::f32 ? 1e-5 : type == DType::bf16 ? 0.012 : 0.0015);
  for (std::size_t e = 0; e < count; ++e) {
    const double is = elementOf(found, type, e), want = elementOf(wanted, type, e);
    const bool fits = std::isnan(want) ? std::isnan(is) : is == want || std::abs(is - want) <= allowed;
    EXPECT_TRUE(fits) << one.name << ", result " << static_cast<int>(one.result) << ", element " << e << ": "
                      << is << " where the host has " << want;
    if (!fits) break;
  }
  return numbers;
}

TEST(CudaAttention, MeansWhatTheHostsKernelMeans) {
  Emulation emulation("attention");
  Random random{20261123};
  std::vector<std::vector<std::uint8_t>> wanted, wantedMore;
  std::vector<std::array<std::vector<std::uint8_t>, 2>> caches;
  std::vector<KernelSource> sources;
  std::size_t tensor = 0, clusters = 0;
  const std::vector<Case> cases = allCases();
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const Case& one = cases[i];
    const KernelSpec spec = specOf(one);
    KernelSource& source = sources.emplace_back();
    attentionSource(spec, i % 4 == 0 ? 80 : 90, i % 7 == 1 ? 1 : 132, &source);
    clusters += source.text.find("__cluster_dims__(") != std::string::npos ? 1 : 0;
    tensor += source.text.find("mma.sync") != std::string::npos ? 1 : 0;
    const auto reads = readsOf(one, spec, random);
    auto changed = reads;
    const AttentionSpec& a = spec.attention;
    const std::size_t bytes = resultBytes(spec);
    wanted.push_back(
        answerOf(spec, changed, Part::all, std::vector<std::uint8_t>(bytes), &wantedMore.emplace_back()));
    caches.push_back({changed[1], changed[2]});
    EXPECT_EQ(changed[1] != reads[1], one.appended > 0) << one.name;
    std::vector<const char*> types{"const T", "const T", "const T"};
    if (a.masked) types.push_back("const M");
    if (a.counted) types.push_back("const int");
    if (a.appended > 0) types.insert(types.end(), {"const T", "const T", "const int"});
    if (a.isGradient()) types.insert(types.end(), {"const T", "const float", "const float"});
    types.push_back("R");
    if (one.both) types.push_back(a.logs ? "float" : "T");
    if (a.appended > 0) types.insert(types.end(), {"T", "T"});
    const std::string isBf16 = one.type == DType::bf16 ? "true" : "false";
    emulation.add(
        "c" + std::to_string(i), source, types, reads, bytes,
        "static void multiply(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) { "
        "multiplyAs(c, a, b0, b1, " +
            isBf16 + "); }\nstatic unsigned packed(float low, float high) { return packedAs(low, high, " +
            isBf16 + "); }\n",
        a.appended > 0 ? std::vector<std::size_t>{1, 2} : std::vector<std::size_t>{}, moreBytes(spec));
  }
  EXPECT_GE(tensor, 6u);
  EXPECT_GE(clusters, 3u);
  ASSERT_TRUE(emulation.run());
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const Case& one = cases[i];
    const DType type = specOf(one).attention.resultType(one.type);
    for (const KernelSource::Variant& variant : {sources[i].plain, sources[i].vector}) {
      if (!*variant.entry) continue;
      const std::string name = "c" + std::to_string(i), entry = variant.entry;
      const std::size_t numbers =
          compare(one, wanted[i], type, emulation.result(name, entry, wanted[i].size()));
      if (one.both)
        compare(one, wantedMore[i], one.result == AttentionResult::attended ? DType::f32 : one.type,
                emulation.result(name, entry + "-more", wantedMore[i].size()));
      // Without a key there is no logarithm and no value; a query without keys adds nothing to gradients.
      const bool isGradient = one.result > AttentionResult::logSumExp;
      EXPECT_EQ(numbers > 0, one.length != 0 || isGradient) << one.name;
      if (isGradient) {
        EXPECT_EQ(numbers, wanted[i].size() / elementBytes(type)) << one.name;
      }
      for (std::size_t r = 1; one.appended > 0 && r <= 2; ++r) {
        const std::vector<std::uint8_t>& cache = caches[i][r - 1];
        EXPECT_EQ(emulation.result("c" + std::to_string(i), variant.entry + ("-" + std::to_string(r)),
                                   cache.size()),
                  cache)
            << one.name << ", " << variant.entry;
      }
    }
  }
}

}  // namespace
}  // namespace braid::test
