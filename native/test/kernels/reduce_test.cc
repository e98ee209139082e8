// Reductions and prefix sums of the host device, against plain loops.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "test/kernels/support.h"

namespace braid::test {
namespace {

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

}  // namespace
}  // namespace braid::test
