#pragma once

#include <memory>

#include "order/frontier.h"

namespace braid {

// What one lane is known to come after: a frontier over all lanes, whose own entry is the lane's present
// point. This is the only place where happens-before is decided; `TickOrder` (the lanes of a session) and
// `Lanes` (the lanes of a device) keep one for each lane and add where their points come from.
//
// Three things move a frontier: the lane advances, the lane waits for a recorded frontier, and the host sees
// work complete (which is a wait by every lane). Not thread-safe.
class LaneOrder {
 public:
  LaneOrder(LaneId lane, std::size_t lanes)
      : lane_(lane), lanes_(lanes), frontier_(std::make_unique<Count[]>(lanes)) {}

  ConstFrontier frontier() const { return {frontier_.get(), lanes_}; }
  Point present() const { return {lane_, frontier_[lane_]}; }
  void advance() { ++frontier_[lane_]; }
  void advanceTo(Count count) { frontier_[lane_] = count; }

  // Copies the frontier into `recorded`, which may be shorter than the number of lanes.
  void record(Frontier recorded) const { std::copy_n(frontier_.get(), recorded.size(), recorded.data()); }
  // Everything that the lane does from here on comes after `recorded`.
  void wait(ConstFrontier recorded) { join({frontier_.get(), lanes_}, recorded); }

  // Does the point happen before whatever this lane does next? A lane's own points always do.
  bool isAfter(Point point) const { return point.lane == lane_ || happensBefore(point, frontier()); }

 private:
  LaneId lane_;
  std::size_t lanes_;
  std::unique_ptr<Count[]> frontier_;
};

}  // namespace braid
