#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "driver/driver.h"

namespace braid::test {

// Everything that a stream had been given by then, waits included: its first `count` pieces.
struct Access {
  std::uint32_t stream = 0;
  std::uint64_t count = 0;
};

// A driver that checks the calls that pass through it. It keeps its own vector clocks of happens-before
// (apart from the allocator's), what the host has seen complete, what is allocated, which addresses have
// memory, and the owner and last uses of each. The first forbidden call is kept as the problem. Calls can be
// made to fail.
class CheckingDriver final : public Driver {
 public:
  explicit CheckingDriver(Driver& inner) : inner_(inner) {}

  // The nth use of this call from now on fails, once, and does nothing. Returned: whether it has by now.
  void fail(std::string call, std::uint64_t nth, Status status);
  bool failed() const { return struck_; }

  // What the driver has handed out and not got back.
  struct Out {
    std::uint64_t plain = 0, pinned = 0, pages = 0, ranges = 0, mapped = 0;  // bytes; ranges: how many
    std::uint64_t events = 0, streams = 0;
  };
  Out out();
  std::string problem();

  // Everything queued on the stream, or by the event's record, so far.
  Access reached(Stream stream);
  // The last piece that this thread has queued.
  static Access last();
  // A block was handed out for work on this stream: checked against everything that is known.
  void owned(DeviceAddress address, std::uint64_t bytes, Stream stream);
  // Its owner gives it back: a later owner must come after these. Called before the allocator's free.
  void released(DeviceAddress address, std::uint64_t bytes, const std::vector<Access>& uses);
  void complain(const std::string& words);
  std::size_t live();

  const DeviceInfo& info() const override { return inner_.info(); }
  Status bind() override { return inner_.bind(); }
  std::string lastDetail() override { return inner_.lastDetail(); }
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
  Status eventElapsed(float* ms, Event from, Event to) override { return inner_.eventElapsed(ms, from, to); }
  Status copy(CopyKind kind, DeviceAddress to, DeviceAddress from, std::size_t bytes, Stream stream) override;
  Status fill32(DeviceAddress to, std::uint32_t value, std::size_t words, Stream stream) override;
  Status prepare(std::unique_ptr<Kernel>* kernel, const KernelSpec& spec, HostCallback callback) override {
    return inner_.prepare(kernel, spec, std::move(callback));
  }
  Status launch(const Kernel& kernel, const DeviceAddress* reads, const DeviceAddress* writes,
                Stream s) override {
    return inner_.launch(kernel, reads, writes, s);
  }
  Status hostFunction(Stream s, void (*function)(void*), void* data) override {
    return inner_.hostFunction(s, function, data);
  }

 private:
  using Clock = std::vector<std::uint64_t>;  // by stream
  struct Range {
    std::uint64_t bytes = 0;
    bool live = false;
    std::vector<Access> uses;
  };
  bool strikes(const char* call, Status* status);
  void wrong(std::string words);  // under the mutex
  static std::uint64_t at(const Clock& clock, std::uint32_t stream) {
    return stream < clock.size() ? clock[stream] : 0;
  }
  static void join(Clock& into, const Clock& other);
  std::uint32_t indexOf(Stream stream) const;
  bool known(const Access& access) const { return at(complete_, access.stream) >= access.count; }
  // Cuts the ranges at both ends, so that whole ones lie within.
  void cut(DeviceAddress address);
  void overlap(DeviceAddress address, std::uint64_t bytes, const char* what);
  void goes(DeviceAddress address, std::uint64_t bytes, const char* call);
  bool backed(DeviceAddress address, std::uint64_t bytes) const;

  Driver& inner_;
  std::mutex mutex_;
  std::string problem_, call_;
  std::uint64_t nth_ = 0;
  Status status_ = Status::ok;
  std::atomic<bool> struck_{false}, armed_{false};
  Out out_;
  std::unordered_map<Stream, std::uint32_t> streams_;
  std::vector<Clock> clocks_;  // by stream: what is before its next piece
  std::unordered_map<Event, std::pair<Access, Clock>> events_;
  Clock complete_;                         // what the host knows to be complete
  std::map<DeviceAddress, Range> owners_;  // live or lately freed, apart from each other
  std::map<DeviceAddress, std::uint64_t> plain_, pinned_, ranges_, mapped_;
  std::map<Pages, std::uint64_t> pages_;
};

}  // namespace braid::test
