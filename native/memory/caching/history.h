#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "driver/driver.h"

namespace braid::caching {

enum class Action : std::uint8_t {
  alloc,
  freeRequested,
  freeCompleted,
  segmentAlloc,
  segmentFree,
  segmentMap,
  segmentUnmap,
  snapshot,
  outOfMemory,
  useRecorded,
  waitIssued,
  pagesMoved,
};

struct Record {
  Action action = Action::alloc;
  std::uint32_t lane = 0, site = 0;
  DeviceAddress address = 0;  // outOfMemory: the device's free bytes
  std::uint64_t size = 0, pool = 0, id = 0;
  std::int64_t microseconds = 0;  // since the epoch
};

// The newest `capacity` records of allocations, uses and frees. While it is off, it costs the test of a flag.
// Thread-safe.
class History {
 public:
  bool on() const { return on_.load(std::memory_order_relaxed); }
  void start(std::size_t capacity);
  void stop();
  void add(Record record);  // stamps the time
  // Oldest first; *dropped is the number of older records that are no longer kept.
  std::vector<Record> read(std::uint64_t* dropped = nullptr) const;

 private:
  mutable std::mutex mutex_;
  std::atomic<bool> on_{false};
  std::vector<Record> ring_;
  std::size_t capacity_ = 0;
  std::uint64_t count_ = 0;
};

}  // namespace braid::caching
