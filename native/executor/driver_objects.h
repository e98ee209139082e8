#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "driver/driver.h"

namespace braid {

// Owns and counts the streams and events of a session, on all of its devices. It destroys them; their work
// must be done by then.
class DriverObjects {
 public:
  DriverObjects() = default;
  DriverObjects(const DriverObjects&) = delete;
  DriverObjects& operator=(const DriverObjects&) = delete;
  ~DriverObjects() {
    for (const Owned& owned : owned_) {
      owned.driver->bind();
      for (const Event event : owned.events) owned.driver->eventDestroy(event);
      for (const Stream stream : owned.streams) owned.driver->streamDestroy(stream);
    }
  }

  Status stream(Driver& driver, Stream* stream, int priority) {
    const Status status = driver.streamCreate(stream, priority);
    if (status == Status::ok) of(driver).streams.push_back(*stream);
    return status;
  }
  Status event(Driver& driver, Event* event, EventKind kind) {
    const Status status = driver.eventCreate(event, kind);
    if (status == Status::ok) of(driver).events.push_back(*event);
    if (status == Status::ok) eventsCreated_.fetch_add(1, std::memory_order_relaxed);
    return status;
  }
  std::uint64_t eventsCreated() const { return eventsCreated_.load(std::memory_order_relaxed); }

 private:
  struct Owned {
    Driver* driver;
    std::vector<Stream> streams;
    std::vector<Event> events;
  };
  Owned& of(Driver& driver) {
    for (Owned& owned : owned_)
      if (owned.driver == &driver) return owned;
    return owned_.emplace_back(Owned{&driver, {}, {}});
  }

  std::vector<Owned> owned_;
  std::atomic<std::uint64_t> eventsCreated_{0};
};

}  // namespace braid
