#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cuda/api.h"
#include "cuda/cudnn/api.h"
#include "cuda/nvrtc_api.h"
#include "cuda/products/cublaslt_api.h"

namespace braid::cuda {

// When a kernel of cuDNN's computes what one of Braid's own computes too: where it is faster, never, or
// wherever it can. The last two are for tests and comparisons.
enum class UseCudnn : std::uint8_t { measured, never, always };

// Names or paths to try, in order, for each library; empty: where an installation has them. And the folders
// where measured choices and compiled kernels are kept; empty: nowhere. Without cuBLASLt, which tests and
// comparisons ask for, products are computed by Braid's own kernels.
struct LibraryPaths {
  std::vector<std::string> driver, nvrtc, cublasLt, cudnn;
  std::string choices{}, kernels{};
  UseCudnn useCudnn = UseCudnn::measured;
  bool useCublasLt = true;
};

// A library opened at run time. Never closed: CUDA's libraries keep threads and exit handlers of their own,
// so that unloading one leaves them running in unmapped code.
struct SharedLibrary {
  void* handle = nullptr;
  std::string path;  // as the loader found it
};

// Opens the first candidate that loads. After a failure *problem lists the names and places that were tried.
bool openLibrary(const std::vector<std::string>& candidates, SharedLibrary* library, std::string* problem);

// `libnvrtc` for a driver of CUDA 13: libnvrtc.so.13, .so.12, .so; each by the loader's own search
// (LD_LIBRARY_PATH, ldconfig), then in the places where toolkits and Python wheels put it. The driver's own
// major version comes first: code made by a newer one may not load.
std::vector<std::string> libraryCandidates(const std::string& base, int driverVersion);

struct DriverLibrary {
  SharedLibrary library;
  DriverFunctions call;
  GraphFunctions graph;
  int version = 0;  // 13000 for CUDA 13.0
  static std::shared_ptr<const DriverLibrary> open(const std::vector<std::string>& paths,
                                                   std::string* problem);
};

struct NvrtcLibrary {
  SharedLibrary library;
  NvrtcFunctions call;
  int major = 0, minor = 0;
  std::vector<int> archs;  // compute capabilities that it makes machine code for: 75, 80, 90, …
  static std::shared_ptr<const NvrtcLibrary> open(const std::vector<std::string>& paths, int driverVersion,
                                                  std::string* problem);
};

struct CublasLtLibrary {
  SharedLibrary library;
  CublasLtFunctions call;
  std::size_t version = 0;  // 130100 for 13.1.0
  static std::shared_ptr<const CublasLtLibrary> open(const std::vector<std::string>& paths, int driverVersion,
                                                     std::string* problem);
};

struct CudnnLibrary {
  SharedLibrary library;
  CudnnFunctions call;
  std::size_t version = 0;  // 91701 for 9.17.1
  static std::shared_ptr<const CudnnLibrary> open(const std::vector<std::string>& paths,
                                                  std::string* problem);
};

// The oldest cuDNN that Braid works with, 9.11.0: attention of 9.10.0 and 9.10.1 is known to be wrong, and
// before 9.10 it takes no infinity for what a query does not see.
inline constexpr std::size_t kOldestCudnn = 91100;

// The oldest driver that Braid works with: CUDA 12.0.
inline constexpr int kOldestDriver = 12000;

// "13.0" of 13000.
std::string versionText(int version);
// "9.17.1" of 91701, "13.1.0" of 130100.
std::string libraryVersionText(std::size_t version);

}  // namespace braid::cuda
