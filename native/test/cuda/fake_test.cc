// The cuda device over a fake driver (fake/cuda.cc): what is loaded, called, mapped and released.
// device_test.cc checks the results of real kernels on a GPU.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <thread>
#include <vector>

#include "cuda/probe.h"
#include "executor/session.h"
#include "kernels/cpu.h"
#include "kernels/half.h"
#include "test/cuda/fake.h"
#include "test/cuda/specs.h"

namespace braid::test {
namespace {

KernelSpec scale(std::int64_t count) {
  KernelSpec spec;
  spec.kind = KernelSpec::Kind::map;
  spec.shape = {count};
  spec.operands = {{DType::f32, 0, {1}}};
  spec.code = {{MapOp::operand, 0}, {MapOp::constant, 0, 0, 0, 2}, {MapOp::mul, 0, 1}};
  spec.results = {{2, DType::f32}};
  spec.readCount = spec.writeCount = 1;
  return spec;
}

KernelSpec user(const std::string& name, const std::string& source) {
  KernelSpec spec;
  spec.kind = KernelSpec::Kind::cuda;
  spec.name = name;
  spec.source = source;
  spec.readCount = spec.writeCount = 1;
  return spec;
}

TEST_F(CudaFake, ReadsTheDevice) {
  const DeviceInfo& info = driver_->info();
  EXPECT_EQ(info.kind, "cuda");
  EXPECT_EQ(info.name, "Fake GPU");
  EXPECT_EQ(info.computeMajor, 9);
  EXPECT_EQ(info.driverVersion, 13000);
  EXPECT_EQ(info.greatestPriority, -5);
  EXPECT_EQ(info.pageBytes, std::size_t{2} << 20);
}

TEST_F(CudaFake, ClampsPriorities) {
  for (int priority : {-100, 0, 100}) {
    Stream stream = nullptr;
    ASSERT_EQ(driver_->streamCreate(&stream, priority), Status::ok) << priority;
    EXPECT_EQ(driver_->streamDestroy(stream), Status::ok);
  }
}

TEST_F(CudaFake, PassesCodesThroughWithTheCallAndTheBytes) {
  failNext("cuMemAlloc_v2", 2);
  DeviceAddress address = 0;
  EXPECT_EQ(driver_->memAllocate(&address, 4096), Status::outOfMemory);
  EXPECT_EQ(driver_->lastDetail(), "cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY (out of memory) for 4096 bytes");
}

TEST_F(CudaFake, NotReadyIsAnAnswerNotAFailure) {
  Stream stream = nullptr;
  ASSERT_EQ(driver_->streamCreate(&stream, 0), Status::ok);
  cuda::detail() = "before";
  failNext("cuStreamQuery", 600);
  EXPECT_EQ(driver_->streamQuery(stream), Status::notReady);
  EXPECT_EQ(driver_->lastDetail(), "before");
  EXPECT_EQ(driver_->streamQuery(stream), Status::ok);
  driver_->streamDestroy(stream);
}

TEST_F(CudaFake, TimesOnlyTimedEvents) {
  Stream stream = nullptr;
  Event timed = nullptr, other = nullptr, plain = nullptr;
  ASSERT_EQ(driver_->streamCreate(&stream, 0), Status::ok);
  ASSERT_EQ(driver_->eventCreate(&timed, EventKind::timed), Status::ok);
  ASSERT_EQ(driver_->eventCreate(&other, EventKind::timed), Status::ok);
  ASSERT_EQ(driver_->eventCreate(&plain, EventKind::order), Status::ok);
  for (Event event : {timed, other, plain}) EXPECT_EQ(driver_->eventRecord(event, stream), Status::ok);
  float milliseconds = 0;
  EXPECT_EQ(driver_->eventElapsed(&milliseconds, timed, other), Status::ok);
  EXPECT_EQ(driver_->eventElapsed(&milliseconds, timed, plain), Status::invalidHandle);
  for (Event event : {timed, other, plain}) driver_->eventDestroy(event);
  driver_->streamDestroy(stream);
}

TEST_F(CudaFake, UnmapsWhatCannotBeMadeAccessible) {
  const std::size_t bytes = driver_->info().pageBytes;
  DeviceAddress address = 0;
  Pages pages = nullptr;
  ASSERT_EQ(driver_->addressReserve(&address, bytes), Status::ok);
  ASSERT_EQ(driver_->pagesCreate(&pages, bytes), Status::ok);
  failNext("cuMemSetAccess", 999);
  EXPECT_EQ(driver_->pagesMap(address, bytes, pages), Status::unknown);
  EXPECT_EQ(live("mapping"), 0);
  ASSERT_EQ(driver_->pagesMap(address, bytes, pages), Status::ok);
  EXPECT_EQ(driver_->pagesUnmap(address, bytes), Status::ok);
  EXPECT_EQ(driver_->pagesRelease(pages), Status::ok);
  EXPECT_EQ(driver_->addressRelease(address, bytes), Status::ok);
}

TEST_F(CudaFake, CopiesInEveryDirectionAndNothingAtAll) {
  std::vector<int> source{1, 2, 3}, target(3);
  DeviceAddress device = 0;
  ASSERT_EQ(driver_->memAllocate(&device, 12), Status::ok);
  const auto host = [](std::vector<int>& memory) { return reinterpret_cast<DeviceAddress>(memory.data()); };
  KernelSpec spec;
  spec.bytes = 12;
  spec.readCount = spec.writeCount = 1;
  for (const auto& [direction, from, to] :
       {std::tuple{0, host(source), device}, std::tuple{1, device, host(target)}}) {
    spec.direction = direction;
    std::unique_ptr<Kernel> kernel;
    ASSERT_EQ(driver_->prepare(&kernel, spec, {}), Status::ok);
    EXPECT_EQ(driver_->launch(*kernel, &from, &to, nullptr), Status::ok);
  }
  EXPECT_EQ(target, source);
  const int before = calls("cuMemcpyDtoDAsync_v2");
  EXPECT_EQ(driver_->copy(CopyKind::deviceToDevice, device, device, 0, nullptr), Status::ok);
  EXPECT_EQ(calls("cuMemcpyDtoDAsync_v2"), before);
  EXPECT_EQ(driver_->fill32(device, 7, 3, nullptr), Status::ok);
  EXPECT_EQ(*reinterpret_cast<int*>(device), 7);
  // Two rows of one element, eight bytes apart, of each size.
  for (const std::uint32_t each : {4u, 2u, 1u})
    EXPECT_EQ(driver_->fill(NodeParams::fill(device, 0x01020304u * each, each, 1, 2, 8), nullptr),
              Status::ok);
  const auto* words = reinterpret_cast<unsigned*>(device);
  EXPECT_EQ(words[0], 0x04080604u);
  EXPECT_EQ(words[1], 7u);
  EXPECT_EQ(words[2], 0x04080604u);
  EXPECT_EQ(driver_->fill(NodeParams::fill(device, 9, 4, 3), nullptr), Status::ok);
  EXPECT_EQ(words[1], 9u);
  driver_->memFree(device);
}

TEST_F(CudaFake, TakesTheVectorKernelOnlyWhereAddressesAllowIt) {
  std::unique_ptr<Kernel> kernel;
  ASSERT_EQ(driver_->prepare(&kernel, scale(1000), {}), Status::ok) << driver_->lastDetail();
  const DeviceAddress aligned = 1 << 20, odd = aligned + 4;
  EXPECT_EQ(driver_->launch(*kernel, &aligned, &aligned, nullptr), Status::ok);
  EXPECT_EQ(lastLaunch(), "braid_map_vector");
  EXPECT_EQ(driver_->launch(*kernel, &odd, &aligned, nullptr), Status::ok);
  EXPECT_EQ(lastLaunch(), "braid_map");
  EXPECT_EQ(driver_->launch(*kernel, &aligned, &odd, nullptr), Status::ok);
  EXPECT_EQ(lastLaunch(), "braid_map");
}

TEST_F(CudaFake, CompilesOneSourceOnce) {
  std::unique_ptr<Kernel> first, second, other;
  const int before = calls("nvrtcCompileProgram");
  ASSERT_EQ(driver_->prepare(&first, scale(1000), {}), Status::ok);
  ASSERT_EQ(driver_->prepare(&second, scale(2000), {}),
            Status::ok);  // the count is an argument, not part of the source
  EXPECT_EQ(calls("nvrtcCompileProgram"), before + 1);
}

TEST_F(CudaFake, AKernelMayOutliveItsDriver) {
  std::unique_ptr<Kernel> kernel;
  ASSERT_EQ(driver_->prepare(&kernel, scale(8), {}), Status::ok);
  driver_.reset();
  EXPECT_EQ(live("context"), 1);
  kernel.reset();
  EXPECT_EQ(live("context"), 0);
}

TEST_F(CudaFake, KeepsTheContextOfADeviceOnceAndBeyondItsDrivers) {
  std::unique_ptr<Driver> first, second;
  ASSERT_EQ(cuda::CudaDriver::open(1, kFake, &first), Status::ok);
  ASSERT_EQ(cuda::CudaDriver::open(1, kFake, &second), Status::ok);
  const int before = live("context");
  for (Driver* each : {first.get(), second.get(), first.get()})
    static_cast<cuda::CudaDriver*>(each)->keepContext();
  EXPECT_EQ(live("context"), before + 1);
  first.reset();
  second.reset();
  EXPECT_EQ(live("context"), before - 1);
  std::string problem;
  cuda::DriverLibrary::open(kFake.driver, &problem)->call.cuDevicePrimaryCtxRelease(1);
}

TEST_F(CudaFake, ShowsTheCompilersLogWithTheUsersLines) {
  std::unique_ptr<Kernel> kernel;
  EXPECT_EQ(driver_->prepare(&kernel, user("twice", "\n\n#error\n"), {}), Status::invalidImage);
  EXPECT_NE(driver_->lastDetail().find("did not compile twice.cu (--gpu-architecture=sm_90a)"),
            std::string::npos)
      << driver_->lastDetail();
  EXPECT_NE(driver_->lastDetail().find("(3): error"), std::string::npos);
}

TEST_F(CudaFake, ReportsHowToNameAKernel) {
  std::unique_ptr<Kernel> kernel;
  EXPECT_EQ(driver_->prepare(&kernel, user("missing", "extern \"C\" __global__ void other() {}"), {}),
            Status::notFound);
  EXPECT_NE(driver_->lastDetail().find("extern \"C\" __global__ void missing"), std::string::npos);
}

TEST_F(CudaFake, ChecksLaunchesAgainstTheDevicesLimits) {
  const std::string source = "extern \"C\" __global__ void f() {}";
  std::unique_ptr<Kernel> kernel;
  KernelSpec tooWide = user("f", source);
  tooWide.block = {64, 32, 1};
  EXPECT_EQ(driver_->prepare(&kernel, tooWide, {}), Status::launchOutOfResources);
  KernelSpec noGrid = user("f", source);
  noGrid.grid = {1, 0, 1};
  EXPECT_EQ(driver_->prepare(&kernel, noGrid, {}), Status::invalidValue);
  KernelSpec tooMuch = user("f", source);
  tooMuch.sharedBytes = 300000;
  EXPECT_EQ(driver_->prepare(&kernel, tooMuch, {}), Status::launchOutOfResources);
  KernelSpec large = user("f", source);
  large.sharedBytes = 100000;  // more than the default 48 KiB, which takes an attribute
  const int before = calls("cuFuncSetAttribute");
  EXPECT_EQ(driver_->prepare(&kernel, large, {}), Status::ok);
  EXPECT_EQ(calls("cuFuncSetAttribute"), before + 1);
}

// A row that does not fit the registers of a block; the function is told of the shared memory before a
// launch.
TEST_F(CudaFake, LaunchesLongRowsWithSharedMemory) {
  KernelSpec rows = scale(0);
  rows.shape = {3, 65536};
  rows.operands[0].strides = {65536, 1};
  rows.code = {{MapOp::operand, 0}, {MapOp::rowMax, 0}, {MapOp::sub, 0, 1}};
  std::unique_ptr<Kernel> kernel;
  const int before = calls("cuFuncSetAttribute");
  ASSERT_EQ(driver_->prepare(&kernel, rows, {}), Status::ok);
  EXPECT_GT(calls("cuFuncSetAttribute"), before);
  const DeviceAddress aligned = 1 << 20, odd = aligned + 4;
  for (const DeviceAddress address : {aligned, odd})
    EXPECT_EQ(driver_->launch(*kernel, &address, &address, nullptr), Status::ok) << driver_->lastDetail();
}

// The check itself is the one that the host device's tests hold to every reason.
TEST_F(CudaFake, RefusesWhatEveryDeviceRefuses) {
  std::unique_ptr<Kernel> kernel;
  const auto refused = [&](const KernelSpec& spec, const std::string& reason) {
    EXPECT_EQ(driver_->prepare(&kernel, spec, {}), Status::invalidValue);
    EXPECT_NE(driver_->lastDetail().find(reason), std::string::npos) << driver_->lastDetail();
    EXPECT_EQ(kernel, nullptr);
  };
  KernelSpec spec;
  spec.direction = 7;
  refused(spec, "copy: unknown direction 7");
  spec = scale(8);
  spec.code[2].b = 2;
  refused(spec, "names value 2, which is not an earlier one");
  spec = scale(8);
  spec.readCount = 2;
  refused(spec, "the run has 2 reads and 1 writes, the kernel wants 1 and 1");
  spec = {};
  spec.kind = KernelSpec::Kind::reduce;
  refused(spec, "reduce: outer, length and inner");
  spec.kind = KernelSpec::Kind::matmul;
  refused(spec, "matmul: m, n, k and batch");
  spec.m = spec.n = spec.k = 4;
  spec.a.dtype = DType::i32;
  refused(spec, "matmul: a must be f32, f16 or bf16");
}

struct Shape {
  std::int64_t m, n, k, batch;
  bool transposeB, sharedB;
};

TEST_F(CudaFake, MultipliesRowMajorMatrices) {
  for (const Shape& shape : {Shape{3, 5, 7, 1, false, false}, Shape{4, 2, 3, 1, true, false},
                             Shape{2, 3, 4, 3, false, true}, Shape{2, 3, 4, 3, true, false}}) {
    KernelSpec spec;
    spec.kind = KernelSpec::Kind::matmul;
    spec.m = shape.m, spec.n = shape.n, spec.k = shape.k, spec.batch = shape.batch,
    spec.transposeB = shape.transposeB;
    spec.a.batchStride = shape.m * shape.k;
    spec.b.batchStride = shape.sharedB ? 0 : shape.n * shape.k;
    spec.c.batchStride = shape.m * shape.n;
    spec.readCount = 2, spec.writeCount = 1;
    std::vector<float> a(static_cast<std::size_t>(shape.m * shape.k * shape.batch)),
        b(static_cast<std::size_t>(shape.n * shape.k * shape.batch)),
        c(static_cast<std::size_t>(shape.m * shape.n * shape.batch), -1);
    for (std::size_t i = 0; i < a.size(); ++i) a[i] = static_cast<float>(i % 7) - 2;
    for (std::size_t i = 0; i < b.size(); ++i) b[i] = static_cast<float>(i % 5) - 1;
    std::unique_ptr<Kernel> kernel;
    ASSERT_EQ(driver_->prepare(&kernel, spec, {}), Status::ok) << driver_->lastDetail();
    EXPECT_EQ(live("memory"), 0);  // what was tried was tried on scratch, and given back
    const DeviceAddress reads[] = {reinterpret_cast<DeviceAddress>(a.data()),
                                   reinterpret_cast<DeviceAddress>(b.data())};
    const DeviceAddress write = reinterpret_cast<DeviceAddress>(c.data());
    ASSERT_EQ(driver_->launch(*kernel, reads, &write, nullptr), Status::ok) << driver_->lastDetail();
    for (std::int64_t l = 0; l < shape.batch; ++l) {
      for (std::int64_t i = 0; i < shape.m; ++i) {
        for (std::int64_t j = 0; j < shape.n; ++j) {
          float sum = 0;
          for (std::int64_t p = 0; p < shape.k; ++p) {
            sum += a[static_cast<std::size_t>(l * spec.a.batchStride + i * shape.k + p)] *
                   b[static_cast<std::size_t>(l * spec.b.batchStride +
                                              (shape.transposeB ? j * shape.k + p : p * shape.n + j))];
          }
          ASSERT_EQ(c[static_cast<std::size_t>(l * spec.c.batchStride + i * shape.n + j)], sum);
        }
      }
    }
  }
}

// The library gets the steps after the product, and the host's kernel yields the same.
TEST_F(CudaFake, ProductsHaveAnEpilogue) {
  for (const int steps : {1, 2, 3, 5, 9, 13, 11, 4, 8}) {  // bits: bias, residual, gelu, scale
    if ((steps & 6) == 6) continue;
    KernelSpec spec;
    spec.kind = KernelSpec::Kind::matmul;
    spec.m = 3, spec.n = 5, spec.k = 4;
    spec.a.dtype = spec.b.dtype = spec.c.dtype = DType::f32;
    spec.epilogue.bias = (steps & 1) != 0, spec.epilogue.residual = (steps & 2) != 0;
    spec.epilogue.activation = (steps & 4) != 0 ? Activation::gelu : Activation::none;
    spec.epilogue.scale = (steps & 8) != 0 ? -0.75 : 1;
    std::vector<float> a(12), b(20), bias(5), residual(15), found(15), wanted(15);
    for (std::size_t i = 0; i < 20; ++i) b[i] = static_cast<float>(i % 5) - 1;
    for (std::size_t i = 0; i < 12; ++i) a[i] = static_cast<float>(i % 7) / 4 - 1;
    for (std::size_t i = 0; i < 15; ++i) residual[i] = static_cast<float>(i) / 3;
    for (std::size_t i = 0; i < 5; ++i) bias[i] = 2 - static_cast<float>(i) / 2;
    std::vector<DeviceAddress> reads;
    for (const float* each : {a.data(), b.data()}) reads.push_back(reinterpret_cast<DeviceAddress>(each));
    if (spec.epilogue.bias) reads.push_back(reinterpret_cast<DeviceAddress>(bias.data()));
    if (spec.epilogue.residual) reads.push_back(reinterpret_cast<DeviceAddress>(residual.data()));
    spec.readCount = reads.size(), spec.writeCount = 1;
    std::unique_ptr<Kernel> kernel;
    ASSERT_EQ(driver_->prepare(&kernel, spec, {}), Status::ok) << driver_->lastDetail();
    EXPECT_EQ(live("memory"), 0);
    const DeviceAddress write = reinterpret_cast<DeviceAddress>(found.data());
    ASSERT_EQ(driver_->launch(*kernel, reads.data(), &write, nullptr), Status::ok) << driver_->lastDetail();
    std::string detail;
    CpuKernelResult host;
    ASSERT_EQ(prepareCpu(&host, spec, {}, &detail), Status::ok) << detail;
    reads.push_back(reinterpret_cast<DeviceAddress>(wanted.data()));
    Scratch scratch;
    ASSERT_TRUE(host->run(reads.data(), scratch, Part::all));
    for (std::size_t i = 0; i < 15; ++i) EXPECT_NEAR(found[i], wanted[i], 1e-5) << steps << " " << i;
  }
}

// The library reads rows at their strides, and writes the auxiliary output of gelu where it can; else a
// kernel follows that computes the activation of it. So it is of relu, whose auxiliary output would be a
// mask.
TEST_F(CudaFake, ProductsHaveRowStridesAndAnAuxiliaryOutput) {
  for (const DType type : {DType::bf16, DType::f32})
    for (const std::int64_t n : {8, 5})
      for (const std::int64_t batch : {1, 2})
        for (const Activation activation : {Activation::gelu, Activation::relu}) {
          KernelSpec spec;
          spec.kind = KernelSpec::Kind::matmul;
          spec.m = 3, spec.n = n, spec.k = 4, spec.batch = batch;
          spec.a = {type, 40, 10, 3}, spec.b = {type, 0, 12, 2}, spec.c = {type, 3 * n};
          spec.epilogue.bias = true, spec.epilogue.auxiliary = true, spec.epilogue.activation = activation;
          spec.readCount = 3, spec.writeCount = 2;
          const std::size_t size = elementBytes(type), count = static_cast<std::size_t>(3 * n * batch);
          Random random{static_cast<std::uint64_t>(n)};
          std::vector<std::uint8_t> a = randomBytes(random, type, 100 * size, false),
                                    b = randomBytes(random, type, 60 * size, false),
                                    bias = randomBytes(random, type, 8 * size, false);
          struct Both {
            std::vector<std::uint8_t> c, auxiliary;
          } found{std::vector<std::uint8_t>(count * size), std::vector<std::uint8_t>(count * size)},
              wanted = found;
          std::vector<DeviceAddress> reads;
          for (const auto* each : {&a, &b, &bias})
            reads.push_back(reinterpret_cast<DeviceAddress>(each->data()));
          const auto writesOf = [](Both& both) {
            return std::array{reinterpret_cast<DeviceAddress>(both.c.data()),
                              reinterpret_cast<DeviceAddress>(both.auxiliary.data())};
          };
          std::string detail;
          CpuKernelResult host;
          ASSERT_EQ(prepareCpu(&host, spec, {}, &detail), Status::ok) << detail;
          std::vector<DeviceAddress> all = reads;
          for (const DeviceAddress write : writesOf(wanted)) all.push_back(write);
          Scratch scratch;
          ASSERT_TRUE(host->run(all.data(), scratch, Part::all));
          std::unique_ptr<Kernel> kernel;
          ASSERT_EQ(driver_->prepare(&kernel, spec, {}), Status::ok) << driver_->lastDetail();
          EXPECT_EQ(live("memory"), 0);
          const bool whole = activation == Activation::gelu && type == DType::bf16 && n == 8;
          EXPECT_EQ(kernel->pieces(), whole ? 3u : 4u);
          const int launches = calls("cuLaunchKernel");
          const auto writes = writesOf(found);
          ASSERT_EQ(driver_->launch(*kernel, reads.data(), writes.data(), nullptr), Status::ok)
              << driver_->lastDetail();
          EXPECT_EQ(calls("cuLaunchKernel") - launches, whole ? 0 : 1);
          // The fake runs no kernels: of several layers, the bias is apart too.
          for (std::size_t i = 0; i < count; ++i) {
            if (whole) {
              EXPECT_NEAR(elementOf(found.c, type, i), elementOf(wanted.c, type, i), 0.05) << i;
            }
            if (whole || batch == 1) {
              EXPECT_NEAR(elementOf(found.auxiliary, type, i), elementOf(wanted.auxiliary, type, i), 0.05)
                  << i;
            }
          }
          const DeviceAddress odd[] = {writes[0], writes[1] + 2};
          EXPECT_EQ(driver_->launch(*kernel, reads.data(), odd, nullptr), Status::misalignedAddress);
        }
}

// The library's relu is taken where it keeps a NaN and makes +0 of -0; else a kernel follows the product.
TEST_F(CudaFake, ReluOfTheLibraryIsTakenWhereItIsExact) {
  const auto relu = fake<void(int, int)>("fake_relu");
  for (const DType type : {DType::bf16, DType::f16, DType::f32})
    for (int steps = 0; steps < 16; ++steps) {  // bits: a bias, layers, keeps a NaN, makes +0 of -0
      const bool keepsNaN = (steps & 4) != 0, dropsSign = (steps & 8) != 0;
      KernelSpec spec;
      spec.kind = KernelSpec::Kind::matmul;
      spec.m = 3, spec.n = 5, spec.k = 4, spec.batch = (steps & 2) != 0 ? 2 : 1;
      spec.a = {type, 12}, spec.b = {type, 0}, spec.c = {type, 15};
      spec.epilogue.bias = (steps & 1) != 0, spec.epilogue.scale = -0.5;
      spec.epilogue.activation = Activation::relu;
      spec.readCount = 2 + spec.epilogue.reads(), spec.writeCount = 1;
      const std::size_t size = elementBytes(type);
      std::vector<std::uint8_t> a(24 * size), b(20 * size), bias(5 * size), found(30 * size),
          wanted(30 * size);
      const auto put = [&](std::vector<std::uint8_t>& to, std::size_t i, float value) {
        if (type == DType::f32) return static_cast<void>(std::memcpy(&to[i * 4], &value, 4));
        const std::uint16_t bits = type == DType::f16 ? f16FromFloat(value) : bf16FromFloat(value);
        std::memcpy(&to[i * 2], &bits, 2);
      };
      // The first row of a is zeros, whose products are scaled to -0, and the second has a NaN.
      for (std::size_t i = 4; i < 24; ++i) put(a, i, static_cast<float>(i % 7) - 3);
      put(a, 5, std::numeric_limits<float>::quiet_NaN());
      for (std::size_t i = 0; i < 20; ++i) put(b, i, static_cast<float>(i % 5) - 1);
      for (std::size_t i = 0; i < 5; ++i) put(bias, i, i == 0 ? -0.0f : 2 - static_cast<float>(i));
      std::vector<DeviceAddress> reads{reinterpret_cast<DeviceAddress>(a.data()),
                                       reinterpret_cast<DeviceAddress>(b.data())};
      if (spec.epilogue.bias) reads.push_back(reinterpret_cast<DeviceAddress>(bias.data()));
      const auto computed = [&](const KernelSpec& of, std::vector<std::uint8_t>& to) {
        std::string detail;
        CpuKernelResult host;
        ASSERT_EQ(prepareCpu(&host, of, {}, &detail), Status::ok) << detail;
        std::vector<DeviceAddress> all = reads;
        all.push_back(reinterpret_cast<DeviceAddress>(to.data()));
        Scratch scratch;
        ASSERT_TRUE(host->run(all.data(), scratch, Part::all));
      };
      relu(keepsNaN, dropsSign);
      std::unique_ptr<Driver> driver;
      ASSERT_EQ(cuda::CudaDriver::open(0, kFake, &driver), Status::ok) << cuda::detail();
      ASSERT_EQ(driver->bind(), Status::ok);
      std::unique_ptr<Kernel> kernel;
      ASSERT_EQ(driver->prepare(&kernel, spec, {}), Status::ok) << driver->lastDetail();
      EXPECT_EQ(live("memory"), 0);
      const int launches = calls("cuLaunchKernel");
      const DeviceAddress write = reinterpret_cast<DeviceAddress>(found.data());
      ASSERT_EQ(driver->launch(*kernel, reads.data(), &write, nullptr), Status::ok) << driver->lastDetail();
      const bool exact = keepsNaN && dropsSign;
      EXPECT_EQ(calls("cuLaunchKernel") - launches, exact ? 0 : 1);
      EXPECT_EQ(kernel->pieces(), exact ? 3u : 4u);
      // The fake runs no kernels: what relu would find is there.
      KernelSpec given = spec;
      if (!exact) given.epilogue.activation = Activation::none;
      // With several layers, that kernel adds the bias too.
      if (!exact && spec.batch > 1) given.epilogue.bias = false;
      if (!given.epilogue.bias) reads.resize(2), given.readCount = 2;
      computed(given, wanted);
      for (std::size_t i = 0; i < static_cast<std::size_t>(spec.batch) * 15; ++i) {
        if (i % 15 / 5 == 1 && i < 15)
          EXPECT_TRUE(std::isnan(elementOf(found, type, i))) << steps << " " << i;
        else
          EXPECT_EQ(std::memcmp(&found[i * size], &wanted[i * size], size), 0) << steps << " " << i;
      }
    }
  relu(1, 1);
}

// Nothing is asked of a library that need not read its operands.
TEST_F(CudaFake, ProductsScaledByZeroAreMultipliedByItsOwnKernel) {
  KernelSpec spec;
  spec.kind = KernelSpec::Kind::matmul;
  spec.m = spec.n = spec.k = 5;
  spec.epilogue.scale = 1e-60;  // 0 in f32
  std::unique_ptr<Kernel> kernel;
  ASSERT_EQ(driver_->prepare(&kernel, spec, {}), Status::ok) << driver_->lastDetail();
  const DeviceAddress addresses[] = {512, 512};
  EXPECT_EQ(driver_->launch(*kernel, addresses, addresses, nullptr), Status::ok);
  EXPECT_EQ(lastLaunch(), "braid_matmul");
}

// Events of the fake are a millisecond apart, whatever is between them, so the kernel for few rows is as fast
// as the library. It wants operands of 16 bytes; the library takes any.
TEST_F(CudaFake, ProductsOfFewRowsHaveAKernelOfTheirOwn) {
  KernelSpec spec;
  spec.kind = KernelSpec::Kind::matmul;
  spec.m = 2, spec.n = 8, spec.k = 4;
  std::vector<float> a(9, 1), b(32, 2), c(16, -1);
  const auto prepared = [&] {
    std::unique_ptr<Kernel> kernel;
    EXPECT_EQ(driver_->prepare(&kernel, spec, {}), Status::ok) << driver_->lastDetail();
    EXPECT_EQ(live("memory"), 0);
    return kernel;
  };
  const auto launch = [&](const Kernel& kernel, const float* from) {
    const DeviceAddress reads[] = {reinterpret_cast<DeviceAddress>(from),
                                   reinterpret_cast<DeviceAddress>(b.data())};
    const DeviceAddress write = reinterpret_cast<DeviceAddress>(c.data());
    EXPECT_EQ(driver_->launch(kernel, reads, &write, nullptr), Status::ok) << driver_->lastDetail();
  };
  const auto taken = prepared();
  ASSERT_EQ(reinterpret_cast<std::uintptr_t>(a.data()) % 16, 0u);
  launch(*taken, a.data());
  EXPECT_EQ(lastLaunch(), "braid_matmul_few");
  EXPECT_EQ(c[0], -1);  // the fake runs no kernels
  launch(*taken, a.data() + 1);
  EXPECT_EQ(c[0], 8);
  spec.m = 5;
  a.assign(20, 3);
  c.assign(40, -1);
  launch(*prepared(), a.data());
  EXPECT_EQ(c[39], 24);
}

TEST_F(CudaFake, MultipliesOtherTypesByItsOwnKernel) {
  KernelSpec spec;
  spec.kind = KernelSpec::Kind::matmul;
  spec.m = spec.n = spec.k = 4;
  spec.a.dtype = DType::f16;  // with b in f32: cuBLASLt has no such product
  std::unique_ptr<Kernel> kernel;
  ASSERT_EQ(driver_->prepare(&kernel, spec, {}), Status::ok) << driver_->lastDetail();
  const DeviceAddress addresses[] = {512, 512};
  EXPECT_EQ(driver_->launch(*kernel, addresses, addresses, nullptr), Status::ok);
  EXPECT_EQ(lastLaunch(), "braid_matmul");
}

// Every call of a preparation made to fail in turn: a code, never a crash, and nothing left behind.
TEST_F(CudaFake, SurvivesTheFailureOfAnyCall) {
  for (const char* call : {"cuModuleLoadDataEx", "cuModuleGetFunction", "cuFuncGetAttribute",
                           "cublasLtCreate", "cublasLtMatrixLayoutCreate", "cublasLtMatmulAlgoGetHeuristic",
                           "cuMemAlloc_v2", "cuStreamCreateWithPriority", "cuEventCreate", "cublasLtMatmul",
                           "cuMemsetD32Async", "cuMemcpyDtoHAsync_v2", "cuStreamSynchronize"}) {
    for (int nth = 1; nth <= 12; ++nth) {
      std::unique_ptr<Driver> driver;
      ASSERT_EQ(cuda::CudaDriver::open(1, kFake, &driver), Status::ok);
      failNext(call, 2, nth);
      KernelSpec product;
      product.kind = KernelSpec::Kind::matmul;
      product.m = product.n = product.k = 2;
      if (nth % 2 == 0) product.epilogue.activation = Activation::relu;
      std::unique_ptr<Kernel> first, second;
      driver->prepare(&first, product, {});
      driver->prepare(&second, scale(8), {});
      failNext("", 0);
    }
  }
  for (const char* call : {"cuInit", "cuDeviceGetCount", "cuDeviceGet", "cuDevicePrimaryCtxRetain",
                           "cuDeviceGetName", "cuDeviceTotalMem_v2", "cuCtxGetStreamPriorityRange"}) {
    failNext(call, 999);
    std::unique_ptr<Driver> driver;
    EXPECT_EQ(cuda::CudaDriver::open(0, kFake, &driver), Status::unknown) << call;
    EXPECT_NE(cuda::detail().find("CUDA_ERROR_FAKE"), std::string::npos) << call;
  }
}

TEST_F(CudaFake, OpensAgainAfterAStickyError) {
  std::unique_ptr<Kernel> kernel;
  ASSERT_EQ(driver_->prepare(&kernel, user("trap", "extern \"C\" __global__ void trap() {}"), {}),
            Status::ok);
  const DeviceAddress none[] = {0, 0};
  EXPECT_EQ(driver_->launch(*kernel, none, none, nullptr),
            Status::ok);  // asynchronous: the next call learns of it
  EXPECT_EQ(driver_->streamSynchronize(nullptr), Status::illegalAddress);
  EXPECT_TRUE(isSticky(Status::illegalAddress));
  kernel.reset();
  driver_.reset();
  ASSERT_EQ(cuda::CudaDriver::open(0, kFake, &driver_), Status::ok) << cuda::detail();
  EXPECT_EQ(driver_->streamSynchronize(nullptr), Status::ok);
}

TEST_F(CudaFake, NamesTheDevicesThatThereAre) {
  std::unique_ptr<Driver> driver;
  EXPECT_EQ(cuda::CudaDriver::open(7, kFake, &driver), Status::invalidDevice);
  EXPECT_EQ(cuda::detail(), "There is no cuda:7: there are cuda:0 to cuda:1");
  EXPECT_EQ(cuda::CudaDriver::open(-1, kFake, &driver), Status::invalidDevice);
}

TEST(CudaLibraries, ReportWhatWasSearchedAndWhatToDo) {
  std::unique_ptr<Driver> driver;
  EXPECT_EQ(cuda::CudaDriver::open(0, {{"libbraid-absent.so.1"}, {}, {}, {}}, &driver), Status::fileNotFound);
  EXPECT_NE(cuda::detail().find("libbraid-absent.so.1"), std::string::npos);
  EXPECT_NE(cuda::detail().find("Install the NVIDIA driver"), std::string::npos);

  cuda::LibraryPaths bare = kFake;
  bare.nvrtc = bare.cublasLt = {"/nowhere/libbraid-absent.so"};
  ASSERT_EQ(cuda::CudaDriver::open(0, bare, &driver), Status::ok);  // copies need neither
  std::unique_ptr<Kernel> kernel;
  EXPECT_EQ(driver->prepare(&kernel, scale(8), {}), Status::fileNotFound);
  EXPECT_NE(driver->lastDetail().find("pip install nvidia-cuda-nvrtc"), std::string::npos);
  KernelSpec product;
  product.kind = KernelSpec::Kind::matmul;
  product.m = product.n = product.k = 2;
  EXPECT_EQ(driver->prepare(&kernel, product, {}), Status::fileNotFound);
  EXPECT_NE(driver->lastDetail().find("pip install nvidia-cuda-nvrtc"), std::string::npos);
}

TEST(CudaLibraries, ProductsAreComputedWithoutCublasLt) {
  cuda::LibraryPaths missing = kFake, off = kFake;
  missing.cublasLt = {"/nowhere/libbraid-absent.so"};
  off.useCublasLt = false;
  for (const cuda::LibraryPaths& paths : {missing, off}) {
    std::unique_ptr<Driver> driver;
    ASSERT_EQ(cuda::CudaDriver::open(0, paths, &driver), Status::ok);
    KernelSpec product;
    product.kind = KernelSpec::Kind::matmul;
    product.n = product.k = 8;
    for (const std::int64_t rows : {2, 5}) {
      product.m = rows;
      std::unique_ptr<Kernel> kernel;
      ASSERT_EQ(driver->prepare(&kernel, product, {}), Status::ok) << driver->lastDetail();
      for (const DeviceAddress at : {512, 516}) {
        const DeviceAddress addresses[] = {at, at};
        EXPECT_EQ(kernel->form(addresses, addresses), Kernel::Form::node);
        EXPECT_EQ(driver->launch(*kernel, addresses, addresses, nullptr), Status::ok);
        EXPECT_EQ(lastLaunch(), rows == 2 && at == 512 ? "braid_matmul_few" : "braid_matmul");
      }
    }
  }
}

TEST(CudaLibraries, PreferTheDriversOwnMajorVersion) {
  const auto thirteen = cuda::libraryCandidates("libnvrtc", 13000),
             twelve = cuda::libraryCandidates("libnvrtc", 12040);
  EXPECT_EQ(thirteen.front(), "libnvrtc.so.13");
  EXPECT_EQ(twelve.front(), "libnvrtc.so.12");
}

TEST(CudaLibraries, AreReportedFoundOrMissing) {
  const CudaReport full = cuda::probe(kFake);
  EXPECT_EQ(full.cudnn.use, "measured");
  EXPECT_EQ(full.cudnn.leastArchitecture, 80);
  ASSERT_EQ(full.libraries.size(), 4u);
  for (const LibraryReport& library : full.libraries) EXPECT_EQ(library.problem, "") << library.name;
  EXPECT_EQ(full.libraries[2].version, "13.1.1");
  EXPECT_EQ(full.libraries[3].version, "9.19.0");
  EXPECT_EQ(full.devices.size(), 2u);
  EXPECT_EQ(full.freeBytes.size(), 2u);
  const CudaReport none =
      cuda::probe({{"/nowhere/a.so"}, {"/nowhere/b.so"}, {"/nowhere/c.so"}, {"/nowhere/d.so"}});
  EXPECT_EQ(none.deviceCount, 0);
  for (const LibraryReport& library : none.libraries) EXPECT_NE(library.problem, "") << library.name;
}

// x goes to cuda:0, from there to cuda:1, is copied there, comes back, and goes to y: with one thread that
// makes each device current where the plan comes to it. The fake refuses work that is queued while another
// is.
TEST(SeveralFakeGpus, OneThreadIssuesForAllOfThem) {
  const int before = live();
  const auto set = fake<void(int)>("fake_reachable");
  for (const bool reachable : {true, false}) {
    for (const bool trace : {false, true}) {
      set(reachable);
      failNext("", 0);
      std::vector<std::shared_ptr<Driver>> drivers;
      for (const int ordinal : {0, 1}) {
        std::unique_ptr<Driver> driver;
        ASSERT_EQ(cuda::CudaDriver::open(ordinal, kFake, &driver), Status::ok) << cuda::detail();
        drivers.push_back(std::move(driver));
      }
      constexpr std::size_t bytes = 1024;
      const auto buffer = [](const char* name, Space space, Life life, std::uint32_t home, std::uint32_t root,
                             std::uint32_t device) {
        return BufferSpec{name, bytes, space, home, life, root, 0, -1, device};
      };
      ProgramSpec spec;
      spec.inFlight = 2;
      spec.lanes = {{"near", 0, 0}, {"far", 0, 1}};
      spec.buffers = {buffer("x", Space::pinned, Life::input, 0, 0, 0),
                      buffer("a", Space::device, Life::tick, 0, 1, 0),
                      buffer("b", Space::device, Life::tick, 1, 2, 1),
                      buffer("c", Space::device, Life::tick, 1, 3, 1),
                      buffer("d", Space::device, Life::tick, 0, 4, 0),
                      buffer("y", Space::pinned, Life::output, 0, 5, 0)};
      spec.kernels.resize(1);
      spec.kernels[0].bytes = bytes;
      spec.nodes = {{"up", 0}, {"over", 0}, {"same", 0}, {"back", 0}, {"down", 0}};
      spec.events = 4;
      spec.devices = {{4096, 0}, {4096, 0}};
      spec.boundPinned = 4 * bytes;
      spec.commands = {0, 1, 0, 2, 0, 0, 1, 1, 0, 1, 3, 0, 0, 4, 0, 1, 0, 0, 2, 1, 2, 1, 1, 1, 1, 1, 2, 3,
                       1, 1, 5, 1, 1, 1, 1, 1, 0, 3, 1, 2, 2, 1, 1, 1, 2, 3, 1, 2, 3, 2, 1, 4, 2, 0, 0, 0,
                       4, 0, 2, 3, 0, 1, 1, 3, 4, 3, 3, 0, 5, 3, 0, 3, 1, 3, 2, 4, 0, 1, 1, 4, 5, 1, 4};
      SessionOptions options;
      std::atomic<std::uint64_t> ended{0};
      std::string problem;
      options.onTick = [&](std::uint64_t, const Failure* failure) {
        if (failure != nullptr) problem = failure->op + ": " + failure->detail;
        ++ended;
      };
      options.poison = true;
      options.trace = trace;
      const int peers = calls("cuCtxEnablePeerAccess"), copies = calls("cuMemcpyPeerAsync");
      MaybeFailure failure;
      auto session = Session::open(drivers, spec, options, &failure);
      ASSERT_TRUE(session) << (failure ? failure->op + ": " + failure->detail : "");
      for (std::uint64_t tick = 0; tick < 6; ++tick) {
        std::memset(session->pinned(0, tick % 2), static_cast<int>(tick) + 1, bytes);
        ASSERT_TRUE(session->submit(tick));
        while (ended <= tick) std::this_thread::yield();
        ASSERT_EQ(problem, "");
        const auto* y = static_cast<const unsigned char*>(session->pinned(5, tick % 2));
        for (std::size_t i = 0; i < bytes; ++i) ASSERT_EQ(y[i], tick + 1);
      }
      EXPECT_EQ(calls("cuMemcpyPeerAsync") - copies, 12)
          << "two a tick, whether or not they reach each other";
      EXPECT_EQ(calls("cuCtxEnablePeerAccess") - peers, reachable ? 2 : 0) << "both ways, once";
      session->close();
    }
  }
  set(true);
  EXPECT_EQ(live(), before);
}

// The same way as one graph, launched on cuda:0. What is gathered on cuda:1 is captured there. Where the two
// cannot reach each other, or nodes record events, each of them has graphs of its own.
TEST(SeveralFakeGpus, OneLaunchStartsAllOfThem) {
  const int before = live();
  const auto set = fake<void(int)>("fake_reachable");
  constexpr std::size_t bytes = 1024;
  const auto buffer = [](const char* name, Space space, Life life, std::uint32_t root, std::uint32_t device,
                         std::uint64_t size, std::int64_t offset) {
    return BufferSpec{name, size, space, device, life, root, 0, offset, device};
  };
  ProgramSpec spec;
  spec.inFlight = 2;
  spec.planned = true;
  spec.lanes = {{"near", 0, 0}, {"far", 0, 1}};
  spec.buffers = {buffer("x", Space::pinned, Life::input, 0, 0, bytes, -1),
                  buffer("a", Space::device, Life::tick, 1, 0, bytes, 0),
                  buffer("b", Space::device, Life::tick, 2, 1, bytes, 0),
                  buffer("c", Space::device, Life::tick, 3, 1, 2 * bytes, bytes),
                  buffer("d", Space::device, Life::tick, 4, 0, bytes, bytes),
                  buffer("y", Space::pinned, Life::output, 5, 0, bytes, -1)};
  spec.kernels.resize(2);
  spec.kernels[0].bytes = bytes;
  spec.kernels[1].bytes = 2 * bytes;
  spec.kernels[1].parts = 2;
  spec.nodes = {{"up", 0}, {"over", 0}, {"twice", 1}, {"back", 0}, {"down", 0}};
  spec.events = 2;
  spec.devices = {{2 * bytes, 2 * bytes}, {3 * bytes, 3 * bytes}};
  spec.boundPinned = 4 * bytes;
  spec.commands = {2, 0, 0, 1, 1, 0, 1, 3, 0, 0, 4, 0, 1, 0, 2, 1, 1, 1, 1, 1, 2, 2, 2, 1, 2,
                   1, 2, 2, 3, 3, 1, 1, 4, 1, 0, 0, 2, 3, 0, 1, 1, 3, 4, 2, 4, 0, 1, 1, 4, 5};
  spec.graphs = {{0}, {9}, {0, 4}, {0, 3, 3, 4, 4, 7, 7, 8}};
  for (const bool reachable : {true, false}) {
    for (const bool trace : {false, true}) {
      set(reachable);
      failNext("", 0);
      // The fake has no memory behind the addresses of pages.
      caching::Options plain;
      plain.expandable = false;
      std::vector<std::shared_ptr<DeviceMemory>> devices;
      for (const int ordinal : {0, 1}) {
        std::unique_ptr<Driver> driver;
        ASSERT_EQ(cuda::CudaDriver::open(ordinal, kFake, &driver), Status::ok) << cuda::detail();
        devices.push_back(std::make_shared<DeviceMemory>(std::move(driver), plain, plain));
      }
      SessionOptions options;
      std::atomic<std::uint64_t> ended{0};
      std::string problem;
      options.onTick = [&](std::uint64_t, const Failure* failure) {
        if (failure != nullptr) problem = failure->op + ": " + failure->detail;
        ++ended;
      };
      options.poison = true;
      options.trace = trace;
      const int launches = calls("cuGraphLaunch"), captures = calls("cuStreamBeginCaptureToGraph");
      MaybeFailure failure;
      auto session = Session::open(devices, spec, options, &failure);
      ASSERT_TRUE(session) << (failure ? failure->op + ": " + failure->detail : "");
      const bool whole = reachable && !trace;
      EXPECT_EQ(calls("cuStreamBeginCaptureToGraph") - captures, whole || trace ? 2 : 1) << "by executable";
      for (std::uint64_t tick = 0; tick < 6; ++tick) {
        std::memset(session->pinned(0, tick % 2), static_cast<int>(tick) + 1, bytes);
        ASSERT_TRUE(session->submit(tick));
        while (ended <= tick) std::this_thread::yield();
        ASSERT_EQ(problem, "");
        const auto* y = static_cast<const unsigned char*>(session->pinned(5, tick % 2));
        for (std::size_t i = 0; i < bytes; ++i) ASSERT_EQ(y[i], tick + 1);
      }
      EXPECT_EQ(calls("cuGraphLaunch") - launches, whole ? 6 : 18);
      session->close();
    }
  }
  set(true);
  EXPECT_EQ(live(), before);
}

}  // namespace
}  // namespace braid::test
