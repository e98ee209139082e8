#include "executor/trace.h"

#include <chrono>
#include <limits>

namespace braid {

MaybeFailure Trace::prepare(Program& program) {
  runs_ = program.decoded().runs;
  if (runs_ == 0) return std::nullopt;
  sets_ = program.spec().inFlight + 1;
  clocks_.resize(program.devices());
  std::vector<std::uint32_t> deviceOf(runs_);
  for (const Step& step : program.steps()) {
    if (step.kind != StepKind::run) continue;
    deviceOf[step.run] = program.deviceOf(step.lane);
    Clock& clock = clocks_[deviceOf[step.run]];
    if (!clock.runs) clock.first = step.run;
    clock.runs = true;
  }
  events_.resize(sets_ * runs_ * 2);
  for (std::size_t i = 0; i < events_.size(); ++i) {
    Driver& driver = program.driver(deviceOf[i / 2 % runs_]);
    if (program.devices() > 1) driver.bind();
    if (const Status status = program.objects.event(driver, &events_[i], EventKind::timed);
        status != Status::ok)
      return failureOf(driver, status, "eventCreate");
  }
  return program.devices() > 1 ? tie(program) : std::nullopt;
}

MaybeFailure Trace::tie(Program& program) {
  std::chrono::steady_clock::time_point zero{};
  for (std::size_t device = 0; device < clocks_.size(); ++device) {
    Driver& driver = program.driver(device);
    Clock& clock = clocks_[device];
    const Stream stream = program.service(device);
    Status status = driver.bind();
    if (status == Status::ok) status = program.objects.event(driver, &clock.opening, EventKind::timed);
    // Twice, since the first time may wake the device up.
    for (int time = 0; time < 2 && status == Status::ok; ++time) {
      status = driver.eventRecord(clock.opening, stream);
      if (status == Status::ok) status = driver.streamSynchronize(stream);
    }
    if (status != Status::ok) return failureOf(driver, status, "eventRecord");
    const auto now = std::chrono::steady_clock::now();
    if (device == 0) zero = now;
    clock.origin = std::chrono::duration<double, std::milli>(now - zero).count();
  }
  return std::nullopt;
}

Status Trace::begin(Program& program, std::uint64_t tick, const Step& run) {
  return program.driverOf(run.lane).eventRecord(at(tick, run.run, 0), program.streams()[run.lane]);
}

Status Trace::end(Program& program, std::uint64_t tick, const Step& run) {
  return program.driverOf(run.lane).eventRecord(at(tick, run.run, 1), program.streams()[run.lane]);
}

void Trace::collect(Program& program, std::uint64_t tick) {
  for (std::size_t device = 0; device < clocks_.size(); ++device) {
    Clock& clock = clocks_[device];
    const Event from = tick > 0 ? at(tick - 1, clock.first, 0) : clock.opening;
    float milliseconds = 0;
    if (clock.runs && from != nullptr &&
        program.driver(device).eventElapsed(&milliseconds, from, at(tick, clock.first, 0)) == Status::ok)
      clock.origin += milliseconds;
  }
  // Times count from the first run on any device.
  if (tick == 0) {
    double zero = std::numeric_limits<double>::infinity();
    for (const Clock& clock : clocks_) zero = clock.runs ? std::min(zero, clock.origin) : zero;
    for (Clock& clock : clocks_) clock.origin -= zero;
  }
  std::lock_guard lock(mutex_);
  for (const Step& step : program.steps()) {
    if (step.kind != StepKind::run) continue;
    Driver& driver = program.driverOf(step.lane);
    const Clock& clock = clocks_[program.deviceOf(step.lane)];
    const Event first = at(tick, clock.first, 0);
    float start = 0, end = 0;
    if (driver.eventElapsed(&start, first, at(tick, step.run, 0)) != Status::ok) continue;
    if (driver.eventElapsed(&end, first, at(tick, step.run, 1)) != Status::ok) continue;
    keep({static_cast<double>(tick), clock.origin + start, clock.origin + end,
          static_cast<std::int32_t>(step.subject), static_cast<std::int32_t>(step.lane)});
  }
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
