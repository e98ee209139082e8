#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "driver/driver.h"

namespace braid::test {

// The number of heap allocations of this program, on all threads (allocations.cc).
std::uint64_t allocations();

inline std::unique_ptr<Driver> host(const HostOptions& options = {}) {
  std::unique_ptr<Driver> driver;
  std::string detail;
  EXPECT_EQ(openHost(&driver, options, &detail), Status::ok) << detail;
  EXPECT_EQ(driver->bind(), Status::ok);
  return driver;
}

inline Stream stream(Driver& driver) {
  Stream made = nullptr;
  EXPECT_EQ(driver.streamCreate(&made, 0), Status::ok);
  return made;
}

inline Event event(Driver& driver, bool timed = false) {
  Event made = nullptr;
  EXPECT_EQ(driver.eventCreate(&made, timed ? EventKind::timed : EventKind::order), Status::ok);
  return made;
}

inline DeviceAddress allocate(Driver& driver, std::size_t bytes) {
  DeviceAddress address = 0;
  EXPECT_EQ(driver.memAllocate(&address, bytes), Status::ok) << driver.lastDetail();
  return address;
}

template <class T>
DeviceAddress address(const T* memory) {
  return reinterpret_cast<DeviceAddress>(memory);
}

template <class T>
DeviceAddress upload(Driver& driver, const std::vector<T>& values) {
  const DeviceAddress to = allocate(driver, values.size() * sizeof(T));
  std::memcpy(reinterpret_cast<void*>(to), values.data(), values.size() * sizeof(T));
  return to;
}

template <class T>
std::vector<T> download(DeviceAddress from, std::size_t count) {
  std::vector<T> values(count);
  std::memcpy(values.data(), reinterpret_cast<const void*>(from), count * sizeof(T));
  return values;
}

// Prepares, launches and waits.
inline Status launch(Driver& driver, const KernelSpec& spec, const std::vector<DeviceAddress>& reads,
                     const std::vector<DeviceAddress>& writes, HostCallback callback = {}) {
  std::unique_ptr<Kernel> kernel;
  if (const Status status = driver.prepare(&kernel, spec, std::move(callback)); status != Status::ok)
    return status;
  const Stream on = stream(driver);
  const Status launched = driver.launch(*kernel, reads.data(), writes.data(), on);
  const Status done = driver.streamSynchronize(on);
  driver.streamDestroy(on);
  return launched != Status::ok ? launched : done;
}

struct Random {
  std::uint64_t state;
  std::uint64_t next() {
    std::uint64_t z = (state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  std::uint64_t below(std::uint64_t bound) { return next() % bound; }
  float real() {
    return static_cast<float>(static_cast<double>(next() >> 11) * 0x1p-52 - 1.0);
  }  // in [-1, 1)
};

}  // namespace braid::test
