#pragma once

#include <atomic>
#include <map>
#include <mutex>
#include <string>

#include "driver/driver.h"
#include "host/ranges.h"

namespace braid::host {

// Two bytes that are a NaN as f16 and bf16, and twice a signalling NaN as f32; 187 and 255 as u8, -4456517 as
// i32.
constexpr std::uint16_t kPoison = 0xffbb;
void poison(void* memory, std::size_t bytes);

// The bytes of the device's memory that are taken, by allocations and pages together; at most `limit`.
class Budget {
 public:
  explicit Budget(std::size_t limit) : limit_(limit) {}
  bool take(std::size_t bytes);
  void give(std::size_t bytes) { used_.fetch_sub(bytes); }
  std::size_t limit() const { return limit_; }
  std::size_t free() const { return limit_ - used_.load(); }

 private:
  const std::size_t limit_;
  std::atomic<std::size_t> used_{0};
};

// Allocations: of the device's memory, within its budget, and of pinned memory, which has no limit of its
// own.
class Memory {
 public:
  Memory(Budget* budget, LiveRanges* live, LiveRanges* livePinned, bool poison)
      : budget_(budget), live_(live), livePinned_(livePinned), poison_(poison) {}
  ~Memory();

  Status allocate(DeviceAddress* address, std::size_t bytes, bool pinned, std::string* detail);
  Status release(DeviceAddress address, bool pinned, std::string* detail);

 private:
  struct Block {
    std::size_t bytes = 0;
    bool pinned = false;
  };

  Budget* budget_;
  LiveRanges* live_;
  LiveRanges* livePinned_;
  bool poison_;
  std::mutex mutex_;
  std::map<DeviceAddress, Block> blocks_;
};

}  // namespace braid::host
