#include "bindings/allocator_device.h"

#include <algorithm>
#include <utility>

namespace braid::bindings {

AllocatorDevice::AllocatorDevice(napi_env env, std::unique_ptr<Driver> opened)
    : env(env), driver(std::move(opened)) {
  lanes = std::make_unique<Lanes>(*driver);
  hooked_ = napi_add_env_cleanup_hook(env, teardown, this) == napi_ok;
}

AllocatorDevice::~AllocatorDevice() {
  if (hooked_) napi_remove_env_cleanup_hook(env, teardown, this);
  close();
  drain();
  movedViews = 0;
  destroy();
  if (!tearing) dropReferences();
}

void AllocatorDevice::open(const caching::Options& device, const caching::Options& pinned) {
  spaces[0].allocator =
      std::make_unique<caching::Allocator>(*lanes, std::make_unique<caching::DeviceSource>(*driver), device);
  spaces[1].allocator =
      std::make_unique<caching::Allocator>(*lanes, std::make_unique<caching::PinnedSource>(*driver), pinned);
  for (MemorySpace& space : spaces) space.device = this;
}

// The environment ends and no JavaScript runs any more, so memory of JavaScript sources is not released; the
// end of the process does that.
void AllocatorDevice::teardown(void* data) {
  auto* device = static_cast<AllocatorDevice*>(data);
  device->hooked_ = false;
  device->tearing = true;
  device->close();
  device->drain();
  device->destroy();
  device->dropReferences();
}

void AllocatorDevice::dropReferences() {
  for (napi_ref* reference : {&outBuffer, &thrown, &spaces[0].observer, &spaces[1].observer})
    if (*reference) napi_delete_reference(env, std::exchange(*reference, nullptr));
}

void AllocatorDevice::close() {
  if (closed_) return;
  closed_ = true;
  refusal_ = static_cast<int>(Refusal::closed);
  for (const auto& gate : gates) {
    std::lock_guard lock(gate->mutex);
    gate->open = true;
    gate->opened.notify_all();
  }
  highest_ = weight_ = 0;
  reportBytes();
}

void AllocatorDevice::drain() {
  std::shared_lock lock(inUse);
  if (destroyed_ || !lanes) return;
  driver->bind();
  for (LaneId id = 0; id < lanes->count(); ++id) lanes->synchronizeLane(lanes->at(id));
}

void AllocatorDevice::destroy() {
  std::unique_lock lock(inUse);
  if (!destroyed_) {
    destroyed_ = true;
    driver->bind();
    spaces[0].allocator.reset();
    pools.clear();
  }
  if (movedViews > 0 || !lanes) return;
  spaces[1].allocator.reset();
  for (LaneId id = 0; id < lanes->count(); ++id) {
    Lane& lane = lanes->at(id);
    if (!lane.retired && id < owned.size() && owned[id]) driver->streamDestroy(lane.stream);
  }
  lanes.reset();
  driver.reset();
}

void AllocatorDevice::reportBytes() {
  window_ = windowLength;
  if (highest_ != reported_) {
    std::int64_t total = 0;
    napi_adjust_external_memory(env, highest_ - reported_, &total);
    reported_ = highest_;
  }
  highest_ = weight_;
  reportAbove_ = reported_ + std::max<std::int64_t>(1 << 20, reported_ / 8);
}

}  // namespace braid::bindings
