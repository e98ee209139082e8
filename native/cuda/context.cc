#include "cuda/context.h"

namespace braid::cuda {

std::string describe(const DriverFunctions& call, CUresult code) {
  const char* name = nullptr;
  const char* text = nullptr;
  if (call.cuGetErrorName(code, &name) != kSuccess || !name) return "CUDA error " + std::to_string(code);
  if (call.cuGetErrorString(code, &text) != kSuccess || !text) return name;
  return std::string(name) + " (" + text + ")";
}

std::string deviceText(const Context& context) {
  char device[256] = "";
  context.call().cuDeviceGetName(device, sizeof(device), context.device());
  return std::string("device ") + device + "\ncapability " +
         std::to_string(context.attribute(kComputeMajor)) + "." +
         std::to_string(context.attribute(kComputeMinor)) + "\nmultiprocessors " +
         std::to_string(context.attribute(kMultiprocessors)) + "\ndriver " +
         std::to_string(context.library().version) + "\n";
}

Status Context::open(std::shared_ptr<const DriverLibrary> library, int ordinal,
                     std::shared_ptr<Context>* context) {
  const DriverFunctions& call = library->call;
  CUdevice device = 0;
  CUcontext handle = nullptr;
  if (CUresult code = call.cuDeviceGet(&device, ordinal)) {
    return fail(static_cast<Status>(code),
                "cuDeviceGet(" + std::to_string(ordinal) + "): " + describe(call, code));
  }
  if (CUresult code = call.cuDevicePrimaryCtxRetain(&handle, device)) {
    const char* after = isSticky(static_cast<Status>(code))
                            ? ". A kernel of this process broke its CUDA context before, and the driver "
                              "takes no more work from "
                              "this process: start it again; until then only other devices can be opened"
                            : "";
    return fail(static_cast<Status>(code), "cuDevicePrimaryCtxRetain: " + describe(call, code) + after);
  }
  context->reset(new Context(std::move(library), device, handle));
  return Status::ok;
}

// After a sticky error the primary context stays unusable as long as it is retained anywhere in the process,
// and cuBLASLt's runtime never releases it. A reset destroys it for all users. If the GPU itself faulted (an
// illegal address on an H200, driver 580), not even that helps: every later retain fails with the same code
// until the process ends.
Context::~Context() {
  if (broken_) call().cuDevicePrimaryCtxReset(device_);
  call().cuDevicePrimaryCtxRelease(device_);
}

int Context::attribute(int which) const {
  int value = 0;
  return call().cuDeviceGetAttribute(&value, which, device_) == kSuccess ? value : 0;
}

Status Context::failed(CUresult code, const char* call) const {
  const Status status = static_cast<Status>(code);
  if (status == Status::notReady) return status;
  if (isSticky(status)) broken_ = true;
  return fail(status, std::string(call) + ": " + describe(library_->call, code));
}

}  // namespace braid::cuda
