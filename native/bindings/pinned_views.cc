#include "bindings/pinned_views.h"

namespace braid::bindings {
namespace {

// The view's ArrayBuffer, unless its memory was transferred.
Napi::ArrayBuffer present(const Napi::Reference<Napi::ArrayBuffer>& reference) {
  Napi::ArrayBuffer buffer = reference.Value();
  return buffer.IsEmpty() || buffer.IsDetached() ? Napi::ArrayBuffer() : buffer;
}

}  // namespace

struct PinnedViewOwner {
  std::shared_ptr<AllocatorDevice> device;
  caching::Block* block;
  Napi::Reference<Napi::ArrayBuffer> buffer;  // weak
  bool moved = false;                         // the block is freed when V8 finalizes the ArrayBuffer
  std::uint32_t loans = 0;

  // The owner has freed the block, or closed the device, while the memory is in use.
  void leave() {
    moved = true;
    ++device->movedViews;
    device->movedBlocks.insert(block);
  }

  static void release(napi_env env, void*, void* hint) {
    const std::unique_ptr<PinnedViewOwner> view(static_cast<PinnedViewOwner*>(hint));
    AllocatorDevice& device = *view->device;
    if (device.tearing) view->buffer.SuppressDestruct();
    if (const auto found = device.views.find(view->block);
        found != device.views.end() && found->second == view.get())
      device.views.erase(found);
    if (view->loans > 0) device.lentViews.erase(reinterpret_cast<const void*>(view->block->address));
    if (!view->moved) return;
    --device.movedViews;
    device.movedBlocks.erase(view->block);
    if (device.closed() && (device.tearing || !device.memory)) return;
    const Napi::HandleScope scope(env);
    const auto bytes = static_cast<std::int64_t>(view->block->size);
    if (device.driver->bind() == Status::ok && device.memory->free(view->block, true) == Status::ok &&
        !device.closed())
      device.weigh(-bytes);
    if (device.closed()) device.destroy();
  }
};

Napi::ArrayBuffer pinnedView(Napi::Env env, const std::shared_ptr<AllocatorDevice>& device,
                             caching::Block* block) {
  if (const auto found = device->views.find(block); found != device->views.end()) {
    Napi::ArrayBuffer buffer = present(found->second->buffer);
    if (buffer.IsEmpty()) throw Napi::Error::New(env, "the block's view was moved into another ArrayBuffer");
    return buffer;
  }
  auto view = std::make_unique<PinnedViewOwner>();
  view->device = device;
  view->block = block;
  napi_value made = nullptr;
  if (napi_create_external_arraybuffer(env, reinterpret_cast<void*>(block->address), block->requested,
                                       PinnedViewOwner::release, view.get(), &made) != napi_ok)
    throw Napi::Error::New(env);
  PinnedViewOwner* owner = view.release();
  const Napi::ArrayBuffer buffer(env, made);
  owner->buffer = Napi::Weak(buffer);
  device->views.emplace(block, owner);
  return buffer;
}

Status freeViewed(AllocatorDevice& device, caching::Block* block) {
  if (const auto found = device.views.find(block); found != device.views.end()) {
    PinnedViewOwner* view = found->second;
    Napi::ArrayBuffer buffer = present(view->buffer);
    device.views.erase(found);
    if (buffer.IsEmpty() || view->loans > 0) {
      view->leave();
      return Status::ok;
    }
    buffer.Detach();
  }
  const auto bytes = static_cast<std::int64_t>(block->size);
  Status status = device.driver->bind();
  if (status == Status::ok) status = device.memory->free(block, true);
  if (status == Status::ok) device.weigh(-bytes);
  return status;
}

void detachViews(AllocatorDevice& device) {
  for (auto& [block, view] : std::exchange(device.views, {})) {
    Napi::ArrayBuffer buffer = present(view->buffer);
    if (buffer.IsEmpty() || view->loans > 0)
      view->leave();
    else
      buffer.Detach();
  }
}

void lendView(AllocatorDevice& device, caching::Block* block) {
  const auto found = device.views.find(block);
  if (found == device.views.end()) return;
  ++found->second->loans;
  device.lentViews[reinterpret_cast<const void*>(block->address)] = found->second;
}

void endLoan(AllocatorDevice& device, Napi::ArrayBuffer view) {
  const auto found = device.lentViews.find(view.Data());
  if (found == device.lentViews.end() || --found->second->loans > 0) return;
  const bool moved = found->second->moved;
  device.lentViews.erase(found);
  if (moved) view.Detach();  // then V8 finalizes it
}

}  // namespace braid::bindings
