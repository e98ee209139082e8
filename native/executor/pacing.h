#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include "driver/driver.h"

namespace braid {

// Keeps what is in flight on each stream under what it takes (Driver::streamDepth). A call for one more
// would block the issuing thread inside the driver, and with it every other session of the device, and
// whoever else calls the driver in that context meanwhile.
//
// A lane's pieces are numbered, and an event is recorded after each quarter of what it may hold: how far the
// lane has come is then known by asking, and half of that and more is still there to be worked off when it is
// known. Lanes that would not come near if there were eight times as many streams are not counted. Issuing
// thread only.
class Pacing {
 public:
  static constexpr std::size_t marks = 4;

  // Of a lane on which up to `mostPieces` may be in flight, and whose stream takes `depth` of them now (0:
  // any number). `make` makes an event of that lane.
  Status addLane(std::size_t depth, std::uint64_t mostPieces, const std::function<Status(Event*)>& make);

  bool isPaced(std::uint32_t lane) const { return lanes_[lane].most > 0; }
  // Those that are.
  const std::vector<std::uint32_t>& lanes() const { return paced_; }
  // The stream of such a lane takes so many by now, since others have come or gone.
  void adjust(std::uint32_t lane, std::size_t depth) { lanes_[lane].most = mostOf(depth); }
  // Of a lane that is paced. Whether so many pieces more fit it: asks the driver where that is not known yet.
  Status room(std::uint32_t lane, std::uint64_t pieces, Driver& driver, Stream stream, bool* fits) {
    const Lane& known = lanes_[lane];
    *fits = known.queued + pieces <= known.completed + known.most;
    return *fits ? Status::ok : ask(lanes_[lane], pieces, driver, stream, fits);
  }
  // So many pieces more have been queued.
  Status queued(std::uint32_t which, std::uint64_t pieces, Driver& driver, Stream stream) {
    Lane& lane = lanes_[which];
    lane.queued += pieces;
    const bool due = lane.queued - lane.marked >= lane.most / marks && lane.newest - lane.oldest < marks;
    return due ? mark(lane, driver, stream) : Status::ok;
  }

 private:
  struct Lane {
    std::uint64_t most = 0;                   // pieces in flight; 0: not counted
    std::uint64_t queued = 0, completed = 0;  // pieces; completed ≤ queued
    std::uint64_t marked = 0;                 // the newest mark stands after so many pieces
    std::uint64_t oldest = 0,
                  newest = 0;  // marks that are not known to have completed, by number: [oldest, newest)
    std::array<Event, marks> events{};  // by number mod marks
    std::array<std::uint64_t, marks> after{};
  };
  static std::uint64_t mostOf(std::size_t depth);
  static Status ask(Lane& lane, std::uint64_t pieces, Driver& driver, Stream stream, bool* fits);
  static Status mark(Lane& lane, Driver& driver, Stream stream);

  std::vector<Lane> lanes_;
  std::vector<std::uint32_t> paced_;
};

}  // namespace braid
