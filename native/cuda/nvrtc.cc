#include "cuda/nvrtc.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <shared_mutex>

namespace braid::cuda {
namespace {

// cuda_fp16.h and its like are not NVRTC's own: wheels and toolkits put them in places that lie beside the
// library.
std::vector<std::string> includeDirectories(const std::string& libraryPath) {
  namespace fs = std::filesystem;
  std::vector<fs::path> places;
  const fs::path lib = fs::path(libraryPath).parent_path();
  places.push_back(lib.parent_path() / "include");
  places.push_back(lib.parent_path().parent_path() / "cuda_runtime" / "include");
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"}) {
    const char* root = std::getenv(variable);
    if (root && *root) places.push_back(fs::path(root) / "include");
  }
  places.push_back("/usr/local/cuda/include");
  std::vector<std::string> found;
  for (const fs::path& place : places) {
    std::error_code ignored;
    if (fs::exists(place / "cuda_fp16.h", ignored)) {
      found.push_back("--include-path=" + place.string());
      break;  // headers of two versions must not mix
    }
  }
  return found;
}

// Held shared by a thread that compiles. The process may end meanwhile, and NVRTC's own data goes away then:
// so the end waits for what is being compiled, and nothing is compiled from then on. Never destroyed.
std::shared_mutex& compiling() {
  static auto* const mutex = new std::shared_mutex;
  return *mutex;
}

// Once NVRTC is loaded: what was registered last is called first.
void awaitCompilingAtExit() {
  static const bool registered = std::atexit([] { compiling().lock(); }) == 0;
  static_cast<void>(registered);
}

struct Program {
  const NvrtcFunctions& call;
  nvrtcProgram handle = nullptr;
  ~Program() {
    if (handle) call.nvrtcDestroyProgram(&handle);
  }
};

}  // namespace

Compiler::Compiler(std::shared_ptr<Context> context, std::vector<std::string> paths, std::string folder)
    : context_(std::move(context)), paths_(std::move(paths)), files_(std::move(folder)) {}

Status Compiler::ready() {
  if (library_) return Status::ok;
  std::string problem;
  library_ = NvrtcLibrary::open(paths_, context_->library().version, &problem);
  awaitCompilingAtExit();
  return library_ ? Status::ok : fail(Status::fileNotFound, problem);
}

Status Compiler::compile(const std::string& source, const std::string& title, Flavor flavor,
                         std::shared_ptr<Module>* module) {
  const std::lock_guard lock(mutex_);
  const std::pair key{flavor, source};
  if (const auto found = modules_.find(key); found != modules_.end()) {
    *module = found->second;
    return Status::ok;
  }
  if (const Status status = ready(); status != Status::ok) return status;
  // A user's source may include files, which change.
  const std::string name = flavor == Flavor::generated ? nameOf(source) : "";
  if (!name.empty() && loadKept(name, module)) {
    modules_.emplace(key, *module);
    return Status::ok;
  }
  std::string image;
  if (const Status status = build(source, title, flavor, &image); status != Status::ok) return status;
  if (const Status status = Module::load(context_, image, module); status != Status::ok) return status;
  modules_.emplace(key, *module);
  if (!name.empty()) countCompiled(), files_.keep(name, image);
  return Status::ok;
}

bool Compiler::loadKept(const std::string& name, std::shared_ptr<Module>* module) const {
  std::string image;
  return files_.find(name, &image) && Module::load(context_, image, module) == Status::ok;
}

// The library says which version it is, but not which release of that.
std::string Compiler::nameOf(const std::string& source) const {
  std::error_code unknown;
  const auto bytes = std::filesystem::file_size(library_->library.path, unknown);
  std::string name = "braid kernel 1\nnvrtc " + std::to_string(library_->major) + "." +
                     std::to_string(library_->minor) + " of " + std::to_string(unknown ? 0 : bytes) +
                     " bytes\noptions";
  bool binary = false;
  for (const std::string& option : optionsFor(Flavor::generated, &binary)) name += " " + option;
  return name + "\n" + source + "\n";
}

std::vector<std::string> Compiler::optionsFor(Flavor flavor, bool* binary) const {
  const int arch = context_->attribute(kComputeMajor) * 10 + context_->attribute(kComputeMinor);
  const std::vector<int>& known = library_->archs;
  *binary = std::find(known.begin(), known.end(), arch) != known.end();
  std::vector<std::string> options{"--std=c++17"};
  if (*binary) {
    // From 9.0 on, an architecture's own instructions (wgmma, setmaxnreg) are only in its `a` form, which
    // runs on it alone.
    options.push_back("--gpu-architecture=sm_" + std::to_string(arch) +
                      (flavor == Flavor::user && arch >= 90 ? "a" : ""));
  } else {
    int newest = 0;  // older than the device: the driver compiles its PTX for it
    for (int each : known) {
      if (each <= arch) newest = std::max(newest, each);
    }
    options.push_back("--gpu-architecture=compute_" + std::to_string(newest ? newest : arch));
  }
  if (flavor == Flavor::generated) {
    options.insert(options.end(), {"--fmad=false", "--prec-div=true", "--prec-sqrt=true", "--ftz=false"});
  } else {
    for (std::string& include : includeDirectories(library_->library.path))
      options.push_back(std::move(include));
  }
  return options;
}

Status Compiler::build(const std::string& source, const std::string& title, Flavor flavor,
                       std::string* image) {
  const NvrtcFunctions& call = library_->call;
  const std::shared_lock held(compiling());
  Program program{call};
  if (call.nvrtcCreateProgram(&program.handle, source.c_str(), title.c_str(), 0, nullptr, nullptr) !=
      kNvrtcSuccess) {
    return fail(Status::invalidValue, "nvrtcCreateProgram failed for " + title);
  }
  bool binary = false;
  const std::vector<std::string> options = optionsFor(flavor, &binary);
  std::vector<const char*> words;
  for (const std::string& option : options) words.push_back(option.c_str());
  const nvrtcResult code =
      call.nvrtcCompileProgram(program.handle, static_cast<int>(words.size()), words.data());
  if (code != kNvrtcSuccess) {
    std::size_t bytes = 0;
    std::string log;
    if (call.nvrtcGetProgramLogSize(program.handle, &bytes) == kNvrtcSuccess && bytes > 1) {
      log.resize(bytes);
      if (call.nvrtcGetProgramLog(program.handle, log.data()) != kNvrtcSuccess) log.clear();
      log.resize(log.find_last_not_of(std::string("\0\n ", 3)) + 1);
    }
    std::string detail = "NVRTC " + std::to_string(library_->major) + "." + std::to_string(library_->minor) +
                         (code == kNvrtcCompilation ? " did not compile " : " failed on ") + title + " (" +
                         options[1] + ")";
    return fail(Status::invalidImage,
                detail + (log.empty() ? ": code " + std::to_string(code) : ":\n" + log));
  }
  std::size_t bytes = 0;
  const nvrtcResult sized =
      binary ? call.nvrtcGetCUBINSize(program.handle, &bytes) : call.nvrtcGetPTXSize(program.handle, &bytes);
  if (sized != kNvrtcSuccess || bytes == 0)
    return fail(Status::invalidImage, "NVRTC gave no code for " + title);
  image->resize(bytes);
  const nvrtcResult got = binary ? call.nvrtcGetCUBIN(program.handle, image->data())
                                 : call.nvrtcGetPTX(program.handle, image->data());
  return got == kNvrtcSuccess ? Status::ok : fail(Status::invalidImage, "NVRTC gave no code for " + title);
}

}  // namespace braid::cuda
