// Products on the host device, against plain loops.
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>

#include "test/kernels/support.h"

namespace braid::test {
namespace {

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

}  // namespace
}  // namespace braid::test
