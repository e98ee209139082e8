#include "executor/trace.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

namespace braid {

MaybeFailure Trace::prepare(Program& program) {
  runs_ = program.decoded().runs;
  if (runs_ == 0) return std::nullopt;
  clocks_.resize(program.devices());
  MaybeFailure failure;
  const auto make = [&](Event* event, std::uint32_t device) {
    if (failure) return;
    Driver& driver = program.driver(device);
    if (program.devices() > 1) driver.bind();
    if (const Status status = program.objects.event(driver, event, EventKind::timed); status != Status::ok)
      failure = failureOf(driver, status, "eventCreate");
  };
  const std::uint32_t slots = program.spec().inFlight;
  events_.resize(slots * runs_ * 2);
  for (const Step& step : program.steps()) {
    if (step.kind != StepKind::run) continue;
    const std::uint32_t device = program.deviceOf(step.lane);
    for (std::uint32_t slot = 0; slot < slots; ++slot)
      for (std::size_t edge = 0; edge < 2; ++edge)
        make(&events_[(slot * runs_ + step.run) * 2 + edge], device);
    std::vector<Event>& anchors = clocks_[device].anchors;
    if (!anchors.empty()) continue;
    anchors.resize(slots + 1);
    for (Event& anchor : anchors) make(&anchor, device);
  }
  if (failure) return failure;
  return program.devices() > 1 ? tie(program) : std::nullopt;
}

MaybeFailure Trace::tie(Program& program) {
  using namespace std::chrono;
  // A mark lies between the readings of the host's clock around it; the closest pair of several counts, since
  // the first may wake the device up and any may be interrupted.
  constexpr int tries = 8;
  steady_clock::time_point zero{};
  for (std::size_t device = 0; device < clocks_.size(); ++device) {
    Driver& driver = program.driver(device);
    Clock& clock = clocks_[device];
    const Stream stream = program.service(device);
    Event tried = nullptr;
    Status status = driver.bind();
    if (status == Status::ok) status = program.objects.event(driver, &clock.opening, EventKind::timed);
    if (status == Status::ok) status = program.objects.event(driver, &tried, EventKind::timed);
    auto closest = steady_clock::duration::max();
    steady_clock::time_point marked{};
    for (int time = 0; time < tries && status == Status::ok; ++time) {
      const auto before = steady_clock::now();
      status = driver.eventRecord(tried, stream);
      if (status == Status::ok) status = driver.streamSynchronize(stream);
      const auto took = steady_clock::now() - before;
      if (took >= closest) continue;
      closest = took;
      marked = before + took / 2;
      std::swap(tried, clock.opening);
    }
    if (status != Status::ok) return failureOf(driver, status, "eventRecord");
    if (device == 0) zero = marked;
    clock.origin = duration<double, std::milli>(marked - zero).count();
  }
  return std::nullopt;
}

Status Trace::anchor(Program& program, std::uint64_t tick, std::uint32_t slot, LaneId lane) {
  Clock& clock = clocks_[program.deviceOf(lane)];
  if (clock.anchored == tick) return Status::ok;
  clock.anchored = tick;
  return program.driverOf(lane).eventRecord(clock.anchors[tick % clock.anchors.size()],
                                            program.stream(lane, slot));
}

Status Trace::begin(Program& program, std::uint32_t slot, const Step& run) {
  return program.driverOf(run.lane).eventRecord(event(slot, run.run, 0), program.stream(run.lane, slot));
}

Status Trace::end(Program& program, std::uint32_t slot, const Step& run) {
  return program.driverOf(run.lane).eventRecord(event(slot, run.run, 1), program.stream(run.lane, slot));
}

// Calls `take(run, start, end)` for each run whose times are known.
template <class Take>
void Trace::times(Program& program, std::uint64_t tick, std::uint32_t slot, Take take) {
  for (const Step& step : program.steps()) {
    if (step.kind != StepKind::run) continue;
    Driver& driver = program.driverOf(step.lane);
    const Clock& clock = clocks_[program.deviceOf(step.lane)];
    const Event from = clock.anchors[tick % clock.anchors.size()];
    float start = 0, end = 0;
    if (driver.eventElapsed(&start, from, event(slot, step.run, 0)) != Status::ok) continue;
    if (driver.eventElapsed(&end, from, event(slot, step.run, 1)) != Status::ok) continue;
    take(step, clock.origin + start, clock.origin + end);
  }
}

void Trace::collect(Program& program, std::uint64_t tick, std::uint32_t slot) {
  for (std::size_t device = 0; device < clocks_.size(); ++device) {
    Clock& clock = clocks_[device];
    if (clock.anchors.empty()) continue;
    const std::size_t count = clock.anchors.size();
    const Event from = tick > 0 ? clock.anchors[(tick - 1) % count] : clock.opening;
    float milliseconds = 0;
    if (from != nullptr &&
        program.driver(device).eventElapsed(&milliseconds, from, clock.anchors[tick % count]) == Status::ok)
      clock.origin += milliseconds;
  }
  // Times count from the first run on any device.
  if (tick == 0) {
    double zero = std::numeric_limits<double>::infinity();
    times(program, tick, slot, [&](const Step&, double start, double) { zero = std::min(zero, start); });
    if (zero < std::numeric_limits<double>::infinity())
      for (Clock& clock : clocks_) clock.origin -= zero;
  }
  std::lock_guard lock(mutex_);
  times(program, tick, slot, [&](const Step& run, double start, double end) {
    keep({static_cast<double>(tick), start, end, static_cast<std::int32_t>(run.subject),
          static_cast<std::int32_t>(run.lane)});
  });
}

void Trace::keep(const Row& row) {
  if (ring_.size() < most_)
    ring_.push_back(row);
  else
    ring_[count_ % most_] = row;
  ++count_;
}

TraceRows Trace::rows() const {
  std::lock_guard lock(mutex_);
  TraceRows rows;
  rows.dropped = count_ - ring_.size();
  for (std::uint64_t i = rows.dropped; i < count_; ++i) {
    const Row& row = ring_[i % most_];
    rows.tick.push_back(row.tick);
    rows.node.push_back(row.node);
    rows.lane.push_back(row.lane);
    rows.start.push_back(row.start);
    rows.end.push_back(row.end);
  }
  return rows;
}

}  // namespace braid
