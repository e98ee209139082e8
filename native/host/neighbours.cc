#include "host/neighbours.h"

#include "host/host_driver.h"

namespace braid::host {

Neighbours& Neighbours::all() {
  static auto* neighbours = new Neighbours;
  return *neighbours;
}

std::uint16_t Neighbours::enter() {
  std::lock_guard lock(mutex_);
  const auto next = [this] { return last_ = static_cast<std::uint16_t>(last_ % most + 1); };
  // Numbers are given out in turn, so that a closed device's handles are not soon those of another.
  for (std::size_t tries = 0; tries < most && places_[next()].takers > 0; ++tries) continue;
  ++places_[last_].takers;
  return last_;
}

void Neighbours::show(std::uint16_t number, const HostDriver* device) {
  std::lock_guard lock(mutex_);
  if (places_[number].device != nullptr) return;
  places_[number].device = device;
  shown_.push_back(device);
}

void Neighbours::leave(std::uint16_t number, const HostDriver* device) {
  std::lock_guard lock(mutex_);
  --places_[number].takers;
  if (places_[number].device != device) return;
  places_[number].device = nullptr;
  std::erase(shown_, device);
}

bool Neighbours::find(std::uint64_t event, Mark* mark, std::shared_ptr<const void>* keep) const {
  std::lock_guard lock(mutex_);
  const HostDriver* device = places_[HostDriver::numberIn(event)].device;
  return device != nullptr && device->findMark(event, mark, keep);
}

bool Neighbours::covers(DeviceAddress address, std::size_t bytes, bool deviceMemory) const {
  std::lock_guard lock(mutex_);
  for (const HostDriver* device : shown_)
    if (device->covers(address, bytes, deviceMemory)) return true;
  return false;
}

}  // namespace braid::host
