#pragma once

#include "memory/caching/policies/never_wait.h"
#include "memory/caching/policies/order_then_grow.h"
#include "memory/caching/policies/order_then_wait.h"
#include "memory/caching/policies/poll.h"

namespace braid::caching {

inline constexpr const Policy* policies[] = {&orderThenWait, &orderThenGrow, &pollOnly, &neverWait};

// Null where there is none of this name.
inline const Policy* policyNamed(std::string_view name) {
  for (const Policy* policy : policies)
    if (policy->name == name) return policy;
  return nullptr;
}

}  // namespace braid::caching
