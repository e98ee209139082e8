// The cuda device on a real GPU, against the host device's results. Skipped, with the reason, where there is
// none.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <thread>

#include "test/cuda/specs.h"

namespace braid::test {
namespace {

using Bytes = std::vector<std::uint8_t>;

class CudaDevice : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string detail;
    if (openCuda(&gpu_, 0, &detail) != Status::ok) GTEST_SKIP() << detail;
    ASSERT_EQ(gpu_->bind(), Status::ok);
    host_ = host();
  }

  // Runs a spec on a device with `shift` bytes before every buffer, so that views are tried too.
  static Status runOn(Driver& driver, bool isHost, const KernelSpec& spec, const std::vector<Bytes>& reads,
                      std::vector<Bytes>* writes, std::size_t shift = 0) {
    const Stream on = stream(driver);
    std::vector<DeviceAddress> all, from, to;
    const auto place = [&](const Bytes& bytes) {
      all.push_back(allocate(driver, bytes.size() + shift + 1));
      const CopyKind kind = isHost ? CopyKind::hostToHost : CopyKind::hostToDevice;
      EXPECT_EQ(driver.copy(kind, all.back() + shift, address(bytes.data()), bytes.size(), on), Status::ok)
          << driver.lastDetail();
      return all.back() + shift;
    };
    for (const Bytes& read : reads) from.push_back(place(read));
    for (const Bytes& write : *writes) to.push_back(place(write));
    std::unique_ptr<Kernel> kernel;
    Status status = driver.prepare(&kernel, spec, {});
    if (status == Status::ok) status = driver.launch(*kernel, from.data(), to.data(), on);
    for (std::size_t w = 0; w < writes->size(); ++w) {
      const CopyKind kind = isHost ? CopyKind::hostToHost : CopyKind::deviceToHost;
      if (status == Status::ok)
        status = driver.copy(kind, address((*writes)[w].data()), to[w], (*writes)[w].size(), on);
    }
    const Status done = driver.streamSynchronize(on);  // whatever failed, nothing may still use the memory
    if (status == Status::ok) status = done;
    for (DeviceAddress block : all) driver.memFree(block);
    driver.streamDestroy(on);
    return status;
  }

  void expectEqual(const KernelSpec& spec, const std::vector<Bytes>& reads, std::vector<Bytes> writes,
                   const std::vector<DType>& types, double tolerance, const std::string& what,
                   std::size_t shift = 0) {
    std::vector<Bytes> wanted = writes;
    ASSERT_EQ(runOn(*host_, true, spec, reads, &wanted), Status::ok) << what << ": " << host_->lastDetail();
    ASSERT_EQ(runOn(*gpu_, false, spec, reads, &writes, shift), Status::ok)
        << what << ": " << gpu_->lastDetail();
    for (std::size_t w = 0; w < writes.size(); ++w) {
      if (tolerance == 0) {
        const std::ptrdiff_t at = firstDifference(writes[w], wanted[w], types[w]);
        ASSERT_EQ(at, -1) << what << ", result " << w << ": "
                          << elementOf(writes[w], types[w], static_cast<std::size_t>(at))
                          << " where the host has "
                          << elementOf(wanted[w], types[w], static_cast<std::size_t>(at));
        continue;
      }
      double largest = 0, worst = 0;
      for (std::size_t i = 0; i < wanted[w].size() / elementBytes(types[w]); ++i) {
        const double a = elementOf(writes[w], types[w], i), b = elementOf(wanted[w], types[w], i);
        ASSERT_EQ(std::isnan(a), std::isnan(b)) << what << " at " << i;
        if (std::isnan(a) || a == b) {
          if (std::isfinite(b)) largest = std::max(largest, std::fabs(b));
          continue;
        }
        largest = std::max(largest, std::fabs(b));
        worst = std::max(worst, std::fabs(a - b));
      }
      EXPECT_LE(worst, tolerance * largest) << what << ", result " << w;
    }
  }

  std::unique_ptr<Driver> gpu_, host_;
};

TEST_F(CudaDevice, IsDescribed) {
  const DeviceInfo& info = gpu_->info();
  RecordProperty("device", info.name);
  EXPECT_GE(info.driverVersion, 12000);
  EXPECT_GT(info.totalBytes, 0u);
  EXPECT_GE(info.computeMajor, 5);
  EXPECT_LE(info.greatestPriority, info.leastPriority);
  const CudaReport report = probeCuda();
  EXPECT_GE(report.deviceCount, 1);
  for (const LibraryReport& library : report.libraries) EXPECT_EQ(library.problem, "") << library.name;
}

TEST_F(CudaDevice, ComputesMapsBitForBit) {
  Random random{7};
  for (int turn = 0; turn < 200; ++turn) {
    const KernelSpec spec = turn < 150 ? randomMap(random) : roundedMap(random);
    std::vector<Bytes> reads, writes;
    std::vector<DType> types;
    for (std::size_t o = 0; o < spec.operands.size(); ++o)
      reads.push_back(operandOf(random, spec, o, [](Random& values, DType type, std::size_t bytes) {
        return randomBytes(values, type, bytes);
      }));
    for (const MapResult& result : spec.results) {
      writes.emplace_back(static_cast<std::size_t>(elementsOf(spec.shape)) * elementBytes(result.dtype),
                          0xcd);
      types.push_back(result.dtype);
    }
    expectEqual(spec, reads, writes, types, 0, "map " + std::to_string(turn), turn % 3 == 0 ? 4 : 0);
    if (HasFatalFailure()) return;
  }
}

// Of whole numbers, so that every order of additions gives the same; and exponentials.
TEST_F(CudaDevice, ReducesLongRowsInOneKernel) {
  Random random{11};
  for (const std::int64_t rows : {1, 40})
    for (const std::int64_t length : {20000, 40001, 65536, 131072, 300000})
      for (const DType type : {DType::i32, DType::f16, DType::bf16, DType::f32}) {
        if (rows * length > 6'000'000) continue;
        const bool whole = type == DType::i32;
        KernelSpec spec;
        spec.kind = KernelSpec::Kind::map;
        spec.shape = {rows, length};
        spec.operands = {{type, 0, {length, 1}}};
        spec.computeInt = whole;
        spec.code = {{MapOp::operand, 0}, {MapOp::rowMax, 0}, {MapOp::sub, 0, 1}, {MapOp::rowSum, 2},
                     {MapOp::max, 2, 3},  {MapOp::rowMin, 4}, {MapOp::add, 4, 5}};
        const DType row = whole ? DType::i32 : DType::f32;
        spec.results = {{6, type}, {3, row, true}};
        spec.readCount = 1, spec.writeCount = 2;
        const std::size_t bytes = static_cast<std::size_t>(rows * length) * elementBytes(type);
        const Bytes x = whole ? randomBytes(random, type, bytes) : wholeBytes(random, type, bytes);
        const std::string what = std::to_string(rows) + " rows of " + std::to_string(length) + " of type " +
                                 std::to_string(static_cast<int>(type));
        expectEqual(spec, {x}, {Bytes(bytes, 0xcd), Bytes(static_cast<std::size_t>(rows) * 4, 0xcd)},
                    {type, row}, 0, what);
        if (HasFatalFailure()) return;
        if (whole) continue;
        spec.code = {{MapOp::operand, 0}, {MapOp::rowMax, 0}, {MapOp::sub, 0, 1},
                     {MapOp::exp, 2},     {MapOp::rowSum, 3}, {MapOp::div, 3, 4}};
        spec.results = {{5, type}};
        spec.writeCount = 1;
        expectEqual(spec, {x}, {Bytes(bytes, 0xcd)}, {type},
                    type == DType::f32   ? 1e-5
                    : type == DType::f16 ? 1e-3
                                         : 1e-2,
                    "softmax, " + what);
        if (HasFatalFailure()) return;
      }
}

TEST_F(CudaDevice, Reduces) {
  Random random{9};
  for (const auto& [outer, length, inner] : {std::tuple{1, 1, 1},
                                             {5, 7, 1},
                                             {300, 33, 1},
                                             {1000, 8, 1},
                                             {4, 5000, 1},
                                             {700, 4096, 1},
                                             {1, 300000, 1},
                                             {1, 3, 40},
                                             {2, 300, 65},
                                             {1, 6000, 33},
                                             {64, 2, 512}}) {
    for (DType type : {DType::u8, DType::i32, DType::f16, DType::bf16, DType::f32}) {
      for (ReduceHow how : {ReduceHow::sum, ReduceHow::mean, ReduceHow::max, ReduceHow::min}) {
        const bool exact =
            how == ReduceHow::max || how == ReduceHow::min || type == DType::u8 || type == DType::i32;
        KernelSpec spec;
        spec.kind = KernelSpec::Kind::reduce;
        spec.how = how;
        spec.outer = outer, spec.length = length, spec.inner = inner;
        spec.input = type;
        spec.output = type == DType::u8 || type == DType::i32 ? DType::i32 : DType::f32;
        spec.readCount = spec.writeCount = 1;
        const std::string what = "reduce " + std::to_string(static_cast<int>(how)) + " of type " +
                                 std::to_string(static_cast<int>(type)) + ", " + std::to_string(outer) +
                                 " x " + std::to_string(length) + " x " + std::to_string(inner);
        const Bytes x = randomBytes(
            random, type,
            static_cast<std::size_t>(outer) * static_cast<std::size_t>(length * inner) * elementBytes(type),
            exact);
        expectEqual(spec, {x}, {Bytes(static_cast<std::size_t>(outer * inner) * 4, 0xcd)}, {spec.output},
                    exact ? 0 : 1e-4, what);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_F(CudaDevice, ChoosesAndGathers) {
  Random random{14};
  for (const auto& [outer, length, inner] : {std::tuple<std::int64_t, std::int64_t, std::int64_t>{1, 1, 1},
                                             {5, 7, 1},
                                             {300, 33, 1},
                                             {4, 5000, 1},
                                             {1, 3, 40},
                                             {2, 300, 65}}) {
    for (DType type : {DType::u8, DType::i32, DType::f16, DType::bf16, DType::f32}) {
      const Bytes x = randomBytes(
          random, type, static_cast<std::size_t>(outer * length * inner) * elementBytes(type), true);
      KernelSpec spec;
      spec.kind = KernelSpec::Kind::reduce;
      spec.outer = outer, spec.length = length, spec.inner = inner;
      spec.input = type, spec.output = DType::i32;
      spec.readCount = spec.writeCount = 1;
      for (ReduceHow how : {ReduceHow::argmax, ReduceHow::argmin}) {
        spec.how = how;
        expectEqual(spec, {x}, {Bytes(static_cast<std::size_t>(outer * inner) * 4, 0xcd)}, {DType::i32}, 0,
                    "argmax or argmin of type " + std::to_string(static_cast<int>(type)));
        if (HasFatalFailure()) return;
      }
      spec.kind = KernelSpec::Kind::gather;
      spec.count = 5, spec.readCount = 2;
      const std::int32_t indices[] = {-1, 0, static_cast<std::int32_t>(length) - 1,
                                      static_cast<std::int32_t>(length), INT32_MIN};
      Bytes places(sizeof(indices));
      std::memcpy(places.data(), indices, sizeof(indices));
      const std::size_t bytes = static_cast<std::size_t>(outer * spec.count * inner) * elementBytes(type);
      expectEqual(spec, {x, places}, {Bytes(bytes, 0xcd)}, {type}, 0,
                  "gather of type " + std::to_string(static_cast<int>(type)));
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(CudaDevice, SortsScansJoinsAndTakesAlong) {
  Random random{19};
  for (const auto& [outer, length, inner] : {std::tuple<std::int64_t, std::int64_t, std::int64_t>{1, 1, 1},
                                             {5, 7, 1},
                                             {300, 33, 1},
                                             {4, 5000, 1},
                                             {1, 20000, 1},
                                             {1, 3, 40},
                                             {2, 300, 65}}) {
    for (DType type : {DType::u8, DType::i32, DType::f16, DType::bf16, DType::f32}) {
      const bool whole = type == DType::u8 || type == DType::i32;
      const std::size_t elements = static_cast<std::size_t>(outer * length * inner);
      const Bytes x = randomBytes(random, type, elements * elementBytes(type), true);
      const std::string what = " of type " + std::to_string(static_cast<int>(type)) + ", " +
                               std::to_string(outer) + " x " + std::to_string(length) + " x " +
                               std::to_string(inner);
      KernelSpec spec;
      spec.outer = outer, spec.length = length, spec.inner = inner;
      spec.input = type, spec.output = DType::i32;
      spec.readCount = spec.writeCount = 1;
      spec.kind = KernelSpec::Kind::reduce;
      spec.count = std::min<std::int64_t>(length, 9);
      Bytes places(static_cast<std::size_t>(outer * spec.count * inner) * 4, 0xcd);
      for (ReduceHow how : {ReduceHow::argmax, ReduceHow::argmin}) {
        spec.how = how;
        expectEqual(spec, {x}, {places}, {DType::i32}, 0, "several positions" + what);
        if (HasFatalFailure()) return;
      }
      for (std::size_t i = 0; i < places.size(); i += 4) {
        const auto index = static_cast<std::int32_t>(random.below(length + 2)) - 1;
        std::memcpy(places.data() + i, &index, 4);
      }
      spec.kind = KernelSpec::Kind::gather;
      spec.along = true, spec.readCount = 2;
      expectEqual(spec, {x, places}, {Bytes(places.size() / 4 * elementBytes(type), 0xcd)}, {type}, 0,
                  "an index for each element" + what);
      if (HasFatalFailure()) return;
      spec.kind = KernelSpec::Kind::scan;
      spec.output = whole ? DType::i32 : DType::f32, spec.readCount = 1;
      // Of whole numbers, so that every order of additions gives the same sums.
      const Bytes small = whole ? randomBytes(random, type, elements * elementBytes(type))
                                : wholeBytes(random, type, elements * elementBytes(type));
      expectEqual(spec, {small}, {Bytes(elements * 4, 0xcd)}, {spec.output}, whole ? 0 : 1e-4, "scan" + what);
      if (HasFatalFailure()) return;
      // As many positions as there are elements, and the rows that have them added to where these say.
      spec.kind = KernelSpec::Kind::reduce;
      spec.output = DType::i32, spec.how = ReduceHow::argmin, spec.count = length;
      Bytes all(elements * 4, 0xcd);
      expectEqual(spec, {x}, {all}, {DType::i32}, 0, "all positions" + what);
      if (HasFatalFailure()) return;
      std::vector<std::int32_t> keys(static_cast<std::size_t>(length)), order(keys.size());
      for (auto& key : keys) key = static_cast<std::int32_t>(random.below(13)) - 1;
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), [&](std::int32_t p, std::int32_t q) {
        return keys[static_cast<std::size_t>(p)] < keys[static_cast<std::size_t>(q)];
      });
      const auto bytesOf = [](const std::vector<std::int32_t>& words) {
        Bytes bytes(words.size() * 4);
        std::memcpy(bytes.data(), words.data(), bytes.size());
        return bytes;
      };
      spec.kind = KernelSpec::Kind::scatterAdd;
      spec.length = 11, spec.output = whole ? DType::i32 : DType::f32, spec.readCount = 3;
      const Bytes sums(static_cast<std::size_t>(outer * spec.length * inner) * 4, 0xcd);
      expectEqual(spec, {small, bytesOf(keys), bytesOf(order)}, {sums}, {spec.output}, 0,
                  "scatterAdd" + what);
      if (HasFatalFailure()) return;
      spec.kind = KernelSpec::Kind::append;
      spec.length = length, spec.output = DType::i32;
      spec.count = std::min<std::int64_t>(length, 3), spec.readCount = 3;
      for (const std::int32_t at : {-1, 0, static_cast<std::int32_t>(length) - 1}) {
        Bytes position(4);
        std::memcpy(position.data(), &at, 4);
        const Bytes rows = randomBytes(
            random, type, static_cast<std::size_t>(outer * spec.count * inner) * elementBytes(type), true);
        // The write's memory begins with the values of the first read, as in a plan, where they are one.
        expectEqual(spec, {x, rows, position}, {x}, {type}, 0, "append" + what);
        if (HasFatalFailure()) return;
      }
      spec.kind = KernelSpec::Kind::join;
      spec.readCount = 2;
      spec.pieces = {{length, false, 0}, {4, true, 3}, {length, false, 0}, {2, true, whole ? 0 : -INFINITY}};
      const std::size_t joined = static_cast<std::size_t>(outer * (2 * length + 6) * inner);
      for (std::size_t shift : {std::size_t{0}, elementBytes(type)}) {
        expectEqual(spec, {x, small}, {Bytes(joined * elementBytes(type), 0xcd)}, {type}, 0, "join" + what,
                    shift);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_F(CudaDevice, DrawsTheSameRandomNumbers) {
  for (const std::int64_t count : {1, 7, 4096, 1000003})
    for (DType type : {DType::i32, DType::f32, DType::f16, DType::bf16}) {
      KernelSpec spec;
      spec.kind = KernelSpec::Kind::random;
      spec.count = count, spec.seed = 0x1234567890123, spec.stream = 1, spec.output = type;
      spec.readCount = 2, spec.writeCount = 1;
      const Bytes turn{3, 0, 0, 0x80};
      const std::size_t bytes = static_cast<std::size_t>(count) * elementBytes(type);
      expectEqual(spec, {turn, turn}, {Bytes(bytes, 0xcd)}, {type}, 0,
                  "random of type " + std::to_string(static_cast<int>(type)));
      if (HasFatalFailure()) return;
    }
}

KernelSpec product(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t batch, bool transposeB,
                   DType type, DType result) {
  KernelSpec spec;
  spec.kind = KernelSpec::Kind::matmul;
  spec.m = m, spec.n = n, spec.k = k, spec.batch = batch, spec.transposeB = transposeB;
  spec.a = {type, m * k}, spec.b = {type, n * k}, spec.c = {result, m * n};
  if (batch == 1) spec.a.batchStride = spec.b.batchStride = spec.c.batchStride = 0;
  spec.readCount = 2, spec.writeCount = 1;
  return spec;
}

TEST_F(CudaDevice, MultipliesMatrices) {
  Random random{10};
  for (const auto& [m, n, k, batch] : {std::tuple{1, 1, 1, 1},
                                       {3, 5, 7, 1},
                                       {64, 48, 32, 1},
                                       {17, 128, 256, 3},
                                       {128, 1, 64, 1},
                                       {33, 65, 2, 1},
                                       {256, 256, 512, 2}}) {
    for (const int transposed : {0, 1, 2, 3}) {
      for (const auto& [type, result] : {std::pair{DType::f32, DType::f32},
                                         {DType::f16, DType::f16},
                                         {DType::bf16, DType::bf16},
                                         {DType::bf16, DType::f32}}) {
        for (std::size_t shift : {std::size_t{0}, std::size_t{32}, elementBytes(result)}) {
          KernelSpec spec = product(m, n, k, batch, (transposed & 1) != 0, type, result);
          spec.transposeA = (transposed & 2) != 0;
          if (batch == 3) spec.b.batchStride = 0;
          const auto bytes = [&](std::int64_t elements) {
            return static_cast<std::size_t>(elements) * elementBytes(type);
          };
          const Bytes a = randomBytes(random, type, bytes(m * k * batch), false),
                      b = randomBytes(random, type, bytes(n * k * batch), false);
          expectEqual(spec, {a, b},
                      {Bytes(static_cast<std::size_t>(m * n * batch) * elementBytes(result), 0xcd)}, {result},
                      result == DType::f32 ? 1e-5 : 1e-2,
                      "matmul " + std::to_string(m) + " x " + std::to_string(n) + " x " + std::to_string(k) +
                          " of type " + std::to_string(static_cast<int>(type)) + " shifted by " +
                          std::to_string(shift),
                      shift);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST_F(CudaDevice, MultipliesMatricesThatLieInLargerOnes) {
  Random random{12};
  for (const auto& [m, n, k, batch] :
       {std::tuple{3, 5, 7, 1}, {64, 48, 32, 1}, {17, 128, 256, 3}, {2, 128, 256, 1}, {256, 256, 512, 2}})
    for (const int transposed : {0, 1, 2, 3})
      for (const DType type : {DType::f32, DType::f16, DType::bf16})
        for (const std::int64_t more : {8, 3}) {
          KernelSpec spec = product(m, n, k, batch, (transposed & 1) != 0, type, type);
          spec.transposeA = (transposed & 2) != 0;
          spec.a.rowStride = (spec.transposeA ? m : k) + more, spec.a.offset = 2 * more;
          spec.b.rowStride = (spec.transposeB ? k : n) + 2 * more, spec.b.offset = more;
          if (batch > 1) spec.a.batchStride = spec.a.rowStride * (m + k), spec.b.batchStride = 8;
          const auto values = [&](std::int64_t elements) {
            return randomBytes(random, type, static_cast<std::size_t>(elements) * elementBytes(type), false);
          };
          const Bytes a = values(spec.endOfA()), b = values(spec.endOfB());
          expectEqual(spec, {a, b},
                      {Bytes(static_cast<std::size_t>(m * n * batch) * elementBytes(type), 0xcd)}, {type},
                      type == DType::f32 ? 1e-5 : 1e-2,
                      "matmul " + std::to_string(m) + " x " + std::to_string(n) + " x " + std::to_string(k) +
                          " in larger ones, of type " + std::to_string(static_cast<int>(type)));
          if (HasFatalFailure()) return;
        }
}

TEST_F(CudaDevice, ProductsWriteWhatTheirActivationIsComputedOf) {
  Random random{13};
  for (const auto& [m, n, k, batch] :
       {std::tuple{40, 64, 32, 1}, {3, 128, 256, 1}, {17, 33, 20, 1}, {24, 64, 40, 3}, {512, 768, 512, 1}})
    for (const DType type : {DType::f32, DType::f16, DType::bf16})
      for (const Activation activation : {Activation::gelu, Activation::relu})
        for (const bool bias : {true, false}) {
          KernelSpec spec = product(m, n, k, batch, false, type, type);
          spec.epilogue.activation = activation, spec.epilogue.bias = bias, spec.epilogue.auxiliary = true;
          spec.epilogue.scale = 0.25;
          spec.readCount = bias ? 3 : 2, spec.writeCount = 2;
          const auto values = [&](std::int64_t elements) {
            return randomBytes(random, type, static_cast<std::size_t>(elements) * elementBytes(type), false);
          };
          std::vector<Bytes> reads{values(m * k * batch), values(n * k * batch)};
          if (bias) reads.push_back(values(n));
          const Bytes c(static_cast<std::size_t>(m * n * batch) * elementBytes(type), 0xcd);
          expectEqual(spec, reads, {c, c}, {type, type}, type == DType::f32 ? 1e-5 : 1e-2,
                      "an auxiliary output of " + std::to_string(m) + " x " + std::to_string(n) +
                          " of type " + std::to_string(static_cast<int>(type)) +
                          (bias ? " with a bias" : ""));
          if (HasFatalFailure()) return;
        }
}

TEST_F(CudaDevice, MultipliesMixedTypesByItsOwnKernel) {
  Random random{11};
  KernelSpec spec = product(50, 70, 33, 2, true, DType::f32, DType::bf16);
  spec.b.dtype = DType::f16;
  const Bytes a = randomBytes(random, DType::f32, 50 * 33 * 2 * 4, false),
              b = randomBytes(random, DType::f16, 70 * 33 * 2 * 2, false);
  expectEqual(spec, {a, b}, {Bytes(50 * 70 * 2 * 2)}, {DType::bf16}, 1e-2, "matmul of f32 and f16");
}

TEST_F(CudaDevice, RunsAUsersKernel) {
  KernelSpec spec;
  spec.kind = KernelSpec::Kind::cuda;
  spec.name = "axpy";
  spec.source =
      "extern \"C\" __global__ void axpy(const float* x, float* y, int n, float a) {\n"
      "  int i = blockIdx.x * blockDim.x + threadIdx.x;\n  if (i < n) y[i] = a * x[i] + 1.0f;\n}\n";
  spec.grid = {4, 1, 1}, spec.block = {256, 1, 1};
  spec.scalars = {{false, 1000, 0}, {true, 0, 2.5f}};
  spec.readCount = spec.writeCount = 1;
  Bytes x(4000), y(4000);
  for (int i = 0; i < 1000; ++i) {
    const float value = static_cast<float>(i);
    std::memcpy(&x[static_cast<std::size_t>(i) * 4], &value, 4);
  }
  std::vector<Bytes> writes{y};
  ASSERT_EQ(runOn(*gpu_, false, spec, {x}, &writes), Status::ok) << gpu_->lastDetail();
  for (std::size_t i = 0; i < 1000; ++i)
    ASSERT_EQ(elementOf(writes[0], DType::f32, i), static_cast<double>(i) * 2.5 + 1);

  std::unique_ptr<Kernel> kernel;
  spec.source = "extern \"C\" __global__ void axpy() {\n  nonsense;\n}";
  EXPECT_EQ(gpu_->prepare(&kernel, spec, {}), Status::invalidImage);
  EXPECT_NE(gpu_->lastDetail().find("axpy.cu(2)"), std::string::npos) << gpu_->lastDetail();
}

TEST_F(CudaDevice, OrdersStreamsByEvents) {
  const Stream first = stream(*gpu_), second = stream(*gpu_);
  const Event mark = event(*gpu_), from = event(*gpu_, true), to = event(*gpu_, true);
  constexpr std::size_t kWords = 64 << 20;
  const DeviceAddress a = allocate(*gpu_, kWords * 4), b = allocate(*gpu_, kWords * 4);
  std::vector<std::uint32_t> last(1);
  ASSERT_EQ(gpu_->fill32(a, 1, kWords, first), Status::ok);
  ASSERT_EQ(gpu_->eventRecord(from, first), Status::ok);
  for (std::uint32_t i = 2; i <= 20; ++i) ASSERT_EQ(gpu_->fill32(a, i, kWords, first), Status::ok);
  ASSERT_EQ(gpu_->eventRecord(to, first), Status::ok);
  ASSERT_EQ(gpu_->eventRecord(mark, first), Status::ok);
  ASSERT_EQ(gpu_->streamWait(second, mark), Status::ok);
  ASSERT_EQ(gpu_->copy(CopyKind::deviceToDevice, b, a, kWords * 4, second), Status::ok);
  ASSERT_EQ(gpu_->copy(CopyKind::deviceToHost, address(last.data()), b + kWords * 4 - 4, 4, second),
            Status::ok);
  std::atomic<bool> ran{false};
  ASSERT_EQ(gpu_->hostFunction(
                second, [](void* flag) { static_cast<std::atomic<bool>*>(flag)->store(true); }, &ran),
            Status::ok);
  ASSERT_EQ(gpu_->streamSynchronize(second), Status::ok);
  EXPECT_TRUE(ran);
  EXPECT_EQ(last[0], 20u);
  EXPECT_EQ(gpu_->eventSynchronize(mark), Status::ok);
  EXPECT_EQ(gpu_->eventQuery(mark), Status::ok);
  float milliseconds = 0;
  EXPECT_EQ(gpu_->eventElapsed(&milliseconds, from, to), Status::ok) << gpu_->lastDetail();
  EXPECT_GT(milliseconds, 0);
  for (Event each : {mark, from, to}) EXPECT_EQ(gpu_->eventDestroy(each), Status::ok);
  for (Stream each : {first, second}) EXPECT_EQ(gpu_->streamDestroy(each), Status::ok);
  gpu_->memFree(a);
  gpu_->memFree(b);
}

// With every stream held, each takes as many pieces as reported, and no call blocks.
TEST_F(CudaDevice, StreamsHoldAsMuchAsReported) {
  const DeviceAddress memory = allocate(*gpu_, 512);
  for (const std::size_t count : {1, 7, 15, 31}) {
    SCOPED_TRACE(count);
    const Stream gate = stream(*gpu_);
    const Event opened = event(*gpu_);
    std::vector<Stream> held;
    for (std::size_t i = 0; i < count; ++i) held.push_back(stream(*gpu_));
    const std::size_t depth = gpu_->streamDepth();
    ASSERT_GT(depth, 100u);
    std::atomic<bool> open{false}, done{false};
    const auto wait = [](void* flag) {
      while (!static_cast<std::atomic<bool>*>(flag)->load()) std::this_thread::yield();
    };
    ASSERT_EQ(gpu_->hostFunction(gate, wait, &open), Status::ok);
    ASSERT_EQ(gpu_->eventRecord(opened, gate), Status::ok);
    for (const Stream each : held) ASSERT_EQ(gpu_->streamWait(each, opened), Status::ok);
    std::thread filling([&] {
      gpu_->bind();
      for (std::size_t piece = 1; piece < depth; ++piece)
        for (const Stream each : held) EXPECT_EQ(gpu_->fill32(memory, 1, 1, each), Status::ok);
      done = true;
    });
    for (int i = 0; i < 2000 && !done; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_TRUE(done) << "a call blocks though no stream holds more than " << depth;
    open = true;
    filling.join();
    held.push_back(gate);
    for (const Stream each : held) {
      EXPECT_EQ(gpu_->streamSynchronize(each), Status::ok);
      gpu_->streamDestroy(each);
    }
    gpu_->eventDestroy(opened);
  }
  gpu_->memFree(memory);
}

TEST_F(CudaDevice, MovesPagesBetweenAddresses) {
  const std::size_t bytes = gpu_->info().pageBytes;
  if (bytes == 0) GTEST_SKIP() << "no virtual memory management";
  DeviceAddress range = 0;
  Pages pages = nullptr;
  const Stream on = stream(*gpu_);
  ASSERT_EQ(gpu_->addressReserve(&range, 2 * bytes), Status::ok) << gpu_->lastDetail();
  ASSERT_EQ(gpu_->pagesCreate(&pages, bytes), Status::ok) << gpu_->lastDetail();
  ASSERT_EQ(gpu_->pagesMap(range, bytes, pages), Status::ok) << gpu_->lastDetail();
  ASSERT_EQ(gpu_->fill32(range, 42, bytes / 4, on), Status::ok);
  ASSERT_EQ(gpu_->streamSynchronize(on), Status::ok);
  ASSERT_EQ(gpu_->pagesUnmap(range, bytes), Status::ok);
  ASSERT_EQ(gpu_->pagesMap(range + bytes, bytes, pages), Status::ok);
  std::uint32_t value = 0;
  ASSERT_EQ(gpu_->copy(CopyKind::deviceToHost, address(&value), range + 2 * bytes - 4, 4, on), Status::ok);
  ASSERT_EQ(gpu_->streamSynchronize(on), Status::ok);
  EXPECT_EQ(value, 42u);
  EXPECT_EQ(gpu_->pagesUnmap(range + bytes, bytes), Status::ok);
  EXPECT_EQ(gpu_->pagesRelease(pages), Status::ok);
  EXPECT_EQ(gpu_->addressRelease(range, 2 * bytes), Status::ok);
  gpu_->streamDestroy(on);
}

TEST_F(CudaDevice, ReportsTheWantedBytesWhenMemoryIsShort) {
  DeviceAddress none = 0;
  EXPECT_EQ(gpu_->memAllocate(&none, std::size_t{1} << 50), Status::outOfMemory);
  EXPECT_NE(gpu_->lastDetail().find(std::to_string(std::size_t{1} << 50)), std::string::npos);
}

// The product of bar 2, and what its preparation leaves behind. Prints the rate, for comparison with the
// library's own users.
TEST_F(CudaDevice, MultipliesLargeMatricesAtFullRate) {
  KernelSpec spec = product(6144, 8192, 8192, 1, false, DType::bf16, DType::bf16);
  spec.workspace = 32 << 20;
  spec.writeCount = 2;
  std::size_t total = 0, before = 0, after = 0;
  std::unique_ptr<Kernel> warm, kernel;
  ASSERT_EQ(gpu_->prepare(&warm, product(256, 256, 256, 1, false, DType::bf16, DType::bf16), {}), Status::ok)
      << gpu_->lastDetail();
  ASSERT_EQ(gpu_->memInfo(&before, &total), Status::ok);
  if (before < std::size_t{4} << 30) GTEST_SKIP() << "too little memory";
  const auto clock = [] { return std::chrono::steady_clock::now(); };
  const auto from = clock();
  ASSERT_EQ(gpu_->prepare(&kernel, spec, {}), Status::ok) << gpu_->lastDetail();
  const double seconds = std::chrono::duration<double>(clock() - from).count();
  // Other processes allocate on the same device meanwhile, so the least of several attempts counts.
  std::size_t left = SIZE_MAX;
  for (int attempt = 0; attempt < 5; ++attempt) {
    ASSERT_EQ(gpu_->memInfo(&after, &total), Status::ok);
    left = std::min(left, before - std::min(before, after));
    kernel.reset();
    ASSERT_EQ(gpu_->memInfo(&before, &total), Status::ok);
    ASSERT_EQ(gpu_->prepare(&kernel, spec, {}), Status::ok) << gpu_->lastDetail();
  }
  EXPECT_LE(left, std::size_t{64} << 20);  // code, but none of the scratch

  const DeviceAddress reads[] = {allocate(*gpu_, 6144ull * 8192 * 2), allocate(*gpu_, 8192ull * 8192 * 2)};
  const DeviceAddress writes[] = {allocate(*gpu_, 6144ull * 8192 * 2), allocate(*gpu_, spec.workspace)};
  const Stream on = stream(*gpu_);
  const Event start = event(*gpu_, true), stop = event(*gpu_, true);
  Random random{12};
  const Bytes noise = randomBytes(random, DType::bf16, 8192ull * 64 * 2, false);
  for (const auto& [to, rows] : {std::pair{reads[0], 6144ull}, {reads[1], 8192ull}}) {
    for (unsigned long long row = 0; row < rows; row += 64)
      gpu_->copy(CopyKind::hostToDevice, to + row * 8192 * 2, address(noise.data()), noise.size(), on);
  }
  float best = 1e9f;
  for (int round = 0; round < 5; ++round) {
    float milliseconds = 0;
    gpu_->eventRecord(start, on);
    for (int i = 0; i < 20; ++i)
      ASSERT_EQ(gpu_->launch(*kernel, reads, writes, on), Status::ok) << gpu_->lastDetail();
    gpu_->eventRecord(stop, on);
    ASSERT_EQ(gpu_->eventSynchronize(stop), Status::ok);
    ASSERT_EQ(gpu_->eventElapsed(&milliseconds, start, stop), Status::ok);
    best = std::min(best, milliseconds / 20);
  }
  std::printf("6144 x 8192 x 8192 bf16: %.3f ms, %.1f TFLOP/s; prepared in %.3f s\n", best,
              2.0 * 6144 * 8192 * 8192 / best / 1e9, seconds);
  EXPECT_GT(2.0 * 6144 * 8192 * 8192 / best / 1e9, 10.0);
  gpu_->eventDestroy(start);
  gpu_->eventDestroy(stop);
  gpu_->streamDestroy(on);
  for (DeviceAddress each : {reads[0], reads[1], writes[0], writes[1]}) gpu_->memFree(each);
}

// A kernel that writes where nothing is ends its context. Where the driver can recover, one opened afterwards
// computes again; where it cannot, opening says what to do, and the process lives on with other devices.
class CudaDeviceDeathTest : public CudaDevice {
 protected:
  void breakTheContext();
};

void CudaDeviceDeathTest::breakTheContext() {
  KernelSpec spec;
  spec.kind = KernelSpec::Kind::cuda;
  spec.name = "wild";
  spec.source = "extern \"C\" __global__ void wild(float* y) { y[1ull << 40] = 1.0f; }";
  spec.writeCount = 1;
  {
    std::unique_ptr<Kernel> multiply, kernel;
    ASSERT_EQ(gpu_->prepare(&multiply, product(64, 64, 64, 1, false, DType::bf16, DType::bf16), {}),
              Status::ok)
        << gpu_->lastDetail();
    ASSERT_EQ(gpu_->prepare(&kernel, spec, {}), Status::ok) << gpu_->lastDetail();
    const Stream on = stream(*gpu_);
    const DeviceAddress somewhere = allocate(*gpu_, 512);
    gpu_->launch(*kernel, nullptr, &somewhere, on);
    const Status status = gpu_->streamSynchronize(on);
    EXPECT_TRUE(isSticky(status)) << statusName(status);
    EXPECT_NE(gpu_->lastDetail(), "");
  }
  gpu_.reset();
  std::string detail;
  const Status again = openCuda(&gpu_, 0, &detail);
  if (again != Status::ok) {
    EXPECT_TRUE(isSticky(again)) << statusName(again);
    EXPECT_NE(detail.find("start it again"), std::string::npos) << detail;
    gpu_.reset();
  } else {
    ASSERT_EQ(gpu_->bind(), Status::ok);
    Random random{13};
    const Bytes a = randomBytes(random, DType::bf16, 64 * 64 * 2, false),
                b = randomBytes(random, DType::bf16, 64 * 64 * 2, false);
    expectEqual(product(64, 64, 64, 1, false, DType::bf16, DType::bf16), {a, b}, {Bytes(64 * 64 * 2)},
                {DType::bf16}, 1e-2, "matmul after a sticky error");
  }
  std::unique_ptr<Driver> other;
  EXPECT_EQ(openHost(&other, HostOptions{}, &detail), Status::ok) << detail;
}

// In a process of its own: no later test of this one could use the GPU.
TEST_F(CudaDeviceDeathTest, ReportsWhatToDoAfterAStickyError) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        breakTheContext();
        std::exit(HasFailure() ? 1 : 0);
      },
      testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace braid::test
