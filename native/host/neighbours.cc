#include "host/neighbours.h"

#include "host/host_driver.h"

namespace braid::host {

Neighbours& Neighbours::all() {
  static auto* neighbours = new Neighbours;
  return *neighbours;
}

std::uint8_t Neighbours::enter() {
  std::lock_guard lock(mutex_);
  // The next number after the last one taken, so that a closed device's handles are not soon another's.
  for (std::size_t tries = 0; tries < most; ++tries) {
    last_ = static_cast<std::uint8_t>(last_ % most + 1);
    if (places_[last_].taken) continue;
    places_[last_].taken = true;
    return last_;
  }
  return 0;
}

void Neighbours::show(std::uint8_t number, const HostDriver* device) {
  std::lock_guard lock(mutex_);
  if (number != 0) places_[number].device = device;
}

void Neighbours::leave(std::uint8_t number) {
  std::lock_guard lock(mutex_);
  places_[number] = {};
}

bool Neighbours::find(std::uint64_t event, Mark* mark, std::shared_ptr<const void>* keep) const {
  std::lock_guard lock(mutex_);
  const HostDriver* device = places_[HostDriver::numberIn(event)].device;
  return device != nullptr && device->findMark(event, mark, keep);
}

bool Neighbours::covers(DeviceAddress address, std::size_t bytes, bool deviceMemory) const {
  std::lock_guard lock(mutex_);
  for (const auto& [taken, device] : places_)
    if (device != nullptr && device->covers(address, bytes, deviceMemory)) return true;
  return false;
}

}  // namespace braid::host
