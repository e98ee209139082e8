#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "driver/driver.h"

namespace braid::caching {

// A device on which the trace's clock decides what has completed. The clock counts operations of the trace,
// and all work is queued with the time at which it completes in the trace.
//
//   1. The device has the work too: `hold` stops a real stream at a gate, real events are recorded behind it,
//      real streams wait for them, and every query also goes to the real driver. So what is outstanding in
//      the trace is outstanding on the device.
//   2. The trace decides the answers. The device may be late, by microseconds (its threads wake up) or longer
//      (host functions of all streams may wait for each other), but never ahead of the trace, and nothing
//      touches the memory. So every run of a replay is the same.
//   3. A call that blocks until work is complete advances the clock: all that completes earlier in the trace
//      completes first. So no call can wait for a gate that only its own caller would open.
// Used by one thread, except the gates.
class ReplayDriver final : public Driver {
 public:
  using Time = std::uint64_t;

  ReplayDriver(Driver& inner, bool gates) : inner_(inner), gates_(gates) {}
  ~ReplayDriver() override;

  Time now() const { return now_; }
  // All that completes up to this time has completed.
  void advance(Time time);
  // All that is queued has completed.
  void drain();
  // What is queued on the stream from here on completes at this time or later.
  Status hold(Stream stream, Time until);

  const DeviceInfo& info() const override { return inner_.info(); }
  Status bind() override { return inner_.bind(); }
  std::string lastDetail() override { return inner_.lastDetail(); }
  Status memAllocate(DeviceAddress* address, std::size_t bytes) override {
    return inner_.memAllocate(address, bytes);
  }
  Status memFree(DeviceAddress address) override;
  Status memInfo(std::size_t* free, std::size_t* total) override { return inner_.memInfo(free, total); }
  Status pinnedAllocate(void** pointer, std::size_t bytes) override {
    return inner_.pinnedAllocate(pointer, bytes);
  }
  Status pinnedFree(void* pointer) override;
  Status addressReserve(DeviceAddress* address, std::size_t bytes) override {
    return inner_.addressReserve(address, bytes);
  }
  Status addressRelease(DeviceAddress address, std::size_t bytes) override {
    return inner_.addressRelease(address, bytes);
  }
  Status pagesCreate(Pages* pages, std::size_t bytes) override { return inner_.pagesCreate(pages, bytes); }
  Status pagesRelease(Pages pages) override { return inner_.pagesRelease(pages); }
  Status pagesMap(DeviceAddress address, std::size_t bytes, Pages pages) override {
    return inner_.pagesMap(address, bytes, pages);
  }
  Status pagesMapEach(DeviceAddress address, std::size_t each, const Pages* pages,
                      std::size_t count) override {
    return inner_.pagesMapEach(address, each, pages, count);
  }
  Status pagesUnmap(DeviceAddress address, std::size_t bytes) override {
    return inner_.pagesUnmap(address, bytes);
  }

  Status streamCreate(Stream* stream, int priority) override;
  // Streams go with the driver, when every gate has been passed.
  Status streamDestroy(Stream) override { return Status::ok; }
  Status streamSynchronize(Stream stream) override;
  Status streamQuery(Stream stream) override;
  Status streamWait(Stream stream, Event event) override;
  Status eventCreate(Event* event, EventKind kind) override;
  Status eventDestroy(Event event) override;
  Status eventRecord(Event event, Stream stream) override;
  Status eventQuery(Event event) override;
  Status eventSynchronize(Event event) override;
  Status eventElapsed(float*, Event, Event) override { return Status::notSupported; }

  // A replay has no work of its own.
  Status copy(CopyKind, DeviceAddress, DeviceAddress, std::size_t, Stream) override {
    return Status::notSupported;
  }
  Status fill32(DeviceAddress, std::uint32_t, std::size_t, Stream) override { return Status::notSupported; }
  Status prepare(std::unique_ptr<Kernel>*, const KernelSpec&, HostCallback) override {
    return Status::notSupported;
  }
  Status launch(const Kernel&, const DeviceAddress*, const DeviceAddress*, Stream) override {
    return Status::notSupported;
  }
  Status hostFunction(Stream, void (*)(void*), void*) override { return Status::notSupported; }

 private:
  // Behind a Stream.
  struct Line {
    Stream inner = nullptr;
    Time until = 0;         // when all that is queued so far has completed
    std::size_t depth = 0;  // pieces of work queued since it was last known to be idle
    std::mutex mutex;
    std::condition_variable moved;
    Time open = 0;           // gates up to this time are
    std::deque<Time> gates;  // the gates that the stream has not passed, in order
  };
  // Behind an Event.
  struct Mark {
    Event inner = nullptr;
    Time until = 0;
  };
  static Line& line(Stream stream) { return *reinterpret_cast<Line*>(stream); }
  static Mark& mark(Event event) { return *reinterpret_cast<Mark*>(event); }
  static void gate(void* line);
  Status answer(Status queried, Time until) const;
  bool mayQueue(Line& line);
  void block(Line& line, Time until);

  Driver& inner_;
  const bool gates_;
  Time now_ = 0;
  std::vector<std::unique_ptr<Line>> lines_;
  std::vector<Line*> blocked_;  // whose `until` is still to come
  std::size_t queued_ = 0;      // on those
};

}  // namespace braid::caching
