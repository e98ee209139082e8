#include "cuda/module.h"

#include <cstring>

namespace braid::cuda {

Status Module::load(std::shared_ptr<Context> context, const std::string& image,
                    std::shared_ptr<Module>* module) {
  char log[4096] = "";
  int options[] = {kJitErrorLog, kJitErrorLogBytes};
  void* values[] = {log, reinterpret_cast<void*>(static_cast<std::uintptr_t>(sizeof(log)))};
  CUmodule handle = nullptr;
  const CUresult code = context->call().cuModuleLoadDataEx(&handle, image.c_str(), 2, options, values);
  if (code != kSuccess) {
    const Status status = context->check(code, "cuModuleLoadDataEx");
    log[sizeof(log) - 1] = 0;
    if (*log) detail() += std::string("\n") + log;
    return status;
  }
  module->reset(new Module(std::move(context), handle));
  return Status::ok;
}

Module::~Module() {
  Current current(*context_);
  context_->call().cuModuleUnload(handle_);
}

Status Module::function(const char* name, CUfunction* function) const {
  const CUresult code = context_->call().cuModuleGetFunction(function, handle_, name);
  if (code != kSuccess) return context_->check(code, "cuModuleGetFunction");
  int threads = 0;  // asking for an attribute makes a lazily loading driver load it
  return context_->check(context_->call().cuFuncGetAttribute(&threads, kFunctionMaxThreads, *function),
                         "cuFuncGetAttribute");
}

}  // namespace braid::cuda
