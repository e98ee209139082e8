#include "order/lanes.h"

#include <algorithm>

#include "driver/unsafe_calls.h"

namespace braid {
namespace {

// Adds one to a counter that one thread at a time writes.
void countOne(std::atomic<std::uint64_t>& number) {
  number.store(number.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

}  // namespace

Lane::Lane(LaneId id, Stream stream, bool tracked, std::size_t lanes)
    : id(id), stream(stream), tracked(tracked), order_(id, lanes) {}

Lanes::Lanes(Driver& driver) : driver_(driver) {}

Lanes::~Lanes() {
  for (LaneId id = 0; id < count(); ++id) {
    for (Mark& mark : lanes_[id]->ring_)
      if (mark.event != nullptr) driver_.eventDestroy(mark.event);
    for (Mark& mark : lanes_[id]->timed_) driver_.eventDestroy(mark.event);
  }
}

Stream Lanes::lend(Stream stream) {
  for (LaneId id = 0; id < count(); ++id)
    if (at(id).stream == stream) at(id).tracked = false;
  return stream;
}

Status Lanes::add(Stream stream, bool tracked, std::string name, Lane** lane) {
  if (!tracked) lend(stream);
  return addLane(stream, tracked, false, std::move(name), lane);
}

Status Lanes::addLane(Stream stream, bool tracked, bool inGraph, std::string name, Lane** lane) {
  std::lock_guard lock(mutex_);
  const std::size_t known = count();
  // A retired lane whose work has completed is used again. Its points go on from where they were, so the
  // points at which its blocks were released have passed.
  for (LaneId id = 0; id < known; ++id) {
    Lane& old = *lanes_[id];
    if (!old.retired) continue;
    if (old.completed() < old.marks_.load() && pollLane(old) != Status::ok) continue;
    std::lock_guard guard(old.mutex);
    old.stream = stream;
    old.tracked = tracked;
    old.inGraph = inGraph;
    old.retired = false;
    old.name = std::move(name);
    old.work_.fetch_add(1);
    *lane = &old;
    return Status::ok;
  }
  if (known == most) return Status::outOfMemory;
  lanes_[known] = std::make_unique<Lane>(static_cast<LaneId>(known), stream, tracked, most);
  lanes_[known]->name = std::move(name);
  lanes_[known]->inGraph = inGraph;
  *lane = lanes_[known].get();
  count_.store(known + 1, std::memory_order_release);
  return Status::ok;
}

std::string Lanes::nameOf(LaneId id) {
  std::lock_guard lock(mutex_);
  return lanes_[id]->name;
}

Status Lanes::retire(Lane& lane) {
  Mark* last = nullptr;
  if (const Status status = mark(lane, &last); status != Status::ok) return status;
  last->release();
  std::lock_guard lock(mutex_);
  std::lock_guard guard(lane.mutex);
  lane.retired = true;
  lane.stream = nullptr;
  return Status::ok;
}

Status Lanes::beginCapture(Lane& lane, Lane** captured) {
  Mark* last = nullptr;
  if (const Status status = mark(lane, &last); status != Status::ok) return status;
  last->release();
  const Status status = addLane(lane.stream, lane.tracked, true, nameOf(lane.id) + ", captured", captured);
  if (status == Status::ok) lane.capturing = true;
  return status;
}

void Lanes::endCapture(Lane& lane, Lane& captured) {
  lane.capturing = false;
  // Marks of a captured lane take no call of the driver that could fail.
  Mark* last = nullptr;
  if (mark(captured, &last) == Status::ok) last->release();
  std::lock_guard lock(mutex_);
  std::lock_guard guard(captured.mutex);
  captured.setCompleted(captured.marks_.load());
  captured.retired = true;
  captured.stream = nullptr;
  captured.inGraph = false;
}

Mark* Lanes::unheldMark(Lane& lane) {
  if (lane.newest_ != nullptr && lane.newest_->holders() == 0) return lane.newest_;
  for (int looked = 0; lane.searched_ != nullptr && looked < 8; ++looked) {
    lane.searched_ = lane.searched_->next;
    if (lane.searched_->holders() == 0) return lane.searched_;
  }
  return nullptr;
}

Status Lanes::makeEvent(Lane& lane, EventKind kind, std::deque<Mark>& marks, Mark** mark) {
  Event event = nullptr;
  if (!lane.inGraph) {
    if (const Status status = driver_.eventCreate(&event, kind); status != Status::ok) return status;
    created_.fetch_add(1, std::memory_order_relaxed);
  }
  Mark& made = marks.emplace_back();
  made.lane = &lane;
  made.event = event;
  made.frontier.reset(new Count[most]());
  *mark = &made;
  return Status::ok;
}

Mark* Lanes::makeMark(Lane& lane, Status* status) {
  Mark* made = nullptr;
  if (*status = makeEvent(lane, EventKind::order, lane.ring_, &made); *status != Status::ok) return nullptr;
  made->next = lane.searched_ != nullptr ? lane.searched_->next : made;
  if (lane.searched_ != nullptr) lane.searched_->next = made;
  return lane.searched_ = made;
}

Status Lanes::mark(Lane& lane, Mark** found, bool* recorded) {
  const BiasedLock::Hold hold(lane.mutex);
  if (lane.newest_ != nullptr && lane.isMarked()) {
    lane.newest_->holdUnderLock();
    *found = lane.newest_;
    countOne(lane.shared_);
    if (recorded) *recorded = false;
    return Status::ok;
  }
  // A retired lane still has the mark that it was given when it retired.
  if (lane.stream == nullptr && lane.retired) [[unlikely]]
    return Status::invalidHandle;
  Mark* mark = unheldMark(lane);
  if (mark == nullptr) [[unlikely]] {
    Status status = Status::ok;
    mark = makeMark(lane, &status);
    if (status != Status::ok) return status;
  }
  if (const Status status = record(lane, *mark); status != Status::ok) return status;
  *found = mark;
  if (recorded) *recorded = true;
  return Status::ok;
}

// Never shares an event: the time between two marks at one point of an idle lane is not 0.
Status Lanes::markTime(Lane& lane, Mark** found) {
  const BiasedLock::Hold hold(lane.mutex);
  if (lane.stream == nullptr && lane.retired) return Status::invalidHandle;
  Mark* mark = nullptr;
  for (Mark& each : lane.timed_)
    if (each.holders() == 0) mark = &each;
  if (mark == nullptr)
    if (const Status status = makeEvent(lane, EventKind::timed, lane.timed_, &mark); status != Status::ok)
      return status;
  if (const Status status = record(lane, *mark); status != Status::ok) return status;
  *found = mark;
  return Status::ok;
}

inline Status Lanes::record(Lane& lane, Mark& mark) {
  const std::uint64_t work = lane.work_.load(std::memory_order_relaxed);
  // The point is taken before the event is recorded: work that another thread queues behind the record then
  // gets a later point, never this one. If the record fails, the point stays unused.
  const Count point = lane.marks_.load(std::memory_order_relaxed) + 1;
  lane.marks_.store(point, std::memory_order_release);
  if (!lane.inGraph) {
    if (mark.event == nullptr) {  // made by a captured lane, whose number this lane has now
      if (const Status status = driver_.eventCreate(&mark.event, EventKind::order); status != Status::ok)
        return status;
      created_.fetch_add(1, std::memory_order_relaxed);
    }
    if (const Status status = driver_.eventRecord(mark.event, lane.stream); status != Status::ok)
      return status;
  }
  lane.order_.advanceTo(point);
  lane.order_.record({mark.frontier.get(), count()});
  mark.point = point;
  lane.newest_ = &mark;
  lane.markedWaits_.store(lane.waited_.load(std::memory_order_relaxed), std::memory_order_release);
  lane.markedWork_.store(work, std::memory_order_release);
  mark.holdUnderLock();
  countOne(lane.recorded_);
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

Status Lanes::issueWait(Lane& waiter, Mark& mark) {
  if (!waiter.inGraph) {
    if (!mayQueue(waiter)) return Status::notPermitted;
    if (const Status status = driver_.streamWait(waiter.stream, mark.event); status != Status::ok)
      return status;
  }
  countOne(waiter.waited_);
  countOne(waiter.waits_);
  waiter.order_.wait({mark.frontier.get(), count()});
  return Status::ok;
}

Status Lanes::query(Mark& mark, Lane* asker) {
  if (mark.lane->inGraph) return Status::notReady;
  // Its capture may have ended on another thread just now.
  if (complete(mark)) return Status::ok;
  if (asker != nullptr)
    countOne(asker->queries_);
  else
    queries_.fetch_add(1, std::memory_order_relaxed);
  const Status status = driver_.eventQuery(mark.event);
  if (status == Status::ok) mark.lane->setCompleted(mark.point);
  return status;
}

// An idle stream has reached every point, so one more point is counted as complete, without an event.
Status Lanes::pollLane(Lane& lane) {
  std::lock_guard guard(lane.mutex);
  if (lane.isMarked() && lane.completed() >= lane.marks_.load(std::memory_order_relaxed)) return Status::ok;
  if (lane.inGraph) return Status::notReady;
  countOne(lane.queries_);
  if (lane.retired || lane.capturing) {
    const Status status = driver_.eventQuery(lane.newest_->event);
    if (status == Status::ok) lane.setCompleted(lane.newest_->point);
    return status;
  }
  // As in `mark`, the point is taken before the query.
  const bool marked = lane.isMarked();
  const std::uint64_t work = lane.work_.load(std::memory_order_relaxed);
  const std::uint64_t waited = lane.waited_.load(std::memory_order_relaxed);
  const Count point = lane.marks_.load(std::memory_order_relaxed) + (marked ? 0 : 1);
  lane.marks_.store(point, std::memory_order_release);
  if (const Status status = driver_.streamQuery(lane.stream); status != Status::ok) return status;
  if (!marked) {
    lane.order_.advanceTo(point);
    lane.markedWaits_.store(waited, std::memory_order_release);
    lane.markedWork_.store(work, std::memory_order_release);
    lane.newest_ = nullptr;
  }
  lane.setCompleted(point);
  return Status::ok;
}

void Lanes::hostAwaited(Mark* mark) {
  std::lock_guard lock(awaitedMutex_);
  const UnsafeCalls allowed(&driver_);
  // The list stays as long as what is under way, though nobody may ever ask.
  for (int looked = 0; looked < 2 && !awaited_.empty() && poll(*awaited_.front()) == Status::ok; ++looked) {
    awaited_.front()->release();
    awaited_.pop_front();
  }
  if (awaited_.empty())
    for (LaneId id = 0; id < count(); ++id) piecesBefore_[id] = piecesOf(at(id));
  awaited_.push_back(mark);
  anyAwaited_.store(true);
}

bool Lanes::pollAwaited() {
  std::lock_guard lock(awaitedMutex_);
  // The caller may be capturing: without this the driver refuses to say, and its capture is invalid.
  const UnsafeCalls allowed(&driver_);
  for (; !awaited_.empty(); awaited_.pop_front()) {
    const Status status = poll(*awaited_.front());
    if (status != Status::ok && !isSticky(status)) break;
    awaited_.front()->release();
  }
  anyAwaited_.store(!awaited_.empty());
  return !awaited_.empty();
}

// Three quarters of a queue: the rest is for the marks that follow pieces, and for what the driver adds.
bool Lanes::hasRoom(const Lane& lane) {
  const std::size_t depth = driver_.streamDepth();
  std::lock_guard lock(awaitedMutex_);
  return depth == 0 || piecesOf(lane) - piecesBefore_[lane.id] < depth - depth / 4;
}

Status Lanes::synchronize(Mark& mark) {
  // In this order: the capture may end on another thread in between.
  if (mark.lane->inGraph || complete(mark)) return Status::ok;
  synchronizations_.fetch_add(1, std::memory_order_relaxed);
  const Status status = driver_.eventSynchronize(mark.event);
  if (status == Status::ok) mark.lane->setCompleted(mark.point);
  return status;
}

Status Lanes::synchronizeStream(Lane& lane) {
  if (lane.inGraph) return Status::ok;
  synchronizations_.fetch_add(1, std::memory_order_relaxed);
  return driver_.streamSynchronize(lane.stream);
}

Status Lanes::synchronizeLane(Lane& lane) {
  Mark* newest = nullptr;
  if (const Status status = mark(lane, &newest); status != Status::ok) return status;
  const Status status = synchronize(*newest);
  newest->release();
  return status;
}

}  // namespace braid
