#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "executor/failure.h"
#include "executor/program_spec.h"

namespace braid {

// Pinned memory, shared with whoever may still read it: JavaScript can move an ArrayBuffer's memory into one that
// nobody here knows of, and it lives until that one is collected.
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

// The memory of a session, taken from the driver once when it opens: one device range and one pinned range.
//   device:  state and param roots, in order of id | the pool of tick buffers, or the arena
//   pinned:  state and param roots, slots of inputs and outputs, in order of id | the pool of pinned tick buffers
// Everything but pooled tick buffers has a fixed address from here on.
class SessionMemory {
 public:
  explicit SessionMemory(std::shared_ptr<Driver> driver) : driver_(std::move(driver)) {}
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

  const std::shared_ptr<const PinnedRange>& pinned() const { return pinned_; }

  DeviceAddress poolBase(Space space) const { return base(space) + fixed_[index(space)]; }
  std::uint64_t poolBytes(Space space) const { return total_[index(space)] - fixed_[index(space)]; }
  std::uint64_t fixedBytes(Space space) const { return fixed_[index(space)]; }
  std::uint64_t totalBytes(Space space) const { return total_[index(space)]; }

 private:
  static constexpr std::uint64_t nowhere = ~std::uint64_t{0};
  static std::size_t index(Space space) { return space == Space::device ? 0 : 1; }
  DeviceAddress base(Space space) const {
    return space == Space::device ? device_ : reinterpret_cast<DeviceAddress>(pinned_ ? pinned_->memory() : nullptr);
  }
  MaybeFailure layOut(const ProgramSpec& spec);

  const std::shared_ptr<Driver> driver_;
  DeviceAddress device_ = 0;
  std::shared_ptr<const PinnedRange> pinned_;
  std::vector<std::uint64_t> places_;  // by root buffer: from the base of its space
  std::uint64_t fixed_[2] = {0, 0}, total_[2] = {0, 0};
};

}  // namespace braid
