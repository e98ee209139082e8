#pragma once

#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "memory/device_memory.h"

namespace braid {

// The memory of a capture: what its lanes allocate and free, and in which order they use it.
//
// Captured work runs when its graph is launched, so the order of the lanes says nothing about it. Each lane
// that takes part is stood for by a captured lane (see Lane::inGraph), whose points are places in the graph:
// what comes after a point on these lanes comes after it on a path of the graph's edges. So the allocator's
// reuse by order gives memory that captured work freed to later work of the capture alone. It never makes a
// captured lane wait, which would add an edge.
//
// The memory comes from a pool of the capture's own, or from pools that its caller names. The graph has to
// hold each of them from before its first use: a pool that is held serves captures alone. Blocks of these
// pools need no other owner.
//
// Not thread-safe.
class CaptureMemory {
 public:
  explicit CaptureMemory(std::shared_ptr<DeviceMemory> memory) : memory_(std::move(memory)) {}
  ~CaptureMemory() { end(); }
  CaptureMemory(const CaptureMemory&) = delete;
  CaptureMemory& operator=(const CaptureMemory&) = delete;

  // The lane takes part from here on. No error where it does already.
  Status join(Lane& lane);
  // The lane that stands for it; null where it takes no part.
  Lane* captured(const Lane& lane) const;

  // The lane has captured work on these blocks of the capture's pools.
  Status worked(const Lane& lane, const std::vector<caching::Block*>& blocks);
  // Marks what the lane has captured so far, under a key of the caller's.
  Status record(const Lane& lane, const void* key);
  // What the lane captures from here on comes after what is marked under the key.
  Status wait(const Lane& lane, const void* key);

  // The capture's own pool, which goes with the last holder after the capture has ended.
  caching::MemPool* ownPool();
  // What keeps the pool, for the graph. Null where this capture was given it before. `unhold`: the graph
  // could not be given it.
  std::shared_ptr<const void> hold(caching::MemPool* pool);
  void unhold(const caching::MemPool* pool) { pools_.erase(pool->id); }
  // Whether the block is of a pool that the graph holds by this capture.
  bool has(const caching::Block& block) const { return pools_.contains(block.heap->config.pool); }
  // Whether the caller is the first to ask about this block: the graph needs one hold of it.
  bool first(const caching::Block* block) { return kept_.insert(block).second; }

  // The capture has ended, or was dropped. Idempotent.
  void end();

 private:
  std::shared_ptr<DeviceMemory> memory_;        // null once the capture has ended
  std::vector<std::pair<Lane*, Lane*>> lanes_;  // each with the one that stands for it
  std::map<const void*, Mark*> marks_;          // by the caller's key, each held
  std::set<std::uint64_t> pools_;               // by number
  std::set<const caching::Block*> kept_;
  caching::MemPool* own_ = nullptr;
};

}  // namespace braid
