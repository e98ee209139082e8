#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "driver/driver.h"

namespace braid::caching {

inline std::uint64_t up(std::uint64_t value, std::uint64_t to) { return (value + to - 1) / to * to; }
inline std::uint64_t down(std::uint64_t value, std::uint64_t to) { return value / to * to; }
// Whole pages between two addresses.
inline std::uint64_t wholePages(DeviceAddress from, DeviceAddress to, std::uint64_t page) {
  return down(to, page) > up(from, page) ? (down(to, page) - up(from, page)) / page : 0;
}

// The physical pages of an allocator's expandable heaps. Each page has its own handle, so it can be mapped
// anywhere; a spare page is mapped nowhere. Guarded by the allocator's mutex, except `reserved`.
class PagePool {
 public:
  explicit PagePool(Driver& driver) : driver_(driver), pageBytes_(driver.info().pageBytes) {}
  ~PagePool() { trim(); }

  std::uint64_t pageBytes() const { return pageBytes_; }
  // Bytes of all pages, mapped or spare.
  std::uint64_t reserved() const { return reserved_.load(std::memory_order_relaxed); }
  std::size_t spare() const { return spare_.size(); }

  // Creates pages until `count` are spare. After a failure those created so far stay spare.
  Status make(std::size_t count);
  // Maps `count` spare pages at consecutive addresses and writes their handles to `pages`. After a failure
  // they are spare again.
  Status map(DeviceAddress address, std::size_t count, Pages* pages);
  // Unmaps consecutive pages, which become spare. Nothing on the device may still touch them.
  Status unmap(DeviceAddress address, std::size_t count, Pages* pages);
  // Gives the spare pages back to the driver, and keeps those that it refuses. Returns the bytes given back.
  std::uint64_t trim();

 private:
  Driver& driver_;
  std::uint64_t pageBytes_;
  std::atomic<std::uint64_t> reserved_{0};
  std::vector<Pages> spare_;
};

}  // namespace braid::caching
