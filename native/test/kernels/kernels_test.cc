// The kernels of the host device, against plain loops.
#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cmath>
#include <numeric>

#include "kernels/cpu.h"
#include "kernels/half.h"
#include "test/cuda/specs.h"
#include "test/host/support.h"

namespace braid::test {
namespace {

float widen(DeviceAddress memory, DType type, std::int64_t i) {
  switch (type) {
    case DType::u8: return reinterpret_cast<const std::uint8_t*>(memory)[i];
    case DType::i32: return static_cast<float>(reinterpret_cast<const std::int32_t*>(memory)[i]);
    case DType::f16: return floatFromF16(reinterpret_cast<const std::uint16_t*>(memory)[i]);
    case DType::bf16: return floatFromBf16(reinterpret_cast<const std::uint16_t*>(memory)[i]);
    case DType::f32: return reinterpret_cast<const float*>(memory)[i];
  }
  return 0;
}

std::vector<float> widened(DeviceAddress memory, DType type, std::int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) values[static_cast<std::size_t>(i)] = widen(memory, type, i);
  return values;
}

// The bits that a result of this type has for the value.
std::uint32_t narrow(float value, DType type) {
  switch (type) {
    case DType::u8: return u8FromFloat(value);
    case DType::i32: return static_cast<std::uint32_t>(i32FromFloat(value));
    case DType::f16: return f16FromFloat(value);
    case DType::bf16: return bf16FromFloat(value);
    case DType::f32: return std::bit_cast<std::uint32_t>(value);
  }
  return 0;
}

std::uint32_t bitsAt(DeviceAddress memory, DType type, std::int64_t i) {
  switch (elementBytes(type)) {
    case 1: return reinterpret_cast<const std::uint8_t*>(memory)[i];
    case 2: return reinterpret_cast<const std::uint16_t*>(memory)[i];
    default: return reinterpret_cast<const std::uint32_t*>(memory)[i];
  }
}

bool sameNumber(std::uint32_t a, std::uint32_t b, DType type) {
  if (a == b) return true;
  const auto nan = [type](std::uint32_t bits) {
    if (type == DType::f32) return (bits & 0x7fffffffu) > 0x7f800000u;
    if (type == DType::f16) return (bits & 0x7fffu) > 0x7c00u;
    return type == DType::bf16 && (bits & 0x7fffu) > 0x7f80u;
  };
  return nan(a) && nan(b);
}

DeviceAddress randomMemory(Driver& driver, DType type, std::int64_t count, Random& random) {
  const DeviceAddress memory = allocate(driver, static_cast<std::size_t>(count) * elementBytes(type));
  for (std::int64_t i = 0; i < count; ++i) {
    const float value = random.real() * 4;
    const auto bits = type == DType::u8 || type == DType::i32 ? static_cast<std::uint32_t>(random.below(200))
                                                              : narrow(value, type);
    std::memcpy(reinterpret_cast<void*>(memory + static_cast<std::uint64_t>(i) * elementBytes(type)), &bits,
                elementBytes(type));
  }
  return memory;
}

constexpr DType kTypes[] = {DType::u8, DType::i32, DType::f16, DType::bf16, DType::f32};

// Map.

float restOf(float a, float b) {
  const float rest = std::fmod(a, b);
  return rest != 0 && std::signbit(rest) != std::signbit(b) ? rest + b : rest;
}
float quotientOf(float a, float b) {
  if (b == 0) return a / b;
  const float rest = std::fmod(a, b), even = (a - rest) / b;
  const float below = rest != 0 && std::signbit(rest) != std::signbit(b) ? even - 1 : even;
  if (below == 0) return std::copysign(0.0f, a / b);
  return std::floor(below) + (below - std::floor(below) > 0.5f ? 1.0f : 0.0f);
}

float mapped(MapOp op, float a, float b, float c) {
  const double x = a, y = b;
  switch (op) {
    case MapOp::select: return a != 0 ? b : c;
    case MapOp::neg: return -a;
    case MapOp::abs: return std::fabs(a);
    case MapOp::exp: return static_cast<float>(std::exp(x));
    case MapOp::log: return static_cast<float>(std::log(x));
    case MapOp::sqrt: return static_cast<float>(std::sqrt(x));
    case MapOp::rsqrt: return static_cast<float>(1 / std::sqrt(x));
    case MapOp::tanh: return static_cast<float>(std::tanh(x));
    case MapOp::erf: return static_cast<float>(std::erf(x));
    case MapOp::sigmoid: return static_cast<float>(1 / (1 + std::exp(-x)));
    case MapOp::sin: return static_cast<float>(std::sin(x));
    case MapOp::cos: return static_cast<float>(std::cos(x));
    case MapOp::floor: return std::floor(a);
    case MapOp::ceil: return std::ceil(a);
    case MapOp::round:
      return std::isinf(a) ? a : static_cast<float>(std::copysign(x - std::remainder(x, 1.0), x));
    case MapOp::toF16: return floatFromF16(f16FromFloat(a));
    case MapOp::toBf16: return floatFromBf16(bf16FromFloat(a));
    case MapOp::toI32:
      return static_cast<float>(static_cast<std::int32_t>(
          std::isnan(a) ? 0 : std::clamp(std::trunc(x), -2147483648.0, 2147483647.0)));
    case MapOp::toU8:
      return static_cast<float>(
          static_cast<std::int32_t>(std::isnan(a) ? 0 : std::clamp(std::trunc(x), 0.0, 255.0)));
    case MapOp::add:
      return static_cast<float>(x + y);  // one rounding of an exact sum, product or quotient is what f32 does
    case MapOp::sub: return static_cast<float>(x - y);
    case MapOp::mul: return static_cast<float>(x * y);
    case MapOp::div: return static_cast<float>(x / y);
    case MapOp::min:
      return std::isnan(a) || std::isnan(b) ? NAN : a == b ? (std::signbit(a) ? a : b) : std::min(a, b);
    case MapOp::max:
      return std::isnan(a) || std::isnan(b) ? NAN : a == b ? (std::signbit(a) ? b : a) : std::max(a, b);
    case MapOp::pow: return static_cast<float>(std::pow(x, y));
    case MapOp::floorDiv: return quotientOf(a, b);
    case MapOp::mod: return restOf(a, b);
    case MapOp::lt: return a < b;
    case MapOp::le: return a <= b;
    case MapOp::eq: return a == b;
    default: return 0;
  }
}

std::vector<std::int64_t> dense(const std::vector<std::int64_t>& shape) {
  std::vector<std::int64_t> strides(shape.size());
  std::int64_t stride = 1;
  for (std::size_t d = shape.size(); d-- > 0;) strides[d] = stride, stride *= shape[d];
  return strides;
}

// Random programs over random shapes, strides (dense, broadcast, sliced, reversed, transposed) and types.
TEST(HostMap, RandomProgramsComputeWhatAPlainLoopDoes) {
  for (std::uint64_t seed = 1; seed <= 150; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random{seed};
    const auto driver = host();
    KernelSpec spec;
    spec.kind = KernelSpec::Kind::map;
    std::int64_t count = 1;
    for (std::uint64_t rank = random.below(5); rank > 0; --rank)
      spec.shape.push_back(1 + static_cast<std::int64_t>(random.below(rank == 1 ? 700 : 6)));
    for (const std::int64_t size : spec.shape) count *= size;

    std::vector<DeviceAddress> reads, writes;
    for (std::uint64_t i = 1 + random.below(3); i > 0; --i) {
      MapOperand operand;
      operand.dtype = kTypes[random.below(5)];
      operand.strides = dense(spec.shape);
      operand.offset = static_cast<std::int64_t>(random.below(2) * random.below(20));
      for (std::size_t d = 0; d < spec.shape.size(); ++d) {
        const std::uint64_t kind = random.below(8);
        if (kind == 0) operand.strides[d] = 0;
        if (kind == 1) operand.strides[d] *= 2;
        if (kind == 2) operand.strides[d] *= -1, operand.offset -= operand.strides[d] * (spec.shape[d] - 1);
        if (kind == 3 && d > 0 && spec.shape[d] == spec.shape[d - 1])
          std::swap(operand.strides[d], operand.strides[d - 1]);
      }
      spec.operands.push_back(std::move(operand));
    }
    indexSome(random, &spec, true);
    for (std::size_t o = 0; o < spec.operands.size(); ++o) {
      const MapOperand& operand = spec.operands[o];
      reads.push_back(randomMemory(*driver, operand.dtype, lastElement(spec, operand) + 1, random));
      const auto found = operandOf(random, spec, o, [&](Random&, DType, std::size_t bytes) {
        const auto* from = reinterpret_cast<const std::uint8_t*>(reads.back());
        return std::vector<std::uint8_t>(from, from + bytes);
      });
      std::memcpy(reinterpret_cast<void*>(reads.back()), found.data(), found.size());
    }
    const int length = 2 + static_cast<int>(random.below(20));
    for (int j = 0; j < length; ++j) {
      const auto earlier = [&] {
        return static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(j)));
      };
      MapInstruction instruction;
      const std::uint64_t kind = j == 0 ? 0 : random.below(6);
      if (kind == 0)
        instruction.op = MapOp::operand,
        instruction.a = static_cast<std::int32_t>(random.below(spec.operands.size()));
      else if (kind == 1)
        instruction.op = MapOp::constant, instruction.constant = random.real() * 3;
      else
        instruction = {static_cast<MapOp>(static_cast<int>(MapOp::select) + random.below(31)), earlier(),
                       earlier(), earlier(), 0};
      spec.code.push_back(instruction);
    }
    for (std::uint64_t i = 1 + random.below(2); i > 0; --i) {
      const MapResult result{static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(length))),
                             kTypes[random.below(5)]};
      spec.results.push_back(result);
      writes.push_back(allocate(*driver, static_cast<std::size_t>(count) * elementBytes(result.dtype)));
    }
    spec.readCount = reads.size();
    spec.writeCount = writes.size();
    ASSERT_EQ(launch(*driver, spec, reads, writes), Status::ok) << driver->lastDetail();

    std::vector<float> values(spec.code.size());
    for (std::int64_t i = 0; i < count; ++i) {
      for (std::size_t j = 0; j < spec.code.size(); ++j) {
        const MapInstruction& instruction = spec.code[j];
        if (instruction.op == MapOp::constant) {
          values[j] = static_cast<float>(instruction.constant);
        } else if (instruction.op == MapOp::operand) {
          const auto which = static_cast<std::size_t>(instruction.a);
          const std::int64_t at = placeOf(spec, which, i, reads);
          values[j] = at < 0 ? 0 : widen(reads[which], spec.operands[which].dtype, at);
        } else {
          const auto argument = [&](std::int32_t value) { return values[static_cast<std::size_t>(value)]; };
          values[j] = mapped(instruction.op, argument(instruction.a), argument(instruction.b),
                             argument(instruction.c));
        }
      }
      for (std::size_t r = 0; r < spec.results.size(); ++r) {
        const DType type = spec.results[r].dtype;
        const std::uint32_t wanted = narrow(values[static_cast<std::size_t>(spec.results[r].value)], type),
                            found = bitsAt(writes[r], type, i);
        ASSERT_TRUE(sameNumber(wanted, found, type))
            << "element " << i << ": wanted " << wanted << ", found " << found;
      }
    }
  }
}

// The value of an instruction at every element, row by row, sums from the first element to the last.
std::vector<float> rowsByPlainLoops(const KernelSpec& spec, const std::vector<std::vector<float>>& values,
                                    const MapInstruction& instruction) {
  const MapRows rows(spec);
  const auto length = static_cast<std::size_t>(rows.length), inner = static_cast<std::size_t>(rows.inner);
  std::vector<float> made(values[0].size());
  const auto at = [&](std::int32_t value, std::size_t i) {
    return static_cast<std::size_t>(value) < values.size() ? values[static_cast<std::size_t>(value)][i] : 0;
  };
  for (std::size_t i = 0; i < made.size(); ++i) {
    if (!isRowReduction(instruction.op)) {
      made[i] = mapped(instruction.op, at(instruction.a, i), at(instruction.b, i), at(instruction.c, i));
      continue;
    }
    const std::size_t first = i - i / inner % length * inner;
    if (first < i) {
      made[i] = made[first];
      continue;
    }
    float total = at(instruction.a, first);
    for (std::size_t e = first + inner; e < first + length * inner; e += inner)
      total = mapped(instruction.op == MapOp::rowMax   ? MapOp::max
                     : instruction.op == MapOp::rowMin ? MapOp::min
                                                       : MapOp::add,
                     total, at(instruction.a, e), 0);
    if (instruction.op == MapOp::rowMean)
      total = static_cast<float>(static_cast<double>(total) / static_cast<double>(length));
    made[i] = total;
  }
  return made;
}

TEST(HostMap, RowsAreReducedInTheOrderOfAPlainLoop) {
  for (std::uint64_t seed = 1; seed <= 120; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random{seed};
    KernelSpec spec = randomRows(random);
    spec.computeInt = false;
    std::vector<std::vector<std::uint8_t>> reads, writes;
    std::vector<DeviceAddress> addresses;
    for (std::size_t o = 0; o < spec.operands.size(); ++o)
      reads.push_back(operandOf(random, spec, o, [](Random& values, DType type, std::size_t bytes) {
        return randomBytes(values, type, bytes, false);
      }));
    for (const MapResult& result : spec.results) writes.emplace_back(resultBytes(spec, result), 0xcd);
    for (auto& read : reads) addresses.push_back(reinterpret_cast<DeviceAddress>(read.data()));
    for (auto& write : writes) addresses.push_back(reinterpret_cast<DeviceAddress>(write.data()));
    std::string detail;
    CpuKernelResult kernel;
    ASSERT_EQ(prepareCpu(&kernel, spec, {}, &detail), Status::ok) << detail;
    Scratch scratch;
    // In halves too: the rows of each are its own.
    if (random.below(2) == 0) {
      ASSERT_TRUE(kernel->run(addresses.data(), scratch, Part::all));
    } else {
      ASSERT_TRUE(kernel->run(addresses.data(), scratch, Part::first));
      ASSERT_TRUE(kernel->run(addresses.data(), scratch, Part::second));
    }
    const auto count = static_cast<std::size_t>(elementsOf(spec.shape));
    const MapRows rows(spec);
    const auto length = static_cast<std::size_t>(rows.length), inner = static_cast<std::size_t>(rows.inner);
    std::vector<std::vector<float>> values;
    for (const MapInstruction& instruction : spec.code) {
      std::vector<float> made(count, static_cast<float>(instruction.constant));
      const auto which = static_cast<std::size_t>(instruction.a);
      for (std::size_t i = 0; i < count && instruction.op <= MapOp::index; ++i) {
        auto rest = static_cast<std::int64_t>(i);
        if (instruction.op == MapOp::operand) {
          const std::int64_t at = placeOf(spec, which, rest, addresses);
          made[i] = at < 0 ? 0 : widen(addresses[which], spec.operands[which].dtype, at);
        } else if (instruction.op == MapOp::index) {
          for (std::size_t d = spec.shape.size(); d-- > which + 1;) rest /= spec.shape[d];
          made[i] = static_cast<float>(rest % spec.shape[which]);
        }
      }
      values.push_back(instruction.op <= MapOp::index ? std::move(made)
                                                      : rowsByPlainLoops(spec, values, instruction));
    }
    for (std::size_t r = 0; r < spec.results.size(); ++r) {
      const MapResult& result = spec.results[r];
      std::int64_t place = 0;
      for (std::size_t i = 0; i < count; ++i) {
        if (result.row && i / inner % length != 0) continue;
        const std::uint32_t wanted = narrow(values[static_cast<std::size_t>(result.value)][i], result.dtype),
                            found = bitsAt(addresses[spec.operands.size() + r], result.dtype, place++);
        ASSERT_TRUE(sameNumber(wanted, found, result.dtype))
            << "result " << r << ", element " << i << ": wanted " << wanted << ", found " << found;
      }
    }
  }
}

// A row whose values do not stay in scratch memory is computed again in each pass.
TEST(HostMap, ALongRowIsReducedAsAShortOneIs) {
  KernelSpec spec;
  spec.kind = KernelSpec::Kind::map;
  spec.shape = {(std::int64_t{1} << 22) + 3};
  spec.operands = {{DType::u8, 0, {1}}};
  spec.code = {
      {MapOp::operand, 0}, {MapOp::rowMax, 0}, {MapOp::sub, 0, 1}, {MapOp::rowSum, 2}, {MapOp::add, 2, 3}};
  spec.results = {{4, DType::f32}, {3, DType::f32, true}};
  std::vector<std::uint8_t> read(static_cast<std::size_t>(spec.shape[0]), 7);
  read[5] = 9;
  std::vector<float> whole(read.size()), row(1);
  const DeviceAddress addresses[] = {reinterpret_cast<DeviceAddress>(read.data()),
                                     reinterpret_cast<DeviceAddress>(whole.data()),
                                     reinterpret_cast<DeviceAddress>(row.data())};
  std::string detail;
  CpuKernelResult kernel;
  ASSERT_EQ(prepareCpu(&kernel, spec, {}, &detail), Status::ok) << detail;
  Scratch scratch;
  ASSERT_TRUE(kernel->run(addresses, scratch, Part::all));
  const auto total = -2.0f * static_cast<float>(read.size() - 1);
  EXPECT_EQ(row[0], total);
  EXPECT_EQ(whole[5], total);
  EXPECT_EQ(whole[6], total - 2.0f);
  EXPECT_EQ(whole.back(), total - 2.0f);
}

KernelSpec binary(MapOp op, std::int64_t count, DType type, bool whole) {
  KernelSpec spec;
  spec.kind = KernelSpec::Kind::map;
  spec.shape = {count};
  spec.computeInt = whole;
  spec.operands = {{type, 0, {1}}, {type, 0, {1}}};
  spec.code = {{MapOp::operand, 0}, {MapOp::operand, 1}, {op, 0, 1}};
  spec.results = {{2, type}};
  return spec;
}

TEST(HostMap, WholeNumbersWrapAndNarrowBySaturating) {
  const auto driver = host();
  const std::int32_t least = -2147483647 - 1, most = 2147483647;
  const std::vector<std::int32_t> a = {most, least, least, 65537, -7, 7, 7}, b = {1, -1, 1, 65537, 2, 0, -2};
  const auto run = [&](MapOp op) {
    const DeviceAddress c = allocate(*driver, a.size() * 4);
    EXPECT_EQ(launch(*driver, binary(op, static_cast<std::int64_t>(a.size()), DType::i32, true),
                     {upload(*driver, a), upload(*driver, b)}, {c}),
              Status::ok);
    return download<std::int32_t>(c, a.size());
  };
  EXPECT_EQ(run(MapOp::add), (std::vector<std::int32_t>{least, most, least + 1, 131074, -5, 7, 5}));
  EXPECT_EQ(run(MapOp::sub), (std::vector<std::int32_t>{most - 1, least + 1, most, 0, -9, 7, 9}));
  EXPECT_EQ(run(MapOp::mul), (std::vector<std::int32_t>{most, least, least, 131073, -14, 0, -14}));
  EXPECT_EQ(run(MapOp::div), (std::vector<std::int32_t>{most, least, least, 1, -3, 0, -3}));
  EXPECT_EQ(run(MapOp::neg), (std::vector<std::int32_t>{-most, least, least, -65537, 7, -7, -7}));
  EXPECT_EQ(run(MapOp::abs), (std::vector<std::int32_t>{most, least, least, 65537, 7, 7, 7}));
  EXPECT_EQ(run(MapOp::lt), (std::vector<std::int32_t>{0, 1, 1, 0, 1, 0, 0}));
  KernelSpec spec = binary(MapOp::add, 3, DType::i32, true);
  spec.results[0].dtype = DType::u8;
  const DeviceAddress bytes = allocate(*driver, 3);
  ASSERT_EQ(launch(*driver, spec,
                   {upload(*driver, std::vector<std::int32_t>{-5, 200, 100}),
                    upload(*driver, std::vector<std::int32_t>{1, 100, 1})},
                   {bytes}),
            Status::ok);
  EXPECT_EQ(download<std::uint8_t>(bytes, 3), (std::vector<std::uint8_t>{0, 255, 101}));
}

TEST(HostMap, InPlaceIsAllowed) {
  const auto driver = host();
  std::vector<float> values(5000);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  const DeviceAddress memory = upload(*driver, values);
  ASSERT_EQ(launch(*driver, binary(MapOp::add, 5000, DType::f32, false), {memory, memory}, {memory}),
            Status::ok);
  const auto doubled = download<float>(memory, values.size());
  for (std::size_t i = 0; i < values.size(); ++i) EXPECT_EQ(doubled[i], 2.0f * values[i]) << i;
}

// Matmul.

KernelSpec product(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t batch, bool transposed,
                   DType type) {
  KernelSpec spec;
  spec.kind = KernelSpec::Kind::matmul;
  spec.m = m;
  spec.n = n;
  spec.k = k;
  spec.batch = batch;
  spec.transposeB = transposed;
  spec.a = {type, m * k};
  spec.b = {type, k * n};
  spec.c = {type, m * n};
  return spec;
}

TEST(HostMatmul, IsBitForBitThreePlainLoops) {
  const std::int64_t sizes[][3] = {{1, 1, 1},     {1, 17, 5},   {6, 16, 8},     {7, 33, 300},
                                   {97, 530, 40}, {13, 1, 513}, {100, 15, 257}, {5, 520, 2}};
  for (const auto& [m, n, k] : sizes)
    for (const int which : {0, 1, 2, 3})
      for (const DType type : {DType::f32, DType::f16, DType::bf16})
        for (const std::int64_t shared : {0, 1, 2}) {
          const bool transposed = (which & 1) != 0;
          SCOPED_TRACE(std::to_string(m) + "x" + std::to_string(n) + "x" + std::to_string(k) + " " +
                       std::to_string(static_cast<int>(type)));
          Random random{static_cast<std::uint64_t>(m * 1000 + n + k)};
          const auto driver = host();
          KernelSpec spec = product(m, n, k, 2, transposed, type);
          spec.transposeA = (which & 2) != 0;
          if (shared == 1) spec.a.batchStride = 0;
          if (shared == 2) spec.b.batchStride = 0;
          spec.workspace = shared == 0 ? 512 : 0;
          if (type == DType::f16 && transposed) spec.c.dtype = DType::f32;
          // In f32 the matrices lie in larger ones.
          const std::int64_t acrossA = spec.transposeA ? m : k, acrossB = transposed ? k : n;
          if (type == DType::f32) {
            spec.a.rowStride = acrossA + 3, spec.a.offset = 2, spec.b.rowStride = acrossB + 1;
            if (spec.a.batchStride != 0) spec.a.batchStride = (acrossA + 3) * (m + k) + 5;
            if (spec.b.batchStride != 0) spec.b.batchStride = (acrossB + 1) * (n + k);
          }
          const std::int64_t rowA = spec.a.row(acrossA), rowB = spec.b.row(acrossB);
          const DeviceAddress a = randomMemory(*driver, type, spec.endOfA(), random),
                              b = randomMemory(*driver, type, spec.endOfB(), random);
          const DeviceAddress c =
              allocate(*driver, static_cast<std::size_t>(2 * m * n) * elementBytes(spec.c.dtype));
          std::vector<DeviceAddress> writes = {c};
          if (spec.workspace) writes.push_back(allocate(*driver, 512));
          ASSERT_EQ(launch(*driver, spec, {a, b}, writes), Status::ok) << driver->lastDetail();
          // Widened once, and read through plain pointers: under a sanitizer every call of the loops below
          // would count.
          const std::vector<float> as = widened(a, type, spec.endOfA()), bs = widened(b, type, spec.endOfB());
          const std::int64_t along = transposed ? 1 : rowB, across = transposed ? rowB : 1;
          const std::int64_t down = spec.transposeA ? 1 : rowA, right = spec.transposeA ? rowA : 1;
          for (std::int64_t i = 0; i < 2; ++i)
            for (std::int64_t row = 0; row < m; ++row)
              for (std::int64_t column = 0; column < n; ++column) {
                float sum = 0;
                const float* x = as.data() + spec.a.offset + i * spec.a.batchStride + row * down;
                const float* y = bs.data() + i * spec.b.batchStride + column * across;
                for (std::int64_t q = 0; q < k; ++q) {
                  const float part = x[q * right] * y[q * along];
                  sum = sum + part;
                }
                ASSERT_EQ(bitsAt(c, spec.c.dtype, (i * m + row) * n + column), narrow(sum, spec.c.dtype))
                    << i << " " << row << " " << column;
              }
        }
}

TEST(HostMatmul, AnEpilogueIsAppliedToTheSumsAndRoundedOnce) {
  for (const auto& [m, n, k] : {std::array<std::int64_t, 3>{7, 33, 30}, {1, 530, 5}, {20, 3, 300}})
    for (const DType type : {DType::f32, DType::bf16})
      for (const int steps : {1, 2, 3, 4, 5, 8, 9, 11, 13, 16, 17, 36, 45,
                              49}) {  // bits: bias, residual, gelu, scale, relu, auxiliary
        Random random{static_cast<std::uint64_t>(m * 100 + steps)};
        const auto driver = host();
        KernelSpec spec = product(m, n, k, 2, false, type);
        spec.epilogue.bias = (steps & 1) != 0, spec.epilogue.residual = (steps & 2) != 0;
        spec.epilogue.activation = (steps & 4) != 0    ? Activation::gelu
                                   : (steps & 16) != 0 ? Activation::relu
                                                       : Activation::none;
        spec.epilogue.scale = (steps & 8) != 0 ? -0.375 : 1;
        spec.epilogue.auxiliary = (steps & 32) != 0;
        KernelSpec plain = product(m, n, k, 2, false, type);
        plain.c.dtype = DType::f32;
        const DeviceAddress a = randomMemory(*driver, type, 2 * m * k, random),
                            b = randomMemory(*driver, type, 2 * k * n, random),
                            bias = randomMemory(*driver, type, n, random),
                            residual = randomMemory(*driver, type, 2 * m * n, random);
        const DeviceAddress sums = allocate(*driver, static_cast<std::size_t>(8 * m * n)),
                            c = allocate(*driver, static_cast<std::size_t>(2 * m * n) * elementBytes(type));
        std::vector<DeviceAddress> reads = {a, b};
        if (spec.epilogue.bias) reads.push_back(bias);
        if (spec.epilogue.residual) reads.push_back(residual);
        ASSERT_EQ(launch(*driver, plain, {a, b}, {sums}), Status::ok) << driver->lastDetail();
        std::vector<DeviceAddress> writes = {c};
        if (spec.epilogue.auxiliary)
          writes.push_back(allocate(*driver, static_cast<std::size_t>(2 * m * n) * elementBytes(type)));
        ASSERT_EQ(launch(*driver, spec, reads, writes), Status::ok) << driver->lastDetail();
        for (std::int64_t i = 0; i < 2 * m * n; ++i) {
          float value = widen(sums, DType::f32, i);
          if ((steps & 8) != 0) value *= -0.375f;
          if ((steps & 1) != 0) value += widen(bias, type, i % n);
          if (spec.epilogue.auxiliary) {
            ASSERT_TRUE(sameNumber(bitsAt(writes[1], type, i), narrow(value, type), type))
                << steps << " " << i;
          }
          if ((steps & 4) != 0) {
            const float inner = (value + value * value * value * 0.044715f) * 0.7978845608028654f;
            value = value * 0.5f * (static_cast<float>(std::tanh(static_cast<double>(inner))) + 1.0f);
          }
          if ((steps & 16) != 0 && value <= 0) value = 0;
          if ((steps & 2) != 0) value += widen(residual, type, i);
          ASSERT_TRUE(sameNumber(bitsAt(c, type, i), narrow(value, type), type)) << steps << " " << i;
        }
      }
}

TEST(HostMatmul, IsFastEnoughToWorkWith) {
  const auto driver = host();
  for (const DType type : {DType::f32, DType::bf16}) {
    const KernelSpec spec = product(384, 512, 512, 1, false, type);
    Random random{1};
    const DeviceAddress a = randomMemory(*driver, type, spec.m * spec.k, random),
                        b = randomMemory(*driver, type, spec.k * spec.n, random);
    const DeviceAddress c = allocate(*driver, static_cast<std::size_t>(spec.m * spec.n) * 4);
    double best = 0;
    for (int i = 0; i < 5; ++i) {
      const auto start = std::chrono::steady_clock::now();
      ASSERT_EQ(launch(*driver, spec, {a, b}, {c}), Status::ok);
      const double time = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      best = std::max(best, 2e-9 * static_cast<double>(spec.m * spec.n * spec.k) / time);
    }
    std::printf("matmul %s: %.1f GFLOP/s\n", type == DType::f32 ? "f32" : "bf16", best);
    EXPECT_GT(best,
              0.05);  // an order of magnitude below any machine that this is built for, sanitizers and all
  }
}

// Reduce.

TEST(HostReduce, AgreesWithAPlainLoop) {
  Random random{11};
  const std::int64_t shapes[][3] = {{1, 1, 1}, {3, 7, 1}, {2, 1000, 1}, {4, 5, 6}, {2, 3, 1300}, {1, 513, 2}};
  for (const auto& [outer, length, inner] : shapes)
    for (const DType input : kTypes)
      for (const DType output : kTypes)
        for (const ReduceHow how : {ReduceHow::sum, ReduceHow::mean, ReduceHow::max, ReduceHow::min}) {
          const bool whole = input == DType::u8 || input == DType::i32;
          if (whole && how == ReduceHow::mean) continue;
          const auto driver = host();
          KernelSpec spec;
          spec.kind = KernelSpec::Kind::reduce;
          spec.how = how;
          spec.outer = outer;
          spec.length = length;
          spec.inner = inner;
          spec.input = input;
          spec.output = output;
          const DeviceAddress x = randomMemory(*driver, input, outer * length * inner, random);
          const DeviceAddress y =
              allocate(*driver, static_cast<std::size_t>(outer * inner) * elementBytes(output));
          ASSERT_EQ(launch(*driver, spec, {x}, {y}), Status::ok) << driver->lastDetail();
          for (std::int64_t o = 0; o < outer; ++o)
            for (std::int64_t i = 0; i < inner; ++i) {
              double total = widen(x, input, o * length * inner + i);
              for (std::int64_t l = 1; l < length; ++l) {
                const double next = widen(x, input, (o * length + l) * inner + i);
                total = how == ReduceHow::max   ? std::max(total, next)
                        : how == ReduceHow::min ? std::min(total, next)
                                                : total + next;
              }
              if (how == ReduceHow::mean) total /= static_cast<double>(length);
              ASSERT_EQ(bitsAt(y, output, o * inner + i), narrow(static_cast<float>(total), output))
                  << static_cast<int>(input) << " " << static_cast<int>(how) << " " << o << " " << i;
            }
        }
}

// In f32 a 1 more changes no sum from 2^24 on.
TEST(HostReduce, AddsManyElementsWithoutLosingAny) {
  const std::int64_t length = (std::int64_t{1} << 24) + 2;
  const auto driver = host();
  const DeviceAddress ones = allocate(*driver, static_cast<std::size_t>(length) * 2);
  std::fill_n(reinterpret_cast<std::uint16_t*>(ones), length, f16FromFloat(1));
  const DeviceAddress sum = allocate(*driver, 4);
  const auto found = [&] {
    float value;
    std::memcpy(&value, reinterpret_cast<const void*>(sum), sizeof value);
    return value;
  };
  KernelSpec spec;
  spec.kind = KernelSpec::Kind::reduce;
  spec.how = ReduceHow::sum;
  spec.outer = spec.inner = 1, spec.length = length;
  spec.input = DType::f16, spec.output = DType::f32;
  ASSERT_EQ(launch(*driver, spec, {ones}, {sum}), Status::ok) << driver->lastDetail();
  EXPECT_EQ(found(), static_cast<float>(length));
  KernelSpec rows;
  rows.kind = KernelSpec::Kind::map;
  rows.shape = {1, length};
  rows.operands = {{DType::f16, 0, {length, 1}}};
  rows.code = {{MapOp::operand, 0}, {MapOp::rowSum, 0}};
  rows.results = {{1, DType::f32, true}};
  std::memset(reinterpret_cast<void*>(sum), 0, 4);
  ASSERT_EQ(launch(*driver, rows, {ones}, {sum}), Status::ok) << driver->lastDetail();
  EXPECT_EQ(found(), static_cast<float>(length));
}

TEST(HostReduce, ChoosesTheFirstOfEqualElementsAndTheFirstNaN) {
  Random random{12};
  const std::int64_t shapes[][3] = {{1, 1, 1}, {3, 7, 1}, {2, 1000, 1}, {4, 5, 6}, {2, 3, 1300}, {1, 513, 2}};
  for (const auto& [outer, length, inner] : shapes)
    for (const DType type : kTypes)
      for (const ReduceHow how : {ReduceHow::argmax, ReduceHow::argmin})
        for (const bool odd : {false, true}) {
          const auto driver = host();
          KernelSpec spec;
          spec.kind = KernelSpec::Kind::reduce;
          spec.how = how;
          spec.outer = outer, spec.length = length, spec.inner = inner;
          spec.input = type, spec.output = DType::i32;
          const std::int64_t count = outer * length * inner;
          const DeviceAddress x = randomMemory(*driver, type, count, random);
          // Few different values, so that many are equal.
          if (type == DType::f32)
            for (std::int64_t i = 0; i < count; ++i)
              reinterpret_cast<float*>(x)[i] =
                  odd && random.below(9) == 0 ? NAN : static_cast<float>(random.below(4));
          const DeviceAddress y = allocate(*driver, static_cast<std::size_t>(outer * inner) * 4);
          ASSERT_EQ(launch(*driver, spec, {x}, {y}), Status::ok) << driver->lastDetail();
          for (std::int64_t o = 0; o < outer; ++o)
            for (std::int64_t i = 0; i < inner; ++i) {
              const auto at = [&](std::int64_t l) { return widen(x, type, (o * length + l) * inner + i); };
              std::int64_t place = 0;
              while (place < length && !std::isnan(at(place))) ++place;
              if (place == length) {
                place = 0;
                for (std::int64_t l = 1; l < length; ++l)
                  if (how == ReduceHow::argmax ? at(l) > at(place) : at(l) < at(place)) place = l;
              }
              ASSERT_EQ(reinterpret_cast<const std::int32_t*>(y)[o * inner + i], place);
            }
        }
}

TEST(HostReduce, SeveralPositionsAreThoseOfASortedLine) {
  Random random{15};
  const std::int64_t shapes[][3] = {{1, 1, 1}, {3, 7, 1}, {2, 600, 1}, {4, 5, 6}, {2, 3, 130}};
  for (const auto& [outer, length, inner] : shapes)
    for (const DType type : kTypes)
      for (const ReduceHow how : {ReduceHow::argmax, ReduceHow::argmin})
        for (const std::int64_t count : {std::int64_t{1}, (length + 1) / 2, length}) {
          const auto driver = host();
          KernelSpec spec;
          spec.kind = KernelSpec::Kind::reduce;
          spec.how = how;
          spec.outer = outer, spec.length = length, spec.inner = inner, spec.count = count;
          spec.input = type, spec.output = DType::i32;
          const DeviceAddress x = randomMemory(*driver, type, outer * length * inner, random);
          if (type == DType::f32)
            for (std::int64_t i = 0; i < outer * length * inner; ++i)
              reinterpret_cast<float*>(x)[i] =
                  random.below(9) == 0 ? NAN : static_cast<float>(random.below(4));
          const DeviceAddress y = allocate(*driver, static_cast<std::size_t>(outer * count * inner) * 4);
          ASSERT_EQ(launch(*driver, spec, {x}, {y}), Status::ok) << driver->lastDetail();
          for (std::int64_t o = 0; o < outer; ++o)
            for (std::int64_t i = 0; i < inner; ++i) {
              const auto at = [&](std::int64_t l) { return widen(x, type, (o * length + l) * inner + i); };
              // A NaN first, then the better number; equal ones stay in their order.
              const auto rank = [&](std::int64_t l) {
                return std::isnan(at(l)) ? -INFINITY : how == ReduceHow::argmax ? -at(l) : at(l);
              };
              std::vector<std::int64_t> places(static_cast<std::size_t>(length));
              std::iota(places.begin(), places.end(), std::int64_t{0});
              std::stable_sort(places.begin(), places.end(), [&](std::int64_t p, std::int64_t q) {
                if (std::isnan(at(p)) != std::isnan(at(q))) return std::isnan(at(p));
                return rank(p) < rank(q);
              });
              for (std::int64_t j = 0; j < count; ++j)
                ASSERT_EQ(reinterpret_cast<const std::int32_t*>(y)[(o * count + j) * inner + i],
                          places[static_cast<std::size_t>(j)]);
            }
        }
}

TEST(HostScan, AddsFromTheFirstElementToTheLast) {
  Random random{16};
  const std::int64_t shapes[][3] = {{1, 1, 1}, {3, 7, 1}, {2, 1300, 1}, {4, 5, 6}, {2, 3, 1300}, {1, 40, 2}};
  for (const auto& [outer, length, inner] : shapes)
    for (const DType type : kTypes) {
      const auto driver = host();
      const bool whole = type == DType::u8 || type == DType::i32;
      KernelSpec spec;
      spec.kind = KernelSpec::Kind::scan;
      spec.outer = outer, spec.length = length, spec.inner = inner;
      spec.input = type, spec.output = whole ? DType::i32 : DType::f32;
      const DeviceAddress x = randomMemory(*driver, type, outer * length * inner, random);
      const DeviceAddress y = allocate(*driver, static_cast<std::size_t>(outer * length * inner) * 4);
      ASSERT_EQ(launch(*driver, spec, {x}, {y}), Status::ok) << driver->lastDetail();
      for (std::int64_t o = 0; o < outer; ++o)
        for (std::int64_t i = 0; i < inner; ++i) {
          double sum = 0;
          std::uint32_t bits = 0;
          for (std::int64_t l = 0; l < length; ++l) {
            const std::int64_t at = (o * length + l) * inner + i;
            if (whole) {
              bits += type == DType::u8 ? reinterpret_cast<const std::uint8_t*>(x)[at]
                                        : reinterpret_cast<const std::uint32_t*>(x)[at];
              ASSERT_EQ(reinterpret_cast<const std::uint32_t*>(y)[at], bits);
            } else {
              sum = sum + widen(x, type, at);
              ASSERT_EQ(bitsAt(y, DType::f32, at), narrow(static_cast<float>(sum), DType::f32));
            }
          }
        }
    }
}

TEST(HostJoin, PutsSourcesAndNumbersOneAfterTheOther) {
  Random random{17};
  for (const auto& [outer, inner] : {std::pair<std::int64_t, std::int64_t>{1, 1}, {3, 5}, {7, 1}, {2, 600}})
    for (const DType type : kTypes) {
      const auto driver = host();
      KernelSpec spec;
      spec.kind = KernelSpec::Kind::join;
      spec.outer = outer, spec.inner = inner, spec.input = type;
      const double fill = type == DType::u8 || type == DType::i32 ? 7 : -INFINITY;
      spec.pieces = {{2, false, 0}, {3, true, fill}, {1, false, 0}, {4, true, 0}};
      const DeviceAddress first = randomMemory(*driver, type, outer * 2 * inner, random),
                          second = randomMemory(*driver, type, outer * inner, random),
                          y = randomMemory(*driver, type, outer * 10 * inner, random);
      ASSERT_EQ(launch(*driver, spec, {first, second}, {y}), Status::ok) << driver->lastDetail();
      for (std::int64_t o = 0; o < outer; ++o)
        for (std::int64_t l = 0; l < 10; ++l)
          for (std::int64_t i = 0; i < inner; ++i) {
            const auto found = bitsAt(y, type, (o * 10 + l) * inner + i);
            if (l < 2)
              ASSERT_EQ(found, bitsAt(first, type, (o * 2 + l) * inner + i));
            else if (l == 5)
              ASSERT_EQ(found, bitsAt(second, type, o * inner + i));
            else
              ASSERT_EQ(widen(y, type, (o * 10 + l) * inner + i), l < 5 ? fill : 0);
          }
    }
}

TEST(HostGather, AnIndexForEachElementTakesItAlongItsOwnLine) {
  Random random{18};
  for (const auto& [outer, length, inner, count] :
       {std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t>{1, 1, 1, 1},
        {3, 5, 7, 2},
        {2, 4, 1, 9}})
    for (const DType type : kTypes) {
      const auto driver = host();
      KernelSpec spec;
      spec.kind = KernelSpec::Kind::gather;
      spec.outer = outer, spec.length = length, spec.inner = inner, spec.count = count;
      spec.input = type, spec.along = true;
      std::vector<std::int32_t> indices(static_cast<std::size_t>(outer * count * inner));
      for (auto& index : indices) index = static_cast<std::int32_t>(random.below(2 * length + 2)) - 1;
      const DeviceAddress x = randomMemory(*driver, type, outer * length * inner, random),
                          places = upload(*driver, indices),
                          y = randomMemory(*driver, type, outer * count * inner, random);
      ASSERT_EQ(launch(*driver, spec, {x, places}, {y}), Status::ok) << driver->lastDetail();
      for (std::int64_t e = 0; e < outer * count * inner; ++e) {
        const std::int64_t index = indices[static_cast<std::size_t>(e)], o = e / (count * inner);
        const bool inside = index >= 0 && index < length;
        ASSERT_EQ(bitsAt(y, type, e), inside ? bitsAt(x, type, (o * length + index) * inner + e % inner) : 0);
      }
    }
}

TEST(HostScatterAdd, AddsTheRowsOfEachIndex) {
  Random random{19};
  for (const auto& [outer, length, inner, count] :
       {std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t>{1, 1, 1, 1},
        {3, 5, 7, 20},
        {1, 40, 600, 9},
        {2, 4, 1, 300}})
    for (const DType type : kTypes) {
      const auto driver = host();
      const bool whole = type == DType::u8 || type == DType::i32;
      KernelSpec spec;
      spec.kind = KernelSpec::Kind::scatterAdd;
      spec.outer = outer, spec.length = length, spec.inner = inner, spec.count = count;
      spec.input = type, spec.output = whole ? DType::i32 : DType::f32;
      std::vector<std::int32_t> indices(static_cast<std::size_t>(count)), order(indices.size());
      for (auto& index : indices) index = static_cast<std::int32_t>(random.below(length + 2)) - 1;
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), [&](std::int32_t p, std::int32_t q) {
        return indices[static_cast<std::size_t>(p)] < indices[static_cast<std::size_t>(q)];
      });
      const DeviceAddress x = randomMemory(*driver, type, outer * count * inner, random),
                          keys = upload(*driver, indices), places = upload(*driver, order),
                          y = randomMemory(*driver, spec.output, outer * length * inner, random);
      ASSERT_EQ(launch(*driver, spec, {x, keys, places}, {y}), Status::ok) << driver->lastDetail();
      for (std::int64_t e = 0; e < outer * length * inner; ++e) {
        const std::int64_t o = e / (length * inner), key = e / inner % length;
        double total = 0;
        std::uint32_t wrapped = 0;
        for (std::int64_t j = 0; j < count; ++j) {
          if (indices[static_cast<std::size_t>(j)] != key) continue;
          const std::int64_t at = (o * count + j) * inner + e % inner;
          total += static_cast<double>(widen(x, type, at));
          if (whole) wrapped += bitsAt(x, type, at);
        }
        if (whole)
          ASSERT_EQ(bitsAt(y, DType::i32, e), wrapped);
        else
          ASSERT_EQ(widen(y, DType::f32, e), static_cast<float>(total));
      }
      // Places that are none are passed over, and nothing outside of the rows is read.
      order.assign(order.size(), INT32_MAX), order[0] = -1;
      ASSERT_EQ(launch(*driver, spec, {x, keys, upload(*driver, order)}, {y}), Status::ok);
      ASSERT_EQ(bitsAt(y, spec.output, 0), 0u);
    }
}

TEST(HostRandom, YieldsTheWordsOfPhilox) {
  // The known answer of Random123 for a key and a counter of zeros.
  const auto driver = host();
  KernelSpec spec;
  spec.kind = KernelSpec::Kind::random;
  spec.count = 6, spec.output = DType::i32;
  const DeviceAddress any = upload(*driver, std::vector<std::int32_t>{0}), y = allocate(*driver, 24);
  const auto words = [y] { return reinterpret_cast<const std::uint32_t*>(y); };
  ASSERT_EQ(launch(*driver, spec, {any, any}, {y}), Status::ok) << driver->lastDetail();
  const std::uint32_t wanted[] = {0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u};
  for (int i = 0; i < 4; ++i) EXPECT_EQ(words()[i], wanted[i]);
  const std::uint32_t fifth = words()[4];
  // Another stream, turn or key, and another block, gives other words.
  EXPECT_NE(fifth, wanted[0]);
  spec.stream = 1;
  ASSERT_EQ(launch(*driver, spec, {any, any}, {y}), Status::ok);
  EXPECT_NE(words()[0], wanted[0]);
  spec.stream = 0, spec.seed = std::uint64_t{1} << 32;
  ASSERT_EQ(launch(*driver, spec, {any, any}, {y}), Status::ok);
  EXPECT_NE(words()[0], wanted[0]);
  const DeviceAddress turn = upload(*driver, std::vector<std::int32_t>{1});
  spec.seed = 0;
  ASSERT_EQ(launch(*driver, spec, {any, turn}, {y}), Status::ok);
  EXPECT_NE(words()[0], wanted[0]);
  for (const DType type : {DType::f32, DType::f16, DType::bf16}) {
    spec.output = type;
    ASSERT_EQ(launch(*driver, spec, {any, any}, {y}), Status::ok);
    const int bits = type == DType::f32 ? 24 : type == DType::f16 ? 11 : 8;
    for (std::int64_t i = 0; i < 4; ++i)
      EXPECT_EQ(widen(y, type, i), std::ldexp(static_cast<float>(wanted[i] >> (32 - bits)), -bits));
  }
}

// The others, and what is refused.

TEST(HostMap, AnIndexIsThatOfTheElementAlongItsDimension) {
  const auto driver = host();
  for (const auto& shape : {std::vector<std::int64_t>{7}, {3, 5, 2}, {1, 1300}, {600, 1, 3}})
    for (const bool whole : {false, true})
      for (std::size_t d = 0; d < shape.size(); ++d) {
        KernelSpec spec;
        spec.kind = KernelSpec::Kind::map;
        spec.shape = shape;
        spec.computeInt = whole;
        spec.code = {{MapOp::index, static_cast<std::int32_t>(d)}};
        spec.results = {{0, DType::i32}};
        std::int64_t count = 1, inner = 1;
        for (std::size_t e = 0; e < shape.size(); ++e) count *= shape[e], inner *= e > d ? shape[e] : 1;
        const DeviceAddress y = allocate(*driver, static_cast<std::size_t>(count) * 4);
        ASSERT_EQ(launch(*driver, spec, {}, {y}), Status::ok) << driver->lastDetail();
        for (std::int64_t i = 0; i < count; ++i)
          ASSERT_EQ(reinterpret_cast<const std::int32_t*>(y)[i], i / inner % shape[d]);
      }
}

TEST(HostGather, TakesRowsByIndexAndZerosOutsideOfTheTable) {
  Random random{13};
  for (const auto& [outer, length, inner, count] :
       {std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t>{1, 1, 1, 1},
        {1, 5, 7, 9},
        {3, 4, 1, 2},
        {2, 6, 130, 50}})
    for (const DType type : kTypes) {
      const auto driver = host();
      KernelSpec spec;
      spec.kind = KernelSpec::Kind::gather;
      spec.outer = outer, spec.length = length, spec.inner = inner, spec.count = count;
      spec.input = type;
      std::vector<std::int32_t> indices(static_cast<std::size_t>(count));
      for (auto& index : indices) index = static_cast<std::int32_t>(random.below(2 * length + 2)) - 1;
      indices[0] = INT32_MIN;
      indices[static_cast<std::size_t>(count) / 2] = INT32_MAX;
      const DeviceAddress x = randomMemory(*driver, type, outer * length * inner, random),
                          places = upload(*driver, indices),
                          y = randomMemory(*driver, type, outer * count * inner, random);
      ASSERT_EQ(launch(*driver, spec, {x, places}, {y}), Status::ok) << driver->lastDetail();
      for (std::int64_t o = 0; o < outer; ++o)
        for (std::int64_t j = 0; j < count; ++j)
          for (std::int64_t i = 0; i < inner; ++i) {
            const std::int64_t index = indices[static_cast<std::size_t>(j)];
            const bool inside = index >= 0 && index < length;
            ASSERT_EQ(bitsAt(y, type, (o * count + j) * inner + i),
                      inside ? bitsAt(x, type, (o * length + index) * inner + i) : 0);
          }
    }
}

TEST(HostAppend, WritesRowsInPlaceAndNoneOutside) {
  Random random{21};
  for (const auto& [outer, length, inner, count] :
       {std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t>{1, 1, 1, 1},
        {1, 9, 7, 2},
        {3, 4, 1, 4},
        {5, 6, 130, 3}})
    for (const DType type : kTypes)
      for (const std::int64_t at : {std::int64_t{INT32_MIN}, std::int64_t{-1}, std::int64_t{0},
                                    std::int64_t{1}, length - 1, length, std::int64_t{INT32_MAX}}) {
        const auto driver = host();
        KernelSpec spec;
        spec.kind = KernelSpec::Kind::append;
        spec.outer = outer, spec.length = length, spec.inner = inner, spec.count = count;
        spec.input = type;
        const DeviceAddress x = randomMemory(*driver, type, outer * length * inner, random),
                            rows = randomMemory(*driver, type, outer * count * inner, random),
                            place = upload(*driver, std::vector<std::int32_t>{static_cast<std::int32_t>(at)});
        std::vector<std::uint32_t> before;
        for (std::int64_t i = 0; i < outer * length * inner; ++i) before.push_back(bitsAt(x, type, i));
        ASSERT_EQ(launch(*driver, spec, {x, rows, place}, {x}), Status::ok) << driver->lastDetail();
        for (std::int64_t o = 0; o < outer; ++o)
          for (std::int64_t l = 0; l < length; ++l)
            for (std::int64_t i = 0; i < inner; ++i) {
              const std::int64_t element = (o * length + l) * inner + i, row = l - at;
              const bool isWritten = row >= 0 && row < count;
              ASSERT_EQ(bitsAt(x, type, element), isWritten
                                                      ? bitsAt(rows, type, (o * count + row) * inner + i)
                                                      : before[static_cast<std::size_t>(element)]);
            }
      }
}

TEST(HostKernels, SeveralSourcesAreCopiedOneAfterTheOther) {
  const auto driver = host();
  const DeviceAddress first = upload(*driver, std::vector<std::int32_t>{1, 2});
  const DeviceAddress second = upload(*driver, std::vector<std::int32_t>{3, 4});
  const DeviceAddress to = allocate(*driver, 24);
  KernelSpec spec;
  spec.bytes = 24;
  spec.parts = spec.readCount = 3;
  spec.writeCount = 1;
  ASSERT_EQ(launch(*driver, spec, {second, first, second}, {to}), Status::ok);
  EXPECT_EQ(download<std::int32_t>(to, 6), (std::vector<std::int32_t>{3, 4, 1, 2, 3, 4}));
}

TEST(HostKernels, SpecsThatCannotBeAreRefusedWithTheReason) {
  const auto driver = host();
  const auto refused = [&](const KernelSpec& spec, const char* reason) {
    std::unique_ptr<Kernel> kernel;
    EXPECT_EQ(driver->prepare(&kernel, spec, {}), Status::invalidValue) << reason;
    EXPECT_NE(driver->lastDetail().find(reason), std::string::npos) << driver->lastDetail();
    EXPECT_EQ(kernel, nullptr);
  };
  const KernelSpec map = binary(MapOp::add, 4, DType::f32, false),
                   matmul = product(2, 3, 4, 1, false, DType::f32);
  const auto but = [](KernelSpec spec, const std::function<void(KernelSpec&)>& change) {
    return change(spec), spec;
  };
  const std::int64_t huge = std::int64_t{1} << 62;
  refused(but(map, [](auto& s) { s.shape = {0}; }), "not positive");
  refused(but(map, [](auto& s) { s.shape = {-4}; }), "not positive");
  refused(but(map, [&](auto& s) { s.shape = {huge}; }), "too many");
  refused(but(map, [](auto& s) { s.shape.assign(9, 1); }), "rank 9");
  refused(but(map, [](auto& s) { s.operands[0].strides = {1, 1}; }), "strides");
  refused(but(map, [&](auto& s) { s.operands[1].strides = {huge}; }), "overflow");
  refused(but(map, [](auto& s) { s.operands[1].offset = -1; }), "before its start");
  refused(but(map, [](auto& s) { s.operands[1].strides = {-1}; }), "before its start");
  refused(but(map, [&](auto& s) { s.operands[1].offset = huge; }), "too far");
  refused(but(map, [](auto& s) { s.operands[1].dtype = static_cast<DType>(9); }), "element type");
  const KernelSpec table = but(map, [](auto& s) {
    s.operands[1].dtype = DType::i32;
    s.operands[0].indexed = MapIndex{1, 9, 4};
  });
  refused(but(table, [](auto& s) { s.operands[0].indexed->by = 2; }), "by operand 2 of 2");
  refused(but(table, [](auto& s) { s.operands[1].dtype = DType::f32; }), "not of i32");
  refused(but(table, [](auto& s) { s.operands[0].indexed->by = 0; }), "not of i32 or is indexed itself");
  refused(but(table, [](auto& s) { s.operands[1].indexed = MapIndex{1, 9, 4}; }), "is indexed itself");
  refused(but(table, [](auto& s) { s.operands[0].indexed->length = 0; }), "length that is not positive");
  refused(but(table, [&](auto& s) { s.operands[0].indexed->length = huge; }), "overflow");
  refused(but(table, [&](auto& s) { s.operands[0].indexed->step = -1; }), "before its start");
  refused(but(table, [&](auto& s) { s.operands[0].indexed->step = huge / 16; }), "too far");
  refused(but(map, [](auto& s) { s.code[1].a = 2; }), "operand 2 of 2");
  refused(but(map, [](auto& s) { s.code[2].b = 2; }), "not an earlier one");
  refused(but(map, [](auto& s) { s.code[2].a = -1; }), "not an earlier one");
  refused(but(map, [](auto& s) { s.code[2].op = static_cast<MapOp>(99); }), "unknown operation");
  refused(but(map, [](auto& s) { s.results[0].value = 3; }), "value 3 of 3");
  refused(but(map, [](auto& s) { s.results.clear(); }), "no results");
  refused(but(map, [](auto& s) { s.results[0].row = true; }), "not one number a row");
  refused(but(map,
              [](auto& s) {
                s.shape.clear(), s.operands[0].strides.clear(), s.operands[1].strides.clear();
                s.code[2] = {MapOp::rowSum, 0};
              }),
          "no dimension");
  refused(but(map,
              [](auto& s) {
                for (std::int32_t j = 2; j < 67; ++j) s.code.push_back({MapOp::rowSum, j});
                s.results[0].value = 67;
              }),
          "64 reductions");
  refused(but(map, [](auto& s) { s.readCount = 1, s.writeCount = 1; }), "the kernel wants 2 and 1");
  refused(but(matmul, [](auto& s) { s.m = 0; }), "positive");
  refused(but(matmul, [&](auto& s) { s.k = huge; }), "too many");
  refused(but(matmul, [](auto& s) { s.a.dtype = DType::u8; }), "f32, f16 or bf16");
  refused(but(matmul, [](auto& s) { s.b.batchStride = -1; }), "negative");
  refused(but(matmul, [](auto& s) { s.a.rowStride = s.k - 1; }), "a row stride of");
  refused(but(matmul, [](auto& s) { s.transposeA = true, s.a.rowStride = s.m - 1; }), "a row stride of");
  refused(but(matmul, [&](auto& s) { s.b.rowStride = huge; }), "too far");
  refused(but(matmul, [](auto& s) { s.b.offset = -1; }), "out of memory");
  refused(but(matmul, [](auto& s) { s.c.rowStride = s.n + 1; }), "no row stride");
  refused(but(matmul, [](auto& s) { s.epilogue.auxiliary = true; }), "auxiliary");
  refused(but(matmul, [](auto& s) { s.batch = 2, s.c.batchStride = 5; }), "overlap");
  refused(but(matmul, [&](auto& s) { s.batch = 3, s.a.batchStride = huge; }), "too far");
  KernelSpec reduce;
  reduce.kind = KernelSpec::Kind::reduce;
  refused(reduce, "positive");
  refused(but(reduce, [&](auto& s) { s.outer = s.length = s.inner = std::int64_t{1} << 40; }), "too many");
  refused(but(reduce, [](auto& s) { s.outer = s.length = s.inner = 1, s.how = ReduceHow::argmax; }), "i32");
  refused(but(reduce, [](auto& s) { s.kind = KernelSpec::Kind::gather; }), "positive");
  refused(but(reduce, [](auto& s) { s.kind = KernelSpec::Kind::append; }), "positive");
  refused(but(reduce, [](auto& s) { s.kind = KernelSpec::Kind::scan; }), "positive");
  refused(but(reduce, [](auto& s) { s.kind = KernelSpec::Kind::random, s.count = 0; }), "positive");
  refused(but(reduce, [](auto& s) { s.kind = KernelSpec::Kind::random, s.output = DType::u8; }), "f32");
  refused(but(reduce, [](auto& s) { s.outer = s.length = s.inner = 1, s.count = 2; }), "2 positions");
  refused(but(reduce, [](auto& s) { s.kind = KernelSpec::Kind::join; }), "no pieces");
  refused(but(reduce,
              [](auto& s) {
                s.kind = KernelSpec::Kind::join, s.pieces = {{0, false, 0}};
              }),
          "length");
  refused(but(reduce,
              [](auto& s) {
                s.kind = KernelSpec::Kind::join, s.pieces = {{1, false, 0}};
              }),
          "positive");
  refused(but(reduce, [](auto& s) { s.direction = 7, s.kind = KernelSpec::Kind::copy; }), "direction 7");
  KernelSpec copy;
  copy.bytes = 12;
  refused(but(copy, [](auto& s) { s.parts = 5; }), "12 bytes are not 5 equal parts");
  refused(but(copy, [](auto& s) { s.parts = 0; }), "0 equal parts");
  refused(but(copy, [](auto& s) { s.parts = 3, s.readCount = 2, s.writeCount = 1; }),
          "the kernel wants 3 and 1");
  refused(but(reduce, [](auto& s) { s.kind = static_cast<KernelSpec::Kind>(77); }), "unknown kind");
  refused(but(reduce, [](auto& s) { s.kind = KernelSpec::Kind::cuda; }), "must have a name");
  refused(but(reduce, [](auto& s) { s.kind = KernelSpec::Kind::cuda, s.name = "f", s.block[2] = 0; }),
          "kernel f: grid");
}

}  // namespace
}  // namespace braid::test
