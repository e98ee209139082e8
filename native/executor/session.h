#pragma once

#include <array>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "executor/issue_thread.h"
#include "executor/issuer.h"
#include "executor/patience.h"
#include "executor/sequence.h"

namespace braid {

struct SessionOptions {
  MemorySources memory;
  // That its ticks are launches of; null: they have no order with those of other sessions.
  std::shared_ptr<Sequence> sequence;
  bool trace = false;
  std::size_t traceRows = Trace::mostRows;  // the newest are kept
  bool poison = false;
  ReferenceFactory reference;
  PreparedCallback onPrepared;
  // Called on the completion thread, once for each submitted tick, in order. `failure` is null for a tick
  // that completed.
  std::function<void(std::uint64_t tick, const Failure* failure)> onTick;
  // Adds to a failure what the driver does not know: the exception of a reference. May be empty. Called on
  // the completion thread.
  std::function<bool(Failure*)> amend;
};

// Of one device's memory.
struct DeviceStats {
  std::uint64_t allocated = 0, allocatedPeak = 0, reserved = 0, poolPeak = 0;
};

// Bytes are sums over all devices.
struct SessionStats {
  std::uint64_t allocated = 0, allocatedPeak = 0, reserved = 0, reservedPeak = 0, poolPeak = 0, pinned = 0,
                ticks = 0;
  std::uint64_t byOrder = 0, byWait = 0, byGrowth = 0, bySynchronize = 0, eventsCreated = 0, fullQueues = 0,
                graphLaunches = 0;
  std::vector<double> issueNanoseconds;
  std::vector<DeviceStats> devices;
};

// A program open on a device, or on several devices of one kind. The issuing thread of the (first) device,
// which all its sessions share, issues the ticks in order, tick t only when tick t - inFlight has completed.
// The session's own completion thread waits for the ends of the ticks, in order, and reports them. It is not
// shared, since it blocks in the driver until this session's next tick ends: a shared one would have to poll
// the events of all sessions, and one session's `onTick` would hold up another's.
//
// All calls may come from any thread. Only `load`, `read`, `take` and `close` block.
//
// After a failure nothing more is issued. Work in flight is drained, and the failed tick and all later ones
// report that failure. Other sessions go on, unless the device itself has failed.
class Session : private IssueThread::Queue {
 public:
  static std::unique_ptr<Session> open(std::vector<std::shared_ptr<DeviceMemory>> devices, ProgramSpec spec,
                                       SessionOptions options, MaybeFailure* failure);
  // The same in two steps. `begin` takes the memory, which fails most often; `finish`, which compiles kernels
  // and so takes long, returns its failure: the session can only be destroyed then.
  static std::unique_ptr<Session> begin(std::vector<std::shared_ptr<DeviceMemory>> devices, ProgramSpec spec,
                                        SessionOptions options, MaybeFailure* failure);
  MaybeFailure finish();
  // On devices whose memory nobody else uses: for tests and tools.
  static std::unique_ptr<Session> open(const std::vector<std::shared_ptr<Driver>>& drivers, ProgramSpec spec,
                                       SessionOptions options, MaybeFailure* failure) {
    std::vector<std::shared_ptr<DeviceMemory>> devices;
    for (const auto& driver : drivers) devices.push_back(DeviceMemory::alone(driver));
    return open(std::move(devices), std::move(spec), std::move(options), failure);
  }
  static std::unique_ptr<Session> open(std::shared_ptr<Driver> driver, ProgramSpec spec,
                                       SessionOptions options, MaybeFailure* failure) {
    return open(std::vector<std::shared_ptr<Driver>>{std::move(driver)}, std::move(spec), std::move(options),
                failure);
  }
  ~Session() { close(); }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  const ProgramSpec& spec() const { return spec_; }
  // The memory of a pinned buffer in one slot. Not after close.
  void* pinned(std::uint32_t buffer, std::uint32_t slot) const;

  // Keeps that memory alive beyond the session. Not after close.
  std::shared_ptr<const PinnedBlock> pinnedBlock(std::uint32_t buffer, std::uint32_t slot) const {
    return program_->memory.pinnedBlock(buffer, slot);
  }

  // The block of an output in device memory, in one slot. Not after close.
  caching::Block* slotBlock(std::uint32_t buffer, std::uint32_t slot) const {
    return program_->memory.slotBlock(buffer, slot);
  }

  // Ticks are 0, 1, 2 … False where this is not the next one, or the session is closed. The tick uses this
  // slot of every input and output; tick - inFlight has ended, or used the same slot.
  bool submit(std::uint64_t tick, std::uint32_t slot) { return submit(tick, slot, {}); }
  // In a sequence: the tick comes after these uses of other lanes, whose marks it holds for as long as it
  // needs.
  bool submit(std::uint64_t tick, std::uint32_t slot, const std::vector<Mark*>& uses);
  bool submit(std::uint64_t tick) { return submit(tick, static_cast<std::uint32_t>(tick % spec_.inFlight)); }
  // Copies a buffer in or out after the ticks that are submitted. The caller submits no more before it
  // returns: those would run beside the copy.
  MaybeFailure load(std::uint32_t buffer, const void* bytes);
  MaybeFailure read(std::uint32_t buffer, void* bytes);
  // Copies buffers of another session of the same devices, each on its device, into this session's: pairs of
  // (there, here), states and parameters. After the ticks that were submitted to both, of which no more are
  // submitted before it returns.
  MaybeFailure take(Session& from, const std::vector<std::pair<std::uint32_t, std::uint32_t>>& buffers);
  SessionStats stats() const;
  TraceRows trace() const;
  // Waits for every submitted tick, then frees everything. Idempotent. With `Unbegun::drop`, ticks not yet
  // begun are dropped and never reported, and closing waits for no other session's driver call. Called from
  // `onTick`, it only ends the submits, since later ticks wait for that call to return; the next `close`, or
  // the destructor, does the rest. The destructor must not run in `onTick`.
  enum class Unbegun { issue, drop };
  void close(Unbegun unbegun = Unbegun::issue);

 private:
  Session(std::vector<std::shared_ptr<DeviceMemory>> devices, ProgramSpec spec, SessionOptions options);
  bool issueTick(std::uint64_t tick) override;
  bool mayIssue(std::uint64_t tick);
  std::vector<Mark*> takeUses(std::uint64_t tick);
  MaybeFailure enterSequence(std::uint64_t tick);
  void leaveSequence(std::uint64_t tick, const MaybeFailure& failure);
  void completeLoop();
  MaybeFailure awaitTick(std::uint64_t tick);
  Status awaitEnd(Driver& driver, Event end);
  Failure asynchronous(Failure noticed, std::uint64_t tick, LaneId lane);
  WorkLabel failedWork(LaneId lane);
  // Keeps the first failure, with one exception: the completion thread replaces one that the issuing thread
  // only noticed by one that names the work at fault.
  void fail(std::uint64_t tick, Failure failure);
  void finishFailure(std::uint64_t tick);
  void drain();
  SessionStats count() const;
  MaybeFailure awaitSubmitted(const char* op);
  MaybeFailure transfer(std::uint32_t buffer, void* host, bool toDevice);
  MaybeFailure copyFrom(const Session& from, std::uint32_t there, std::uint32_t here);

  static constexpr std::uint64_t open_ = ~std::uint64_t{0};

  std::vector<std::shared_ptr<DeviceMemory>> devices_;  // none once closed
  std::vector<std::shared_ptr<Driver>> drivers_;        // the same devices'
  SessionOptions options_;
  const ProgramSpec spec_;
  IssueThread& issueThread_;
  std::unique_ptr<Program> program_;  // null once closed
  Trace trace_;
  PlanGraphs graphs_;
  std::unique_ptr<Issuer> issuer_;
  // In a sequence, by tick modulo inFlight: the launch's turn, and the uses that it comes after.
  struct Launch {
    std::uint64_t turn = 0;
    std::vector<Mark*> uses;
  };
  std::vector<Launch> launches_;
  bool inSequence_ = false;  // issuing thread: the present tick has entered it

  mutable std::mutex mutex_;
  std::condition_variable toComplete_, ended_;
  std::uint64_t issued_ = 0, completed_ = 0;  // ticks; completed_ ≤ issued_
  std::uint64_t end_ = open_;                 // once closing: how many ticks there will ever have been
  MaybeFailure failure_;
  bool failureFinal_ = false;  // the failure is as every tick will report it
  std::uint64_t failedTick_ = ~std::uint64_t{0};
  std::uint64_t succeeded_ = 0;
  std::array<double, 1024> issueNanoseconds_{};
  double partNanoseconds_ = 0;  // issuing thread: of a tick that is not issued to its end yet
  std::uint64_t eventsAtFirstTick_ = 0;

  std::mutex transferMutex_;  // held by load, read, take and close until they return
  SessionStats last_;         // as they were when it closed
  bool entered_ = false;      // the issuing thread
  Patience patience_;         // the completion thread's
  std::thread completing_;
  std::thread::id completer_;  // of `completing_`, also while that is joined
};

}  // namespace braid
