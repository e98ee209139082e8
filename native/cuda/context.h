#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "cuda/detail.h"
#include "cuda/library.h"

namespace braid::cuda {

// A device's primary context, held as long as anything made in it lives: modules and kernels keep a share, so
// the order in which they and the driver are destroyed does not matter.
class Context {
 public:
  static Status open(std::shared_ptr<const DriverLibrary> library, int ordinal,
                     std::shared_ptr<Context>* context);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  const DriverFunctions& call() const { return library_->call; }
  const DriverLibrary& library() const { return *library_; }
  CUcontext handle() const { return handle_; }
  CUdevice device() const { return device_; }
  int attribute(int which) const;

  // Converts the driver's code. After a failure, the call and the driver's message become this thread's
  // detail.
  Status check(CUresult code, const char* call) const {
    if (code == kSuccess) return Status::ok;
    return failed(code, call);
  }

 private:
  Context(std::shared_ptr<const DriverLibrary> library, CUdevice device, CUcontext handle)
      : library_(std::move(library)), device_(device), handle_(handle) {}
  Status failed(CUresult code, const char* call) const;

  std::shared_ptr<const DriverLibrary> library_;
  CUdevice device_;
  CUcontext handle_;
  mutable std::atomic<bool> broken_{false};  // a sticky error was seen
};

// Makes the context current for a scope, on threads that may not have bound it; restores what was current
// before.
class Current {
 public:
  explicit Current(const Context& context) : context_(context) {
    pushed_ = context.call().cuCtxPushCurrent(context.handle()) == kSuccess;
  }
  ~Current() {
    CUcontext previous = nullptr;
    if (pushed_) context_.call().cuCtxPopCurrent(&previous);
  }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;

 private:
  const Context& context_;
  bool pushed_ = false;
};

// The device and its driver, as far as measurements depend on them, in lines of text.
std::string deviceText(const Context& context);

// "CUDA_ERROR_OUT_OF_MEMORY (out of memory)".
std::string describe(const DriverFunctions& call, CUresult code);

}  // namespace braid::cuda
