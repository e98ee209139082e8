#include "memory/caching/lanes.h"

#include <algorithm>
#include <cstdlib>

namespace braid::caching {
namespace {

// Of a number that one thread at a time writes.
void countOne(std::atomic<std::uint64_t>& number) {
  number.store(number.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

}  // namespace

Lane::Lane(LaneId id, Stream stream, bool tracked, std::size_t lanes)
    : id(id), stream(stream), tracked(tracked), known_(new Count[lanes]()) {}

// Of two threads that learn something at once, the lesser point may stand: what is forgotten is asked for
// again.
void Lane::completed(Count point) {
  if (done_.load(std::memory_order_relaxed) < point) done_.store(point, std::memory_order_release);
}

Lanes::Lanes(Driver& driver) : driver_(driver) {}

Lanes::~Lanes() {
  for (LaneId id = 0; id < count(); ++id) {
    for (Mark& mark : lanes_[id]->ring_) driver_.eventDestroy(mark.event);
  }
}

std::size_t Lanes::join() {
  std::lock_guard lock(mutex_);
  std::size_t place = 0;
  while (place < Lane::mostAllocators && places_[place]) ++place;
  if (place == Lane::mostAllocators) std::abort();  // whoever makes allocators makes two
  places_[place] = true;
  return place;
}

void Lanes::leave(std::size_t place) {
  std::lock_guard lock(mutex_);
  places_[place] = false;
}

Status Lanes::add(Stream stream, bool tracked, std::string name, Lane** lane) {
  std::lock_guard lock(mutex_);
  const std::size_t known = count();
  // A retired lane whose work has completed serves again: its points go on where they were, so what its
  // blocks were released at has passed.
  for (LaneId id = 0; id < known; ++id) {
    Lane& old = *lanes_[id];
    if (!old.retired) continue;
    if (old.done() < old.marks_.load() && pollLane(old) != Status::ok) continue;
    std::lock_guard guard(old.mutex);
    old.stream = stream;
    old.tracked = tracked;
    old.retired = false;
    old.name = std::move(name);
    old.work_.fetch_add(1);
    *lane = &old;
    return Status::ok;
  }
  if (known == most) return Status::outOfMemory;
  lanes_[known] = std::make_unique<Lane>(static_cast<LaneId>(known), stream, tracked, most);
  lanes_[known]->name = std::move(name);
  *lane = lanes_[known].get();
  count_.store(known + 1, std::memory_order_release);
  return Status::ok;
}

Status Lanes::retire(Lane& lane) {
  Mark* last = nullptr;
  if (const Status status = mark(lane, &last); status != Status::ok) return status;
  last->drop();
  std::lock_guard lock(mutex_);
  std::lock_guard guard(lane.mutex);
  lane.retired = true;
  lane.stream = nullptr;
  return Status::ok;
}

Mark* Lanes::spare(Lane& lane) {
  if (lane.newest_ != nullptr && lane.newest_->holders() == 0) return lane.newest_;
  for (int looked = 0; lane.last_ != nullptr && looked < 8; ++looked) {
    lane.last_ = lane.last_->next;
    if (lane.last_->holders() == 0) return lane.last_;
  }
  return nullptr;
}

Mark* Lanes::make(Lane& lane, Status* status) {
  Event event = nullptr;
  if (*status = driver_.eventCreate(&event, EventKind::order); *status != Status::ok) return nullptr;
  created_.fetch_add(1, std::memory_order_relaxed);
  Mark* const made = &lane.ring_.emplace_back();
  made->lane = &lane;
  made->event = event;
  made->frontier.reset(new Count[most]());
  made->next = lane.last_ != nullptr ? lane.last_->next : made;
  if (lane.last_ != nullptr) lane.last_->next = made;
  return lane.last_ = made;
}

Status Lanes::mark(Lane& lane, Mark** found, bool* recorded) {
  const BiasedLock::Hold hold(lane.mutex);
  if (lane.newest_ != nullptr && lane.quiet()) {
    lane.newest_->give();
    *found = lane.newest_;
    countOne(lane.shared_);
    if (recorded) *recorded = false;
    return Status::ok;
  }
  // A retired lane has its newest mark, made when it retired.
  if (lane.stream == nullptr && lane.retired) [[unlikely]]
    return Status::invalidHandle;
  Mark* mark = spare(lane);
  if (mark == nullptr) [[unlikely]] {
    Status status = Status::ok;
    mark = make(lane, &status);
    if (status != Status::ok) return status;
  }
  const std::uint64_t work = lane.work_.load(std::memory_order_relaxed);
  // The point is taken before the event is recorded: who queues work behind the record sees a mark that is
  // too late for it, never one that it came too late for. Where the record fails, the point is nobody's.
  const Count point = lane.marks_.load(std::memory_order_relaxed) + 1;
  lane.marks_.store(point, std::memory_order_release);
  if (const Status status = driver_.eventRecord(mark->event, lane.stream); status != Status::ok)
    return status;
  lane.known_[lane.id] = point;
  for (std::size_t other = 0, lanes = count(); other < lanes; ++other)
    mark->frontier[other] = lane.known_[other];
  mark->point = point;
  lane.newest_ = mark;
  lane.markedWaits_.store(lane.waited_.load(std::memory_order_relaxed), std::memory_order_release);
  lane.marked_.store(work, std::memory_order_release);
  mark->give();
  *found = mark;
  countOne(lane.recorded_);
  if (recorded) *recorded = true;
  return Status::ok;
}

Lanes::Counters Lanes::counters() const {
  Counters all;
  for (LaneId id = 0; id < count(); ++id) {
    const Lane& lane = at(id);
    all.recorded += lane.recorded_.load(std::memory_order_relaxed);
    all.shared += lane.shared_.load(std::memory_order_relaxed);
    all.waits += lane.waits_.load(std::memory_order_relaxed);
    all.waitsElided += lane.waitsElided_.load(std::memory_order_relaxed);
    all.queries += lane.queries_.load(std::memory_order_relaxed);
  }
  all.queries += queries_.load(std::memory_order_relaxed);
  all.synchronizations = synchronizations_.load(std::memory_order_relaxed);
  all.created = created_.load(std::memory_order_relaxed);
  return all;
}

Mark* Lanes::adopt(Event event) {
  std::lock_guard lock(adoptedMutex_);
  for (Mark& mark : adopted_) {
    if (mark.holders() != 0) continue;
    mark.event = event;
    mark.give();
    return &mark;
  }
  Mark& mark = adopted_.emplace_back();
  mark.event = event;
  mark.give();
  return &mark;
}

Status Lanes::join(Lane& waiter, Mark& mark) {
  if (const Status status = driver_.streamWait(waiter.stream, mark.event); status != Status::ok)
    return status;
  countOne(waiter.waited_);
  countOne(waiter.waits_);
  if (mark.lane == nullptr) return Status::ok;
  const std::size_t lanes = count();
  for (LaneId other = 0; other < lanes; ++other)
    waiter.known_[other] = std::max(waiter.known_[other], mark.frontier[other]);
  return Status::ok;
}

Status Lanes::ask(Mark& mark, Lane* asker) {
  if (asker != nullptr)
    countOne(asker->queries_);
  else
    queries_.fetch_add(1, std::memory_order_relaxed);
  const Status status = driver_.eventQuery(mark.event);
  if (status == Status::ok && mark.lane != nullptr) mark.lane->completed(mark.point);
  return status;
}

// An idle stream has reached every point: one more is counted as passed, which needs no event.
Status Lanes::pollLane(Lane& lane) {
  std::lock_guard guard(lane.mutex);
  if (lane.quiet() && lane.done() >= lane.marks_.load(std::memory_order_relaxed)) return Status::ok;
  countOne(lane.queries_);
  if (lane.retired) {
    const Status status = driver_.eventQuery(lane.newest_->event);
    if (status == Status::ok) lane.completed(lane.newest_->point);
    return status;
  }
  // As in `mark`: the point is taken before the question is asked.
  const bool quiet = lane.quiet();
  const std::uint64_t work = lane.work_.load(std::memory_order_relaxed);
  const std::uint64_t waited = lane.waited_.load(std::memory_order_relaxed);
  const Count point = lane.marks_.load(std::memory_order_relaxed) + (quiet ? 0 : 1);
  lane.marks_.store(point, std::memory_order_release);
  if (const Status status = driver_.streamQuery(lane.stream); status != Status::ok) return status;
  if (!quiet) {
    lane.known_[lane.id] = point;
    lane.markedWaits_.store(waited, std::memory_order_release);
    lane.marked_.store(work, std::memory_order_release);
    lane.newest_ = nullptr;
  }
  lane.completed(point);
  return Status::ok;
}

Status Lanes::synchronize(Mark& mark) {
  if (complete(mark)) return Status::ok;
  synchronizations_.fetch_add(1, std::memory_order_relaxed);
  const Status status = driver_.eventSynchronize(mark.event);
  if (status == Status::ok && mark.lane != nullptr) mark.lane->completed(mark.point);
  return status;
}

Status Lanes::drain(Lane& lane) {
  synchronizations_.fetch_add(1, std::memory_order_relaxed);
  return driver_.streamSynchronize(lane.stream);
}

Status Lanes::synchronizeLane(Lane& lane) {
  Mark* newest = nullptr;
  if (const Status status = mark(lane, &newest); status != Status::ok) return status;
  const Status status = synchronize(*newest);
  newest->drop();
  return status;
}

}  // namespace braid::caching
