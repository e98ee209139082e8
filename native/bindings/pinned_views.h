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
//
// Hazard: whoever a view is lent to may be writing the memory outside of JavaScript (a read of a file), which
// detaching the view does not stop. Rule: a block that is freed meanwhile, or whose device is closed, keeps
// its view and its memory until the last loan has ended.
Napi::ArrayBuffer pinnedView(Napi::Env env, const std::shared_ptr<AllocatorDevice>& device,
                             caching::Block* block);
// Detaches the block's view and frees the block; if the view was transferred, once V8 has finalized it.
Status freeViewed(AllocatorDevice& device, caching::Block* block);
// Detaches all views that were not transferred, and are not lent.
void detachViews(AllocatorDevice& device);
// Nothing where the block has no view.
void lendView(AllocatorDevice& device, caching::Block* block);
// Nothing where the ArrayBuffer is no view that is lent.
void endLoan(AllocatorDevice& device, Napi::ArrayBuffer view);

}  // namespace braid::bindings
