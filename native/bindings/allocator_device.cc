#include "bindings/allocator_device.h"

#include <algorithm>
#include <utility>

#include "bindings/channel.h"
#include "bindings/graph_state.h"
#include "bindings/while_blocked.h"

namespace braid::bindings {

AllocatorDevice::AllocatorDevice(napi_env env, std::shared_ptr<DeviceMemory> opened)
    : env(env), memory(std::move(opened)), driver(&memory->driver()), lanes(&memory->lanes()) {
  spaces[0].allocator = &memory->device();
  spaces[1].allocator = &memory->pinned();
  for (MemorySpace& space : spaces) space.device = this;
  hooked_ = napi_add_env_cleanup_hook(env, teardown, this) == napi_ok;
  refuseWhileServing(this);
}

AllocatorDevice::~AllocatorDevice() {
  const WithoutJavaScript silent;
  stopRefusing(this);
  if (hooked_) napi_remove_env_cleanup_hook(env, teardown, this);
  close();
  leaveJavaScript();
  drain();
  movedViews = 0;
  destroy();
  if (!tearing) dropReferences();
}

// The environment ends and no JavaScript runs any more, so memory of JavaScript sources is not released; the
// end of the process does that.
void AllocatorDevice::teardown(void* data) {
  const WithoutJavaScript silent;
  auto* device = static_cast<AllocatorDevice*>(data);
  device->hooked_ = false;
  device->tearing = true;
  Environment::of(device->env).leaveJavaScript();
  device->close();
  device->leaveJavaScript();
  device->drain();
  device->destroy();
  device->dropReferences();
}

void AllocatorDevice::dropReferences() {
  for (napi_ref* reference : {&outBuffer, &thrown, &released, &spaces[0].observer, &spaces[1].observer})
    if (*reference) napi_delete_reference(env, std::exchange(*reference, nullptr));
}

void AllocatorDevice::close() {
  if (closed_) return;
  closed_ = true;
  refusal_ = static_cast<int>(Refusal::closed);
  for (const auto& [number, gate] : gates) {
    std::lock_guard lock(gate->mutex);
    gate->open = true;
    gate->opened.notify_all();
  }
  highest_ = weight_ = 0;
  reportBytes();
}

void AllocatorDevice::leaveJavaScript() {
  if (graphs) graphs->javascript->shut();
  if (!channel) return;
  channel->shut();
  channel->release();
}

void AllocatorDevice::drain() {
  std::shared_lock lock(inUse);
  if (destroyed_ || !lanes) return;
  driver->bind();
  for (LaneId id = 0; id < lanes->count(); ++id) {
    const bool own = id < laneKinds.size() && laneKinds[id] != LaneKind::none;
    if (own || scriptedPools) lanes->synchronizeLane(lanes->at(id));
  }
}

void AllocatorDevice::awaitLanes() {
  std::shared_lock lock(inUse);
  if (destroyed_ || !lanes) return;
  driver->bind();
  for (LaneId id = 0; id < lanes->count() && !closed_; ++id) lanes->synchronizeLane(lanes->at(id));
}

void AllocatorDevice::awaitWaits() { const std::unique_lock lock(inUse); }

// The blocks that this share still owns; views that JavaScript has transferred keep theirs.
void AllocatorDevice::freeBlocks() {
  for (int which = 0; which < 2; ++which) {
    caching::Allocator& allocator = *spaces[which].allocator;
    std::vector<caching::Block*> left;
    allocator.eachSegment([&](const caching::Segment& segment) {
      for (caching::Block* block = segment.first; block != nullptr; block = block->nextInSegment)
        if (block->state == caching::BlockState::live && block->owner == this) left.push_back(block);
    });
    for (caching::Block* block : left) {
      if (movedBlocks.contains(block)) continue;
      memory->free(block, which == 1);
    }
  }
}

void AllocatorDevice::destroy() {
  std::unique_lock lock(inUse);
  if (!memory) return;
  if (!destroyed_) {
    destroyed_ = true;
    driver->bind();
    if (graphs) graphs->end();
    for (MemorySpace& space : spaces)
      if (space.observed) space.allocator->unobserve(space.observed.get());
    freeBlocks();
    for (caching::MemPool* pool : pools)
      if (pool != nullptr) memory->close(pool);
    pools.clear();
    // Hazard: lifetime. An external lane may be over the stream of another lane, so streams are destroyed
    // once all lanes are retired, which records an event on each.
    std::vector<Stream> streams;
    for (LaneId id = 0; id < laneKinds.size(); ++id) {
      Lane& lane = lanes->at(id);
      if (laneKinds[id] == LaneKind::none || lane.retired) continue;
      if (laneKinds[id] == LaneKind::owned) streams.push_back(lane.stream);
      lanes->retire(lane);
    }
    for (const Stream stream : streams) driver->streamDestroy(stream);
  }
  if (movedViews > 0) return;
  lanes = nullptr;
  driver = nullptr;
  memory.reset();
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
