#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "order/frontier.h"

namespace braid {

// What is known to be before what, on the issuing side. It is advanced by every run, record and wait that is
// issued, and by the completion of ticks; it never asks the device. Its relations are exactly those of a
// plan: a lane's own order, a wait after what preceded its record, and tick t after all of tick t - inFlight.
//
// A *marker* is one driver event: what it marks is the frontier of its lane when it was last recorded.
//
// Not thread-safe; all memory is taken in the constructor, except by addMarker.
class Order {
 public:
  using Marker = std::uint32_t;

  Order(std::size_t lanes, std::size_t inFlight);

  std::size_t lanes() const { return lanes_; }
  Marker addMarker();

  // Every lane's frontier first covers all of tick - inFlight, which the caller has seen complete.
  void beginTick(std::uint64_t tick);
  void endTick(std::uint64_t tick);

  void run(LaneId lane) { ++counts_[lane * lanes_ + lane]; }
  void record(Marker marker, LaneId lane);
  // An unrecorded marker is no wait, but a point of its lane all the same.
  void wait(Marker marker, LaneId lane);
  // The host has seen everything issued so far complete.
  void completeAll();

  ConstFrontier frontier(LaneId lane) const { return {counts_.data() + lane * lanes_, lanes_}; }
  Point present(LaneId lane) const { return {lane, counts_[lane * lanes_ + lane]}; }
  bool recorded(Marker marker) const { return markers_[marker].recorded; }
  // The place that the marker marks: events on one lane complete in order, so this is all there is to say
  // about it.
  Point marked(Marker marker) const { return markers_[marker].point; }
  // The marker with the least count on the point's lane that is still at or after the point; false where
  // there is none.
  bool markerAfter(Point point, Marker* found) const;
  // What every lane covers: the frontier below which no release is still pending for anybody.
  ConstFrontier settled() const { return settled_; }

  // How far back from its lane's present point; of a point that every lane covers, as far back as the latest
  // of those.
  Count back(LaneId lane, Count count) const { return present(lane).count - std::max(count, settled_[lane]); }
  // All that decides about what comes, at the start of a tick, in such distances; and what a marker would
  // bring along.
  void appendState(std::uint64_t tick, std::vector<Count>* state) const;
  void appendState(Marker marker, std::vector<Count>* state) const;

 private:
  struct MarkerState {
    Point point;
    bool recorded = false;
  };
  Frontier own(LaneId lane) { return {counts_.data() + lane * lanes_, lanes_}; }
  Frontier markerFrontier(Marker marker) { return {markerCounts_.data() + marker * lanes_, lanes_}; }

  std::size_t lanes_, inFlight_;
  std::vector<Count>
      counts_;  // lanes × lanes: row = a lane's frontier; its diagonal = the lane's present point
  std::vector<Count> tickEnds_;  // inFlight × lanes: every lane's point at the end of a tick
  std::vector<Count> settled_;   // lanes
  std::vector<MarkerState> markers_;
  std::vector<Count> markerCounts_;  // markers × lanes
};

}  // namespace braid
