#pragma once

#include <napi.h>

#include <memory>

#include "bindings/allocator_device.h"

namespace braid::bindings {

// ArrayBuffers over pinned blocks, at most one for each block.
//
// Hazard: JavaScript may transfer a buffer's memory into another ArrayBuffer
// (ArrayBuffer.prototype.transfer), which the addon cannot detach. Rule: a block whose view was transferred
// is freed when V8 finalizes that ArrayBuffer.
Napi::ArrayBuffer pinnedView(Napi::Env env, const std::shared_ptr<AllocatorDevice>& device,
                             caching::Block* block);
// Detaches the block's view and frees the block; if the view was transferred, once V8 has finalized it.
Status freeViewed(AllocatorDevice& device, caching::Block* block);
// Detaches all views that were not transferred.
void detachViews(AllocatorDevice& device);

}  // namespace braid::bindings
