#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <shared_mutex>

#include "driver/driver.h"

namespace braid::host {

// The addresses that are memory of the device now. Work checks them before it touches memory, so that a stale
// or wild address becomes illegalAddress, as on a GPU, instead of a crash.
class LiveRanges {
 public:
  void add(DeviceAddress address, std::size_t bytes) {
    std::unique_lock lock(mutex_);
    ends_[address] = address + bytes;
  }
  void remove(DeviceAddress address) {
    std::unique_lock lock(mutex_);
    ends_.erase(address);
  }
  // Whether every byte is live; ranges that touch count as one.
  bool covers(DeviceAddress address, std::size_t bytes) const {
    if (bytes == 0) return true;
    if (address + bytes < address) return false;
    std::shared_lock lock(mutex_);
    auto range = ends_.upper_bound(address);
    if (range == ends_.begin()) return false;
    --range;
    for (DeviceAddress at = address; range != ends_.end() && range->first <= at && at < range->second;
         ++range) {
      if (address + bytes <= range->second) return true;
      at = range->second;
    }
    return false;
  }

 private:
  mutable std::shared_mutex mutex_;
  std::map<DeviceAddress, DeviceAddress> ends_;
};

}  // namespace braid::host
