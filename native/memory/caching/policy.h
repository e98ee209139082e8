#pragma once

#include <string_view>

namespace braid::caching {

// Which rungs an allocation climbs before it grows, and what is left for when it may not grow. Rungs that
// every policy has are not named here: the lane's own free blocks, growth within the limit, and the ladder of
// `ladder.h`.
struct Policy {
  std::string_view name;
  // Takes what other lanes freed where order allows it, and its own blocks once it is after their uses by
  // order.
  bool order;
  // Asks the driver, at every allocation that its cache cannot serve, which uses have completed.
  bool poll;
  // Makes the lane wait, on the device, for the uses of a block that it freed itself, rather than grow.
  bool waitFirst;
  // The same, and for other lanes too, once it may not grow.
  bool waitLast;
};

}  // namespace braid::caching
