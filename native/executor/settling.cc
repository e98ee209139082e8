#include "executor/settling.h"

#include <algorithm>

namespace braid {

Settling::Settling(const Program& program) {
  for (const Step& step : program.steps())
    if (step.kind == StepKind::wait && step.previous) carried_.push_back(step.subject);
  std::sort(carried_.begin(), carried_.end());
  carried_.erase(std::unique(carried_.begin(), carried_.end()), carried_.end());
}

std::uint64_t Settling::period(const Program& program, std::uint64_t tick) {
  if (looked_ >= patience) return 0;
  now_.clear();
  program.order.appendState(tick, &now_);
  for (const std::uint32_t event : carried_)
    if (tick > 0) program.order.appendState(program.marker(event, tick - 1), &now_);
  // A pool that had to wait has given its lane waits that no command of the plan is.
  std::uint64_t waits = 0;
  for (const auto& pool : program.pools) {
    pool->appendState(&now_);
    const AllocatorCounters counters = pool->counters();
    waits += counters.byWait + counters.bySynchronize + counters.failures;
  }
  if (looked_ > 0 && waits == keptWaits_ && now_ == kept_) return tick - keptAt_;
  if ((looked_ & (looked_ + 1)) == 0) {
    std::swap(now_, kept_);
    keptAt_ = tick;
    keptWaits_ = waits;
  }
  ++looked_;
  return 0;
}

void Settling::forget() { looked_ = 0; }

}  // namespace braid
