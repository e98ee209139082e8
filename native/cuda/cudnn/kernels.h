#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "cuda/cudnn/problem.h"
#include "cuda/kept_files.h"
#include "cuda/kernel.h"
#include "cuda/nvrtc.h"

namespace braid::cuda {

// From this much work on the library is asked: below it a launch takes longer than the arithmetic, and
// opening stays quick.
inline constexpr double kAskedFrom = 1073741824.0;  // 2^30 floating-point operations
inline constexpr int kLeastArchitecture = 80;

// A problem and the plan by which the library computes it; shared by the kernels of equal problems.
struct CudnnPlanned {
  CudnnProblem problem;
  std::optional<CudnnPlan> plan;
  ~CudnnPlanned();
};

// Kernels of cuDNN's in the place of Braid's own, on one device. The library is opened at the first problem
// that it may compute. What is measured is kept in the folder of `paths`, if that is not empty.
class CudnnKernels {
 public:
  CudnnKernels(std::shared_ptr<Context> context, std::shared_ptr<Compiler> compiler,
               const LibraryPaths& paths);

  // Puts a kernel that calls the library in the place of *kernel, whose text is `source`, where the library
  // computes the same and is faster. Whatever fails leaves *kernel as it is.
  void improve(const CudnnKind& kind, const KernelSpec& spec, const std::string& source,
               std::unique_ptr<Kernel>* kernel);

 private:
  bool isOpen();
  std::string nameOf(const CudnnKind& kind, const KernelSpec& spec, const std::string& source) const;
  // Null where Braid's own kernel is taken.
  std::shared_ptr<const CudnnPlanned> choose(const CudnnKind& kind, const KernelSpec& spec,
                                             const std::string& source, const CudaKernel& own);

  std::shared_ptr<Context> context_;
  std::shared_ptr<Compiler> compiler_;
  const std::vector<std::string> paths_;
  const UseCudnn use_;
  const ChoiceFiles files_;
  std::mutex mutex_;
  bool opened_ = false;
  std::shared_ptr<CudnnSession> session_;
  std::map<std::string, std::shared_ptr<const CudnnPlanned>> chosen_;  // by problem; null: Braid's own
};

// How many kernels of this process call cuDNN.
std::uint64_t preparedByCudnn();

}  // namespace braid::cuda
