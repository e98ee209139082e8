#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include "driver/driver.h"

namespace braid {

// Keeps the pieces of work in flight on each stream below its capacity (Driver::streamDepth). A call beyond
// that would block the issuing thread inside the driver, and with it every other session of the device and
// every other thread that calls the driver in that context.
//
// A lane's pieces are counted, and an event is recorded after each quarter of the capacity. Querying these
// events gives the lane's progress while more than half of its work is still queued. Lanes that could not
// fill an eighth of the capacity are not counted. Issuing thread only.
class Pacing {
 public:
  static constexpr std::size_t marks = 4;

  // Adds a lane with at most `mostPieces` in flight, whose stream has capacity for `depth` of them now (0:
  // any number). `make` creates an event for that lane.
  Status addLane(std::size_t depth, std::uint64_t mostPieces, const std::function<Status(Event*)>& make);

  bool isPaced(std::uint32_t lane) const { return lanes_[lane].most > 0; }
  // Those that are.
  const std::vector<std::uint32_t>& lanes() const { return paced_; }
  // The capacity of the lane's stream has changed, since other streams have come or gone.
  void adjust(std::uint32_t lane, std::size_t depth) { lanes_[lane].most = mostOf(depth); }
  // Of a paced lane: whether so many more pieces fit. Queries the driver where that is not known yet.
  Status room(std::uint32_t lane, std::uint64_t pieces, Driver& driver, Stream stream, bool* fits) {
    const Lane& known = lanes_[lane];
    *fits = known.queued + pieces <= known.completed + known.most;
    return *fits ? Status::ok : ask(lanes_[lane], pieces, driver, stream, fits);
  }
  // Counts pieces that have been queued.
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
