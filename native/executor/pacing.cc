#include "executor/pacing.h"

#include <algorithm>

namespace braid {

// An eighth is left for work that is not counted: events that allocators record on this lane for others.
std::uint64_t Pacing::mostOf(std::size_t depth) { return std::max<std::uint64_t>(marks, depth - depth / 8); }

Status Pacing::addLane(std::size_t depth, std::uint64_t mostPieces,
                       const std::function<Status(Event*)>& make) {
  Lane lane;
  if (depth > 0 && mostPieces > mostOf(depth / 8)) {
    lane.most = mostOf(depth);
    for (Event& event : lane.events)
      if (const Status status = make(&event); status != Status::ok) return status;
    paced_.push_back(static_cast<std::uint32_t>(lanes_.size()));
  }
  lanes_.push_back(lane);
  return Status::ok;
}

Status Pacing::mark(Lane& lane, Driver& driver, Stream stream) {
  const Status status = driver.eventRecord(lane.events[lane.newest % marks], stream);
  if (status == Status::ok) lane.marked = lane.after[lane.newest++ % marks] = ++lane.queued;
  return status;
}

Status Pacing::ask(Lane& lane, std::uint64_t pieces, Driver& driver, Stream stream, bool* fits) {
  // More pieces than the capacity wait for an empty queue.
  const std::uint64_t wanted = std::min(pieces, lane.most);
  while (lane.queued + wanted > lane.completed + lane.most) {
    const bool marked = lane.oldest < lane.newest;
    Status status = marked ? Status::ok : mark(lane, driver, stream);
    if (status == Status::ok) status = driver.eventQuery(lane.events[lane.oldest % marks]);
    if (status == Status::notReady) return Status::ok;
    if (status != Status::ok) return status;
    lane.completed = lane.after[lane.oldest++ % marks];
  }
  *fits = true;
  return Status::ok;
}

}  // namespace braid
