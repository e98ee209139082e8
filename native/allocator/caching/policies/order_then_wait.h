#pragma once

#include "allocator/caching/policy.h"

namespace braid::caching {

// The default. What a lane holds depends on the order of its calls alone, never on how far the device has come: a freed
// block is taken again at once, and its new owner waits on the device for the uses of the old one.
inline constexpr Policy orderThenWait{"order-then-wait", true, false, true, true};

}  // namespace braid::caching
