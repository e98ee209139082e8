#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "order/lane_order.h"

namespace braid {

// The order of a session's lanes, as its issuing thread knows it. Runs, records and waits advance it when
// they are issued, and so does the completion of ticks; it never queries the device. Its relations are those
// of a plan: a lane's own order, a wait after what preceded its record, and tick t after all of tick
// t - inFlight.
//
// A *marker* stands for one driver event and holds the frontier of its lane when it was last recorded.
//
// Not thread-safe. Only the constructor and `addMarker` allocate memory.
class TickOrder {
 public:
  using Marker = std::uint32_t;

  TickOrder(std::size_t lanes, std::size_t inFlight);

  std::size_t lanes() const { return lanes_.size(); }
  Marker addMarker();

  // The caller has seen tick - inFlight complete: every lane comes after all of it.
  void beginTick(std::uint64_t tick);
  void endTick(std::uint64_t tick);

  void run(LaneId lane) { lanes_[lane].advance(); }
  void record(Marker marker, LaneId lane);
  // Waiting for a marker that was never recorded orders nothing, but is a point of its lane all the same.
  void wait(Marker marker, LaneId lane);
  // The host has seen everything issued so far complete.
  void completeAll();

  const LaneOrder& lane(LaneId lane) const { return lanes_[lane]; }
  ConstFrontier frontier(LaneId lane) const { return lanes_[lane].frontier(); }
  Point present(LaneId lane) const { return lanes_[lane].present(); }
  bool recorded(Marker marker) const { return markers_[marker].recorded; }
  Point marked(Marker marker) const { return markers_[marker].point; }
  // The earliest marker on the point's lane that is at or after the point; false where there is none.
  bool markerAfter(Point point, Marker* found) const;
  // Points up to here have completed, so every lane comes after them.
  ConstFrontier completed() const { return completed_; }

  // The distance from a point back to its lane's present point. Every lane is after completed points, so all
  // of them count as equally far: as far as the latest completed one.
  Count distance(LaneId lane, Count count) const {
    return present(lane).count - std::max(count, completed_[lane]);
  }
  // Appends, as distances, all that decides about the ticks to come; and the frontier that a marker holds.
  void appendState(std::uint64_t tick, std::vector<Count>* state) const;
  void appendState(Marker marker, std::vector<Count>* state) const;

 private:
  struct MarkerState {
    Point point;
    bool recorded = false;
  };
  Frontier markerFrontier(Marker marker) {
    return {markerFrontiers_.data() + marker * lanes_.size(), lanes_.size()};
  }

  std::size_t inFlight_;
  std::vector<LaneOrder> lanes_;
  std::vector<Count> tickEnds_;  // inFlight × lanes: every lane's point at the end of a tick
  std::vector<Count> completed_;
  std::vector<MarkerState> markers_;
  std::vector<Count> markerFrontiers_;  // markers × lanes
};

}  // namespace braid
