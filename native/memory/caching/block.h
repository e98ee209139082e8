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

// The reads and writes on foreign lanes that a later owner must come after. One mark for each lane, however
// often a block is used: a later one takes the place of an earlier one of its lane. The first two need no
// memory of their own.
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
  std::unique_ptr<std::vector<Mark*>> many_;  // all of them, from the first time on that there were more
};

enum class BlockState : std::uint8_t {
  live,      // somebody's
  pending,   // freed, with uses that its home lane is not known to be after
  cached,    // free, in its home lane's cache, neighbours not looked at
  free,      // free, in its heap's bins
  unmapped,  // addresses without memory
};

// A piece of a segment. All blocks of a segment tile it, in order of address. Whoever holds a live block owns
// its `uses`; all else of a block that is not live belongs to whoever guards its list. Alone on its cache
// lines, and on those that a processor fetches beside them: blocks that are made one after the other are
// often different threads'.
struct alignas(128) Block {
  DeviceAddress address = 0;
  std::uint64_t size = 0;                  // as given
  Published<std::uint64_t> requested = 0;  // as asked for
  Heap* heap = nullptr;
  Lane* lane = nullptr;          // home: where it was given out last
  Published<Count> release = 0;  // the point of its home lane when it was freed
  Published<BlockState> state = BlockState::unmapped;
  std::uint8_t stripe = 0;            // of the statistics, that it counts in
  bool settled = false;               // free, and its release has completed: any lane may take it
  Published<std::uint32_t> site = 0;  // where it was allocated, as the history numbers it; 0: not known
  Uses uses;
  std::unique_ptr<std::vector<Lane*>> noted;   // recordStream: marked when it is freed
  Block *next = nullptr, *previous = nullptr;  // in its list or bin
  Block *nextInSegment = nullptr, *previousInSegment = nullptr;
  Segment* segment = nullptr;
  std::uint64_t age = 0;            // free: the heap's clock when it became so
  Published<std::uint64_t> id = 0;  // of this owner; never used twice
};

}  // namespace braid::caching
