#pragma once

#include "memory/caching/policy.h"

namespace braid::caching {

// What PyTorch's allocator does: a block is out of reach until its events are seen to have fired, lanes have
// nothing in common, and how much is held depends on how far ahead the host runs.
inline constexpr Policy pollOnly{"poll", false, true, false, false};

}  // namespace braid::caching
