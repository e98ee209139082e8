#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "executor/failure.h"
#include "executor/program.h"
#include "memory/device_memory.h"
#include "order/lanes.h"

namespace braid {

// The launches of several sessions over the same memory, one after the other on the device: each begins after
// the end of the one before, on all lanes, and after the uses that other lanes made of that memory. The host
// waits for nobody.
//
// A launch is one tick of one session. It takes its turn where it is submitted, and is issued in that order,
// whichever thread of the sessions' comes first. All sessions are of one device.
class Sequence {
 public:
  explicit Sequence(std::shared_ptr<DeviceMemory> device) : device_(std::move(device)) {}
  Sequence(const Sequence&) = delete;
  ~Sequence();

  // The turn of a launch that is being submitted.
  std::uint64_t take();
  // Gives a turn back: nothing was submitted. Where others were taken since, what they are of is dropped.
  void giveBack(std::uint64_t turn);

  // Issuing thread. Whether all launches before this one have been issued, or will never be.
  bool isNext(std::uint64_t turn);
  // Makes the lanes of the program wait for the launch before, and for these marks, which it releases.
  MaybeFailure enter(Program& program, std::vector<Mark*>& uses);
  // The launch has been issued, with its ends recorded: those of `slot`.
  void leave(const Program& program, std::uint32_t slot);
  // The launch could not be issued, or in part: nothing after it is issued any more, for the same reason.
  void leaveFailed(const Failure& cause);

  // The program is about to be destroyed, its work has completed.
  void forget(const Program& program);
  // A session has dropped launches: those that are left are not issued any more.
  void end();

  std::uint64_t issued();
  // Waits until so many launches have been issued, or none will be any more.
  void awaitIssued(std::uint64_t count);
  // Makes a stream of the device come after the launch that was issued last.
  Status order(Stream stream);

 private:
  Status waitForLast(Driver& driver, Stream stream);

  const std::shared_ptr<DeviceMemory> device_;
  std::mutex mutex_;
  std::condition_variable moved_;
  std::uint64_t taken_ = 0, issued_ = 0;  // launches; issued_ ≤ taken_
  bool ended_ = false;
  MaybeFailure cause_;             // of the end: the launch that failed first
  const Program* last_ = nullptr;  // the program of the launch that was issued last, and its ends
  std::vector<Event> ends_;
  Event entry_ = nullptr;  // after the launch before, on the first lane
};

}  // namespace braid
