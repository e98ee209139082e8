#include <napi.h>

#include "bindings/allocator_object.h"
#include "bindings/convert.h"
#include "bindings/device.h"
#include "bindings/environment.h"
#include "bindings/event_loop.h"
#include "bindings/failure_object.h"
#include "bindings/handle.h"
#include "bindings/host_options.h"
#include "bindings/replay.h"

// The addon has no global state: all state belongs to the objects that it makes, so several environments
// (worker threads) of one process may load it.
namespace braid::bindings {
namespace {

Napi::Value probe(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  const CudaReport report = probeCuda();
  Napi::Array devices = Napi::Array::New(env), libraries = Napi::Array::New(env);
  for (std::size_t i = 0; i < report.devices.size(); ++i) {
    devices.Set(static_cast<std::uint32_t>(i),
                deviceInfo(env, report.devices[i], i < report.freeBytes.size() ? report.freeBytes[i] : 0));
  }
  for (std::size_t i = 0; i < report.libraries.size(); ++i) {
    Napi::Object library = Napi::Object::New(env);
    library.Set("name", report.libraries[i].name);
    library.Set("found", report.libraries[i].found);
    library.Set("version", report.libraries[i].version);
    library.Set("problem", report.libraries[i].problem);
    libraries.Set(static_cast<std::uint32_t>(i), library);
  }
  Napi::Object result = Napi::Object::New(env);
  result.Set("devices", devices);
  result.Set("libraries", libraries);
  Napi::Object cudnn = Napi::Object::New(env);
  cudnn.Set("use", report.cudnn.use);
  cudnn.Set("leastArchitecture", report.cudnn.leastArchitecture);
  cudnn.Set("askedFrom", report.cudnn.askedFrom);
  result.Set("cudnn", cudnn);
  Napi::Object choices = Napi::Object::New(env);
  choices.Set("folder", report.choices.folder);
  choices.Set("refusal", report.choices.refusal);
  choices.Set("kept", static_cast<double>(report.choices.kept));
  choices.Set("measured", static_cast<double>(report.choices.measured));
  choices.Set("byCudnn", static_cast<double>(report.choices.byCudnn));
  result.Set("choices", choices);
  Napi::Object kernels = Napi::Object::New(env);
  kernels.Set("folder", report.kernels.folder);
  kernels.Set("refusal", report.kernels.refusal);
  kernels.Set("kept", static_cast<double>(report.kernels.kept));
  kernels.Set("compiled", static_cast<double>(report.kernels.compiled));
  result.Set("kernels", kernels);
  return result;
}

Napi::Value openHostDevice(const Napi::CallbackInfo& info) {
  const HostOptions options = hostOptions(info[0]);
  std::unique_ptr<Driver> driver;
  std::string detail;
  if (const Status status = openHost(&driver, options, &detail); status != Status::ok)
    throw failureObject(info.Env(), openFailure(status, "openHost", detail));
  return deviceObject(info.Env(), DeviceMemory::alone(std::move(driver)));
}

Napi::Value openCudaDevice(const Napi::CallbackInfo& info) {
  const auto ordinal = static_cast<int>(integerAt(info[0], "ordinal", 0, INT32_MAX));
  std::unique_ptr<Driver> driver;
  std::string detail;
  if (const Status status = openCuda(&driver, ordinal, &detail); status != Status::ok)
    throw failureObject(info.Env(), openFailure(status, "openCuda", detail));
  return deviceObject(info.Env(), DeviceMemory::alone(std::move(driver)));
}

Napi::Value keptOnDisk(const Napi::CallbackInfo& info) {
  Napi::Array problems = Napi::Array::New(info.Env());
  for (const std::string& each : keptProblems())
    problems.Set(problems.Length(), Napi::String::New(info.Env(), each));
  return problems;
}

Napi::Object init(Napi::Object exports) {
  exports.Set("version", BRAID_VERSION);
  define<probe>(exports, "probe");
  define<openHostDevice>(exports, "openHost");
  define<openCudaDevice>(exports, "openCuda");
  define<openCaching>(exports, "openCaching");
  define<keptOnDisk>(exports, "keptProblems");
  define<replayTrace>(exports, "replay");
  define<eventLoop>(exports, "eventLoop");
  return exports;
}

}  // namespace

Napi::Object start(Napi::Env env, Napi::Object exports) {
  Environment::begin(env);
  return init(exports);
}

}  // namespace braid::bindings

NAPI_MODULE_INIT() { return Napi::RegisterModule(env, exports, braid::bindings::start); }
