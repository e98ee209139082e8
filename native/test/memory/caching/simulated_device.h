#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <vector>

#include "driver/driver.h"

namespace braid::test {

// A device without memory or threads. Queued work completes only on request, in any order that the waits
// allow, so that a test reaches every interleaving without a clock. Addresses are the same in every run.
class SimulatedDevice : public Driver {
 public:
  struct Config {
    std::uint64_t seed = 1;  // of the order in which streams go on
    std::size_t totalBytes = std::size_t{256} << 20;
    std::size_t pageBytes = std::size_t{2} << 20;  // 0: no virtual memory
  };
  explicit SimulatedDevice(const Config& config);

  // Completes this many pieces of work, or all that are queued.
  void advance(std::uint64_t pieces);
  void finish() { advance(~std::uint64_t{0}); }
  // The same for one stream.
  void advance(Stream stream, std::uint64_t pieces);
  // While the stream is held, its work completes only for a caller that blocks on it.
  void hold(Stream stream, bool held);
  // Has the work queued on a stream by now completed?
  bool idle(Stream stream);

  const DeviceInfo& info() const override { return info_; }
  Status bind() override { return Status::ok; }
  std::string lastDetail() override { return ""; }
  Status memAllocate(DeviceAddress* address, std::size_t bytes) override;
  Status memFree(DeviceAddress address) override;
  Status memInfo(std::size_t* freeBytes, std::size_t* totalBytes) override;
  Status pinnedAllocate(void** pointer, std::size_t bytes) override;
  Status pinnedFree(void* pointer) override;
  Status addressReserve(DeviceAddress* address, std::size_t bytes) override;
  Status addressRelease(DeviceAddress address, std::size_t bytes) override;
  Status pagesCreate(Pages* pages, std::size_t bytes) override;
  Status pagesRelease(Pages pages) override;
  Status pagesMap(DeviceAddress address, std::size_t bytes, Pages pages) override;
  Status pagesUnmap(DeviceAddress address, std::size_t bytes) override;
  Status streamCreate(Stream* stream, int priority) override;
  Status streamDestroy(Stream stream) override;
  Status streamSynchronize(Stream stream) override;
  Status streamQuery(Stream stream) override;
  Status streamWait(Stream stream, Event event) override;
  Status eventCreate(Event* event, EventKind kind) override;
  Status eventDestroy(Event event) override;
  Status eventRecord(Event event, Stream stream) override;
  Status eventQuery(Event event) override;
  Status eventSynchronize(Event event) override;
  Status eventElapsed(float*, Event, Event) override { return Status::notSupported; }
  Status copy(CopyKind, DeviceAddress, DeviceAddress, std::size_t, Stream stream) override {
    return work(stream);
  }
  Status fill32(DeviceAddress, std::uint32_t, std::size_t, Stream stream) override { return work(stream); }
  Status prepare(std::unique_ptr<Kernel>*, const KernelSpec&, HostCallback) override {
    return Status::notSupported;
  }
  Status launch(const Kernel&, const DeviceAddress*, const DeviceAddress*, Stream stream) override {
    return work(stream);
  }
  Status hostFunction(Stream, void (*)(void*), void*) override { return Status::notSupported; }

 private:
  struct Point {
    std::size_t stream = 0;
    std::uint64_t pieces = 0;  // 0: never recorded
  };
  struct Queue {
    std::uint64_t issued = 0, done = 0;
    std::deque<Point> pieces;  // what each waits for
    bool held = false, alive = true;
  };
  struct Marked {
    Point at;
    bool alive = true;
  };
  Status work(Stream stream);
  bool reached(const Point& point) const { return queues_[point.stream].done >= point.pieces; }
  bool step(bool heldToo);
  void until(const Point& point);
  Queue* find(Stream stream);
  Marked* find(Event event);
  Status take(std::size_t bytes);

  std::mutex mutex_;
  DeviceInfo info_;
  std::uint64_t random_, used_ = 0;
  DeviceAddress next_ = DeviceAddress{1} << 40;
  std::map<DeviceAddress, std::size_t> plain_, pinned_, ranges_;
  std::map<DeviceAddress, std::size_t> mapped_;  // page by page: which handle
  std::vector<std::size_t> pages_;               // by handle: bytes; 0: gone
  std::vector<Queue> queues_;
  std::vector<Marked> events_;
};

}  // namespace braid::test
