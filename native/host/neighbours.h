#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "host/stream.h"

namespace braid::host {

class HostDriver;

// All host devices of the process, by the number that their handles carry: what lets one device's stream wait
// for an event of another, and a piece of work reach pinned memory, or another device's memory.
//
// Its lock is held while another device is looked at, and every device leaves under it: none is looked at
// after it has begun to go. No lock is taken in here that is ever held while this one is wanted.
class Neighbours {
 public:
  static constexpr std::uint16_t most = 4095;
  // Lives for ever: devices may be closed by static destructors.
  static Neighbours& all();

  // A number for a device that is being made, from 1 on. Nobody sees the device before `show`. Where so many
  // are open that all numbers are taken it shares one with another, and only that other one is seen.
  std::uint16_t enter();
  void show(std::uint16_t number, const HostDriver* device);
  void leave(std::uint16_t number, const HostDriver* device);

  // What an event of any device marks, and what must be kept as long as somebody waits for it. False: no such
  // event.
  bool find(std::uint64_t event, Mark* mark, std::shared_ptr<const void>* keep) const;
  // Whether every byte is pinned memory of one of them, or, if asked for, device memory of one of them.
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
