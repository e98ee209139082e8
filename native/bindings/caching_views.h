#pragma once

#include <napi.h>

#include <memory>

#include "bindings/caching_device.h"

namespace braid::bindings {

// ArrayBuffers over pinned blocks, at most one a block.
//
// Hazard: JavaScript may move a buffer's memory into another buffer (ArrayBuffer.prototype.transfer), which
// nobody here can detach. So a block whose view is not where it was is freed when V8 says that nobody reads
// it any more.
Napi::ArrayBuffer pinnedView(Napi::Env env, const std::shared_ptr<CachingDevice>& device,
                             caching::Block* block);
// Detaches the block's view and frees the block, now or when that is over.
Status freeViewed(CachingDevice& device, caching::Block* block);
// Detaches all that can be.
void detachViews(CachingDevice& device);

}  // namespace braid::bindings
