// The code of generated kernels, kept in a folder for the next process.
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "cuda/kept_files.h"
#include "test/cuda/fake.h"

namespace braid::test {
namespace {

namespace fs = std::filesystem;

class KeptKernels : public ::testing::Test {
 protected:
  void SetUp() override {
    failNext("", 0);
    fs::remove_all(folder_);
    paths_.kernels = folder_.string();
  }
  void TearDown() override {
    failNext("", 0);
    fs::remove_all(folder_);
  }

  static KernelSpec map(double constant) {
    KernelSpec made;
    made.kind = KernelSpec::Kind::map;
    made.shape = {64};
    made.operands = {{DType::f32, 0, {1}}};
    made.code = {{MapOp::operand}, {MapOp::constant, 0, 0, 0, constant}, {MapOp::add, 0, 1}};
    made.results = {{2, DType::f32}};
    made.readCount = made.writeCount = 1;
    return made;
  }
  static KernelSpec users() {
    KernelSpec made;
    made.kind = KernelSpec::Kind::cuda;
    made.name = "mine";
    made.source = "extern \"C\" __global__ void mine(const float* x, float* y) {}";
    made.readCount = made.writeCount = 1;
    return made;
  }
  // How many programs an open compiles for these, on a driver of its own as another process has.
  int compiled(const std::vector<KernelSpec>& specs) {
    std::unique_ptr<Driver> driver;
    EXPECT_EQ(cuda::CudaDriver::open(0, paths_, &driver), Status::ok) << cuda::detail();
    EXPECT_EQ(driver->bind(), Status::ok);
    const int before = calls("nvrtcCompileProgram");
    for (const KernelSpec& spec : specs) {
      std::unique_ptr<Kernel> kernel;
      EXPECT_EQ(driver->prepare(&kernel, spec, {}), Status::ok) << driver->lastDetail();
    }
    return calls("nvrtcCompileProgram") - before;
  }
  std::size_t kept() const { return cuda::CodeFiles(folder_.string()).count(); }

  const fs::path folder_ = fs::temp_directory_path() / ("braid-kernels-" + std::to_string(::getpid()));
  cuda::LibraryPaths paths_ = kFake;
};

TEST_F(KeptKernels, AreCompiledOnce) {
  EXPECT_EQ(compiled({map(1), map(2), map(1)}), 2);
  EXPECT_EQ(kept(), 2u);
  EXPECT_EQ(compiled({map(2), map(3), map(1)}), 1);
  EXPECT_EQ(kept(), 3u);
}

// What it includes may change, and nobody sees it.
TEST_F(KeptKernels, AreNotUsersOwn) {
  EXPECT_EQ(compiled({users()}), 1);
  EXPECT_EQ(compiled({users()}), 1);
  EXPECT_EQ(kept(), 0u);
}

TEST_F(KeptKernels, AreCompiledAnewWhereTheirFilesAreDamaged) {
  EXPECT_EQ(compiled({map(1)}), 1);
  const fs::path path = fs::directory_iterator(folder_)->path();
  const auto size = fs::file_size(path);
  for (const std::uintmax_t length : {std::uintmax_t{0}, size / 2, size - 1}) {
    fs::resize_file(path, length);
    EXPECT_EQ(compiled({map(1)}), 1) << length;
    EXPECT_EQ(compiled({map(1)}), 0) << length;
  }
}

// Code that is whole, and that the driver does not take.
TEST_F(KeptKernels, AreCompiledAnewWhereTheDriverRefusesThem) {
  EXPECT_EQ(compiled({map(1)}), 1);
  failNext("cuModuleLoadDataEx", 200);
  EXPECT_EQ(compiled({map(1)}), 1);
}

TEST_F(KeptKernels, NeedNoFolder) {
  paths_.kernels = "";
  EXPECT_EQ(compiled({map(1)}), 1);
  EXPECT_EQ(compiled({map(1)}), 1);
  EXPECT_FALSE(fs::exists(folder_));
}

TEST(CodeFiles, HaveLimits) {
  const fs::path folder = fs::temp_directory_path() / ("braid-limits-" + std::to_string(::getpid()));
  const cuda::KeptFiles files(folder.string(), ".kernel", {256, 2});
  std::string found;
  files.keep("first\n", std::string("\0\1\2", 3));
  EXPECT_TRUE(files.find("first\n", &found));
  EXPECT_EQ(found, std::string("\0\1\2", 3));
  files.keep("long\n", std::string(256, 'x'));
  EXPECT_FALSE(files.find("long\n", &found));
  files.keep("second\n", "");
  files.keep("third\n", "");
  EXPECT_TRUE(files.find("second\n", &found));
  EXPECT_FALSE(files.find("third\n", &found));
  EXPECT_EQ(files.count(), 2u);
  fs::remove_all(folder);
}

}  // namespace
}  // namespace braid::test
