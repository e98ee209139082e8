#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "driver/driver.h"
#include "order/frontier.h"
#include "order/published.h"

namespace braid {
class Lane;
struct Mark;
}  // namespace braid

namespace braid::caching {

class Heap;
struct Segment;

// The uses of a block on foreign lanes, which its next owner must come after: at most one mark for each lane,
// since a later mark of a lane replaces an earlier one. The first two are stored in place.
class Uses {
 public:
  bool empty() const { return count_ == 0; }
  std::size_t size() const { return count_; }
  Mark** begin() { return many_ ? many_->data() : few_; }
  Mark** end() { return begin() + count_; }
  Mark* const* begin() const { return many_ ? many_->data() : few_; }
  Mark* const* end() const { return begin() + count_; }
  void push(Mark* mark) {
    if (!many_ && count_ == inPlace) many_ = std::make_unique<std::vector<Mark*>>(few_, few_ + count_);
    if (many_) [[unlikely]]
      many_->push_back(mark);
    else
      few_[count_] = mark;
    ++count_;
  }
  void clear() {
    if (many_) [[unlikely]]
      many_->clear();
    count_ = 0;
  }

 private:
  static constexpr std::size_t inPlace = 2;
  Mark* few_[inPlace] = {};
  std::uint32_t count_ = 0;
  std::unique_ptr<std::vector<Mark*>> many_;  // all of them, once there have been more than fit in place
};

enum class BlockState : std::uint8_t {
  live,      // allocated
  pending,   // freed, with uses that its home lane is not known to be after
  cached,    // free, in its home lane's cache, not merged with its neighbours
  free,      // free, in its heap's bins
  unmapped,  // addresses without memory
};

// A piece of a segment. All blocks of a segment tile it, in order of address. The lock of a block's home lane
// guards its uses, and all of it while it is cached or pending; the allocator's mutex guards it while it is
// free or unmapped. Blocks made one after the other often belong to different threads, so each has its own
// cache lines, and those that a processor prefetches beside them.
struct alignas(128) Block {
  DeviceAddress address = 0;
  std::uint64_t size = 0;                  // as given
  Published<std::uint64_t> requested = 0;  // before rounding
  Heap* heap = nullptr;
  Lane* lane = nullptr;          // home: the lane that it was last allocated for
  Published<Count> release = 0;  // the point of its home lane when it was freed
  Published<BlockState> state = BlockState::unmapped;
  std::uint8_t counters = 0;               // live or pending: which thread's counters count it
  bool anyLane = false;                    // free, and its release has completed: any lane may take it
  Published<bool> held = false;            // live: sessions or graphs use it too (DeviceMemory::hold)
  Published<std::uint32_t> site = 0;       // where it was allocated, as the history numbers sites; 0: unknown
  Published<const void*> owner = nullptr;  // live: whoever frees it with all that it owns
  Uses uses;
  std::unique_ptr<std::vector<Lane*>> noted;   // by recordStream; marks are recorded when the block is freed
  Block *next = nullptr, *previous = nullptr;  // in its list or bin
  Block *nextInSegment = nullptr, *previousInSegment = nullptr;
  Segment* segment = nullptr;
  std::uint64_t age = 0;            // free: the heap's clock when it became free
  Published<std::uint64_t> id = 0;  // of this allocation; never used twice
};

}  // namespace braid::caching
