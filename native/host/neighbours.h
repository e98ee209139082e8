#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "host/stream.h"

namespace braid::host {

class HostDriver;

// All host devices of the process, by the number that their handles carry. Through it one device's stream
// waits for an event of another, and work accesses pinned memory or another device's memory.
//
// Its lock is held while another device is accessed, and a device leaves under that lock, so no device is
// accessed while it is destroyed. No lock taken here may be held by a thread that waits for this one.
class Neighbours {
 public:
  static constexpr std::uint16_t most = 4095;
  // Never destroyed: static destructors may close devices.
  static Neighbours& all();

  // A number, from 1 on, for a device that is being made, which is invisible before `show`. If all numbers
  // are taken, two devices share one, and only the other one is visible.
  std::uint16_t enter();
  void show(std::uint16_t number, const HostDriver* device);
  void leave(std::uint16_t number, const HostDriver* device);

  // The mark of an event of any device, and an owner that keeps it valid while a stream waits for it. False
  // where there is no such event.
  bool find(std::uint64_t event, Mark* mark, std::shared_ptr<const void>* keep) const;
  // Whether every byte is pinned memory of one of the devices, or, with `deviceMemory`, device memory of one.
  bool covers(DeviceAddress address, std::size_t bytes, bool deviceMemory) const;

 private:
  mutable std::mutex mutex_;
  std::uint16_t last_ = 0;
  struct Place {
    std::uint32_t takers = 0;
    const HostDriver* device = nullptr;
  };
  std::array<Place, most + 1> places_{};
  std::vector<const HostDriver*> shown_;
};

}  // namespace braid::host
