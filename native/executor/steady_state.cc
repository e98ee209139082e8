#include "executor/steady_state.h"

#include <algorithm>

namespace braid {

SteadyState::SteadyState(const Program& program) {
  for (const Step& step : program.steps())
    if (step.kind == StepKind::wait && step.previous) carried_.push_back(step.subject);
  std::sort(carried_.begin(), carried_.end());
  carried_.erase(std::unique(carried_.begin(), carried_.end()), carried_.end());
}

std::uint64_t SteadyState::period(const Program& program, std::uint64_t tick) {
  if (compared_ >= patience) return 0;
  now_.clear();
  program.order.appendState(tick, &now_);
  for (const std::uint32_t event : carried_)
    if (tick > 0) program.order.appendState(program.marker(event, tick - 1), &now_);
  // An allocator that made its lane wait has issued waits that are no commands of the plan.
  std::uint64_t waits = 0;
  for (const auto& pool : program.pools) {
    pool->appendState(&now_);
    const SessionAllocator::Counters counters = pool->counters();
    waits += counters.byWait + counters.bySynchronize + counters.failures;
  }
  if (compared_ > 0 && waits == keptWaits_ && now_ == kept_) return tick - keptAt_;
  if ((compared_ & (compared_ + 1)) == 0) {
    std::swap(now_, kept_);
    keptAt_ = tick;
    keptWaits_ = waits;
  }
  ++compared_;
  return 0;
}

void SteadyState::forget() { compared_ = 0; }

}  // namespace braid
