#include "cuda/probe.h"

#include "cuda/context.h"
#include "cuda/cudnn/kernels.h"
#include "cuda/driver.h"
#include "cuda/kept_files.h"

namespace braid::cuda {
namespace {

void probeDevices(const std::shared_ptr<const DriverLibrary>& library, LibraryReport* report,
                  CudaReport* all) {
  const DriverFunctions& call = library->call;
  if (const CUresult code = call.cuInit(0)) {
    report->problem =
        "cuInit: " + describe(call, code) + ". Run nvidia-smi: if it fails too, the driver is not loaded";
    return;
  }
  if (const CUresult code = call.cuDeviceGetCount(&all->deviceCount)) {
    report->problem = "cuDeviceGetCount: " + describe(call, code);
    return;
  }
  if (all->deviceCount == 0)
    report->problem = "no CUDA device is visible (CUDA_VISIBLE_DEVICES may hide them)";
  for (int ordinal = 0; ordinal < all->deviceCount; ++ordinal) {
    std::shared_ptr<Context> context;
    DeviceInfo info;
    std::size_t free = 0, total = 0;
    Status status = Context::open(library, ordinal, &context);
    if (status == Status::ok) status = readDeviceInfo(*context, ordinal, &info);
    if (status == Status::ok) {
      Current current(*context);
      status = context->check(call.cuMemGetInfo(&free, &total), "cuMemGetInfo");
    }
    if (status != Status::ok) {
      report->problem +=
          (report->problem.empty() ? "" : "; ") + ("cuda:" + std::to_string(ordinal) + ": " + detail());
      continue;
    }
    all->devices.push_back(info);
    all->freeBytes.push_back(free);
  }
}

}  // namespace

CudaReport probe(const LibraryPaths& paths) {
  CudaReport all;
  std::string problem;
  const std::shared_ptr<const DriverLibrary> driver = DriverLibrary::open(paths.driver, &problem);
  LibraryReport report{"CUDA driver", "", "", problem};
  if (driver) {
    report = {"CUDA driver", driver->library.path, versionText(driver->version), ""};
    probeDevices(driver, &report, &all);
  }
  all.libraries.push_back(report);
  // Without a driver the major version is not known; the newest is then as good as any.
  const int version = driver ? driver->version : 13000;

  problem.clear();
  const auto nvrtc = NvrtcLibrary::open(paths.nvrtc, version, &problem);
  all.libraries.push_back(
      nvrtc ? LibraryReport{"NVRTC", nvrtc->library.path,
                            std::to_string(nvrtc->major) + "." + std::to_string(nvrtc->minor), ""}
            : LibraryReport{"NVRTC", "", "", problem});
  problem.clear();
  const auto blas = paths.useCublasLt ? CublasLtLibrary::open(paths.cublasLt, version, &problem) : nullptr;
  if (!paths.useCublasLt) problem = "not looked for: BRAID_CUBLASLT=off";
  all.libraries.push_back(
      blas ? LibraryReport{"cuBLASLt", blas->library.path, libraryVersionText(blas->version), ""}
           : LibraryReport{"cuBLASLt", "", "", problem});
  problem.clear();
  const auto cudnn = paths.useCudnn == UseCudnn::never ? nullptr : CudnnLibrary::open(paths.cudnn, &problem);
  if (paths.useCudnn == UseCudnn::never) problem = "not looked for: BRAID_CUDNN=off";
  all.libraries.push_back(
      cudnn ? LibraryReport{"cuDNN", cudnn->library.path, libraryVersionText(cudnn->version), ""}
            : LibraryReport{"cuDNN", "", "", problem});
  all.cudnn = {paths.useCudnn == UseCudnn::never    ? "never"
               : paths.useCudnn == UseCudnn::always ? "always"
                                                    : "measured",
               kLeastArchitecture, kAskedFrom};
  const ChoiceFiles choices(paths.choices);
  const CodeFiles kernels(paths.kernels);
  all.choices = {paths.choices, choices.refusal(), choices.count(), measuredChoices(), preparedByCudnn()};
  all.kernels = {paths.kernels, kernels.refusal(), kernels.count(), compiledKernels()};
  return all;
}

}  // namespace braid::cuda
