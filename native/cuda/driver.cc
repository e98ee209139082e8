#include "cuda/driver.h"

#include <algorithm>
#include <chrono>
#include <mutex>
#include <set>
#include <thread>

#include "cuda/cudnn/kernels.h"
#include "cuda/handles.h"
#include "cuda/products/matmul.h"
#include "cuda/sources/source.h"
#include "kernels/check.h"
#include "kernels/map_rows.h"

namespace braid::cuda {
CudaDriver::CudaDriver(std::shared_ptr<Context> context, const LibraryPaths& paths)
    : context_(std::move(context)),
      call_(context_->call()),
      graph_(context_->library().graph),
      compiler_(std::make_shared<Compiler>(context_, paths.nvrtc, paths.kernels)),
      blas_(std::make_shared<Blas>(context_, compiler_, paths)),
      cudnn_(std::make_shared<CudnnKernels>(context_, compiler_, paths)) {
  pageProperties_.location.id = context_->device();
}

CudaDriver::~CudaDriver() = default;

Status CudaDriver::open(int ordinal, const LibraryPaths& paths, std::unique_ptr<Driver>* driver) {
  std::string problem;
  std::shared_ptr<const DriverLibrary> library = DriverLibrary::open(paths.driver, &problem);
  if (!library) return fail(Status::fileNotFound, problem);
  if (const CUresult code = library->call.cuInit(0)) {
    return fail(
        static_cast<Status>(code),
        "cuInit: " + describe(library->call, code) +
            ". Run nvidia-smi: if it fails too, the driver is not loaded or does not match its library");
  }
  int count = 0;
  if (const CUresult code = library->call.cuDeviceGetCount(&count)) {
    return fail(static_cast<Status>(code), "cuDeviceGetCount: " + describe(library->call, code));
  }
  if (ordinal < 0 || ordinal >= count) {
    const std::string found = count == 0   ? "no CUDA device is visible (CUDA_VISIBLE_DEVICES may hide them)"
                              : count == 1 ? "there is one, cuda:0"
                                           : "there are cuda:0 to cuda:" + std::to_string(count - 1);
    return fail(count == 0 ? Status::noDevice : Status::invalidDevice,
                "There is no cuda:" + std::to_string(ordinal) + ": " + found);
  }
  std::shared_ptr<Context> context;
  if (const Status status = Context::open(std::move(library), ordinal, &context); status != Status::ok)
    return status;
  std::unique_ptr<CudaDriver> made(new CudaDriver(std::move(context), paths));
  if (const Status status = readDeviceInfo(*made->context_, ordinal, &made->info_); status != Status::ok)
    return status;
  *driver = std::move(made);
  return Status::ok;
}

Status CudaDriver::bind() {
  return context_->check(call_.cuCtxSetCurrent(context_->handle()), "cuCtxSetCurrent");
}

void CudaDriver::keepContext() {
  static std::mutex mutex;
  static std::set<CUdevice> kept;
  std::lock_guard lock(mutex);
  CUcontext same = nullptr;
  if (kept.insert(context_->device()).second) call_.cuDevicePrimaryCtxRetain(&same, context_->device());
}

std::string CudaDriver::lastDetail() { return detail(); }

Status CudaDriver::memAllocate(DeviceAddress* address, std::size_t bytes) {
  const Status status = context_->check(call_.cuMemAlloc(address, bytes), "cuMemAlloc");
  if (status != Status::ok) detail() += " for " + std::to_string(bytes) + " bytes";
  return status;
}

Status CudaDriver::memFree(DeviceAddress address) {
  return context_->check(call_.cuMemFree(address), "cuMemFree");
}

Status CudaDriver::memInfo(std::size_t* freeBytes, std::size_t* totalBytes) {
  return context_->check(call_.cuMemGetInfo(freeBytes, totalBytes), "cuMemGetInfo");
}

Status CudaDriver::pinnedAllocate(void** pointer, std::size_t bytes) {
  const Status status =
      context_->check(call_.cuMemHostAlloc(pointer, bytes, kHostAllocPortable), "cuMemHostAlloc");
  if (status != Status::ok) detail() += " for " + std::to_string(bytes) + " bytes of pinned host memory";
  return status;
}

Status CudaDriver::pinnedFree(void* pointer) {
  return context_->check(call_.cuMemFreeHost(pointer), "cuMemFreeHost");
}

Status CudaDriver::addressReserve(DeviceAddress* address, std::size_t bytes) {
  if (info_.pageBytes == 0) return fail(Status::notSupported, "this device has no virtual memory management");
  return context_->check(call_.cuMemAddressReserve(address, bytes, 0, 0, 0), "cuMemAddressReserve");
}

Status CudaDriver::addressRelease(DeviceAddress address, std::size_t bytes) {
  return context_->check(call_.cuMemAddressFree(address, bytes), "cuMemAddressFree");
}

Status CudaDriver::pagesCreate(Pages* pages, std::size_t bytes) {
  if (info_.pageBytes == 0) return fail(Status::notSupported, "this device has no virtual memory management");
  CUpages handle = 0;
  const Status status =
      context_->check(call_.cuMemCreate(&handle, bytes, &pageProperties_, 0), "cuMemCreate");
  if (status == Status::ok) {
    *pages = reinterpret_cast<Pages>(handle);
  } else {
    detail() += " for " + std::to_string(bytes) + " bytes";
  }
  return status;
}

Status CudaDriver::pagesRelease(Pages pages) {
  return context_->check(call_.cuMemRelease(cu(pages)), "cuMemRelease");
}

Status CudaDriver::pagesMap(DeviceAddress address, std::size_t bytes, Pages pages) {
  if (const CUresult code = call_.cuMemMap(address, bytes, 0, cu(pages), 0))
    return context_->check(code, "cuMemMap");
  const Status status = setAccess(address, bytes);
  if (status != Status::ok) call_.cuMemUnmap(address, bytes);
  return status;
}

// For this device and all that access its memory. The lock is held across the call: a reader that comes
// meanwhile finds the range in `mapped_`, or its access is set here.
Status CudaDriver::setAccess(DeviceAddress address, std::size_t bytes) {
  std::lock_guard lock(mappedMutex_);
  std::vector<CUmemAccessDesc> access(1 + readers_.size());
  access[0].location.id = context_->device();
  for (std::size_t i = 0; i < readers_.size(); ++i) access[i + 1].location.id = readers_[i];
  const Status status =
      context_->check(call_.cuMemSetAccess(address, bytes, access.data(), access.size()), "cuMemSetAccess");
  if (status == Status::ok) mapped_[address] = bytes;
  return status;
}

Status CudaDriver::allow(CUdevice reader) {
  std::lock_guard lock(mappedMutex_);
  if (std::find(readers_.begin(), readers_.end(), reader) != readers_.end()) return Status::ok;
  CUmemAccessDesc access;
  access.location.id = reader;
  for (const auto& [address, bytes] : mapped_) {
    const Status status = context_->check(call_.cuMemSetAccess(address, bytes, &access, 1), "cuMemSetAccess");
    if (status != Status::ok) return status;
  }
  readers_.push_back(reader);
  return Status::ok;
}

// A range may be mapped at once and unmapped page by page.
void CudaDriver::forgetMapped(DeviceAddress address, std::size_t bytes) {
  std::lock_guard lock(mappedMutex_);
  const DeviceAddress end = address + bytes;
  auto at = mapped_.upper_bound(address);
  if (at != mapped_.begin()) --at;
  while (at != mapped_.end() && at->first < end) {
    const DeviceAddress from = at->first, to = from + at->second;
    if (to <= address) {
      ++at;
      continue;
    }
    at = mapped_.erase(at);
    if (from < address) mapped_[from] = address - from;
    if (to > end) mapped_[end] = to - end;
  }
}

// Setting access is expensive, so it is done once for all pages.
Status CudaDriver::pagesMapEach(DeviceAddress address, std::size_t each, const Pages* pages,
                                std::size_t count) {
  std::size_t mapped = 0;
  Status status = Status::ok;
  for (; mapped < count && status == Status::ok; ++mapped)
    status =
        context_->check(call_.cuMemMap(address + mapped * each, each, 0, cu(pages[mapped]), 0), "cuMemMap");
  if (status != Status::ok) --mapped;
  if (status == Status::ok && count > 0) status = setAccess(address, count * each);
  if (status != Status::ok && mapped > 0) call_.cuMemUnmap(address, mapped * each);
  return status;
}

Status CudaDriver::pagesUnmap(DeviceAddress address, std::size_t bytes) {
  forgetMapped(address, bytes);
  return context_->check(call_.cuMemUnmap(address, bytes), "cuMemUnmap");
}

Status CudaDriver::streamCreate(Stream* stream, int priority) {
  CUstream made = nullptr;
  const int clamped = std::clamp(priority, info_.greatestPriority, info_.leastPriority);
  const Status status = context_->check(call_.cuStreamCreateWithPriority(&made, kStreamNonBlocking, clamped),
                                        "cuStreamCreateWithPriority");
  if (status != Status::ok) return status;
  *stream = reinterpret_cast<Stream>(made);
  Queues::of(info_.ordinal).streamMade();
  return Status::ok;
}

Status CudaDriver::streamDestroy(Stream stream) {
  const Status status = context_->check(call_.cuStreamDestroy(cu(stream)), "cuStreamDestroy");
  // Also where the device has failed: the stream is not used again.
  if (status != Status::invalidHandle) Queues::of(info_.ordinal).streamGone();
  return status;
}

Status CudaDriver::streamSynchronize(Stream stream) {
  return context_->check(call_.cuStreamSynchronize(cu(stream)), "cuStreamSynchronize");
}

Status CudaDriver::streamQuery(Stream stream) {
  return context_->check(call_.cuStreamQuery(cu(stream)), "cuStreamQuery");
}

Status CudaDriver::streamWait(Stream stream, Event event) {
  return context_->check(call_.cuStreamWaitEvent(cu(stream), cu(event), 0), "cuStreamWaitEvent");
}

Status CudaDriver::eventCreate(Event* event, EventKind kind) {
  CUevent made = nullptr;
  const unsigned flags = kind == EventKind::timed ? 0 : kEventDisableTiming;
  const Status status = context_->check(call_.cuEventCreate(&made, flags), "cuEventCreate");
  if (status == Status::ok) *event = reinterpret_cast<Event>(made);
  return status;
}

Status CudaDriver::eventDestroy(Event event) {
  return context_->check(call_.cuEventDestroy(cu(event)), "cuEventDestroy");
}

Status CudaDriver::eventRecord(Event event, Stream stream) {
  return context_->check(call_.cuEventRecord(cu(event), cu(stream)), "cuEventRecord");
}

Status CudaDriver::eventQuery(Event event) {
  return context_->check(call_.cuEventQuery(cu(event)), "cuEventQuery");
}

// An event that threads can sleep on (CU_EVENT_BLOCKING_SYNC) holds up its stream, so none is made. The
// thread asks, and sleeps in between for a part of the time that it has waited.
Status CudaDriver::eventSynchronize(Event event) {
  using std::chrono::microseconds;
  const auto began = std::chrono::steady_clock::now();
  for (;;) {
    if (const Status status = eventQuery(event); status != Status::notReady) return status;
    const auto waited = std::chrono::duration_cast<microseconds>(std::chrono::steady_clock::now() - began);
    std::this_thread::sleep_for(std::clamp(waited / 128, microseconds{5}, microseconds{1000}));
  }
}

Status CudaDriver::eventElapsed(float* milliseconds, Event from, Event to) {
  return context_->check(call_.cuEventElapsedTime(milliseconds, cu(from), cu(to)), "cuEventElapsedTime");
}

Status CudaDriver::copy(CopyKind kind, DeviceAddress to, DeviceAddress from, std::size_t bytes,
                        Stream stream) {
  return copyBytes(*context_, kind, to, from, bytes, cu(stream));
}

Status CudaDriver::fill32(DeviceAddress to, std::uint32_t value, std::size_t words, Stream stream) {
  if (words == 0) return Status::ok;
  return context_->check(call_.cuMemsetD32Async(to, value, words, cu(stream)), "cuMemsetD32Async");
}

Status CudaDriver::fill(const NodeParams& fill, Stream stream) {
  const std::size_t row = fill.width * fill.elementBytes;
  const std::size_t pitch = fill.height > 1 ? fill.pitch : row;
  if (fill.elementBytes == 1)
    return context_->check(call_.cuMemsetD2D8Async(fill.to, pitch, static_cast<unsigned char>(fill.value),
                                                   fill.width, fill.height, cu(stream)),
                           "cuMemsetD2D8Async");
  if (fill.elementBytes == 2)
    return context_->check(call_.cuMemsetD2D16Async(fill.to, pitch, static_cast<unsigned short>(fill.value),
                                                    fill.width, fill.height, cu(stream)),
                           "cuMemsetD2D16Async");
  if (fill.height == 1) return fill32(fill.to, fill.value, fill.width, stream);
  return context_->check(
      call_.cuMemsetD2D32Async(fill.to, pitch, fill.value, fill.width, fill.height, cu(stream)),
      "cuMemsetD2D32Async");
}

Multiprocessors CudaDriver::multiprocessors() const {
  return {info_.multiprocessors, static_cast<std::size_t>(context_->attribute(kSharedPerBlockOptIn)),
          context_->attribute(kComputeMajor) * 10 + context_->attribute(kComputeMinor)};
}

Status CudaDriver::prepareSource(const KernelSource& source, std::size_t readCount, const char* title,
                                 std::unique_ptr<Kernel>* kernel) {
  std::shared_ptr<Module> module;
  const Status status =
      compiler_->compile(source.text, std::string(title) + ".cu", Compiler::Flavor::generated, &module);
  if (status != Status::ok) return status;
  return GeneratedKernel::make(std::move(module), source, readCount,
                               ("cuLaunchKernel(" + std::string(title) + ")").c_str(), kernel);
}

Status CudaDriver::prepare(std::unique_ptr<Kernel>* kernel, const KernelSpec& spec, HostCallback) {
  if (auto problem = checkKernel(spec)) return fail(Status::invalidValue, *problem);
  Current current(*context_);
  switch (spec.kind) {
    case KernelSpec::Kind::copy:
      *kernel = std::make_unique<CopyKernel>(context_, static_cast<CopyKind>(spec.direction), spec.parts,
                                             spec.bytes / spec.parts);
      return Status::ok;
    case KernelSpec::Kind::map: {
      KernelSource source;
      mapSource(spec, multiprocessors(), &source);
      return prepareSource(source, spec.operands.size(), "map", kernel);
    }
    case KernelSpec::Kind::attention: {
      KernelSource source;
      attentionSource(spec, multiprocessors().architecture, info_.multiprocessors, &source);
      const Status status = prepareSource(source, spec.attention.reads(), "attention", kernel);
      if (status == Status::ok) cudnn_->improve(kCudnnAttention, spec, source.text, kernel);
      return status;
    }
    case KernelSpec::Kind::conv: {
      KernelSource source;
      convSource(spec, multiprocessors().architecture, info_.multiprocessors, &source);
      const Status status = prepareSource(source, 2, "conv", kernel);
      if (status == Status::ok) cudnn_->improve(kCudnnConv, spec, source.text, kernel);
      return status;
    }
    case KernelSpec::Kind::reduce: {
      KernelSource source;
      if (spec.how >= ReduceHow::argmax)
        chooseSource(spec, multiprocessors().sharedBytes, &source);
      else
        mapSource(reductionAsMap(spec), multiprocessors(), &source);
      return prepareSource(source, 1, "reduce", kernel);
    }
    case KernelSpec::Kind::scan: {
      KernelSource source;
      scanSource(spec, &source);
      return prepareSource(source, 1, "scan", kernel);
    }
    case KernelSpec::Kind::join: {
      KernelSource source;
      joinSource(spec, &source);
      return prepareSource(source, source.byteOffsets.size() - 1, "join", kernel);
    }
    case KernelSpec::Kind::random: {
      KernelSource source;
      randomSource(spec, &source);
      return prepareSource(source, 2, "random", kernel);
    }
    case KernelSpec::Kind::gather: {
      KernelSource source;
      gatherSource(spec, &source);
      return prepareSource(source, 2, "gather", kernel);
    }
    case KernelSpec::Kind::scatterAdd: {
      KernelSource source;
      scatterAddSource(spec, info_.multiprocessors, &source);
      return prepareSource(source, 3, "scatterAdd", kernel);
    }
    case KernelSpec::Kind::append: {
      KernelSource source;
      appendSource(spec, &source);
      return prepareSource(source, 3, "append", kernel);
    }
    case KernelSpec::Kind::matmul: return blas_->prepare(spec, kernel);
    case KernelSpec::Kind::cuda: {
      std::shared_ptr<Module> module;
      const Status status =
          compiler_->compile(spec.source, spec.name + ".cu", Compiler::Flavor::user, &module);
      if (status != Status::ok) return status;
      return UserKernel::make(std::move(module), spec, kernel);
    }
  }
  return fail(Status::invalidValue, "a kernel of an unknown kind");
}

Status CudaDriver::launch(const Kernel& kernel, const DeviceAddress* reads, const DeviceAddress* writes,
                          Stream stream) {
  return static_cast<const CudaKernel&>(kernel).launch(reads, writes, cu(stream));
}

Status CudaDriver::hostFunction(Stream stream, void (*function)(void*), void* data) {
  return context_->check(call_.cuLaunchHostFunc(cu(stream), function, data), "cuLaunchHostFunc");
}

Status CudaDriver::reachPeer(Driver& other) {
  auto* peer = dynamic_cast<CudaDriver*>(&other);
  if (!peer) return fail(Status::notSupported, "a CUDA device reaches other CUDA devices only");
  // One GPU may stand for several devices of a program.
  if (peer->context_->handle() == context_->handle()) return Status::ok;
  int can = 0;
  const CUresult queried = call_.cuDeviceCanAccessPeer(&can, context_->device(), peer->context_->device());
  if (queried != kSuccess || can == 0) return Status::notSupported;
  Current current(*context_);
  // This enables access to plain memory, present and future; pages are mapped for each device that reads
  // them.
  const CUresult code = call_.cuCtxEnablePeerAccess(peer->context_->handle(), 0);
  if (code == kPeerUnsupported || code == kTooManyPeers) return Status::notSupported;
  if (code != kPeerAlreadyEnabled && code != kSuccess) return context_->check(code, "cuCtxEnablePeerAccess");
  return peer->allow(context_->device());
}

Status CudaDriver::preparePeerCopy(std::unique_ptr<Kernel>* kernel, std::size_t bytes, Driver* from,
                                   Driver* to) {
  std::shared_ptr<Context> ends[2];
  Driver* const drivers[] = {from, to};
  for (int i = 0; i < 2; ++i) {
    if (drivers[i] == nullptr) continue;
    auto* device = dynamic_cast<CudaDriver*>(drivers[i]);
    if (!device) return fail(Status::invalidValue, "a copy between a CUDA device and one that is none");
    ends[i] = device->context_;
  }
  *kernel = std::make_unique<PeerCopyKernel>(context_, std::move(ends[0]), std::move(ends[1]), bytes);
  return Status::ok;
}

}  // namespace braid::cuda
