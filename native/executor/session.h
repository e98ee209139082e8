#pragma once

#include <array>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "executor/issuer.h"

namespace braid {

struct SessionOptions {
  bool trace = false;
  std::size_t traceRows = Trace::mostRows;  // the newest are kept
  bool poison = false;
  ReferenceFactory reference;
  // Called on the completion thread, once for each submitted tick, in order. `failure` is null where the tick
  // completed.
  std::function<void(std::uint64_t tick, const Failure* failure)> onTick;
  // More about a failed tick than the driver knows: what a reference threw. May be empty. Called on the completion
  // thread.
  std::function<bool(Failure*)> amend;
};

struct SessionStats {
  std::uint64_t allocated = 0, allocatedPeak = 0, reserved = 0, reservedPeak = 0, poolPeak = 0, pinned = 0, ticks = 0;
  std::uint64_t byOrder = 0, byWait = 0, byGrowth = 0, bySynchronize = 0, eventsCreated = 0;
  std::vector<double> issueNanoseconds;
};

// A program open on a device. Two threads of its own: one issues ticks, in order, tick t only when tick t - inFlight
// has completed; one waits for their ends, in order, and says so. All calls below may come from any thread; none but
// `load`, `read` and `close` blocks.
//
// After a failure nothing more is issued: what runs is drained, and the failed tick and every later one report that
// failure.
class Session {
 public:
  static std::unique_ptr<Session> open(std::shared_ptr<Driver> driver, ProgramSpec spec, SessionOptions options,
                                       MaybeFailure* failure);
  ~Session() { close(); }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  const ProgramSpec& spec() const { return spec_; }
  // The memory of a pinned buffer in one slot. Not after close.
  void* pinned(std::uint32_t buffer, std::uint32_t slot) const;

  // What keeps that memory alive beyond the session. Not after close.
  std::shared_ptr<const PinnedRange> pinnedRange() const { return program_->memory.pinned(); }

  // Ticks are 0, 1, 2 …; false where this is not the next, or the session is closed.
  bool submit(std::uint64_t tick);
  MaybeFailure load(std::uint32_t buffer, const void* bytes);
  MaybeFailure read(std::uint32_t buffer, void* bytes);
  SessionStats stats() const;
  TraceRows trace() const;
  // Waits for every submitted tick, then frees everything. Idempotent.
  void close();

 private:
  Session(std::shared_ptr<Driver> driver, ProgramSpec spec, SessionOptions options);
  void issueLoop();
  void completeLoop();
  MaybeFailure awaitTick(std::uint64_t tick);
  Failure asynchronous(Failure noticed, std::uint64_t tick, LaneId lane);
  // What the completion thread found at the end of a tick, or the issuing thread noticed in it. The first is kept,
  // except that the completion thread names the culprit of what the issuing thread has only noticed.
  void fail(std::uint64_t tick, Failure failure);
  void settleFailure(std::uint64_t tick);
  void drain();
  SessionStats count() const;
  MaybeFailure transfer(std::uint32_t buffer, void* host, bool toDevice);

  std::shared_ptr<Driver> driver_;
  SessionOptions options_;
  const ProgramSpec spec_;
  std::unique_ptr<Program> program_;  // null once closed
  Trace trace_;
  std::unique_ptr<Issuer> issuer_;

  mutable std::mutex mutex_;
  // One for each who waits: a submit that woke both threads cost its caller twice.
  std::condition_variable toIssue_, toComplete_, ended_;
  std::uint64_t submitted_ = 0, issued_ = 0, completed_ = 0;  // ticks; completed_ ≤ issued_ ≤ submitted_
  bool closing_ = false;
  MaybeFailure failure_;
  bool settled_ = false;  // the failure is as every tick will report it
  std::uint64_t failedTick_ = ~std::uint64_t{0};
  std::uint64_t succeeded_ = 0;
  std::array<double, 1024> issueNanoseconds_{};
  std::uint64_t eventsAtFirstTick_ = 0;

  std::mutex transferMutex_;  // held by load, read and close, each to its end
  SessionStats last_;         // as they were when it closed
  std::thread issuing_, completing_;
};

}  // namespace braid
