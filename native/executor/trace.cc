#include "executor/trace.h"

namespace braid {

MaybeFailure Trace::prepare(Program& program) {
  runs_ = program.decoded().runs;
  if (runs_ == 0) return std::nullopt;
  sets_ = program.spec().inFlight + 1;
  events_.resize(sets_ * runs_ * 2);
  for (Event& event : events_) {
    if (const Status status = program.objects.event(&event, true); status != Status::ok) return failureOf(program.driver(), status, "eventCreate");
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
  if (tick > 0 && driver.eventElapsed(&milliseconds, at(tick - 1, 0, 0), at(tick, 0, 0)) == Status::ok) origin_ += milliseconds;
  std::lock_guard lock(mutex_);
  for (const Step& step : program.steps()) {
    if (step.kind != StepKind::run) continue;
    float start = 0, end = 0;
    if (driver.eventElapsed(&start, at(tick, 0, 0), at(tick, step.run, 0)) != Status::ok) continue;
    if (driver.eventElapsed(&end, at(tick, 0, 0), at(tick, step.run, 1)) != Status::ok) continue;
    rows_.tick.push_back(static_cast<double>(tick));
    rows_.node.push_back(static_cast<std::int32_t>(step.subject));
    rows_.lane.push_back(static_cast<std::int32_t>(step.lane));
    rows_.start.push_back(origin_ + start);
    rows_.end.push_back(origin_ + end);
  }
}

TraceRows Trace::rows() const {
  std::lock_guard lock(mutex_);
  return rows_;
}

}  // namespace braid
