#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <utility>

#include "driver/driver.h"

namespace braid::test {

// A driver that reports each launch, and can be made to vanish: every call then fails, though what gives
// something back still does so. Several may stand before one driver.
class WatchedDriver final : public Driver {
 public:
  explicit WatchedDriver(std::shared_ptr<Driver> inner) : inner_(std::move(inner)) {}

  // On the issuing thread, before each launch; what it returns, if not ok, is the launch's end. Set before
  // any tick.
  std::function<Status(Stream stream)> onLaunch;
  void vanish() { gone_ = true; }
  Driver& inner() { return *inner_; }

  const DeviceInfo& info() const override { return inner_->info(); }
  Status bind() override { return after(inner_->bind()); }
  std::string lastDetail() override { return inner_->lastDetail(); }
  Status memAllocate(DeviceAddress* a, std::size_t n) override {
    return gone_ ? dead : inner_->memAllocate(a, n);
  }
  Status memFree(DeviceAddress a) override { return after(inner_->memFree(a)); }
  Status memInfo(std::size_t* f, std::size_t* t) override { return gone_ ? dead : inner_->memInfo(f, t); }
  Status pinnedAllocate(void** p, std::size_t n) override {
    return gone_ ? dead : inner_->pinnedAllocate(p, n);
  }
  Status pinnedFree(void* p) override { return after(inner_->pinnedFree(p)); }
  Status addressReserve(DeviceAddress* a, std::size_t n) override { return inner_->addressReserve(a, n); }
  Status addressRelease(DeviceAddress a, std::size_t n) override { return inner_->addressRelease(a, n); }
  Status pagesCreate(Pages* p, std::size_t n) override { return inner_->pagesCreate(p, n); }
  Status pagesRelease(Pages p) override { return inner_->pagesRelease(p); }
  Status pagesMap(DeviceAddress a, std::size_t n, Pages p) override { return inner_->pagesMap(a, n, p); }
  Status pagesUnmap(DeviceAddress a, std::size_t n) override { return inner_->pagesUnmap(a, n); }
  Status streamCreate(Stream* s, int p) override { return gone_ ? dead : inner_->streamCreate(s, p); }
  Status streamDestroy(Stream s) override { return after(inner_->streamDestroy(s)); }
  Status streamSynchronize(Stream s) override { return after(inner_->streamSynchronize(s)); }
  Status streamQuery(Stream s) override { return after(inner_->streamQuery(s)); }
  std::size_t streamDepth() const override { return inner_->streamDepth(); }
  Status streamWait(Stream s, Event e) override { return gone_ ? dead : inner_->streamWait(s, e); }
  Status eventCreate(Event* e, EventKind kind) override {
    return gone_ ? dead : inner_->eventCreate(e, kind);
  }
  Status eventDestroy(Event e) override { return after(inner_->eventDestroy(e)); }
  Status eventRecord(Event e, Stream s) override { return gone_ ? dead : inner_->eventRecord(e, s); }
  Status eventQuery(Event e) override { return after(inner_->eventQuery(e)); }
  Status eventSynchronize(Event e) override { return after(inner_->eventSynchronize(e)); }
  Status eventElapsed(float* ms, Event from, Event to) override { return inner_->eventElapsed(ms, from, to); }
  Status copy(CopyKind k, DeviceAddress to, DeviceAddress from, std::size_t n, Stream s) override {
    return gone_ ? dead : inner_->copy(k, to, from, n, s);
  }
  Status fill32(DeviceAddress to, std::uint32_t value, std::size_t words, Stream s) override {
    return gone_ ? dead : inner_->fill32(to, value, words, s);
  }
  Status prepare(std::unique_ptr<Kernel>* kernel, const KernelSpec& spec, HostCallback callback) override {
    return gone_ ? dead : inner_->prepare(kernel, spec, std::move(callback));
  }
  Status launch(const Kernel& kernel, const DeviceAddress* reads, const DeviceAddress* writes,
                Stream s) override {
    if (gone_) return dead;
    if (onLaunch)
      if (const Status status = onLaunch(s); status != Status::ok) return status;
    return inner_->launch(kernel, reads, writes, s);
  }
  Status hostFunction(Stream s, void (*function)(void*), void* data) override {
    return gone_ ? dead : inner_->hostFunction(s, function, data);
  }
  void label(const WorkLabel& label) override { inner_->label(label); }
  WorkLabel failedWork() override { return inner_->failedWork(); }

 private:
  static constexpr Status dead = Status::contextIsDestroyed;
  Status after(Status status) const { return gone_ ? dead : status; }

  const std::shared_ptr<Driver> inner_;
  std::atomic<bool> gone_{false};
};

}  // namespace braid::test
