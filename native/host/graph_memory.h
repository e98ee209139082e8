#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "host/memory.h"
#include "host/stream.h"

namespace braid::host {

class GraphMemory;

// What an allocation node gives. The address is its own while a definition, an executable or a launch has it;
// it is the device's memory between the node that allocates and the node that frees.
class GraphRange {
 public:
  GraphRange(GraphMemory* memory, DeviceAddress address, std::size_t bytes)
      : memory_(memory), address_(address), bytes_(bytes) {}
  DeviceAddress address() const { return address_; }
  void begin() const;
  void end() const;

  Mark last;  // of the newest launch that uses it; guarded as executables are

 private:
  friend class GraphMemory;
  GraphMemory* const memory_;
  const DeviceAddress address_;
  const std::size_t bytes_;
  // Guarded by the memory's lock.
  bool reserved_ = false;
  std::size_t launches_ = 0;  // that are queued or run
};
using GraphRanges = std::vector<std::shared_ptr<GraphRange>>;

// The memory of a device's allocation nodes. Bytes of the device are taken by the first launch that needs
// them, and kept until the node has gone or a trim finds no launch that needs them. Addresses stay mapped
// once the node has gone, for later nodes: so work that still touches them harms nothing.
class GraphMemory {
 public:
  GraphMemory(Budget* budget, LiveRanges* live, bool poison)
      : budget_(budget), live_(live), poison_(poison) {}
  ~GraphMemory();

  Status make(std::size_t bytes, std::shared_ptr<GraphRange>* range, std::string* detail);
  // Takes the bytes of all these, or of none, and keeps them while *held lives.
  Status hold(GraphRanges ranges, std::shared_ptr<const void>* held, std::string* detail);
  std::size_t reserved();
  void trim();

 private:
  friend class GraphRange;
  void gone(GraphRange* range);
  void giveBack(GraphRange& range);

  Budget* const budget_;
  LiveRanges* const live_;
  const bool poison_;
  std::mutex mutex_;
  std::size_t reserved_ = 0;
  std::set<GraphRange*> ranges_;
  std::multimap<std::size_t, DeviceAddress> spare_;  // addresses without a node, by their bytes
};

}  // namespace braid::host
