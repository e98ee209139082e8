#include "kernels/cpu.h"
#include "test/cuda/emulated.h"

// The kernels for products, run on the processor: the answers are those of the host device's kernel.

namespace braid::test {
namespace {

using namespace braid::cuda;

struct Product {
  KernelSpec spec;
  bool few = false;
  std::vector<std::vector<std::uint8_t>> reads;
  std::vector<std::uint8_t> wanted, auxiliary;
};

// One of all combinations of what may follow the sum.
MatmulEpilogue epilogueOf(std::size_t which) {
  MatmulEpilogue epilogue;
  epilogue.bias = which % 2 != 0;
  epilogue.activation = std::array{Activation::none, Activation::gelu, Activation::relu}[which / 2 % 3];
  epilogue.residual = epilogue.activation == Activation::none && which / 6 % 2 != 0;
  epilogue.auxiliary = epilogue.activation != Activation::none && which % 7 < 4;
  epilogue.scale = which % 5 == 0 ? 1 : -0.125;
  return epilogue;
}

Product productOf(Random& random, DType type, const std::array<std::int64_t, 3>& sizes, bool transposed,
                  std::size_t which) {
  Product one;
  KernelSpec& spec = one.spec;
  spec.kind = KernelSpec::Kind::matmul;
  spec.m = sizes[0], spec.n = sizes[1], spec.k = sizes[2];
  spec.transposeB = transposed;
  spec.a.dtype = spec.b.dtype = type;
  spec.c.dtype = which % 4 == 3 ? DType::f32 : type;
  spec.epilogue = epilogueOf(which);
  // Some lie in a larger matrix.
  const auto lies = [&](MatmulOperand& operand, std::int64_t columns) {
    operand.rowStride = (columns + 23) / 8 * 8, operand.offset = 16;
  };
  if (which % 3 == 1) lies(spec.a, spec.k);
  if (which % 3 == 2 || which % 7 == 1) lies(spec.b, transposed ? spec.k : spec.n);
  const auto values = [&](std::int64_t count, DType of) {
    one.reads.push_back(randomBytes(random, of, static_cast<std::size_t>(count) * elementBytes(of), false));
  };
  values(spec.endOfA(), type), values(spec.endOfB(), type);
  if (spec.epilogue.bias) values(spec.n, spec.c.dtype);
  if (spec.epilogue.residual) values(spec.m * spec.n, spec.c.dtype);
  one.wanted.resize(static_cast<std::size_t>(spec.m * spec.n) * elementBytes(spec.c.dtype));
  std::string detail;
  CpuKernelResult host;
  EXPECT_EQ(prepareCpu(&host, spec, {}, &detail), Status::ok) << detail;
  std::vector<DeviceAddress> addresses;
  for (auto& read : one.reads) addresses.push_back(reinterpret_cast<DeviceAddress>(read.data()));
  addresses.push_back(reinterpret_cast<DeviceAddress>(one.wanted.data()));
  if (spec.epilogue.auxiliary) one.auxiliary.resize(one.wanted.size());
  addresses.push_back(reinterpret_cast<DeviceAddress>(one.auxiliary.data()));
  Scratch scratch;
  EXPECT_TRUE(host->run(addresses.data(), scratch, Part::all));
  return one;
}

TEST(CudaMatmul, MeansWhatTheHostsKernelMeans) {
  Emulation emulation("matmul");
  Random random{20261123};
  std::vector<Product> products;
  std::size_t clusters = 0, splits = 0, auxiliaries = 0;
  // Rows of c, columns, and the length of the sum. What is no multiple of 16 bytes is left to the tiled
  // kernel.
  for (const DType type : {DType::bf16, DType::f16, DType::f32})
    for (const std::array<std::int64_t, 3>& sizes : {std::array<std::int64_t, 3>{1, 72, 641},
                                                     {1, 13, 2048},
                                                     {4, 200, 136},
                                                     {3, 8, 1000},
                                                     {2, 77, 264},
                                                     {2, 9, 63},
                                                     {1, 1, 8},
                                                     {5, 24, 40},
                                                     {70, 131, 35}})
      for (const bool transposed : {false, true}) {
        Product one = productOf(random, type, sizes, transposed, products.size());
        KernelSource source;
        const int architecture = products.size() % 5 == 0 ? 80 : 90;
        one.few = fewRowsSource(one.spec, architecture, products.size() % 2 == 0 ? 8 : 132, &source);
        const std::int64_t unit = 16 / static_cast<std::int64_t>(elementBytes(type));
        EXPECT_EQ(one.few, sizes[0] <= 4 && (transposed ? sizes[2] : sizes[1]) % unit == 0);
        if (!one.few) matmulSource(one.spec, &source);
        clusters += source.text.find("__cluster_dims__(") != std::string::npos ? 1 : 0;
        splits += one.few && transposed && source.text.find("SPLIT = 1;") == std::string::npos ? 1 : 0;
        std::vector<const char*> types{"const A", "const B"};
        types.insert(types.end(), one.spec.epilogue.reads(), "const C");
        types.insert(types.end(), one.spec.epilogue.writes(), "C");
        auxiliaries += one.few && one.spec.epilogue.auxiliary ? 1 : 0;
        emulation.add("c" + std::to_string(products.size()), source, types, one.reads, one.wanted.size(), "",
                      {}, one.auxiliary.size());
        products.push_back(std::move(one));
      }
  EXPECT_GE(clusters, 5u);
  EXPECT_GE(splits, 5u);
  EXPECT_GE(auxiliaries, 5u);
  ASSERT_TRUE(emulation.run());
  for (std::size_t i = 0; i < products.size(); ++i) {
    const Product& one = products[i];
    const DType type = one.spec.c.dtype;
    const std::string entry = one.few ? "braid_matmul_few" : "braid_matmul";
    const auto expectNear = [&](const std::string& which, const std::vector<std::uint8_t>& wanted) {
      const auto found = emulation.result("c" + std::to_string(i), which, wanted.size());
      double largest = 0;
      for (std::size_t e = 0; e < found.size() / elementBytes(type); ++e)
        largest = std::max(largest, std::abs(elementOf(wanted, type, e)));
      const double allowed = largest * (type == DType::f32 ? 1e-5 : type == DType::f16 ? 1e-3 : 8e-3);
      for (std::size_t e = 0; e < found.size() / elementBytes(type); ++e)
        ASSERT_NEAR(elementOf(found, type, e), elementOf(wanted, type, e), allowed)
            << "product " << i << ", " << which << ", element " << e;
    };
    expectNear(entry, one.wanted);
    if (one.spec.epilogue.auxiliary) expectNear(entry + "-more", one.auxiliary);
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace braid::test
