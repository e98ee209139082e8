#include <cstdlib>
#include <string>

#include "cuda/driver.h"
#include "cuda/kept_files.h"
#include "cuda/probe.h"

namespace braid {
namespace {

cuda::LibraryPaths installed() {
  cuda::LibraryPaths paths;
  paths.choices = cuda::cacheFolder("choices");
  paths.kernels = cuda::cacheFolder("kernels");
  const auto given = [](const char* name) -> std::string {
    const char* text = std::getenv(name);
    return text ? text : "";
  };
  const std::string use = given("BRAID_CUDNN");
  if (use == "off") paths.useCudnn = cuda::UseCudnn::never;
  if (use == "always") paths.useCudnn = cuda::UseCudnn::always;
  paths.useCublasLt = given("BRAID_CUBLASLT") != "off";
  return paths;
}

}  // namespace

Status openCuda(std::unique_ptr<Driver>* driver, int ordinal, std::string* detail) {
  const Status status = cuda::CudaDriver::open(ordinal, installed(), driver);
  if (status == Status::ok) static_cast<cuda::CudaDriver&>(**driver).keepContext();
  if (status != Status::ok && detail) *detail = cuda::detail();
  return status;
}

CudaReport probeCuda() { return cuda::probe(installed()); }

std::vector<std::string> keptProblems() { return cuda::keptProblems(); }

}  // namespace braid
