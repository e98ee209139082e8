#include "order/tick_order.h"

namespace braid {

TickOrder::TickOrder(std::size_t lanes, std::size_t inFlight)
    : inFlight_(inFlight), tickEnds_(inFlight * lanes), completed_(lanes) {
  lanes_.reserve(lanes);
  for (LaneId lane = 0; lane < lanes; ++lane) lanes_.emplace_back(lane, lanes);
}

TickOrder::Marker TickOrder::addMarker() {
  markers_.emplace_back();
  markerFrontiers_.resize(markers_.size() * lanes());
  return static_cast<Marker>(markers_.size() - 1);
}

void TickOrder::beginTick(std::uint64_t tick) {
  if (tick < inFlight_) return;
  const ConstFrontier done{tickEnds_.data() + (tick % inFlight_) * lanes(), lanes()};
  for (LaneOrder& lane : lanes_) lane.wait(done);
  join(completed_, done);
}

void TickOrder::endTick(std::uint64_t tick) {
  Count* end = tickEnds_.data() + (tick % inFlight_) * lanes();
  for (LaneId lane = 0; lane < lanes(); ++lane) end[lane] = present(lane).count;
}

void TickOrder::record(Marker marker, LaneId lane) {
  markers_[marker] = {present(lane), true};
  lanes_[lane].record(markerFrontier(marker));
}

void TickOrder::wait(Marker marker, LaneId lane) {
  lanes_[lane].advance();
  if (markers_[marker].recorded) lanes_[lane].wait(markerFrontier(marker));
}

void TickOrder::completeAll() {
  for (LaneId lane = 0; lane < lanes(); ++lane) completed_[lane] = present(lane).count;
  for (LaneOrder& lane : lanes_) lane.wait(completed_);
}

bool TickOrder::markerAfter(Point point, Marker* found) const {
  bool any = false;
  for (Marker marker = 0; marker < markers_.size(); ++marker) {
    const MarkerState& state = markers_[marker];
    if (!state.recorded || state.point.lane != point.lane || state.point.count < point.count) continue;
    if (any && state.point.count >= markers_[*found].point.count) continue;
    *found = marker;
    any = true;
  }
  return any;
}

void TickOrder::appendState(std::uint64_t tick, std::vector<Count>* state) const {
  for (const LaneOrder& lane : lanes_)
    for (LaneId other = 0; other < lanes(); ++other)
      state->push_back(distance(other, lane.frontier()[other]));
  // The ends of the ticks that may still be in flight. One more than the distance, since 0 stands for a tick
  // before the first.
  for (std::uint64_t age = 1; age < inFlight_; ++age) {
    for (LaneId lane = 0; lane < lanes(); ++lane) {
      const bool exists = age <= tick;
      state->push_back(exists ? distance(lane, tickEnds_[((tick - age) % inFlight_) * lanes() + lane]) + 1
                              : 0);
    }
  }
}

void TickOrder::appendState(Marker marker, std::vector<Count>* state) const {
  state->push_back(markers_[marker].recorded ? 1 : 0);
  for (LaneId lane = 0; lane < lanes(); ++lane)
    state->push_back(distance(lane, markerFrontiers_[marker * lanes() + lane]));
}

}  // namespace braid
