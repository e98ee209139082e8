#include "order/order.h"

namespace braid {

Order::Order(std::size_t lanes, std::size_t inFlight)
    : lanes_(lanes),
      inFlight_(inFlight),
      counts_(lanes * lanes),
      tickEnds_(inFlight * lanes),
      settled_(lanes) {}

Order::Marker Order::addMarker() {
  markers_.emplace_back();
  markerCounts_.resize(markers_.size() * lanes_);
  return static_cast<Marker>(markers_.size() - 1);
}

void Order::beginTick(std::uint64_t tick) {
  if (tick < inFlight_) return;
  const ConstFrontier done{tickEnds_.data() + (tick % inFlight_) * lanes_, lanes_};
  for (LaneId lane = 0; lane < lanes_; ++lane) join(own(lane), done);
  join(settled_, done);
}

void Order::endTick(std::uint64_t tick) {
  Count* end = tickEnds_.data() + (tick % inFlight_) * lanes_;
  for (LaneId lane = 0; lane < lanes_; ++lane) end[lane] = present(lane).count;
}

void Order::record(Marker marker, LaneId lane) {
  markers_[marker] = {present(lane), true};
  std::copy_n(frontier(lane).data(), lanes_, markerFrontier(marker).data());
}

void Order::wait(Marker marker, LaneId lane) {
  run(lane);
  if (markers_[marker].recorded) join(own(lane), markerFrontier(marker));
}

void Order::completeAll() {
  for (LaneId lane = 0; lane < lanes_; ++lane) settled_[lane] = present(lane).count;
  for (LaneId lane = 0; lane < lanes_; ++lane) join(own(lane), settled_);
}

bool Order::markerAfter(Point point, Marker* found) const {
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

void Order::appendState(std::uint64_t tick, std::vector<Count>* state) const {
  for (LaneId lane = 0; lane < lanes_; ++lane)
    for (LaneId other = 0; other < lanes_; ++other)
      state->push_back(back(other, counts_[lane * lanes_ + other]));
  // The ends of the ticks that are not yet known to have completed; of the one before all of them nothing is
  // left.
  for (std::uint64_t age = 1; age < inFlight_; ++age)
    for (LaneId lane = 0; lane < lanes_; ++lane)
      state->push_back(age > tick ? 0
                                  : back(lane, tickEnds_[((tick - age) % inFlight_) * lanes_ + lane]) + 1);
}

void Order::appendState(Marker marker, std::vector<Count>* state) const {
  state->push_back(markers_[marker].recorded ? 1 : 0);
  for (LaneId lane = 0; lane < lanes_; ++lane)
    state->push_back(back(lane, markerCounts_[marker * lanes_ + lane]));
}

}  // namespace braid
