#pragma once

#include <cstdlib>

#include "driver/driver.h"

namespace braid::bench {

// A driver whose launches do nothing. With an inner driver it forwards all other calls, so that streams and
// events are real and tasks are empty. Without one no call does anything: what remains is the cost of the
// caller.
class IdleDriver : public Driver {
 public:
  explicit IdleDriver(Driver* inner) : inner_(inner) {
    if (inner_ != nullptr) info_ = inner_->info();
    info_.kind = "idle";
    info_.pageBytes = 0;  // no virtual memory, as below
    info_.totalBytes = std::size_t{1} << 40;
  }

  const DeviceInfo& info() const override { return info_; }
  Status bind() override { return inner_ ? inner_->bind() : Status::ok; }
  std::string lastDetail() override { return inner_ ? inner_->lastDetail() : ""; }

  Status memAllocate(DeviceAddress* address, std::size_t bytes) override {
    if (inner_) return inner_->memAllocate(address, bytes);
    *address = next_;
    next_ += (bytes + 511) / 512 * 512;
    return Status::ok;
  }
  Status memFree(DeviceAddress address) override { return inner_ ? inner_->memFree(address) : Status::ok; }
  Status memInfo(std::size_t* freeBytes, std::size_t* totalBytes) override {
    *freeBytes = *totalBytes = info_.totalBytes;
    return Status::ok;
  }
  Status pinnedAllocate(void** pointer, std::size_t bytes) override {
    *pointer = std::aligned_alloc(512, (bytes + 511) / 512 * 512);
    return *pointer != nullptr ? Status::ok : Status::outOfMemory;
  }
  Status pinnedFree(void* pointer) override {
    std::free(pointer);
    return Status::ok;
  }
  Status addressReserve(DeviceAddress*, std::size_t) override { return Status::notSupported; }
  Status addressRelease(DeviceAddress, std::size_t) override { return Status::notSupported; }
  Status pagesCreate(Pages*, std::size_t) override { return Status::notSupported; }
  Status pagesRelease(Pages) override { return Status::notSupported; }
  Status pagesMap(DeviceAddress, std::size_t, Pages) override { return Status::notSupported; }
  Status pagesUnmap(DeviceAddress, std::size_t) override { return Status::notSupported; }

  Status streamCreate(Stream* stream, int priority) override {
    return inner_ ? inner_->streamCreate(stream, priority) : made(stream);
  }
  Status streamDestroy(Stream stream) override { return inner_ ? inner_->streamDestroy(stream) : Status::ok; }
  Status streamSynchronize(Stream stream) override {
    return inner_ ? inner_->streamSynchronize(stream) : Status::ok;
  }
  Status streamQuery(Stream stream) override { return inner_ ? inner_->streamQuery(stream) : Status::ok; }
  std::size_t streamDepth() const override { return inner_ ? inner_->streamDepth() : 0; }
  Status streamWait(Stream stream, Event event) override {
    return inner_ ? inner_->streamWait(stream, event) : Status::ok;
  }
  Status eventCreate(Event* event, EventKind kind) override {
    return inner_ ? inner_->eventCreate(event, kind) : made(event);
  }
  Status eventDestroy(Event event) override { return inner_ ? inner_->eventDestroy(event) : Status::ok; }
  Status eventRecord(Event event, Stream stream) override {
    return inner_ ? inner_->eventRecord(event, stream) : Status::ok;
  }
  Status eventQuery(Event event) override { return inner_ ? inner_->eventQuery(event) : Status::ok; }
  Status eventSynchronize(Event event) override {
    return inner_ ? inner_->eventSynchronize(event) : Status::ok;
  }
  Status eventElapsed(float* milliseconds, Event, Event) override {
    *milliseconds = 0;
    return Status::ok;
  }

  Status copy(CopyKind, DeviceAddress, DeviceAddress, std::size_t, Stream) override { return Status::ok; }
  Status fill32(DeviceAddress, std::uint32_t, std::size_t, Stream) override { return Status::ok; }
  Status prepare(std::unique_ptr<Kernel>* kernel, const KernelSpec&, HostCallback) override {
    *kernel = std::make_unique<Empty>();
    return Status::ok;
  }
  Status launch(const Kernel&, const DeviceAddress*, const DeviceAddress*, Stream) override {
    return Status::ok;
  }
  Status hostFunction(Stream, void (*)(void*), void*) override { return Status::notSupported; }
  Status reachPeer(Driver&) override { return Status::ok; }

 private:
  struct Empty final : Kernel {};
  template <class Handle>
  Status made(Handle* handle) {
    *handle = reinterpret_cast<Handle>(next_ += 16);
    return Status::ok;
  }

  Driver* inner_;
  DeviceInfo info_;
  DeviceAddress next_ = std::size_t{1} << 32;
};

}  // namespace braid::bench
