#pragma once

#include "memory/caching/policy.h"

namespace braid::caching {

// Reuse by order and by completed events, across lanes; no wait is ever put on a lane, even where memory
// ends.
inline constexpr Policy neverWait{"never-wait", true, true, false, false};

}  // namespace braid::caching
