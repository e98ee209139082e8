#pragma once

#include "memory/caching/policy.h"

namespace braid::caching {

// For speed before memory: no lane waits while there is memory to be had; under a limit it waits as
// order-then-wait does.
inline constexpr Policy orderThenGrow{"order-then-grow", true, true, false, true};

}  // namespace braid::caching
