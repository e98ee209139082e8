#include "bindings/caching_device.h"

#include <algorithm>
#include <utility>

namespace braid::bindings {

CachingDevice::CachingDevice(napi_env env, std::unique_ptr<Driver> opened)
    : env(env), driver(std::move(opened)) {
  lanes = std::make_unique<Lanes>(*driver);
  hooked_ = napi_add_env_cleanup_hook(env, teardown, this) == napi_ok;
}

CachingDevice::~CachingDevice() {
  if (hooked_) napi_remove_env_cleanup_hook(env, teardown, this);
  close();
  drain();
  movedViews = 0;
  destroy();
  if (!tearing) forget();
}

void CachingDevice::open(const caching::Options& device, const caching::Options& pinned) {
  spaces[0].allocator =
      std::make_unique<caching::Allocator>(*lanes, std::make_unique<caching::DeviceSource>(*driver), device);
  spaces[1].allocator =
      std::make_unique<caching::Allocator>(*lanes, std::make_unique<caching::PinnedSource>(*driver), pinned);
  for (CachingSpace& space : spaces) space.device = this;
}

// The environment ends: no JavaScript runs any more, so no source is asked to take its memory back; the
// process does.
void CachingDevice::teardown(void* data) {
  auto* device = static_cast<CachingDevice*>(data);
  device->hooked_ = false;
  device->tearing = true;
  device->close();
  device->drain();
  device->destroy();
  device->forget();
}

void CachingDevice::forget() {
  for (napi_ref* reference : {&outBuffer, &thrown, &spaces[0].observer, &spaces[1].observer})
    if (*reference) napi_delete_reference(env, std::exchange(*reference, nullptr));
}

void CachingDevice::close() {
  if (closed_) return;
  closed_ = true;
  refusal_ = static_cast<int>(Refusal::closed);
  for (const auto& gate : gates) {
    std::lock_guard lock(gate->mutex);
    gate->open = true;
    gate->opened.notify_all();
  }
  highest_ = weight_ = 0;
  tell();
}

void CachingDevice::drain() {
  std::shared_lock lock(inUse);
  if (destroyed_ || !lanes) return;
  driver->bind();
  for (LaneId id = 0; id < lanes->count(); ++id) lanes->synchronizeLane(lanes->at(id));
}

void CachingDevice::destroy() {
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

void CachingDevice::tell() {
  window_ = windowLength;
  if (highest_ != told_) {
    std::int64_t total = 0;
    napi_adjust_external_memory(env, highest_ - told_, &total);
    told_ = highest_;
  }
  highest_ = weight_;
  tellAbove_ = told_ + std::max<std::int64_t>(1 << 20, told_ / 8);
}

}  // namespace braid::bindings
