#pragma once

#include "cuda/kernel.h"
#include "cuda/nvrtc.h"
#include "cuda/queues.h"
#include "driver/driver.h"

namespace braid::cuda {

class Blas;

// The driver table over one CUDA device's primary context. A Stream is a CUstream, an Event a CUevent, Pages
// the driver's handle, each passed through as it is.
class CudaDriver : public Driver {
 public:
  static Status open(int ordinal, const LibraryPaths& paths, std::unique_ptr<Driver>* driver);
  ~CudaDriver() override;

  const DeviceInfo& info() const override { return info_; }
  Status bind() override;
  std::string lastDetail() override;

  Status memAllocate(DeviceAddress* address, std::size_t bytes) override;
  Status memFree(DeviceAddress address) override;
  Status memInfo(std::size_t* freeBytes, std::size_t* totalBytes) override;
  Status pinnedAllocate(void** pointer, std::size_t bytes) override;
  Status pinnedFree(void* pointer) override;

  Status addressReserve(DeviceAddress* address, std::size_t bytes) override;
  Status addressRelease(DeviceAddress address, std::size_t bytes) override;
  Status pagesCreate(Pages* pages, std::size_t bytes) override;
  Status pagesRelease(Pages pages) override;
  Status pagesMap(DeviceAddress address, std::size_t bytes, Pages pages) override;
  Status pagesMapEach(DeviceAddress address, std::size_t each, const Pages* pages,
                      std::size_t count) override;
  Status pagesUnmap(DeviceAddress address, std::size_t bytes) override;

  Status streamCreate(Stream* stream, int priority) override;
  Status streamDestroy(Stream stream) override;
  Status streamSynchronize(Stream stream) override;
  Status streamQuery(Stream stream) override;
  std::size_t streamDepth() const override { return Queues::of(info_.ordinal).streamDepth(); }
  Status streamWait(Stream stream, Event event) override;
  Status eventCreate(Event* event, EventKind kind) override;
  Status eventDestroy(Event event) override;
  Status eventRecord(Event event, Stream stream) override;
  Status eventQuery(Event event) override;
  Status eventSynchronize(Event event) override;
  Status eventElapsed(float* milliseconds, Event from, Event to) override;

  Status copy(CopyKind kind, DeviceAddress to, DeviceAddress from, std::size_t bytes, Stream stream) override;
  Status fill32(DeviceAddress to, std::uint32_t value, std::size_t words, Stream stream) override;
  Status prepare(std::unique_ptr<Kernel>* kernel, const KernelSpec& spec, HostCallback callback) override;
  Status launch(const Kernel& kernel, const DeviceAddress* reads, const DeviceAddress* writes,
                Stream stream) override;
  Status hostFunction(Stream stream, void (*function)(void*), void* data) override;
  Status reachPeer(Driver& other) override;
  Status preparePeerCopy(std::unique_ptr<Kernel>* kernel, std::size_t bytes, Driver* from,
                         Driver* to) override;

 private:
  CudaDriver(std::shared_ptr<Context> context, const LibraryPaths& paths);
  Status prepareSource(const KernelSource& source, std::size_t readCount, const char* title,
                       std::unique_ptr<Kernel>* kernel);

  std::shared_ptr<Context> context_;
  const DriverFunctions& call_;
  DeviceInfo info_;
  CUmemAllocationProp pageProperties_;
  std::shared_ptr<Compiler> compiler_;
  std::shared_ptr<Blas> blas_;
};

// A device's name, size and numbers; whether its context is current or not. Used by the driver and by
// `doctor`.
Status readDeviceInfo(const Context& context, int ordinal, DeviceInfo* info);

}  // namespace braid::cuda
