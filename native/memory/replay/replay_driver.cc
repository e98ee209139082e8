#include "memory/replay/replay_driver.h"

#include <algorithm>

namespace braid::caching {
namespace {

// A device's queues are finite: queuing more than they hold behind a closed gate blocks for ever. An H200
// takes 1,021 pieces of work a stream, fewer where streams share a queue. Work beyond this limit is not given
// to the device.
constexpr std::size_t mostQueued = 48;

}  // namespace

ReplayDriver::~ReplayDriver() {
  drain();
  for (const auto& line : lines_) {
    inner_.streamSynchronize(line->inner);
    inner_.streamDestroy(line->inner);
  }
}

// Runs on a driver thread.
void ReplayDriver::gate(void* data) {
  Line& line = *static_cast<Line*>(data);
  std::unique_lock lock(line.mutex);
  line.moved.wait(lock, [&] { return line.gates.front() <= line.open; });
  line.gates.pop_front();
}

void ReplayDriver::advance(Time time) {
  if (time <= now_) return;
  now_ = time;
  std::erase_if(blocked_, [&](Line* line) {
    {
      std::lock_guard lock(line->mutex);
      line->open = now_;
      if (!line->gates.empty() && line->gates.front() <= now_) line->moved.notify_one();
    }
    if (line->until > now_) return false;
    queued_ -= line->depth;
    line->depth = 0;
    return true;
  });
}

void ReplayDriver::drain() {
  Time last = now_;
  for (const Line* line : blocked_) last = std::max(last, line->until);
  advance(last);
}

void ReplayDriver::block(Line& line, Time until) {
  if (until <= now_ || until <= line.until) return;
  if (line.until <= now_) blocked_.push_back(&line);
  line.until = until;
}

bool ReplayDriver::mayQueue(Line& line) {
  if (line.until <= now_) return true;
  if (queued_ >= mostQueued) return false;
  ++queued_;
  ++line.depth;
  return true;
}

Status ReplayDriver::answer(Status queried, Time until) const {
  if (queried != Status::ok && queried != Status::notReady) return queried;
  return until <= now_ ? Status::ok : Status::notReady;
}

Status ReplayDriver::hold(Stream stream, Time until) {
  Line& held = line(stream);
  if (until <= now_ || until <= held.until) return Status::ok;
  block(held, until);
  if (!gates_ || !mayQueue(held)) return Status::ok;
  {
    std::lock_guard lock(held.mutex);
    held.open = now_;
    held.gates.push_back(until);
  }
  const Status status = inner_.hostFunction(held.inner, gate, &held);
  if (status != Status::ok) {
    std::lock_guard lock(held.mutex);
    held.gates.pop_back();
  }
  return status;
}

// A device may end all of its work before it takes memory back: cuMemFree does.
Status ReplayDriver::memFree(DeviceAddress address) {
  drain();
  return inner_.memFree(address);
}

Status ReplayDriver::pinnedFree(void* pointer) {
  drain();
  return inner_.pinnedFree(pointer);
}

Status ReplayDriver::streamCreate(Stream* stream, int priority) {
  auto fresh = std::make_unique<Line>();
  if (const Status status = inner_.streamCreate(&fresh->inner, priority); status != Status::ok) return status;
  *stream = reinterpret_cast<Stream>(fresh.get());
  lines_.push_back(std::move(fresh));
  return Status::ok;
}

Status ReplayDriver::streamSynchronize(Stream stream) {
  advance(line(stream).until);
  return Status::ok;
}

Status ReplayDriver::streamQuery(Stream stream) {
  const Line& queried = line(stream);
  return answer(inner_.streamQuery(queried.inner), queried.until);
}

Status ReplayDriver::streamWait(Stream stream, Event event) {
  Line& waiter = line(stream);
  block(waiter, mark(event).until);
  return mayQueue(waiter) ? inner_.streamWait(waiter.inner, mark(event).inner) : Status::ok;
}

Status ReplayDriver::eventCreate(Event* event, EventKind kind) {
  auto fresh = std::make_unique<Mark>();
  if (const Status status = inner_.eventCreate(&fresh->inner, kind); status != Status::ok) return status;
  *event = reinterpret_cast<Event>(fresh.release());
  return Status::ok;
}

Status ReplayDriver::eventDestroy(Event event) {
  const std::unique_ptr<Mark> gone(&mark(event));
  return inner_.eventDestroy(gone->inner);
}

Status ReplayDriver::eventRecord(Event event, Stream stream) {
  Line& recorded = line(stream);
  mark(event).until = recorded.until;
  return mayQueue(recorded) ? inner_.eventRecord(mark(event).inner, recorded.inner) : Status::ok;
}

Status ReplayDriver::eventQuery(Event event) {
  return answer(inner_.eventQuery(mark(event).inner), mark(event).until);
}

Status ReplayDriver::eventSynchronize(Event event) {
  advance(mark(event).until);
  return Status::ok;
}

}  // namespace braid::caching
