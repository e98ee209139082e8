#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cuda/kernel.h"
#include "cuda/nvrtc.h"
#include "cuda/source.h"

namespace braid::cuda {

// cuBLASLt's handle on one device. Kernels keep a share.
struct BlasSession {
  std::shared_ptr<Context> context;
  std::shared_ptr<const CublasLtLibrary> library;
  LtHandle handle = nullptr;
  ~BlasSession();
};

// The algorithm for operands aligned to `alignment` bytes at least, and the scratch that it takes.
struct MatmulChoice {
  std::size_t alignment = 1;
  LtAlgorithm algorithm{};
  std::size_t workspaceBytes = 0;
};

// The addresses of one launch; those that the problem has not are 0.
struct MatmulAddresses {
  DeviceAddress a = 0, b = 0, c = 0, bias = 0, residual = 0, workspace = 0;
};

class MatmulProblem;

// Makes matmul kernels of one device. The library is opened at the first one that needs it.
class Blas {
 public:
  Blas(std::shared_ptr<Context> context, std::shared_ptr<Compiler> compiler, std::vector<std::string> paths);
  Status prepare(const KernelSpec& spec, std::unique_ptr<Kernel>* kernel);

 private:
  // What computes a problem: equal problems get the same, so equal bits.
  struct Chosen {
    std::vector<MatmulChoice> choices;
    bool few = false;    // the kernel for few rows was faster
    bool apart = false;  // relu is a kernel after the library's
  };
  Status ready();
  // The kernel for few rows; null where there is none.
  std::unique_ptr<Kernel> fewRows(const KernelSpec& spec);
  // The library's algorithms for a product; one for operands aligned to their elements alone is the last.
  // None where the library has none. Without relu where the library's is not ours.
  Status choose(const KernelSpec& spec, Chosen* chosen);
  // What the library is asked for.
  Status describe(const KernelSpec& spec, const Chosen& chosen, std::unique_ptr<MatmulProblem>* problem);
  Status generate(const KernelSource& source, std::size_t readCount, const char* call,
                  std::unique_ptr<Kernel>* kernel);

  std::shared_ptr<Context> context_;
  std::shared_ptr<Compiler> compiler_;
  std::vector<std::string> paths_;
  std::shared_ptr<BlasSession> session_;
  std::mutex mutex_;
  std::map<std::string, Chosen> chosen_;  // by problem
};

}  // namespace braid::cuda
