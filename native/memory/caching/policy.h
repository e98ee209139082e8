#pragma once

#include <string_view>

namespace braid::caching {

// Which fallbacks an allocation tries before memory grows, and which when it may not grow. Every policy has
// the lane's own free blocks, growth within the limit, and the last resort (see slow_path.cc).
struct Policy {
  std::string_view name;
  // Reuse by order: a lane takes blocks that other lanes freed, and its own once it is after their uses.
  bool order;
  // Query the driver, at every allocation that the cache cannot serve, about uses that have not completed.
  bool poll;
  // Rather than grow, make the lane wait on the device for the uses of a block that it freed itself.
  bool waitFirst;
  // Make the lane wait for the uses of any lane's block when memory may not grow.
  bool waitLast;
};

// Least memory: a lane holds no more than its live blocks need, however far ahead the host runs. Nothing is
// queried before memory ends or pages move, so which block is handed out depends on the order of calls alone.
inline constexpr Policy orderThenWait{"order-then-wait", true, false, true, true};
// Most speed: no lane waits while memory may grow; at the limit it waits as under order-then-wait.
inline constexpr Policy orderThenGrow{"order-then-grow", true, true, false, true};
// PyTorch's behaviour: a block is out of reach until its events have completed, lanes share nothing, and how
// much memory is held depends on how far ahead the host runs.
inline constexpr Policy pollOnly{"poll", false, true, false, false};
// Reuse across lanes by order and by completed events; no lane ever waits, even at the limit.
inline constexpr Policy neverWait{"never-wait", true, true, false, false};

inline constexpr const Policy* policies[] = {&orderThenWait, &orderThenGrow, &pollOnly, &neverWait};

// Null where no policy has this name.
inline const Policy* policyNamed(std::string_view name) {
  for (const Policy* policy : policies)
    if (policy->name == name) return policy;
  return nullptr;
}

}  // namespace braid::caching
