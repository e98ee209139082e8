// Kernels of the host device that put rows in other places, against plain loops.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "test/kernels/support.h"

namespace braid::test {
namespace {

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

}  // namespace
}  // namespace braid::test
