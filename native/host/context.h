#pragma once

#include <array>
#include <atomic>
#include <mutex>
#include <string>

#include "driver/driver.h"
#include "host/clock.h"
#include "host/ranges.h"

namespace braid::host {

// What all streams of one device share: its engines, its live memory, and the failure that ended it, if any.
class Context {
 public:
  explicit Context(const HostOptions& options) : options_(options) {}

  const HostOptions& options() const { return options_; }
  LiveRanges& live() { return live_; }
  const LiveRanges& live() const { return live_; }
  LiveRanges& pinned() { return pinned_; }
  const LiveRanges& pinned() const { return pinned_; }
  // Whether a piece of this device's work may touch these bytes: its own memory, any pinned memory, and other
  // devices' memory if the piece accesses peers.
  bool reaches(DeviceAddress address, std::size_t bytes, bool peers) const;
  Engine& engine(EngineKind kind) { return engines_[static_cast<std::size_t>(kind)]; }
  bool slowed() const {
    return options_.copyBytesPerSecond > 0 || options_.flopsPerSecond > 0 ||
           options_.deviceBytesPerSecond > 0;
  }

  // After the first failure of a piece of work the device has failed: queued work is skipped and every call
  // returns that failure.
  void fail(Status status, std::string detail, const WorkLabel& label) {
    std::lock_guard lock(mutex_);
    if (failure_.load() != Status::ok) return;
    detail_ = std::move(detail);
    label_ = label;
    failure_.store(status);
  }
  Status failure() const { return failure_.load(std::memory_order_acquire); }
  std::string failureDetail() {
    std::lock_guard lock(mutex_);
    return detail_;
  }
  // The label of the piece of work that failed.
  WorkLabel failedWork() {
    std::lock_guard lock(mutex_);
    return label_;
  }

 private:
  const HostOptions options_;
  LiveRanges live_, pinned_;
  std::array<Engine, 5> engines_;
  std::atomic<Status> failure_{Status::ok};
  std::mutex mutex_;
  std::string detail_;
  WorkLabel label_;
};

}  // namespace braid::host
