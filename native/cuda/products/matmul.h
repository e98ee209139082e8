#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cuda/kept_files.h"
#include "cuda/kernel.h"
#include "cuda/nvrtc.h"
#include "cuda/products/choice.h"
#include "cuda/sources/source.h"

namespace braid::cuda {

// cuBLASLt's handle on one device. Kernels keep a share.
struct BlasSession {
  std::shared_ptr<Context> context;
  std::shared_ptr<const CublasLtLibrary> library;
  LtHandle handle = nullptr;
  ~BlasSession();
};

// The addresses of one launch; those that the problem has not are 0.
struct MatmulAddresses {
  DeviceAddress a = 0, b = 0, c = 0, bias = 0, residual = 0, auxiliary = 0, workspace = 0;
};

class MatmulProblem;

// Makes matmul kernels of one device. The library is opened at the first one that needs it; where it is
// missing, Braid's own kernels compute every product. What is measured for a problem is kept in a folder.
class Blas {
 public:
  Blas(std::shared_ptr<Context> context, std::shared_ptr<Compiler> compiler, const LibraryPaths& paths);
  Status prepare(const KernelSpec& spec, std::unique_ptr<Kernel>* kernel);

 private:
  Status ready();
  // By Braid's own kernels.
  Status prepareOwn(const KernelSpec& spec, std::unique_ptr<Kernel>* kernel);
  // The kernel for few rows; null where there is none.
  bool fewRows(const KernelSpec& spec, KernelSource* source) const;
  std::unique_ptr<Kernel> fewRows(const KernelSpec& spec);
  // What computes a problem, from its file or measured. Its algorithms have been run, which loads their code;
  // none where the library has none.
  Status choose(const KernelSpec& spec, MatmulChosen* chosen);
  // All that decides the choice: the device, the versions, the problem, and the kernel for few rows if there
  // is one.
  std::string nameOf(const KernelSpec& spec, bool few) const;
  // The library's algorithms for a product; one for operands aligned to their elements alone is the last.
  // Without the steps that may be apart where the library's relu is not ours, or it has no algorithm for
  // them. *certain: no call failed that has a part in the choice.
  Status algorithms(const KernelSpec& spec, MatmulChosen* chosen, bool* certain);
  // Whether the library still offers what was kept, and runs it: *kept then has what it offers, since a kept
  // choice only names its algorithms.
  bool isStillOffered(const KernelSpec& spec, MatmulChosen* kept);
  // What the library is asked for.
  Status describe(const KernelSpec& spec, const MatmulChosen& chosen,
                  std::unique_ptr<MatmulProblem>* problem);
  Status generate(const KernelSource& source, std::size_t readCount, const char* call,
                  std::unique_ptr<Kernel>* kernel);

  std::shared_ptr<Context> context_;
  std::shared_ptr<Compiler> compiler_;
  std::vector<std::string> paths_;
  bool isLibraryUsed_;  // it is not missing, or it has not been looked for yet
  std::shared_ptr<BlasSession> session_;
  const ChoiceFiles files_;
  std::mutex mutex_;
  std::map<std::string, MatmulChosen> chosen_;  // by problem
};

}  // namespace braid::cuda
