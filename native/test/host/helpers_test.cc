// Large kernels, whose halves two threads compute, yield the bits that one thread alone yields: of one
// stream, and of several that ask for a helper at the same time.
#include <algorithm>
#include <cstring>
#include <thread>

#include "kernels/cpu.h"
#include "test/cuda/specs.h"
#include "test/host/support.h"

namespace braid::test {
namespace {

struct Large {
  KernelSpec spec;
  std::vector<std::pair<DType, std::int64_t>> reads;
  std::size_t bytes;  // of the result
};

std::vector<Large> largeKernels() {
  std::vector<Large> all;
  KernelSpec product;
  product.kind = KernelSpec::Kind::matmul;
  product.m = 131, product.n = 300, product.k = 257;
  product.a = {DType::bf16}, product.b = {DType::bf16}, product.c = {DType::f32};
  all.push_back({product, {{DType::bf16, 131 * 257}, {DType::bf16, 257 * 300}}, 4 * 131 * 300});
  KernelSpec map;
  map.kind = KernelSpec::Kind::map;
  map.shape = {250001};
  map.operands = {{DType::f32, 0, {1}}, {DType::u8, 0, {0}}};
  map.code = {{MapOp::operand, 0}, {MapOp::operand, 1}, {MapOp::exp, 0}, {MapOp::add, 2, 1}};
  map.results = {{3, DType::f16}};
  all.push_back({map, {{DType::f32, 250001}, {DType::u8, 1}}, 2 * 250001});
  KernelSpec rows;
  rows.kind = KernelSpec::Kind::map;
  rows.shape = {301, 1003};
  rows.operands = {{DType::f32, 0, {1003, 1}}};
  rows.code = {{MapOp::operand, 0}, {MapOp::rowMean, 0}, {MapOp::sub, 0, 1}};
  rows.results = {{2, DType::bf16}};
  all.push_back({rows, {{DType::f32, 301 * 1003}}, 2 * 301 * 1003});
  for (const auto& [outer, length, inner] : {std::tuple{3, 401, 500}, {1, 200, 3000}, {400, 501, 1}}) {
    KernelSpec sums;
    sums.kind = KernelSpec::Kind::reduce;
    sums.how = ReduceHow::sum;
    sums.outer = outer, sums.length = length, sums.inner = inner;
    sums.input = DType::f16, sums.output = DType::f32;
    all.push_back(
        {sums, {{DType::f16, outer * length * inner}}, static_cast<std::size_t>(4 * outer * inner)});
  }
  return all;
}

// Launches each kernel some times on a stream of its own and compares with what one thread computes.
void expectSameBits(Driver& driver, std::uint64_t seed) {
  Random random{seed};
  const Stream own = stream(driver);
  for (const Large& one : largeKernels()) {
    std::vector<DeviceAddress> reads;
    for (const auto& [type, count] : one.reads) {
      const auto bytes =
          randomBytes(random, type, static_cast<std::size_t>(count) * elementBytes(type), false);
      reads.push_back(allocate(driver, bytes.size()));
      std::memcpy(reinterpret_cast<void*>(reads.back()), bytes.data(), bytes.size());
    }
    CpuKernelResult alone;
    std::string detail;
    ASSERT_EQ(prepareCpu(&alone, one.spec, {}, &detail), Status::ok) << detail;
    EXPECT_TRUE(alone->flops >= 5e6 || alone->movedBytes >= 4e5);
    std::vector<std::uint8_t> wanted(one.bytes);
    std::vector<DeviceAddress> addresses = reads;
    addresses.push_back(reinterpret_cast<DeviceAddress>(wanted.data()));
    Scratch scratch;
    ASSERT_TRUE(alone->run(addresses.data(), scratch, Part::all));
    const DeviceAddress write = allocate(driver, one.bytes);
    std::unique_ptr<Kernel> kernel;
    ASSERT_EQ(driver.prepare(&kernel, one.spec, {}), Status::ok) << driver.lastDetail();
    for (int turn = 0; turn < 6; ++turn) {
      std::memset(reinterpret_cast<void*>(write), 0x5a, one.bytes);
      ASSERT_EQ(driver.launch(*kernel, reads.data(), &write, own), Status::ok);
      ASSERT_EQ(driver.streamSynchronize(own), Status::ok) << driver.lastDetail();
      EXPECT_EQ(std::memcmp(reinterpret_cast<const void*>(write), wanted.data(), one.bytes), 0);
    }
  }
}

TEST(HostHelpers, YieldTheBitsOfOneThread) {
  const auto driver = host();
  expectSameBits(*driver, 23);
}

TEST(HostHelpers, ServeSeveralStreamsAtATime) {
  const auto driver = host();
  std::vector<std::thread> threads;
  for (std::uint64_t seed = 1; seed <= 4; ++seed)
    threads.emplace_back([&driver, seed] { expectSameBits(*driver, seed); });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace braid::test
