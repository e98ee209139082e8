#include "executor/trace.h"

namespace braid {

MaybeFailure Trace::prepare(Program& program) {
  runs_ = program.decoded().runs;
  if (runs_ == 0) return std::nullopt;
  sets_ = program.spec().inFlight + 1;
  events_.resize(sets_ * runs_ * 2);
  for (Event& event : events_) {
    if (const Status status = program.objects.event(&event, EventKind::timed); status != Status::ok)
      return failureOf(program.driver(), status, "eventCreate");
  }
  return std::nullopt;
}

Status Trace::begin(Program& program, std::uint64_t tick, const Step& run) {
  return program.driver().eventRecord(at(tick, run.run, 0), program.streams()[run.lane]);
}

Status Trace::end(Program& program, std::uint64_t tick, const Step& run) {
  return program.driver().eventRecord(at(tick, run.run, 1), program.streams()[run.lane]);
}

void Trace::collect(Program& program, std::uint64_t tick) {
  Driver& driver = program.driver();
  float milliseconds = 0;
  if (tick > 0 && driver.eventElapsed(&milliseconds, at(tick - 1, 0, 0), at(tick, 0, 0)) == Status::ok)
    origin_ += milliseconds;
  std::lock_guard lock(mutex_);
  for (const Step& step : program.steps()) {
    if (step.kind != StepKind::run) continue;
    float start = 0, end = 0;
    if (driver.eventElapsed(&start, at(tick, 0, 0), at(tick, step.run, 0)) != Status::ok) continue;
    if (driver.eventElapsed(&end, at(tick, 0, 0), at(tick, step.run, 1)) != Status::ok) continue;
    keep({static_cast<double>(tick), origin_ + start, origin_ + end, static_cast<std::int32_t>(step.subject),
          static_cast<std::int32_t>(step.lane)});
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
