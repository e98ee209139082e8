#include "host/context.h"

#include "host/neighbours.h"

namespace braid::host {

bool Context::reaches(DeviceAddress address, std::size_t bytes, bool peers) const {
  return live_.covers(address, bytes) || pinned_.covers(address, bytes) ||
         Neighbours::all().covers(address, bytes, peers);
}

}  // namespace braid::host
