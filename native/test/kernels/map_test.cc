// The fused kernels of the host device, elementwise and of rows, against plain loops.
#include <algorithm>
#include <cmath>

#include "kernels/cpu.h"
#include "test/kernels/support.h"

namespace braid::test {
namespace {

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

}  // namespace
}  // namespace braid::test
