// Attention and convolutions by cuDNN over a fake of it (fake/cudnn.cc): when it is asked and taken, that a
// choice is kept, and that whatever it lacks or refuses leaves Braid's own kernel and nothing else.
#include <unistd.h>

#include <array>
#include <filesystem>

#include "cuda/cudnn/choice.h"
#include "cuda/cudnn/kernels.h"
#include "cuda/kept_files.h"
#include "cuda/probe.h"
#include "test/cuda/fake.h"

namespace braid::test {
namespace {

namespace fs = std::filesystem;
using cuda::ChoiceFiles, cuda::measuredChoices, cuda::UseCudnn;

constexpr float kFaster = -0.01f, kSlower = 0.01f;
constexpr const char* kOwn = "braid_attention_wide";

class FakeCudnn : public ::testing::Test {
 protected:
  void SetUp() override {
    failNext("", 0);
    offers();
    fs::remove_all(folder_);
    paths_.choices = folder_.string();
    before_ = live();
  }
  // Nothing that was made is left.
  void TearDown() override {
    EXPECT_EQ(live(), before_);
    failNext("", 0);
    offers();
    fake<void(int)>("fake_offer")(0);
    fs::remove_all(folder_);
  }

  static void offers(float milliseconds = kFaster, int count = 2, int version = 91900, bool writes = false) {
    fake<void(int, int, float, int)>("fake_cudnn")(version, count, milliseconds, writes);
  }

  // So much work that the library is asked.
  static KernelSpec spec(std::int64_t keys = 2048) {
    KernelSpec made;
    made.kind = KernelSpec::Kind::attention;
    made.batch = 2;
    made.input = DType::bf16;
    AttentionSpec& one = made.attention;
    one.heads = 4, one.groups = 2, one.queries = 2048, one.keys = keys, one.size = one.valueSize = 64;
    one.causal = true;
    one.scale = 0.125;
    const auto place = [](std::int64_t heads, std::int64_t rows) {
      return AttentionOperand{0, {heads * rows * 64, rows * 64, 64}};
    };
    one.q = one.y = place(4, 2048);
    one.k = one.v = place(2, keys);
    made.readCount = 3, made.writeCount = 1;
    return made;
  }

  static KernelSpec conv(DType type = DType::bf16) {
    KernelSpec made;
    made.kind = KernelSpec::Kind::conv;
    made.batch = 8;
    made.input = type;
    made.conv = {1, 64, 128, {{56, 3, 1, 1, 1, 1}, {56, 3, 1, 1, 1, 1}}};
    made.readCount = 2, made.writeCount = 1;
    return made;
  }
  static KernelSpec withWorkspace(KernelSpec made, std::uint64_t bytes) {
    made.workspace = bytes;
    made.writeCount = 2;
    return made;
  }

  std::unique_ptr<Driver> opened() {
    std::unique_ptr<Driver> driver;
    EXPECT_EQ(cuda::CudaDriver::open(0, paths_, &driver), Status::ok) << cuda::detail();
    EXPECT_EQ(driver->bind(), Status::ok);
    return driver;
  }
  static std::unique_ptr<Kernel> prepared(Driver& driver, const KernelSpec& spec) {
    std::unique_ptr<Kernel> kernel;
    EXPECT_EQ(driver.prepare(&kernel, spec, {}), Status::ok) << driver.lastDetail();
    return kernel;
  }
  // The fake runs no kernel that reads them.
  static std::string launched(Driver& driver, const Kernel& kernel, DeviceAddress shift = 0) {
    alignas(16) static std::array<std::uint32_t, 64> memory{};
    const DeviceAddress at = reinterpret_cast<DeviceAddress>(memory.data()) + shift;
    const DeviceAddress reads[] = {at, at, at}, writes[] = {at, at};
    EXPECT_EQ(driver.launch(kernel, reads, writes, nullptr), Status::ok) << driver.lastDetail();
    return lastLaunch();
  }
  // What a driver of its own, as another process has, launches for a spec.
  std::string of(const KernelSpec& spec) {
    const std::unique_ptr<Driver> driver = opened();
    const std::unique_ptr<Kernel> kernel = prepared(*driver, spec);
    return launched(*driver, *kernel);
  }
  std::size_t kept() const { return ChoiceFiles(folder_.string()).count(); }

  const fs::path folder_ = fs::temp_directory_path() / ("braid-cudnn-" + std::to_string(::getpid()));
  cuda::LibraryPaths paths_ = kFake;
  int before_ = 0;
};

TEST_F(FakeCudnn, IsTakenWhereItIsFaster) {
  EXPECT_EQ(of(spec()), "cudnn 0");
  fs::remove_all(folder_);
  offers(kSlower);
  EXPECT_EQ(of(spec()), kOwn);
  fs::remove_all(folder_);
  offers(0);  // as fast, within the noise
  EXPECT_EQ(of(spec()), kOwn);
}

TEST_F(FakeCudnn, ComputesConvolutions) {
  for (const DType type : {DType::bf16, DType::f16, DType::f32}) EXPECT_EQ(of(conv(type)), "cudnn 0");
  KernelSpec audio = conv();  // of one dimension
  audio.conv.spatial = {{4096, 3, 1, 1, 1, 1}};
  EXPECT_EQ(of(audio), "cudnn 0");
  KernelSpec little = conv();
  little.batch = 1;
  little.conv.channels = 4;
  const int made = calls("cudnnCreate");
  EXPECT_NE(of(little), "cudnn 0");
  EXPECT_EQ(calls("cudnnCreate"), made);
}

TEST_F(FakeCudnn, TakesAnEngineThatFitsItsWorkspace) {
  fake<void(int)>("fake_cudnn_workspace")(256);
  for (const KernelSpec& one : {spec(), conv()}) {
    EXPECT_NE(of(one), "cudnn 0");
    EXPECT_NE(of(withWorkspace(one, 255)), "cudnn 0");
    EXPECT_EQ(of(withWorkspace(one, 256)), "cudnn 0");
  }
}

TEST_F(FakeCudnn, TakesOperandsThatAreAligned) {
  const auto driver = opened();
  const auto kernel = prepared(*driver, spec());
  const DeviceAddress aligned[] = {512, 512, 512}, shifted[] = {512, 514, 512};
  EXPECT_EQ(kernel->form(aligned, aligned), Kernel::Form::captured);
  EXPECT_EQ(kernel->pieces(), 1u);
  EXPECT_EQ(launched(*driver, *kernel), "cudnn 0");
  EXPECT_EQ(launched(*driver, *kernel, 2), "braid_attention");
  // Then a graph has a node of Braid's own kernel.
  EXPECT_EQ(kernel->form(shifted, aligned), Kernel::Form::node);
  EXPECT_TRUE(kernel->waitsForNodes());
  Graph graph = nullptr;
  GraphNode node = nullptr;
  ASSERT_EQ(driver->graphCreate(&graph), Status::ok);
  for (const auto& [reads, status] :
       {std::pair{aligned, Status::notSupported}, std::pair{shifted, Status::ok}}) {
    const auto launch = NodeParams::launch(*kernel, {reads, reads + 3}, {512});
    EXPECT_EQ(driver->nodeAdd(&node, graph, nullptr, 0, launch), status);
  }
  EXPECT_EQ(driver->graphDestroy(graph), Status::ok);
}

TEST_F(FakeCudnn, IsCapturedAsItIsLaunched) {
  const auto driver = opened();
  const auto kernel = prepared(*driver, spec());
  Stream stream = nullptr;
  Graph graph = nullptr;
  ASSERT_EQ(driver->streamCreate(&stream, 0), Status::ok);
  ASSERT_EQ(driver->captureBegin(stream, CaptureMode::threadLocal), Status::ok);
  const int runs = calls("cudnnBackendExecute");
  const DeviceAddress at[] = {512, 512, 512};
  EXPECT_EQ(driver->launch(*kernel, at, at, stream), Status::ok) << driver->lastDetail();
  EXPECT_EQ(calls("cudnnBackendExecute"), runs + 1);
  ASSERT_EQ(driver->captureEnd(stream, &graph), Status::ok);
  std::vector<GraphNode> nodes;
  EXPECT_EQ(driver->graphNodes(graph, &nodes), Status::ok);
  EXPECT_EQ(nodes.size(), kernel->pieces());
  EXPECT_EQ(driver->graphDestroy(graph), Status::ok);
  EXPECT_EQ(driver->streamDestroy(stream), Status::ok);
}

TEST_F(FakeCudnn, HasOnePlanForEqualProblems) {
  const auto driver = opened();
  const auto first = prepared(*driver, spec());
  const int made = calls("cudnnBackendCreateDescriptor");
  const auto second = prepared(*driver, spec());
  EXPECT_EQ(calls("cudnnBackendCreateDescriptor"), made);
  EXPECT_EQ(launched(*driver, *second), "cudnn 0");
  for (const double scale : {1e-7, 2e-7}) {
    KernelSpec other = spec();
    other.attention.scale = scale;
    const int before = calls("cudnnBackendCreateDescriptor");
    prepared(*driver, other);
    EXPECT_GT(calls("cudnnBackendCreateDescriptor"), before) << scale;
  }
}

TEST_F(FakeCudnn, IsNotAskedForWhatItDoesNotCompute) {
  std::vector<std::pair<const char*, KernelSpec>> others;
  const auto other = [&](const char* name) -> AttentionSpec& {
    others.emplace_back(name, spec());
    return others.back().second.attention;
  };
  other("a mask").masked = true, others.back().second.readCount = 4;
  others.back().second.attention.maskStrides = {0, 0, 2048, 1};
  other("a length").counted = true, others.back().second.readCount = 4;
  other("rows of 9 elements").size = 9;
  other("a scale of 0").scale = 0;
  other("a scale that is negative").scale = -0.125;
  other("strides of a row").q.strides[2] = 68;
  others.emplace_back("f32", spec()).second.input = DType::f32;
  others.emplace_back("queries that see no key", spec(1024));
  others.emplace_back("little work", spec());
  AttentionSpec& little = others.back().second.attention;
  little.queries = little.keys = 128;
  others.emplace_back("few queries", spec(1 << 20));
  AttentionSpec& few = others.back().second.attention;
  few.queries = 8;
  const DeviceAddress at[] = {512, 512, 512, 512};
  for (const auto& [name, one] : others) {
    const auto driver = opened();
    const int made = calls("cudnnCreate");
    const auto kernel = prepared(*driver, one);
    EXPECT_EQ(calls("cudnnCreate"), made) << name;
    EXPECT_EQ(kernel->form(at, at), Kernel::Form::node) << name;
  }
  KernelSpec whole = spec(1024);  // each query sees all keys
  whole.attention.causal = false;
  EXPECT_EQ(of(whole), "cudnn 0");
}

TEST_F(FakeCudnn, IsMeasuredOnce) {
  const std::uint64_t before = measuredChoices(), byCudnn = cuda::preparedByCudnn();
  EXPECT_EQ(of(spec()), "cudnn 0");
  EXPECT_EQ(measuredChoices(), before + 1);
  EXPECT_EQ(kept(), 1u);
  offers(kSlower);  // which nobody measures
  EXPECT_EQ(of(spec()), "cudnn 0");
  EXPECT_EQ(measuredChoices(), before + 1);
  fake<void(int)>("fake_offer")(1);  // engines 1 and 2
  EXPECT_EQ(of(spec()), kOwn);
  EXPECT_EQ(measuredChoices(), before + 2);
  EXPECT_EQ(of(spec()), kOwn);  // that it is not taken is kept too
  EXPECT_EQ(measuredChoices(), before + 2);
  EXPECT_EQ(kept(), 1u);
  const ChoicesReport report = cuda::probe(paths_).choices;
  EXPECT_EQ(report.byCudnn, byCudnn + 2);
  EXPECT_EQ(report.measured, measuredChoices());
}

TEST_F(FakeCudnn, IsMeasuredAnewWhereWhatWasKeptDoesNotRun) {
  EXPECT_EQ(of(spec()), "cudnn 0");
  const std::uint64_t before = measuredChoices();
  failNext("cudnnBackendExecute", 5000);
  EXPECT_EQ(of(spec()), "cudnn 0");
  EXPECT_EQ(measuredChoices(), before + 1);
}

TEST_F(FakeCudnn, IsForcedOrForbidden) {
  const std::uint64_t before = measuredChoices();
  offers(kSlower);
  paths_.useCudnn = UseCudnn::always;
  EXPECT_EQ(of(spec()), "cudnn 0");
  KernelSpec little = spec();
  little.attention.queries = little.attention.keys = 32;
  EXPECT_EQ(of(little), "cudnn 0");
  EXPECT_EQ(measuredChoices(), before);
  EXPECT_EQ(kept(), 0u);
  offers(kFaster);
  paths_.useCudnn = UseCudnn::never;
  const int made = calls("cudnnCreate");
  EXPECT_EQ(of(spec()), kOwn);
  EXPECT_EQ(calls("cudnnCreate"), made);
  const LibraryReport report = cuda::probe(paths_).libraries.back();
  EXPECT_EQ(report.found, "");
  EXPECT_NE(report.problem.find("BRAID_CUDNN=off"), std::string::npos);
}

TEST_F(FakeCudnn, IsNotNeeded) {
  paths_.cudnn = {"/nowhere/libcudnn.so.9"};
  EXPECT_EQ(of(spec()), kOwn);
  EXPECT_NE(cuda::probe(paths_).libraries.back().problem.find("/nowhere/libcudnn.so.9"), std::string::npos);
  paths_.cudnn = kFake.cudnn;
  offers(kFaster, 2, 91001);
  EXPECT_EQ(of(spec()), kOwn);
  const LibraryReport old = cuda::probe(paths_).libraries.back();
  EXPECT_EQ(old.found, "");
  EXPECT_NE(old.problem.find("is cuDNN 9.10.1; Braid uses 9.11.0 or later"), std::string::npos)
      << old.problem;
  offers(kFaster, 0);  // no engine
  EXPECT_EQ(of(spec()), kOwn);
  EXPECT_EQ(kept(), 1u);
}

// A library whose answers are not those of Braid's own kernel, which here leaves all as it was.
TEST_F(FakeCudnn, IsNotTakenWhereItsAnswersDiffer) {
  offers(kFaster, 2, 91900, true);
  EXPECT_EQ(of(spec()), kOwn);
  EXPECT_EQ(kept(), 1u);
}

// Each call made to fail in turn, while a choice is measured and while one is found: a kernel is prepared,
// nothing is left behind, and a choice in which a call failed is not kept.
TEST_F(FakeCudnn, SurvivesTheFailureOfAnyCall) {
  std::size_t failed = 0;
  for (const bool isKept : {false, true}) {
    for (const char* call :
         {"cudnnCreate", "cudnnSetStream", "cudnnBackendCreateDescriptor", "cudnnBackendSetAttribute",
          "cudnnBackendGetAttribute", "cudnnBackendFinalize", "cudnnBackendFinalize(plan)",
          "cudnnBackendExecute", "cuMemAlloc_v2", "cuStreamCreateWithPriority", "cuEventCreate",
          "cuStreamBeginCapture_v2", "cuMemcpyDtoHAsync_v2", "cuMemsetD2D16Async", "cuEventRecord",
          "cuEventSynchronize", "cuEventElapsedTime"}) {
      for (const int nth : {1, 2, 3, 4, 5, 7, 11, 20, 40}) {
        fs::remove_all(folder_);
        if (isKept) {
          EXPECT_EQ(of(spec()), "cudnn 0");
        }
        const int before = calls(call);
        failNext(call, 2000, nth);
        {
          const auto driver = opened();
          const auto kernel = prepared(*driver, spec());
          failNext("", 0);
          EXPECT_TRUE(kernel);
        }
        if (calls(call) - before < nth) break;
        ++failed;
        EXPECT_EQ(live(), before_) << call << " " << nth;
      }
    }
  }
  EXPECT_GE(failed, 60u);
}

TEST_F(FakeCudnn, ReportsALaunchThatFails) {
  const auto driver = opened();
  const auto kernel = prepared(*driver, spec());
  for (const char* call : {"cudnnSetStream", "cudnnBackendExecute", "cudnnBackendFinalize"}) {
    failNext(call, 5000);
    const DeviceAddress at[] = {512, 512, 512};
    EXPECT_EQ(driver->launch(*kernel, at, at, nullptr), Status::unknown) << call;
    EXPECT_NE(driver->lastDetail().find("cuDNN"), std::string::npos) << driver->lastDetail();
  }
}

TEST(CudnnChoices, AreReadAsTheyWereWritten) {
  for (const cuda::CudnnChosen& one : {cuda::CudnnChosen{}, cuda::CudnnChosen{true, {7, {}}},
                                       cuda::CudnnChosen{true, {-1, {{14, -3}, {2, 9}}}}}) {
    cuda::CudnnChosen found;
    ASSERT_TRUE(found.parse(one.text())) << one.text();
    EXPECT_EQ(found, one) << one.text();
  }
  cuda::CudnnChosen found;
  EXPECT_FALSE(found.parse(""));
  EXPECT_FALSE(found.parse("library 1\nengine"));
}

}  // namespace
}  // namespace braid::test
