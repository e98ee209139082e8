#pragma once

#include <memory>
#include <string>

#include "cuda/context.h"

namespace braid::cuda {

// Machine code loaded into a context. Kernels hold the module they came from.
class Module {
 public:
  // `image`: a cubin, or PTX with a final zero, which the driver compiles.
  static Status load(std::shared_ptr<Context> context, const std::string& image,
                     std::shared_ptr<Module>* module);
  ~Module();
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  // The function by its `extern "C"` name, loaded onto the device now rather than at its first launch, which
  // may not block.
  Status function(const char* name, CUfunction* function) const;
  const Context& context() const { return *context_; }

 private:
  Module(std::shared_ptr<Context> context, CUmodule handle) : context_(std::move(context)), handle_(handle) {}
  std::shared_ptr<Context> context_;
  CUmodule handle_;
};

}  // namespace braid::cuda
