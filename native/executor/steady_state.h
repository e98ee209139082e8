#pragma once

#include <vector>

#include "executor/program.h"

namespace braid {

// Detects that a session's ticks repeat. Where blocks lie depends on the order of commands alone. So once a
// tick starts in the same state as an earlier one, all later ticks repeat those in between: the issuer
// replays their addresses, and no longer calls the allocators or keeps the order.
//
// Two states are the same if they have the same free ranges, and if all points (of lanes' frontiers, of
// release frontiers, of events that are waited for a tick later) are equally far behind their lane's present
// point. Points that have completed all count as equally far.
class SteadyState {
 public:
  explicit SteadyState(const Program& program);

  // Called at the start of every tick, after the order and the allocators have been advanced to it. Returns
  // the number of ticks after which the state repeats, or 0 if that is not known yet.
  std::uint64_t period(const Program& program, std::uint64_t tick);
  void forget();

 private:
  static constexpr std::uint64_t patience = 1024;  // after this many ticks the search ends

  std::vector<std::uint32_t> carried_;  // events that are waited for a tick later
  // The state that is compared with: that of the last tick whose number since the start of the search was a
  // power of two. So sooner or later it lies inside the cycle, however late the cycle starts and long it is.
  std::vector<Count> kept_, now_;
  std::uint64_t keptAt_ = 0, keptWaits_ = 0, compared_ = 0;
};

}  // namespace braid
