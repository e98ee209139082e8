#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "driver/driver.h"

namespace braid {

// Owns the streams and events of a session: all are made through it, so that it can say how many were, and all are
// destroyed with it, on a thread that has bound the driver and after their work is done.
class DriverObjects {
 public:
  explicit DriverObjects(Driver& driver) : driver_(driver) {}
  DriverObjects(const DriverObjects&) = delete;
  DriverObjects& operator=(const DriverObjects&) = delete;
  ~DriverObjects() {
    for (const Event event : events_) driver_.eventDestroy(event);
    for (const Stream stream : streams_) driver_.streamDestroy(stream);
  }

  Status stream(Stream* stream, int priority) {
    const Status status = driver_.streamCreate(stream, priority);
    if (status == Status::ok) streams_.push_back(*stream);
    return status;
  }
  Status event(Event* event, EventKind kind) {
    const Status status = driver_.eventCreate(event, kind);
    if (status == Status::ok) events_.push_back(*event);
    if (status == Status::ok) eventsCreated_.fetch_add(1, std::memory_order_relaxed);
    return status;
  }
  std::uint64_t eventsCreated() const { return eventsCreated_.load(std::memory_order_relaxed); }

 private:
  Driver& driver_;
  std::vector<Stream> streams_;
  std::vector<Event> events_;
  std::atomic<std::uint64_t> eventsCreated_{0};
};

}  // namespace braid
