#include "cuda/library.h"

#include <dlfcn.h>
#include <glob.h>
#include <link.h>

#include <cstdlib>

namespace braid::cuda {
namespace {

// Directories that hold libnvrtc, libcublasLt and libcudnn where the loader does not look: toolkits, then
// wheels of the running Python environment, then those of the system.
std::vector<std::string> libraryDirectories() {
  std::vector<std::string> patterns;
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"}) {
    const char* root = std::getenv(variable);
    if (root && *root) patterns.push_back(std::string(root) + "/lib64");
  }
  for (const char* root : {"/usr/local/cuda", "/usr/local/cuda-13*", "/usr/local/cuda-12*"}) {
    patterns.push_back(std::string(root) + "/lib64");
  }
  const auto wheels = [&](const std::string& root) {
    patterns.push_back(root + "/lib/python3*/site-packages/nvidia/*/lib");
    patterns.push_back(root + "/lib/python3*/dist-packages/nvidia/*/lib");
  };
  for (const char* variable : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    const char* root = std::getenv(variable);
    if (root && *root) wheels(root);
  }
  wheels("/usr/local");
  wheels("/usr");
  wheels("/opt/conda");
  const char* home = std::getenv("HOME");
  if (home && *home) wheels(std::string(home) + "/.local");

  std::vector<std::string> found;
  for (const std::string& pattern : patterns) {
    glob_t matches{};
    if (glob(pattern.c_str(), 0, nullptr, &matches) == 0) {
      for (std::size_t i = 0; i < matches.gl_pathc; ++i) found.emplace_back(matches.gl_pathv[i]);
    }
    globfree(&matches);
  }
  return found;
}

std::string pathOf(void* handle, const std::string& fallback) {
  link_map* map = nullptr;
  if (dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map && map->l_name && *map->l_name) return map->l_name;
  return fallback;
}

// Each name by the loader's own search, then in those directories.
std::vector<std::string> candidatesOf(const std::vector<std::string>& names) {
  const std::vector<std::string> directories = libraryDirectories();
  std::vector<std::string> candidates;
  for (const std::string& name : names) {
    candidates.push_back(name);
    for (const std::string& directory : directories) candidates.push_back(directory + "/" + name);
  }
  return candidates;
}

bool missing(const SharedLibrary& library, const char* symbol, std::string* problem) {
  *problem = library.path + " has no function " + symbol + ": it is older than CUDA 12.0";
  return false;
}

using GetProcAddress = CUresult (*)(const char* symbol, void** function, int version, std::uint64_t flags,
                                    int* status);

bool resolve(const SharedLibrary& library, DriverFunctions* call, std::string* problem) {
  const auto lookup = reinterpret_cast<GetProcAddress>(dlsym(library.handle, "cuGetProcAddress_v2"));
  const auto find = [&](const char* name, int version, const char* symbol) -> void* {
    void* function = nullptr;
    if (lookup && lookup(name, &function, version, 0, nullptr) == kSuccess && function) return function;
    return dlsym(library.handle, symbol);
  };
#define BRAID_RESOLVE(name, version, symbol, arguments)                              \
  call->name = reinterpret_cast<decltype(call->name)>(find(#name, version, symbol)); \
  if (!call->name) return missing(library, #name, problem);
  BRAID_CUDA_DRIVER_FUNCTIONS(BRAID_RESOLVE)
#undef BRAID_RESOLVE
  return true;
}

void resolveGraphs(const SharedLibrary& library, GraphFunctions* graph) {
#define BRAID_RESOLVE(field, symbol, arguments)                                            \
  graph->field = reinterpret_cast<decltype(graph->field)>(dlsym(library.handle, #symbol)); \
  if (!graph->field && graph->missing.empty()) graph->missing = #symbol;
  BRAID_CUDA_GRAPH_FUNCTIONS(BRAID_RESOLVE)
#undef BRAID_RESOLVE
}

}  // namespace

std::string versionText(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

std::string libraryVersionText(std::size_t version) {
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

std::vector<std::string> libraryCandidates(const std::string& base, int driverVersion) {
  const char* first = driverVersion >= 13000 ? ".so.13" : ".so.12";
  const char* second = driverVersion >= 13000 ? ".so.12" : ".so.13";
  return candidatesOf({base + first, base + second, base + ".so"});
}

bool openLibrary(const std::vector<std::string>& candidates, SharedLibrary* library, std::string* problem) {
  std::string names, places, refusals;
  for (const std::string& candidate : candidates) {
    if (void* handle = dlopen(candidate.c_str(), RTLD_NOW | RTLD_LOCAL)) {
      *library = {handle, pathOf(handle, candidate)};
      return true;
    }
    const char* reason = dlerror();
    const std::string words = reason ? reason : "unknown reason";
    const std::size_t slash = candidate.rfind('/');
    if (slash == std::string::npos) {
      names += (names.empty() ? "" : ", ") + candidate;
    } else if (places.find(candidate.substr(0, slash)) == std::string::npos) {
      places += (places.empty() ? "" : ", ") + candidate.substr(0, slash);
    }
    // The file exists but cannot be loaded: the only case where the loader's message matters.
    if (words.rfind(candidate + ": cannot open shared object file", 0) != 0) {
      refusals += (refusals.empty() ? "; " : ", ") + words;
    }
  }
  if (names.empty() && !candidates.empty()) names = candidates.front();
  *problem = "looked for " + names + " with the system's loader (LD_LIBRARY_PATH, ldconfig)" +
             (places.empty() ? "" : " and in " + places) + refusals;
  return false;
}

std::shared_ptr<const DriverLibrary> DriverLibrary::open(const std::vector<std::string>& paths,
                                                         std::string* problem) {
  auto driver = std::make_shared<DriverLibrary>();
  const std::vector<std::string> names{"libcuda.so.1", "libcuda.so"};
  if (!openLibrary(paths.empty() ? names : paths, &driver->library, problem)) {
    *problem = "No NVIDIA driver: " + *problem +
               ". Install the NVIDIA driver, 525 or later (on a container: run it with --gpus all or the "
               "NVIDIA runtime)";
    return nullptr;
  }
  if (!resolve(driver->library, &driver->call, problem)) {
    *problem += ". Install the NVIDIA driver, 525 or later";
    return nullptr;
  }
  resolveGraphs(driver->library, &driver->graph);
  if (driver->call.cuDriverGetVersion(&driver->version) != kSuccess) driver->version = 0;
  if (driver->version < kOldestDriver) {
    *problem = driver->library.path + " is of CUDA " + versionText(driver->version) + "; Braid needs CUDA " +
               versionText(kOldestDriver) + " at least. Install the NVIDIA driver, 525 or later";
    return nullptr;
  }
  return driver;
}

std::shared_ptr<const NvrtcLibrary> NvrtcLibrary::open(const std::vector<std::string>& paths,
                                                       int driverVersion, std::string* problem) {
  auto nvrtc = std::make_shared<NvrtcLibrary>();
  if (!openLibrary(paths.empty() ? libraryCandidates("libnvrtc", driverVersion) : paths, &nvrtc->library,
                   problem)) {
    *problem = "NVRTC, which compiles kernels, is missing: " + *problem +
               ". Install it: pip install nvidia-cuda-nvrtc" + (driverVersion >= 13000 ? "" : "-cu12") +
               ", or the CUDA toolkit; or name its directory in LD_LIBRARY_PATH";
    return nullptr;
  }
#define BRAID_RESOLVE(name, arguments)                                                                  \
  nvrtc->call.name = reinterpret_cast<decltype(nvrtc->call.name)>(dlsym(nvrtc->library.handle, #name)); \
  if (!nvrtc->call.name && !missing(nvrtc->library, #name, problem)) return nullptr;
  BRAID_NVRTC_FUNCTIONS(BRAID_RESOLVE)
#undef BRAID_RESOLVE
  int count = 0;
  nvrtc->call.nvrtcVersion(&nvrtc->major, &nvrtc->minor);
  // NVRTC opens its builtins by bare name, which the loader does not find next to a wheel's library. Loading
  // them first under that name helps; where they are elsewhere this does nothing.
  const std::string directory = nvrtc->library.path.substr(0, nvrtc->library.path.rfind('/') + 1);
  const std::string version = std::to_string(nvrtc->major) + "." + std::to_string(nvrtc->minor);
  if (!directory.empty())
    dlopen((directory + "libnvrtc-builtins.so." + version).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (nvrtc->call.nvrtcGetNumSupportedArchs(&count) == kNvrtcSuccess && count > 0) {
    nvrtc->archs.resize(static_cast<std::size_t>(count));
    if (nvrtc->call.nvrtcGetSupportedArchs(nvrtc->archs.data()) != kNvrtcSuccess) nvrtc->archs.clear();
  }
  return nvrtc;
}

std::shared_ptr<const CublasLtLibrary> CublasLtLibrary::open(const std::vector<std::string>& paths,
                                                             int driverVersion, std::string* problem) {
  auto blas = std::make_shared<CublasLtLibrary>();
  if (!openLibrary(paths.empty() ? libraryCandidates("libcublasLt", driverVersion) : paths, &blas->library,
                   problem)) {
    *problem = "cuBLASLt, which multiplies matrices, is missing: " + *problem +
               ". Install it: pip install nvidia-cublas" + (driverVersion >= 13000 ? "" : "-cu12") +
               ", or the CUDA toolkit; or name its directory in LD_LIBRARY_PATH";
    return nullptr;
  }
#define BRAID_RESOLVE(result, name, arguments)                                                       \
  blas->call.name = reinterpret_cast<decltype(blas->call.name)>(dlsym(blas->library.handle, #name)); \
  if (!blas->call.name && !missing(blas->library, #name, problem)) return nullptr;
  BRAID_CUBLASLT_FUNCTIONS(BRAID_RESOLVE)
#undef BRAID_RESOLVE
  blas->version = blas->call.cublasLtGetVersion();
  return blas;
}

std::shared_ptr<const CudnnLibrary> CudnnLibrary::open(const std::vector<std::string>& paths,
                                                       std::string* problem) {
  auto cudnn = std::make_shared<CudnnLibrary>();
  const std::string remedy =
      ". Install it: pip install nvidia-cudnn-cu13 (or -cu12); or name its directory in "
      "LD_LIBRARY_PATH";
  if (!openLibrary(paths.empty() ? candidatesOf({"libcudnn.so.9"}) : paths, &cudnn->library, problem)) {
    *problem = "cuDNN is missing: " + *problem + remedy;
    return nullptr;
  }
#define BRAID_RESOLVE(result, name, arguments)                                                          \
  cudnn->call.name = reinterpret_cast<decltype(cudnn->call.name)>(dlsym(cudnn->library.handle, #name)); \
  if (!cudnn->call.name) {                                                                              \
    *problem = cudnn->library.path + " has no function " #name + remedy;                                \
    return nullptr;                                                                                     \
  }
  BRAID_CUDNN_FUNCTIONS(BRAID_RESOLVE)
#undef BRAID_RESOLVE
  cudnn->version = cudnn->call.cudnnGetVersion();
  if (cudnn->version < kOldestCudnn) {
    *problem = cudnn->library.path + " is cuDNN " + libraryVersionText(cudnn->version) + "; Braid uses " +
               libraryVersionText(kOldestCudnn) + " or later" + remedy;
    return nullptr;
  }
  return cudnn;
}

}  // namespace braid::cuda
