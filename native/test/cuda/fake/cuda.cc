// A CUDA driver, NVRTC and cuBLASLt in one shared library (cuDNN of it is in cudnn.cc), for tests on machines
// without a GPU: memory is the process's, streams complete at once, kernels only count, products are
// computed. Longer than a file should be because the loader wants every function of three libraries in it. It
// is part of no product.
//
// There are two devices. Whose a stream, an event or an allocation is, is known, and work that is queued
// while another's context is current is refused, as by the driver.
//
// What it is for: the loading itself, what is passed and in which order, failures of every call, and that
// nothing is left behind. `fake_fail` makes the nth call of a function fail; `fake_live` counts objects made
// and not yet destroyed.
#include <dlfcn.h>
#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cuda/nvrtc_api.h"
#include "cuda/products/cublaslt_api.h"
#include "kernels/half.h"
#include "test/cuda/fake/state.h"

using namespace braid::cuda;
using namespace fake;

namespace {

// Whether the launch that this thread makes has the attribute of programmatic stream serialization.
thread_local bool startsEarly = false;

struct FakeModule {
  std::string image;
  std::vector<CUfunction> functions;
};
struct FakeFunction {
  std::string name;
  unsigned mostShared = 48 << 10;
};
struct FakeProgram {
  std::string source, log, image;
};
struct FakeLayout {
  int type;
  std::uint64_t rows, columns;
  std::int64_t leading, stride = 0;
  std::int32_t batch = 1;
};
struct FakeDesc {
  std::int32_t transA = 0, transB = 0;
  std::uint32_t epilogue = 1;
  const void* bias = nullptr;
  void* auxiliary = nullptr;
  std::int64_t auxiliaryRow = 0, auxiliaryStride = 0;
};
struct FakePreference {
  std::size_t workspace = 0;
  std::uint32_t alignment = 256;
};

thread_local CUcontext current = nullptr;
thread_local std::vector<CUcontext> pushed;
int contextStorage[2];
constexpr std::size_t kPage = 2 << 20;
constexpr CUpages kPagesOfDevice = 0x1234;

// Work goes on a stream of the context that is current.
CUcontext contextOf(CUstream stream) {
  return stream ? reinterpret_cast<FakeStream*>(stream)->context : current;
}

float elementAt(const void* base, int type, std::int64_t index) {
  if (type == kReal32F) return static_cast<const float*>(base)[index];
  const std::uint16_t bits = static_cast<const std::uint16_t*>(base)[index];
  return type == kReal16F ? braid::floatFromF16(bits) : braid::floatFromBf16(bits);
}

float reluOf(float x) {
  if (std::isnan(x)) return state().keepsNaN ? x : 0;
  return x > 0 || (x == 0 && !state().dropsSign) ? x : 0;
}

void setElement(void* base, int type, std::int64_t index, float value) {
  if (type == kReal32F)
    static_cast<float*>(base)[index] = value;
  else
    static_cast<std::uint16_t*>(base)[index] =
        type == kReal16F ? braid::f16FromFloat(value) : braid::bf16FromFloat(value);
}

}  // namespace

// The tests' own door.
EXPORT void fake_fail(const char* call, int nth, int code) { state().failure = {call, nth, code}; }
EXPORT int fake_live(const char* kind) {
  const std::lock_guard lock(state().mutex);
  int sum = 0;
  for (const auto& [name, count] : state().live) sum += *kind == 0 || name == kind ? count : 0;
  return sum;
}
EXPORT void fake_reachable(int can) { state().reachable = can != 0; }
EXPORT void fake_relu(int keepsNaN, int dropsSign) {
  state().keepsNaN = keepsNaN != 0, state().dropsSign = dropsSign != 0;
}
EXPORT void fake_offer(int first) { state().offered = first; }
EXPORT int fake_calls(const char* call) {
  const std::lock_guard lock(state().mutex);
  return state().calls[call];
}
EXPORT const char* fake_last_launch() {
  return state().launched.empty() ? "" : state().launched.back().c_str();
}

EXPORT CUresult cuGetProcAddress_v2(const char* name, void** function, int, std::uint64_t, int*) {
  static const std::map<std::string, const char*> symbols{
#define ENTRY(name, version, symbol, arguments) {#name, symbol},
      BRAID_CUDA_DRIVER_FUNCTIONS(ENTRY)
#undef ENTRY
  };
  Dl_info self;
  const auto found = symbols.find(name);
  if (found == symbols.end() || !dladdr(reinterpret_cast<void*>(&fake_live), &self)) return kSymbolMissing;
  void* library = dlopen(self.dli_fname, RTLD_NOW | RTLD_NOLOAD);
  *function = library ? dlsym(library, found->second) : nullptr;
  if (library) dlclose(library);
  return *function ? 0 : kSymbolMissing;
}

CALL(cuInit, (unsigned)) END CALL(cuDriverGetVersion, (int* version)) * version = 13000;
END EXPORT CUresult cuGetErrorName(CUresult code, const char** name) {
  *name = code == 2     ? "CUDA_ERROR_OUT_OF_MEMORY"
          : code == 700 ? "CUDA_ERROR_ILLEGAL_ADDRESS"
                        : "CUDA_ERROR_FAKE";
  return 0;
}
EXPORT CUresult cuGetErrorString(CUresult code, const char** text) {
  *text = code == 2 ? "out of memory" : "a made failure";
  return 0;
}
CALL(cuDeviceGetCount, (int* count)) * count = 2;
END CALL(cuDeviceGet, (CUdevice * device, int ordinal)) * device = ordinal;
END CALL(cuDeviceGetName, (char* name, int length, CUdevice)) std::strncpy(name, "Fake GPU",
                                                                           static_cast<std::size_t>(length));
END CALL(cuDeviceTotalMem_v2, (std::size_t * bytes, CUdevice)) * bytes = std::size_t{1} << 33;
END CALL(cuDeviceGetAttribute, (int* value, int attribute, CUdevice)) switch (attribute) {
  case kMaxThreadsPerBlock:
  case kMaxBlockX:
  case kMaxBlockY: *value = 1024; break;
  case kMaxBlockZ: *value = 64; break;
  case kMaxGridX: *value = 0x7fffffff; break;
  case kMaxGridY:
  case kMaxGridZ: *value = 65535; break;
  case kSharedPerBlock: *value = 49152; break;
  case kSharedPerBlockOptIn: *value = 232448; break;
  case kMultiprocessors: *value = 132; break;
  case kComputeMajor: *value = 9; break;
  case kComputeMinor: *value = 0; break;
  case kVirtualMemory: *value = 1; break;
  default: return 1;
}
END CALL(cuDevicePrimaryCtxRetain, (CUcontext * context, CUdevice device)) born("context");
*context = reinterpret_cast<CUcontext>(&contextStorage[device]);
END EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice) {
  gone("context");
  return 0;
}
EXPORT CUresult cuDevicePrimaryCtxReset_v2(CUdevice) {
  state().sticky = 0;
  gate("cuDevicePrimaryCtxReset_v2");
  return 0;
}
EXPORT CUresult cuCtxSetCurrent(CUcontext context) {
  if (const int code = gate("cuCtxSetCurrent")) return code;
  current = context;
  return 0;
}
EXPORT CUresult cuCtxPushCurrent_v2(CUcontext context) {
  gate("cuCtxPushCurrent_v2");
  pushed.push_back(current);
  current = context;
  return 0;
}
EXPORT CUresult cuCtxPopCurrent_v2(CUcontext* context) {
  *context = current;
  gate("cuCtxPopCurrent_v2");
  if (pushed.empty()) return 201;
  current = pushed.back();
  pushed.pop_back();
  return 0;
}
CALL(cuCtxGetStreamPriorityRange, (int* least, int* greatest)) * least = 0;
*greatest = -5;
END CALL(cuDeviceCanAccessPeer, (int* can, CUdevice, CUdevice)) * can = state().reachable;
END CALL(cuCtxEnablePeerAccess, (CUcontext peer, unsigned flags)) if (flags != 0 || peer == current) return 1;
const std::lock_guard lock(state().mutex);
if (!state().peers.insert({current, peer}).second) return kPeerAlreadyEnabled;
END CALL(cuMemAlloc_v2,
         (CUdeviceptr * address, std::size_t bytes)) if (bytes > std::size_t{1} << 30) return 2;
if (current == nullptr) return 201;
*address = reinterpret_cast<CUdeviceptr>(std::aligned_alloc(512, (bytes + 511) / 512 * 512));
born("memory");
const std::lock_guard lock(state().mutex);
state().owners[*address] = current;
END EXPORT CUresult cuMemFree_v2(CUdeviceptr address) {
  if (const int code = gate("cuMemFree_v2")) return code;
  std::free(reinterpret_cast<void*>(address));
  gone("memory");
  const std::lock_guard lock(state().mutex);
  state().owners.erase(address);
  return 0;
}
CALL(cuMemGetInfo_v2, (std::size_t * free, std::size_t* total)) * free = std::size_t{1} << 32;
*total = std::size_t{1} << 33;
END CALL(cuMemHostAlloc, (void** pointer, std::size_t bytes, unsigned)) * pointer = std::malloc(bytes);
born("pinned");
END EXPORT CUresult cuMemFreeHost(void* pointer) {
  std::free(pointer);
  gone("pinned");
  return 0;
}
CALL(cuMemAddressReserve,
     (CUdeviceptr * address, std::size_t bytes, std::size_t, CUdeviceptr, unsigned long long))
// A range is longer than the memory that is here.
void* all =
    mmap(nullptr, bytes + kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
if (all == MAP_FAILED) return 2;
const CUdeviceptr begin = reinterpret_cast<CUdeviceptr>(all), aligned = (begin + kPage - 1) / kPage * kPage;
if (aligned > begin) munmap(all, aligned - begin);
if (begin + kPage > aligned) munmap(reinterpret_cast<void*>(aligned + bytes), begin + kPage - aligned);
*address = aligned;
born("address");
END EXPORT CUresult cuMemAddressFree(CUdeviceptr address, std::size_t bytes) {
  munmap(reinterpret_cast<void*>(address), bytes);
  gone("address");
  return 0;
}
CALL(cuMemCreate, (CUpages * pages, std::size_t, const CUmemAllocationProp* prop, unsigned long long))
if (prop->type != 1 || prop->location.type != 1) return 1;
born("pages");
*pages = kPagesOfDevice + static_cast<CUpages>(prop->location.id);
END EXPORT CUresult cuMemRelease(CUpages) {
  gone("pages");
  return 0;
}
CALL(cuMemMap, (CUdeviceptr address, std::size_t, std::size_t, CUpages pages, unsigned long long))
born("mapping");
const std::lock_guard lock(state().mutex);
state().owners[address] = reinterpret_cast<CUcontext>(&contextStorage[pages - kPagesOfDevice]);
END EXPORT CUresult cuMemUnmap(CUdeviceptr address, std::size_t bytes) {
  gone("mapping");
  const std::lock_guard lock(state().mutex);
  auto& owners = state().owners;
  owners.erase(owners.lower_bound(address), owners.lower_bound(address + bytes));
  return 0;
}
CALL(cuMemSetAccess, (CUdeviceptr, std::size_t, const CUmemAccessDesc* access, std::size_t count))
if (count == 0) return 1;
for (std::size_t i = 0; i < count; ++i)
  if (access[i].flags != 3) return 1;
END CALL(cuMemGetAllocationGranularity,
         (std::size_t * granularity, const CUmemAllocationProp*, int)) * granularity = 2 << 20;
END

    static CUresult
    move(CUdeviceptr to, CUdeviceptr from, std::size_t bytes) {
  std::memmove(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes);
  return 0;
}
CALL(cuMemcpyAsync, (CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream))
return move(to, from, bytes);
}
CALL(cuMemcpyHtoDAsync_v2, (CUdeviceptr to, const void* from, std::size_t bytes, CUstream stream))
if (CUresult result = 0; captured(stream, copyOf(to, reinterpret_cast<CUdeviceptr>(from), bytes), &result))
  return result;
return move(to, reinterpret_cast<CUdeviceptr>(from), bytes);
}
CALL(cuMemcpyDtoHAsync_v2, (void* to, CUdeviceptr from, std::size_t bytes, CUstream stream))
if (CUresult result = 0; captured(stream, copyOf(reinterpret_cast<CUdeviceptr>(to), from, bytes), &result))
  return result;
return move(reinterpret_cast<CUdeviceptr>(to), from, bytes);
}
CALL(cuMemcpyDtoDAsync_v2, (CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream))
if (CUresult result = 0; captured(stream, copyOf(to, from, bytes), &result)) return result;
return move(to, from, bytes);
}
CALL(cuMemcpyPeerAsync, (CUdeviceptr to, CUcontext toContext, CUdeviceptr from, CUcontext fromContext,
                         std::size_t bytes, CUstream stream))
if (ownerOf(to) != toContext || ownerOf(from) != fromContext || !mayQueue(stream)) return 1;
return move(to, from, bytes);
}
CALL(cuMemsetD32Async, (CUdeviceptr to, unsigned value, std::size_t words, CUstream stream))
if (!mayQueue(stream)) return 400;
CUgraphNodeParams fill;
fill.type = 2;
fill.memset = {to, 0, value, 4, words, 1, current};
if (CUresult result = 0; captured(stream, fill, &result)) return result;
// One of so much memory is only there to take time, on a real device.
if (words <= std::size_t{8} << 20)
  for (std::size_t i = 0; i < words; ++i) reinterpret_cast<unsigned*>(to)[i] = value;
END

#define FILL_ROWS(name, Element)                                                                       \
  CALL(name, (CUdeviceptr to, std::size_t pitch, Element value, std::size_t width, std::size_t height, \
              CUstream stream))                                                                        \
  if (!mayQueue(stream) || pitch < width * sizeof(Element)) return 400;                                \
  CUgraphNodeParams fill;                                                                              \
  fill.type = 2;                                                                                       \
  fill.memset = {to, pitch, value, sizeof(Element), width, height, current};                           \
  if (CUresult result = 0; captured(stream, fill, &result)) return result;                             \
  for (std::size_t row = 0; row < height; ++row)                                                       \
    for (std::size_t i = 0; i < width; ++i) reinterpret_cast<Element*>(to + row * pitch)[i] = value;   \
  END
FILL_ROWS(cuMemsetD2D8Async, unsigned char)
FILL_ROWS(cuMemsetD2D16Async, unsigned short)
FILL_ROWS(cuMemsetD2D32Async, unsigned)

    CALL(cuStreamCreateWithPriority,
         (CUstream * stream, unsigned flags, int priority)) if (flags != kStreamNonBlocking || priority > 0 ||
                                                                priority < -5) return 1;
*stream = reinterpret_cast<CUstream>(new FakeStream{priority, current});
born("stream");
END EXPORT CUresult cuStreamDestroy_v2(CUstream stream) {
  delete reinterpret_cast<FakeStream*>(stream);
  gone("stream");
  return 0;
}
CALL(cuStreamSynchronize, (CUstream))
END CALL(cuStreamQuery, (CUstream)) END CALL(cuStreamWaitEvent, (CUstream, CUevent, unsigned)) END
    CALL(cuEventCreate, (CUevent * event, unsigned flags)) * event = reinterpret_cast<CUevent>(new FakeEvent{
        flags, false, current});
born("event");
END EXPORT CUresult cuEventDestroy_v2(CUevent event) {
  delete reinterpret_cast<FakeEvent*>(event);
  gone("event");
  return 0;
}
CALL(cuEventRecord, (CUevent event, CUstream stream))
if (reinterpret_cast<FakeEvent*>(event)->context != contextOf(stream)) return 400;
reinterpret_cast<FakeEvent*>(event)->recorded = true;
reinterpret_cast<FakeEvent*>(event)->time = state().time;
END CALL(cuEventQuery, (CUevent)) END CALL(cuEventSynchronize, (CUevent)) END
    CALL(cuEventElapsedTime,
         (float* milliseconds, CUevent from, CUevent to)) for (CUevent event : {from, to}) {
  const auto* each = reinterpret_cast<FakeEvent*>(event);
  if (!each->recorded || (each->flags & kEventDisableTiming)) return 400;
  if (each->context != reinterpret_cast<FakeEvent*>(from)->context) return 400;
}
*milliseconds = 1 + reinterpret_cast<FakeEvent*>(to)->time - reinterpret_cast<FakeEvent*>(from)->time;
END CALL(cuLaunchHostFunc, (CUstream stream, CUhostFn function, void* data)) CUgraphNodeParams call;
call.type = 3;
call.host = {function, data};
if (CUresult result = 0; captured(stream, call, &result)) return result;
function(data);
END

CALL(cuModuleLoadDataEx, (CUmodule * module, const void* image, unsigned, int*, void**))
  *module = reinterpret_cast<CUmodule>(new FakeModule{static_cast<const char*>(image), {}});
born("module");
END EXPORT CUresult cuModuleUnload(CUmodule module) {
  auto* made = reinterpret_cast<FakeModule*>(module);
  for (CUfunction function : made->functions) delete reinterpret_cast<FakeFunction*>(function);
  delete made;
  gone("module");
  return 0;
}
CALL(cuModuleGetFunction, (CUfunction * function, CUmodule module, const char* name))
auto* made = reinterpret_cast<FakeModule*>(module);
const std::string call = std::string(name) + "(";
if (made->image.find(" " + call) == std::string::npos && made->image.find("\n" + call) == std::string::npos)
  return kSymbolMissing;
*function = reinterpret_cast<CUfunction>(new FakeFunction{name});
made->functions.push_back(*function);
END CALL(cuFuncGetAttribute,
         (int* value, int attribute, CUfunction)) * value = attribute == kFunctionMaxThreads ? 1024 : 0;
END CALL(cuFuncSetAttribute,
         (CUfunction function, int attribute,
          int value)) if (attribute == kFunctionMaxDynamicShared) reinterpret_cast<FakeFunction*>(function)
    ->mostShared = static_cast<unsigned>(value);
END CALL(cuLaunchKernel,
         (CUfunction function, unsigned gridX, unsigned gridY, unsigned gridZ, unsigned blockX,
          unsigned blockY, unsigned blockZ, unsigned shared, CUstream stream, void** arguments,
          void**)) if (!arguments || gridX * gridY * gridZ == 0 || blockX * blockY * blockZ == 0) return 1;
if (shared > reinterpret_cast<FakeFunction*>(function)->mostShared) return 1;
if (!mayQueue(stream)) return 400;
// Of the kernels with vector accesses alone, the pointers are looked at as a device does.
if (reinterpret_cast<FakeFunction*>(function)->name == "braid_matmul_few")
  for (int i : {0, 1})
    if (*static_cast<std::uint64_t*>(arguments[i]) % 16 != 0) state().sticky = 716;
CUgraphNodeParams launch;
launch.type = 0;
launch.kernel = {
    function, {gridX, gridY, gridZ}, {blockX, blockY, blockZ}, shared, arguments, nullptr, nullptr, nullptr};
const bool early = std::exchange(startsEarly, false);
if (CUresult result = 0; captured(stream, launch, &result, early)) return result;
return launchKernel(function);
}
// Counted as the call above.
EXPORT CUresult cuLaunchKernelEx(const CUlaunchConfig* launch, CUfunction function, void** arguments,
                                 void** extra) {
  if (launch->attributeCount != 1 || launch->attributes[0].id != kLaunchProgrammatic) return 1;
  startsEarly = true;
  const CUresult result =
      cuLaunchKernel(function, launch->gridX, launch->gridY, launch->gridZ, launch->blockX, launch->blockY,
                     launch->blockZ, launch->sharedBytes, launch->stream, arguments, extra);
  startsEarly = false;
  return result;
}
CUcontext fake::currentContext() { return current; }
bool fake::mayQueue(CUstream stream) { return contextOf(stream) == current; }
CUresult fake::launchKernel(CUfunction function) {
  const std::string& name = reinterpret_cast<FakeFunction*>(function)->name;
  state().launched.push_back(name);
  if (name == "trap") state().sticky = 700;
  return 0;
}

EXPORT nvrtcResult nvrtcVersion(int* major, int* minor) {
  *major = 13;
  *minor = 0;
  return 0;
}
EXPORT nvrtcResult nvrtcGetNumSupportedArchs(int* count) {
  *count = 2;
  return 0;
}
EXPORT nvrtcResult nvrtcGetSupportedArchs(int* archs) {
  archs[0] = 80;
  archs[1] = 90;
  return 0;
}
EXPORT nvrtcResult nvrtcCreateProgram(nvrtcProgram* program, const char* source, const char*, int,
                                      const char* const*, const char* const*) {
  *program = reinterpret_cast<nvrtcProgram>(new FakeProgram{source, "", ""});
  born("program");
  return 0;
}
EXPORT nvrtcResult nvrtcDestroyProgram(nvrtcProgram* program) {
  delete reinterpret_cast<FakeProgram*>(*program);
  gone("program");
  return 0;
}
EXPORT nvrtcResult nvrtcCompileProgram(nvrtcProgram program, int, const char* const*) {
  gate("nvrtcCompileProgram");
  auto* made = reinterpret_cast<FakeProgram*>(program);
  const std::size_t at = made->source.find("#error");
  if (at != std::string::npos) {
    const auto lines =
        std::count(made->source.begin(), made->source.begin() + static_cast<std::ptrdiff_t>(at), '\n');
    made->log = "(" + std::to_string(lines + 1) + "): error: asked for";
    return kNvrtcCompilation;
  }
  made->image = made->source;
  return 0;
}
EXPORT nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram program, std::size_t* bytes) {
  *bytes = reinterpret_cast<FakeProgram*>(program)->log.size() + 1;
  return 0;
}
EXPORT nvrtcResult nvrtcGetProgramLog(nvrtcProgram program, char* log) {
  std::strcpy(log, reinterpret_cast<FakeProgram*>(program)->log.c_str());
  return 0;
}
EXPORT nvrtcResult nvrtcGetCUBINSize(nvrtcProgram program, std::size_t* bytes) {
  *bytes = reinterpret_cast<FakeProgram*>(program)->image.size() + 1;
  return 0;
}
EXPORT nvrtcResult nvrtcGetCUBIN(nvrtcProgram program, char* image) {
  std::strcpy(image, reinterpret_cast<FakeProgram*>(program)->image.c_str());
  return 0;
}
EXPORT nvrtcResult nvrtcGetPTXSize(nvrtcProgram, std::size_t*) { return 5; }
EXPORT nvrtcResult nvrtcGetPTX(nvrtcProgram, char*) { return 5; }

EXPORT cublasStatus cublasLtCreate(LtHandle* handle) {
  if (const int code = gate("cublasLtCreate")) return code;
  *handle = reinterpret_cast<LtHandle>(new int);
  born("blas");
  return 0;
}
EXPORT cublasStatus cublasLtDestroy(LtHandle handle) {
  delete reinterpret_cast<int*>(handle);
  gone("blas");
  return 0;
}
EXPORT std::size_t cublasLtGetVersion() { return 130101; }
EXPORT const char* cublasLtGetStatusString(cublasStatus) { return "fake status"; }
EXPORT cublasStatus cublasLtMatmulDescCreate(LtMatmulDesc* desc, int compute, int scale) {
  if (compute != kCompute32F || scale != kReal32F) return kCublasNotSupported;
  *desc = reinterpret_cast<LtMatmulDesc>(new FakeDesc);
  born("desc");
  return 0;
}
EXPORT cublasStatus cublasLtMatmulDescDestroy(LtMatmulDesc desc) {
  delete reinterpret_cast<FakeDesc*>(desc);
  gone("desc");
  return 0;
}
EXPORT cublasStatus cublasLtMatmulDescSetAttribute(LtMatmulDesc desc, int attribute, const void* value,
                                                   std::size_t bytes) {
  auto* made = reinterpret_cast<FakeDesc*>(desc);
  if (attribute == kDescBias && bytes == 8) return std::memcpy(&made->bias, value, 8), 0;
  if (attribute == kDescAuxiliary && bytes == 8) return std::memcpy(&made->auxiliary, value, 8), 0;
  if (attribute == kDescAuxiliaryRow && bytes == 8) return std::memcpy(&made->auxiliaryRow, value, 8), 0;
  if (attribute == kDescAuxiliaryBatchStride && bytes == 8)
    return std::memcpy(&made->auxiliaryStride, value, 8), 0;
  if (attribute == kDescEpilogue && bytes == 4) return std::memcpy(&made->epilogue, value, 4), 0;
  if (bytes != 4 || (attribute != kDescTransA && attribute != kDescTransB)) return 7;
  std::memcpy(attribute == kDescTransA ? &made->transA : &made->transB, value, 4);
  return 0;
}
EXPORT cublasStatus cublasLtMatrixLayoutCreate(LtLayout* layout, int type, std::uint64_t rows,
                                               std::uint64_t columns, std::int64_t leading) {
  if (const int code = gate("cublasLtMatrixLayoutCreate")) return code;
  *layout = reinterpret_cast<LtLayout>(new FakeLayout{type, rows, columns, leading});
  born("layout");
  return 0;
}
EXPORT cublasStatus cublasLtMatrixLayoutDestroy(LtLayout layout) {
  delete reinterpret_cast<FakeLayout*>(layout);
  gone("layout");
  return 0;
}
EXPORT cublasStatus cublasLtMatrixLayoutSetAttribute(LtLayout layout, int attribute, const void* value,
                                                     std::size_t bytes) {
  auto* made = reinterpret_cast<FakeLayout*>(layout);
  if (attribute == kLayoutBatchCount && bytes == 4) return std::memcpy(&made->batch, value, 4), 0;
  if (attribute == kLayoutBatchStride && bytes == 8) return std::memcpy(&made->stride, value, 8), 0;
  return 7;
}
EXPORT cublasStatus cublasLtMatmulPreferenceCreate(LtPreference* preference) {
  *preference = reinterpret_cast<LtPreference>(new FakePreference);
  born("preference");
  return 0;
}
EXPORT cublasStatus cublasLtMatmulPreferenceDestroy(LtPreference preference) {
  delete reinterpret_cast<FakePreference*>(preference);
  gone("preference");
  return 0;
}
EXPORT cublasStatus cublasLtMatmulPreferenceSetAttribute(LtPreference preference, int attribute,
                                                         const void* value, std::size_t bytes) {
  auto* made = reinterpret_cast<FakePreference*>(preference);
  if (attribute == kPreferenceWorkspace && bytes == 8) return std::memcpy(&made->workspace, value, 8), 0;
  if (bytes != 4) return 7;
  if (attribute >= kPreferenceAlignA && attribute <= kPreferenceAlignD)
    std::memcpy(&made->alignment, value, 4);
  return 0;
}
EXPORT cublasStatus cublasLtMatmulAlgoGetHeuristic(LtHandle, LtMatmulDesc, LtLayout, LtLayout, LtLayout,
                                                   LtLayout, LtPreference preference, int wanted,
                                                   LtHeuristic* results, int* found) {
  if (const int code = gate("cublasLtMatmulAlgoGetHeuristic")) return code;
  const auto* made = reinterpret_cast<FakePreference*>(preference);
  *found = wanted < 3 ? wanted : 3;
  for (int i = 0; i < *found; ++i) {
    results[i] = {};
    results[i].algorithm.data[0] = made->alignment;
    results[i].algorithm.data[1] = static_cast<std::uint64_t>(state().offered + i);
    static std::uint64_t left = 0;  // what the library does not set is what was there
    results[i].algorithm.data[7] = ++left;
    results[i].workspaceBytes = made->workspace / 2;
  }
  return 0;
}
EXPORT cublasStatus cublasLtMatmulAlgoConfigGetAttribute(const LtAlgorithm* algorithm, int attribute,
                                                         void* value, std::size_t bytes,
                                                         std::size_t* written) {
  if (attribute < 0 || attribute > 8 || bytes != (attribute < 7 ? 4 : 2)) return 7;
  *written = bytes;
  std::memset(value, 0, bytes);
  if (attribute < 2) std::memcpy(value, &algorithm->data[1 - attribute], 4);
  return 0;
}
EXPORT cublasStatus cublasLtMatmul(LtHandle, LtMatmulDesc desc, const void* alpha, const void* a,
                                   LtLayout aLayout, const void* b, LtLayout bLayout, const void* beta,
                                   const void* c, LtLayout, void* d, LtLayout dLayout,
                                   const LtAlgorithm* algorithm, void*, std::size_t, CUstream) {
  if (const int code = gate("cublasLtMatmul")) return code;
  if (state().sticky) return 13;
  const auto& A = *reinterpret_cast<FakeLayout*>(aLayout);
  const auto& B = *reinterpret_cast<FakeLayout*>(bLayout);
  const auto& D = *reinterpret_cast<FakeLayout*>(dLayout);
  const auto& op = *reinterpret_cast<FakeDesc*>(desc);
  const float scale = *static_cast<const float*>(alpha), added = *static_cast<const float*>(beta);
  const auto address = reinterpret_cast<std::uintptr_t>(a) | reinterpret_cast<std::uintptr_t>(b) |
                       reinterpret_cast<std::uintptr_t>(d);
  if (address & (algorithm->data[0] - 1)) return 7;
  // Of relu it would be a mask.
  if ((op.epilogue & kEpilogueAuxiliary) != 0 &&
      ((op.epilogue & kEpilogueGelu) == 0 || D.type == kReal32F || op.auxiliaryRow % 8 != 0 ||
       reinterpret_cast<std::uintptr_t>(op.auxiliary) % 16 != 0))
    return 7;
  const auto k = static_cast<std::int64_t>(op.transA ? A.rows : A.columns);
  if (static_cast<std::int64_t>(B.rows) != k || D.columns != B.columns ||
      D.rows != (op.transA ? A.columns : A.rows))
    return 7;
  for (std::int64_t layer = 0; layer < D.batch; ++layer) {
    for (std::int64_t column = 0; column < static_cast<std::int64_t>(D.columns); ++column) {
      for (std::int64_t row = 0; row < static_cast<std::int64_t>(D.rows); ++row) {
        float sum = 0;
        for (std::int64_t i = 0; i < k; ++i) {
          const std::int64_t left =
              layer * A.stride + (op.transA ? row * A.leading + i : i * A.leading + row);
          sum += elementAt(a, A.type, left) * elementAt(b, B.type, layer * B.stride + column * B.leading + i);
        }
        const std::int64_t at = layer * D.stride + column * D.leading + row;
        sum *= scale;
        if (added != 0) sum += added * elementAt(c, D.type, at);
        if (op.epilogue & kEpilogueBias) sum += elementAt(op.bias, D.type, row);
        if (op.epilogue & kEpilogueAuxiliary)
          setElement(op.auxiliary, D.type, layer * op.auxiliaryStride + column * op.auxiliaryRow + row, sum);
        if (op.epilogue & kEpilogueRelu) sum = reluOf(sum);
        if (op.epilogue & kEpilogueGelu)
          sum = sum * 0.5f * (1 + std::tanh(0.7978845608f * (sum + 0.044715f * sum * sum * sum)));
        setElement(d, D.type, at, sum);
      }
    }
  }
  return 0;
}
