#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>

#include "driver/driver.h"
#include "order/biased_lock.h"
#include "order/lane_order.h"
#include "order/published.h"

namespace braid {

class Lane;

// A driver event recorded on a lane, the point that it marks, and the frontier that the lane had there. A
// lane's points are its marks, counted from 1. A mark with holders is never recorded again, so its point and
// frontier do not change. Alone on its cache line.
struct alignas(64) Mark {
  Lane* lane = nullptr;
  Event event = nullptr;
  Count point = 0;
  std::unique_ptr<Count[]> frontier;
  Mark* next = nullptr;  // the lane's marks form a ring

  // The number of holders is `held - released`. `held` is written under the lane's lock alone, so it needs
  // no read-modify-write; `released` is written by any thread.
  std::atomic<std::uint32_t> held{0}, released{0};

  // `released` is read first: a release in between makes the mark seem held for longer, never for shorter.
  std::uint32_t holders() const {
    const std::uint32_t gone = released.load(std::memory_order_acquire);
    return held.load(std::memory_order_relaxed) - gone;
  }
  void holdUnderLock() { held.store(held.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed); }
  // One more holder, added by a thread that holds the mark already.
  void hold() { released.fetch_sub(1, std::memory_order_relaxed); }
  void release();
};

// A stream, and how far its work is known to come after that of every other lane.
//
// *Work* is whatever the stream is given: a copy, a launch, a wait. On a tracked lane all work passes through
// Braid, which reports it with `queued`. A lane whose stream a library has too is not tracked (`lend`)
// and is taken to have new work at any time. Lanes that are made one after the other often serve different
// threads, so each has its own cache lines.
class alignas(128) Lane {
 public:
  Lane(LaneId id, Stream stream, bool tracked, std::size_t lanes);

  const LaneId id;
  Published<Stream> stream;  // null once retired, which other threads may see while they free blocks
  Published<bool> tracked;   // a block may be freed after its home lane went to another stream
  Published<bool> retired = false;
  // Its stream captures: what it is given becomes nodes, and runs nowhere. Its newest mark stays the last.
  Published<bool> capturing = false;
  // It stands for a lane in a capture: its points are places in a graph. No driver event marks them, and none
  // completes before the capture ends.
  Published<bool> inGraph = false;
  std::string name;

  void queued(std::uint64_t pieces = 1) { work_.fetch_add(pieces, std::memory_order_relaxed); }
  // The first point after everything queued so far: that of the newest mark if nothing was queued since then,
  // else that of the next mark.
  Count present() const {
    // `isMarked` is read first: a mark that is recorded in between makes the answer later, never earlier.
    const bool marked = isMarked();
    return marks_.load(std::memory_order_relaxed) + (marked ? 0 : 1);
  }
  // Whether nothing was queued since the newest mark.
  bool isMarked() const {
    return retired || capturing ||
           (tracked && work_.load(std::memory_order_relaxed) == markedWork_.load(std::memory_order_acquire) &&
            waited_.load(std::memory_order_relaxed) == markedWaits_.load(std::memory_order_acquire));
  }
  // All points up to this one are known to have completed.
  Count completed() const { return completed_.load(std::memory_order_acquire); }
  // Two threads may write at once, and the lesser point may win: the device is queried again then.
  void setCompleted(Count point) {
    if (completed_.load(std::memory_order_relaxed) < point)
      completed_.store(point, std::memory_order_release);
  }

  // Guards the lane's order, the recording of marks, and the blocks that allocators keep for this lane.
  BiasedLock mutex;
  // Does the point of `other` happen before whatever this lane does next?
  bool isAfter(const Lane& other, Count point) const {
    return order_.isAfter({other.id, point}) || other.completed() >= point;
  }
  bool isAfter(const Mark& mark) const { return isAfter(*mark.lane, mark.point); }

 private:
  friend class Lanes;
  // The number of pieces of work queued, and how many of them precede the newest mark. Waits are counted
  // apart: only the holder of the lane's lock issues them, so their counter needs no read-modify-write.
  std::atomic<std::uint64_t> work_{0}, markedWork_{0}, waited_{0}, markedWaits_{0};
  std::atomic<Count> marks_{0}, completed_{0};
  LaneOrder order_;
  Mark* newest_ = nullptr;
  std::deque<Mark> ring_;     // the addresses of its marks do not change
  std::deque<Mark> timed_;    // marks whose events record the time; in no ring
  Mark* searched_ = nullptr;  // where in the ring the last search for a mark without holders ended
  // Statistics, written by the holder of the lane's lock alone.
  std::atomic<std::uint64_t> recorded_{0}, shared_{0}, waits_{0}, waitsElided_{0}, queries_{0};
};

inline void Mark::release() {
  const auto uncount = [&] {
    held.store(held.load(std::memory_order_relaxed) - 1, std::memory_order_relaxed);
  };
  if (!lane->mutex.ifBiased(uncount)) released.fetch_add(1, std::memory_order_release);
}

// The lanes of one device, which come and go, and the driver events that make their order real. A point is
// known to happen before a lane's next work in three ways: the lane runs in order, a wait joins the frontier
// of a mark, or the host has seen the point complete.
class Lanes {
 public:
  static constexpr std::size_t most = 256;

  explicit Lanes(Driver& driver);
  ~Lanes();
  Lanes(const Lanes&) = delete;

  Driver& driver() const { return driver_; }
  // outOfMemory where `most` lanes are alive, or retired with work that has not completed.
  Status add(Stream stream, bool tracked, std::string name, Lane** lane);
  // Gives the stream to a library, whose work there Braid does not see. No lane over it is tracked
  // from here on, that of a capture included.
  Stream lend(const Lane& lane) { return lend(Stream{lane.stream}); }
  // Before the lane's stream begins or joins a capture: marks its present point, which stays its newest.
  // *captured is the lane that stands for it there. What that lane waits for is the caller's to capture.
  Status beginCapture(Lane& lane, Lane** captured);
  // All points of the captured lane count as complete from here on, and its number may be used again.
  void endCapture(Lane& lane, Lane& captured);
  // No work will be queued any more; queued work still completes. The caller may destroy the stream.
  Status retire(Lane& lane);
  std::size_t count() const { return count_.load(std::memory_order_acquire); }
  Lane& at(LaneId id) const { return *lanes_[id]; }
  std::string nameOf(LaneId id);  // another thread may be giving the lane a new name

  // A mark at the lane's present point, held once for the caller. The newest mark is shared if nothing was
  // queued since. Takes the lane's lock.
  Status mark(Lane& lane, Mark** mark, bool* recorded = nullptr);
  // A mark of its own at the lane's present point, whose event records the time; held once.
  Status markTime(Lane& lane, Mark** mark);
  // The milliseconds between two marks by `markTime`; notReady where one of them has not completed.
  Status elapsed(const Mark& from, const Mark& to, float* milliseconds) {
    return driver_.eventElapsed(milliseconds, from.event, to.event);
  }

  // Makes all later work of `waiter` wait for the mark, unless it comes after the mark anyway. The caller
  // holds the waiter's lock and the mark.
  Status wait(Lane& waiter, Mark& mark, bool* issued) {
    const bool needed = !waiter.isAfter(mark);
    if (issued) *issued = needed;
    if (needed) return issueWait(waiter, mark);
    countElided(waiter, 1);
    return Status::ok;
  }
  // The same without the check.
  Status issueWait(Lane& waiter, Mark& mark);
  static void countElided(Lane& waiter, std::uint64_t waits) {
    waiter.waitsElided_.store(waiter.waitsElided_.load(std::memory_order_relaxed) + waits,
                              std::memory_order_relaxed);
  }
  // Of a captured lane's mark: whether its capture has ended.
  static bool complete(const Mark& mark) { return mark.lane->completed() >= mark.point; }

  // Queries the driver about the mark unless it is known to be complete: ok, notReady, or the driver's
  // failure. `asker` is the lane whose lock the caller holds, if any; its counter counts the query.
  Status poll(Mark& mark, Lane* asker = nullptr) { return complete(mark) ? Status::ok : query(mark, asker); }
  Status query(Mark& mark, Lane* asker);
  Status pollLane(Lane& lane);
  // These block the calling thread, but not for a captured lane, on which nothing runs.
  Status synchronize(Mark& mark);
  Status synchronizeLane(Lane& lane);
  Status synchronizeStream(Lane& lane);  // needs no event, and does not advance the completed point

  // Work up to this mark waits for the host (an ordered callback). Until it has completed, the host must not
  // wait for the device: they would wait for each other. Takes over the caller's hold.
  void hostAwaited(Mark* mark);
  // Whether the calling thread may wait for the device.
  bool mayBlock() { return !anyAwaited_.load(std::memory_order_relaxed) || !pollAwaited(); }
  // Whether the lane's queue surely has room for one more piece, so that queueing it does not block. True
  // where blocking does no harm. Asked before every piece but a mark, which follows a piece.
  bool mayQueue(const Lane& lane) {
    return !anyAwaited_.load(std::memory_order_relaxed) || hasRoom(lane) || !pollAwaited();
  }

  struct Counters {
    std::uint64_t recorded = 0, shared = 0, waits = 0, waitsElided = 0, queries = 0, synchronizations = 0,
                  created = 0;
  };
  Counters counters() const;

 private:
  Stream lend(Stream stream);
  Status addLane(Stream stream, bool tracked, bool inGraph, std::string name, Lane** lane);
  // A mark of the lane without holders, found among the newest and the next eight of its ring.
  static Mark* unheldMark(Lane& lane);
  [[gnu::noinline, gnu::cold]] Mark* makeMark(Lane& lane, Status* status);
  [[gnu::noinline, gnu::cold]] Status makeEvent(Lane& lane, EventKind kind, std::deque<Mark>& marks,
                                                Mark** mark);
  // Records the mark's event, and holds the mark. The caller holds the lane's lock.
  Status record(Lane& lane, Mark& mark);

  Driver& driver_;
  std::mutex mutex_;  // held while lanes come and go
  std::unique_ptr<Lane> lanes_[most];
  std::atomic<std::size_t> count_{0};
  bool pollAwaited();  // whether some are left
  bool hasRoom(const Lane& lane);
  // Work, waits and marks: each takes a place in the lane's queue.
  static std::uint64_t piecesOf(const Lane& lane) {
    return lane.work_.load(std::memory_order_relaxed) + lane.waited_.load(std::memory_order_relaxed) +
           lane.marks_.load(std::memory_order_relaxed);
  }

  std::mutex awaitedMutex_;
  std::atomic<bool> anyAwaited_{false};
  std::deque<Mark*> awaited_;              // oldest first
  std::uint64_t piecesBefore_[most] = {};  // by lane: pieces queued when the oldest became awaited
  std::atomic<std::uint64_t> queries_{0}, synchronizations_{0}, created_{0};
};

}  // namespace braid
