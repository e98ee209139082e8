#pragma once

#include "memory/caching/policy.h"

namespace braid::caching {

// For memory before speed: a block that the lane itself freed is taken again at once, and its new owner waits
// on the device for the uses of the old one. However far ahead the host runs, a lane holds no more than its
// live blocks need. Nothing is asked of the device until memory ends or pages move: up to there, which block
// is handed out depends on the order of the calls alone.
inline constexpr Policy orderThenWait{"order-then-wait", true, false, true, true};

}  // namespace braid::caching
