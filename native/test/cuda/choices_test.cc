// What was measured is kept in files: found again it is not measured, and a file that is not as
// it was written is as none.
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "cuda/digest.h"
#include "cuda/probe.h"
#include "cuda/products/matmul.h"
#include "test/cuda/fake.h"
#include "test/host/support.h"

namespace braid::test {
namespace {

namespace fs = std::filesystem;
using cuda::ChoiceFiles, cuda::measuredChoices;

class KeptChoices : public ::testing::Test {
 protected:
  void SetUp() override {
    failNext("", 0);
    fs::remove_all(root_);
    fs::create_directories(root_);
    paths_.choices = folder_.string();
  }
  void TearDown() override {
    fake<void(int, int)>("fake_relu")(1, 1);
    fake<void(int)>("fake_offer")(0);
    fs::remove_all(root_);
  }

  // Two rows: the kernel for few rows is measured beside the library. Or five with a relu, which is tried.
  static KernelSpec spec(bool relu) {
    KernelSpec made;
    made.kind = KernelSpec::Kind::matmul;
    made.m = relu ? 5 : 2, made.n = 8, made.k = 4;
    if (relu) made.epilogue.activation = Activation::relu;
    made.readCount = 2, made.writeCount = 1;
    return made;
  }

  // What an open prepares, on a driver of its own as another process has: how many kernels it launches, and
  // how many choices were measured for it.
  struct Opened {
    std::size_t pieces = 0;
    std::string launched;
    std::uint64_t measured = 0;
    bool operator==(const Opened&) const = default;
  };
  Opened opened(bool relu, double scale = 1, std::int64_t offset = 0) {
    const std::uint64_t before = measuredChoices();
    std::unique_ptr<Driver> driver;
    EXPECT_EQ(cuda::CudaDriver::open(0, paths_, &driver), Status::ok) << cuda::detail();
    EXPECT_EQ(driver->bind(), Status::ok);
    std::unique_ptr<Kernel> kernel;
    KernelSpec product = spec(relu);
    product.epilogue.scale = scale;
    product.b.offset = offset;
    EXPECT_EQ(driver->prepare(&kernel, product, {}), Status::ok) << driver->lastDetail();
    EXPECT_EQ(live("memory"), 0);
    alignas(16) std::array<float, 64> a{}, b{}, c{};
    const DeviceAddress reads[] = {reinterpret_cast<DeviceAddress>(a.data()),
                                   reinterpret_cast<DeviceAddress>(b.data())};
    const DeviceAddress write = reinterpret_cast<DeviceAddress>(c.data());
    const int launches = calls("cuLaunchKernel");
    EXPECT_EQ(driver->launch(*kernel, reads, &write, nullptr), Status::ok) << driver->lastDetail();
    const bool own = calls("cuLaunchKernel") > launches;
    return {kernel->pieces(), own ? lastLaunch() : "", measuredChoices() - before};
  }

  fs::path only() const {
    std::vector<fs::path> found;
    for (const auto& each : fs::directory_iterator(folder_)) found.push_back(each.path());
    EXPECT_EQ(found.size(), 1u);
    return found.empty() ? fs::path() : found.front();
  }
  static std::string text(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  static void put(const fs::path& path, const std::string& text) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
  }

  // A folder is warned of once in a process: each test has its own.
  const fs::path root_ =
      fs::temp_directory_path() / ("braid-choices-" + std::to_string(::getpid()) + "-" +
                                   ::testing::UnitTest::GetInstance()->current_test_info()->name());
  const fs::path folder_ = root_ / "cache" / "choices";
  cuda::LibraryPaths paths_ = kFake;
};

// Measured are operands that the kernel for few rows may read, wherever this product's begin.
TEST_F(KeptChoices, AreTheSameWhereverAnOperandBegins) {
  EXPECT_EQ(opened(false, 1, 2), (Opened{3, "", 1}));  // 8 bytes on: the library's
  EXPECT_EQ(opened(false), (Opened{3, "braid_matmul_few", 0}));
}

TEST_F(KeptChoices, AreNotMeasuredAgain) {
  for (const bool relu : {false, true}) {
    fake<void(int, int)>("fake_relu")(0, 1);  // the library's relu is not ours: a kernel follows the product
    const Opened first = opened(relu);
    EXPECT_EQ(first, (Opened{relu ? 4u : 3u, relu ? "braid_map_vector" : "braid_matmul_few", 1}));
    const int timed = calls("cuEventElapsedTime"), copied = calls("cuMemcpyDtoHAsync_v2"),
              run = calls("cublasLtMatmul");
    for (const double scale : {1.0, 0.5}) {  // any scale of the same sign is the same problem
      const Opened second = opened(relu, scale);
      EXPECT_EQ(second, (Opened{first.pieces, first.launched, 0}));
    }
    EXPECT_EQ(calls("cuEventElapsedTime"), timed);
    EXPECT_EQ(calls("cuMemcpyDtoHAsync_v2"), copied);
    EXPECT_GT(calls("cublasLtMatmul"), run);  // once each, which loads their code
  }
  EXPECT_EQ(opened(true, -1).measured, 1u);
  EXPECT_EQ(ChoiceFiles(folder_.string()).count(), 3u);
  const ChoicesReport report = cuda::probe(paths_).choices;
  EXPECT_EQ(report.folder, folder_.string());
  EXPECT_EQ(report.kept, 3u);
  EXPECT_EQ(report.measured, measuredChoices());
}

TEST_F(KeptChoices, OfAProductWithoutAnyMeasurementAreNotKept) {
  std::unique_ptr<Driver> driver;
  ASSERT_EQ(cuda::CudaDriver::open(0, paths_, &driver), Status::ok);
  ASSERT_EQ(driver->bind(), Status::ok);
  KernelSpec product = spec(true);
  product.epilogue = {};
  std::unique_ptr<Kernel> kernel;
  const std::uint64_t before = measuredChoices();
  ASSERT_EQ(driver->prepare(&kernel, product, {}), Status::ok);
  EXPECT_EQ(measuredChoices(), before);
  EXPECT_FALSE(fs::exists(folder_));
}

TEST_F(KeptChoices, AreMeasuredAnewWhenTheLibraryNoLongerOffersThem) {
  EXPECT_EQ(opened(true).measured, 1u);
  const std::string before = text(only());
  fake<void(int)>("fake_offer")(7);
  EXPECT_EQ(opened(true).measured, 1u);
  EXPECT_NE(text(only()), before);
  EXPECT_EQ(opened(true).measured, 0u);
}

TEST_F(KeptChoices, AreMeasuredAnewWhenTheLibraryRefusesToRunThem) {
  EXPECT_EQ(opened(true).measured, 1u);
  failNext("cublasLtMatmul", 15);
  EXPECT_EQ(opened(true).measured, 1u);
  EXPECT_EQ(opened(true).measured, 0u);
}

TEST_F(KeptChoices, AreMeasuredAnewFromAFileThatIsNotAsItWasWritten) {
  const Opened first = opened(true);
  const fs::path path = only();
  const std::string whole = text(path);
  const auto again = [&](const std::string& what) {
    EXPECT_EQ(opened(true), first) << what;
    EXPECT_EQ(text(only()), whole) << what;
    EXPECT_EQ(opened(true).measured, 0u) << what;
  };
  for (const std::size_t length : {std::size_t{0}, std::size_t{1}, whole.size() / 2, whole.size() - 1}) {
    put(path, whole.substr(0, length));
    again("the first " + std::to_string(length) + " bytes");
  }
  for (const std::string& other : {whole + "\n", whole + whole, std::string(1 << 20, 'x'),
                                   std::string(100, '\0'), std::string("{\"version\":1}")}) {
    put(path, other);
    again("another text");
  }
  for (std::size_t at = 0; at < whole.size(); at += 41) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    put(path, damaged);
    again("byte " + std::to_string(at));
  }
  fs::remove(path);
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);  // opening one waits for a writer
  again("a pipe");
  fs::remove(path);
  fs::create_symlink(path, path);
  again("a link to itself");
}

// Every single bit that differs makes it another file.
TEST_F(KeptChoices, AreReadWholeOrNotAtAll) {
  const ChoiceFiles files(folder_.string());
  cuda::MatmulChosen chosen;
  chosen.few = true;
  chosen.choices = {{256, {{1, 2, ~std::uint64_t{0}}}, 4096}, {4, {{9}}, 0}};
  const std::string problem = "braid choice 2\nproblem 2 8 4\n";
  files.write(problem, chosen);
  const fs::path path = only();
  const std::string whole = text(path);
  cuda::MatmulChosen found;
  ASSERT_TRUE(files.read(problem, &found));
  EXPECT_TRUE(found.few && !found.apart && found.choices == chosen.choices);
  EXPECT_FALSE(files.read("braid choice 3\nproblem 2 8 4\n", &found));
  for (std::size_t bit = 0; bit < 8 * whole.size(); ++bit) {
    std::string damaged = whole;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
    put(path, damaged);
    EXPECT_FALSE(files.read(problem, &found)) << bit;
  }
  for (std::size_t length = 0; length < whole.size(); ++length) {
    put(path, whole.substr(0, length));
    EXPECT_FALSE(files.read(problem, &found)) << length;
  }
}

TEST_F(KeptChoices, NeedNoFolder) {
  put(root_ / "cache", "a file in the place of the folder");
  for (int i = 0; i < 2; ++i) EXPECT_EQ(opened(true).measured, 1u);
  EXPECT_EQ(ChoiceFiles(folder_.string()).count(), 0u);
  fs::remove(root_ / "cache");
  EXPECT_EQ(opened(true).measured, 1u);
  const fs::path path = only();
  fs::remove(path);
  fs::create_directory(path);  // which no file replaces
  for (int i = 0; i < 2; ++i) EXPECT_EQ(opened(true).measured, 1u);
  EXPECT_EQ(only(), path);  // what could not get the name is gone
  paths_.choices = "";
  EXPECT_EQ(opened(true).measured, 1u);
}

// A call that fails says nothing about the product. Measuring the kernel for few rows takes the fake most of
// a second.
TEST_F(KeptChoices, AreOnlyWhatWasMeasured) {
  std::size_t failed = 0;
  const auto fails = [&](bool relu, const char* call, int nth) {
    std::unique_ptr<Driver> driver;
    ASSERT_EQ(cuda::CudaDriver::open(0, paths_, &driver), Status::ok);
    ASSERT_EQ(driver->bind(), Status::ok);
    const int before = calls(call);
    failNext(call, 2, nth);
    std::unique_ptr<Kernel> kernel;
    driver->prepare(&kernel, spec(relu), {});
    failNext("", 0);
    if (calls(call) - before >= nth) {
      ++failed;
      EXPECT_EQ(ChoiceFiles(folder_.string()).count(), 0u) << call << " " << nth << " " << relu;
    }
    fs::remove_all(folder_);
  };
  for (const char* call : {"cuMemAlloc_v2", "cuStreamCreateWithPriority", "cublasLtMatmul",
                           "cuMemsetD32Async", "cuMemcpyDtoHAsync_v2"})
    for (int nth = 1; nth <= 8; ++nth) fails(true, call, nth);
  fails(true, "cuStreamSynchronize", 1);
  for (const char* call : {"cuEventRecord", "cuEventSynchronize", "cuEventElapsedTime"})
    fails(false, call, 1);
  EXPECT_GE(failed, 25u);
}

TEST_F(KeptChoices, AreWrittenByManyAtOnce) {
  std::vector<std::thread> threads;
  const std::string problem = "braid choice 2\nproblem 1\n";
  std::atomic<int> wrong{0};
  for (std::size_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      const ChoiceFiles files(folder_.string());
      for (int i = 0; i < 200; ++i) {
        cuda::MatmulChosen chosen, found;
        chosen.choices.resize(1 + t);
        files.write(problem, chosen);
        if (!files.read(problem, &found) || found.choices.empty() || found.choices.size() > 4) ++wrong;
      }
    });
  for (std::thread& each : threads) each.join();
  EXPECT_EQ(wrong, 0);
  only();
}

// Code that is found runs with the user's rights: nobody else may have written it.
TEST_F(KeptChoices, AreTheUsersAlone) {
  ::umask(022);
  const ChoiceFiles files(folder_.string());
  const std::string problem = "braid choice 2\nproblem 3\n";
  cuda::MatmulChosen chosen, found;
  chosen.few = true;
  const auto modeOf = [](const fs::path& path) {
    struct stat about;
    return ::lstat(path.c_str(), &about) == 0 ? about.st_mode & 07777 : 0;
  };
  const auto refused = [&](const std::string& what) { EXPECT_FALSE(files.read(problem, &found)) << what; };
  cuda::keptProblems();
  files.write(problem, chosen);
  ASSERT_TRUE(files.read(problem, &found));
  EXPECT_TRUE(cuda::keptProblems().empty());
  const fs::path path = only();
  EXPECT_EQ(modeOf(path), 0600u);
  for (fs::path each = folder_; each != root_; each = each.parent_path()) EXPECT_EQ(modeOf(each), 0700u);

  // By their modes, of the file and of the folder.
  for (const mode_t mode : {0602u, 0620u, 0666u}) {
    ::chmod(path.c_str(), mode);
    refused("a file of mode " + std::to_string(mode));
    files.write(problem, chosen);
    EXPECT_TRUE(files.read(problem, &found));
    EXPECT_EQ(modeOf(path), 0600u);
  }
  const auto told = cuda::keptProblems();
  ASSERT_EQ(told.size(), 1u);
  EXPECT_NE(told[0].find("mode 0602"), std::string::npos) << told[0];
  for (const mode_t mode : {0770u, 0707u, 01777u}) {
    ::chmod(folder_.c_str(), mode);
    refused("a folder of mode " + std::to_string(mode));
    EXPECT_NE(files.refusal(), "");
    const std::string before = text(path);
    files.write(problem, cuda::MatmulChosen{});
    EXPECT_EQ(text(path), before);
  }
  ::chmod(folder_.c_str(), 0755);
  EXPECT_EQ(files.refusal(), "");
  EXPECT_TRUE(files.read(problem, &found));

  // A link, even to a file that is as it was written.
  const fs::path elsewhere = root_ / "elsewhere";
  fs::rename(path, elsewhere);
  fs::create_symlink(elsewhere, path);
  refused("a link");
  files.write(problem, chosen);
  EXPECT_FALSE(fs::is_symlink(path));
  EXPECT_TRUE(files.read(problem, &found));

  // By their owners.
  if (::geteuid() == 0) {
    ASSERT_EQ(::chown(path.c_str(), 12345, ::getegid()), 0);
    refused("a file of another user");
    files.write(problem, chosen);
    EXPECT_TRUE(files.read(problem, &found));
    ASSERT_EQ(::chown(folder_.c_str(), 12345, ::getegid()), 0);
    refused("a folder of another user");
    EXPECT_NE(files.refusal().find("user 12345"), std::string::npos);
    ASSERT_EQ(::chown(folder_.c_str(), ::geteuid(), ::getegid()), 0);
  }
  EXPECT_TRUE(cuda::keptProblems().empty());
}

// From FIPS 180-4 and NIST's examples.
TEST(Digest, IsSha256) {
  EXPECT_EQ(cuda::digestOf(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(cuda::digestOf("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(cuda::digestOf(std::string(1000000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(ChoiceFolder, FollowsTheEnvironment) {
  const std::array names{"BRAID_CACHE", "XDG_CACHE_HOME", "HOME"};
  std::array<std::string, 3> before;
  std::array<bool, 3> were;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const char* value = std::getenv(names[i]);
    were[i] = value != nullptr;
    before[i] = value ? value : "";
  }
  const auto folder = [&](const char* own, const char* users, const char* home) {
    ::setenv(names[0], own, 1), ::setenv(names[1], users, 1), ::setenv(names[2], home, 1);
    return cuda::cacheFolder("choices");
  };
  EXPECT_EQ(folder("", "", "/home/a"), "/home/a/.cache/braid/choices");
  EXPECT_EQ(folder("", "/cache", "/home/a"), "/cache/braid/choices");
  EXPECT_EQ(folder("", "relative", "/home/a"), "/home/a/.cache/braid/choices");
  EXPECT_EQ(folder("/mine", "/cache", "/home/a"), "/mine/choices");
  EXPECT_EQ(folder("off", "/cache", "/home/a"), "");
  EXPECT_EQ(folder("", "", ""), "");
  for (std::size_t i = 0; i < names.size(); ++i)
    were[i] ? ::setenv(names[i], before[i].c_str(), 1) : ::unsetenv(names[i]);
}

}  // namespace
}  // namespace braid::test
