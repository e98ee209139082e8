#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "executor/failure.h"
#include "executor/program_spec.h"

namespace braid {

// Pinned memory with shared ownership: JavaScript can transfer an ArrayBuffer's memory into another
// ArrayBuffer, which the addon does not see, and the memory must live until that one is collected.
class PinnedRange {
 public:
  PinnedRange(std::shared_ptr<Driver> driver, void* memory) : driver_(std::move(driver)), memory_(memory) {}
  PinnedRange(const PinnedRange&) = delete;
  PinnedRange& operator=(const PinnedRange&) = delete;
  ~PinnedRange() {
    driver_->bind();
    driver_->pinnedFree(memory_);
  }
  void* memory() const { return memory_; }

 private:
  const std::shared_ptr<Driver> driver_;
  void* const memory_;
};

// The memory of a session, taken from the drivers once when it opens: one range of each device, and one of
// pinned memory, which is every device's.
//   device:  state and param roots, in order of id | the pool of tick buffers, or the arena
//   pinned:  state and param roots, slots of inputs and outputs, in order of id | the pool of pinned tick
//   buffers
// Everything but pooled tick buffers has a fixed address from here on. A memory is numbered as its device;
// the pinned one comes after the last of them.
class SessionMemory {
 public:
  explicit SessionMemory(std::vector<std::shared_ptr<Driver>> drivers)
      : drivers_(std::move(drivers)), ranges_(drivers_.size() + 1) {}
  SessionMemory(const SessionMemory&) = delete;
  SessionMemory& operator=(const SessionMemory&) = delete;
  ~SessionMemory() { release(); }

  // `spec` has passed `decode`.
  MaybeFailure take(const ProgramSpec& spec);
  // Nothing of the session may still use it. Idempotent.
  void release();

  // Of a buffer with a fixed address (views too). The slot matters to inputs and outputs only.
  DeviceAddress address(const ProgramSpec& spec, std::uint32_t buffer, std::uint32_t slot) const;
  bool isFixed(std::uint32_t root) const { return places_[root] != nowhere; }

  const std::shared_ptr<const PinnedRange>& pinnedRange() const { return pinned_; }

  std::size_t count() const { return ranges_.size(); }
  std::size_t pinned() const { return ranges_.size() - 1; }
  std::size_t of(const BufferSpec& buffer) const {
    return buffer.space == Space::device ? buffer.device : pinned();
  }
  DeviceAddress poolBase(std::size_t memory) const { return ranges_[memory].base + ranges_[memory].fixed; }
  std::uint64_t poolBytes(std::size_t memory) const { return ranges_[memory].total - ranges_[memory].fixed; }
  std::uint64_t fixedBytes(std::size_t memory) const { return ranges_[memory].fixed; }
  std::uint64_t totalBytes(std::size_t memory) const { return ranges_[memory].total; }

 private:
  static constexpr std::uint64_t nowhere = ~std::uint64_t{0};
  struct Range {
    DeviceAddress base = 0;
    std::uint64_t fixed = 0, total = 0;
  };
  MaybeFailure layOut(const ProgramSpec& spec);
  MaybeFailure sizeDevice(const ProgramSpec& spec, std::size_t device);

  const std::vector<std::shared_ptr<Driver>> drivers_;
  std::vector<Range> ranges_;
  std::shared_ptr<const PinnedRange> pinned_;
  std::vector<std::uint64_t> places_;  // by root buffer: from the base of its memory
};

}  // namespace braid
