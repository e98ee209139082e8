#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "driver/driver.h"
#include "memory/caching/biased_lock.h"
#include "memory/caching/lane_cache.h"

namespace braid::caching {

using LaneId = std::uint32_t;
using Count = std::uint64_t;

class Lane;

// A driver event on a lane and the point that it marks: points of a lane are its marks, counted from 1 on. A
// mark that somebody holds is never recorded again, so its point and frontier stand still. On a cache line of
// its own.
struct alignas(64) Mark {
  Lane* lane = nullptr;  // null: an event of the caller's, about whose lane nothing is known
  Event event = nullptr;
  Count point = 0;
  // Given out by its lane, less what its mutex's holder has given back: written under it. Given back by
  // anybody else.
  std::atomic<std::uint32_t> given{0}, back{0};
  Mark* next = nullptr;               // the lane's marks stand in a ring
  std::unique_ptr<Count[]> frontier;  // by lane: what its lane was after when it was recorded

  // Asked in this order: what is given back meanwhile makes it seem held for longer, never for shorter.
  std::uint32_t holders() const {
    const std::uint32_t returned = back.load(std::memory_order_acquire);
    return given.load(std::memory_order_relaxed) - returned;
  }
  void give() { given.store(given.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed); }
  // Another one, by somebody who holds it already.
  void hold() { back.fetch_sub(1, std::memory_order_relaxed); }
  void drop();
};

// A stream, how far it is known to be after every other one, and the free blocks that it alone looks at.
//
// *Work* is whatever the stream is given: a copy, a launch, a wait. On a tracked lane all of it passes
// through Braid, which says so (`queued`); a lane over a stream of the caller's is not tracked, and is taken
// to have work at any time. Alone on its cache lines: lanes that are made one after the other are often
// different threads'.
class alignas(128) Lane {
 public:
  Lane(LaneId id, Stream stream, bool tracked, std::size_t lanes);

  const LaneId id;
  // Null once retired, which may be while somebody else gives back memory that came to this lane.
  Seen<Stream> stream;
  // Blocks outlive their home lane, and may be freed while it serves somebody else.
  Seen<bool> tracked;
  Seen<bool> retired = false;
  std::string name;

  void queued() { work_.fetch_add(1, std::memory_order_relaxed); }
  // The first point that everything queued so far is before: that of the newest mark where nothing was queued
  // since, or of the next one.
  Count present() const {
    // Asked in this order: a mark that is being recorded meanwhile makes the point a later one, never an
    // earlier one.
    const bool marked = quiet();
    return marks_.load(std::memory_order_relaxed) + (marked ? 0 : 1);
  }
  // Whether the newest mark already marks this point.
  bool quiet() const {
    return retired ||
           (tracked && work_.load(std::memory_order_relaxed) == marked_.load(std::memory_order_acquire) &&
            waited_.load(std::memory_order_relaxed) == markedWaits_.load(std::memory_order_acquire));
  }
  // All points up to this one are known to have completed.
  Count done() const { return done_.load(std::memory_order_acquire); }
  void completed(Count point);

  BiasedLock mutex;  // guards all that follows, and the recording of marks
  Count known(LaneId other) const { return known_[other]; }
  // One for each allocator over these lanes: what it has freed here and not taken back into its heaps.
  struct Shelf {
    LaneCache cache;
    PendingList pending;
  };
  static constexpr std::size_t mostAllocators = 4;
  Shelf shelves[mostAllocators];

 private:
  friend class Lanes;
  // Work queued, and how much of it the newest mark is after. Waits, which the mutex's holder alone queues,
  // apart.
  std::atomic<std::uint64_t> work_{0}, marked_{0}, waited_{0}, markedWaits_{0};
  std::atomic<Count> marks_{0}, done_{0};
  std::unique_ptr<Count[]> known_;
  Mark* newest_ = nullptr;
  std::deque<Mark> ring_;  // its addresses stand still
  Mark* last_ = nullptr;   // in the ring: the search for a mark that nobody holds goes on behind it
  // Written by the mutex's holder alone.
  std::atomic<std::uint64_t> recorded_{0}, shared_{0}, waits_{0}, waitsElided_{0}, queries_{0};
};

inline void Mark::drop() {
  const auto take = [&] {
    given.store(given.load(std::memory_order_relaxed) - 1, std::memory_order_relaxed);
  };
  if (lane == nullptr || !lane->mutex.ifLeaning(take)) back.fetch_add(1, std::memory_order_release);
}

// What is known to be before what on one device, for lanes that come and go. Its causes: a lane runs in
// order; a wait joins what the mark's lane was after when it was recorded; and what the host has seen
// complete is before everything.
class Lanes {
 public:
  static constexpr std::size_t most = 256;

  explicit Lanes(Driver& driver);
  ~Lanes();
  Lanes(const Lanes&) = delete;

  Driver& driver() const { return driver_; }
  // The place of an allocator on every lane's shelves, its own until it leaves. At most
  // `Lane::mostAllocators` at once.
  std::size_t join();
  void leave(std::size_t place);
  // Refused with outOfMemory where `most` lanes are alive, or retired and not complete.
  Status add(Stream stream, bool tracked, std::string name, Lane** lane);
  // No work will be queued any more; what is queued still completes. The caller may destroy the stream.
  Status retire(Lane& lane);
  std::size_t count() const { return count_.load(std::memory_order_acquire); }
  Lane& at(LaneId id) const { return *lanes_[id]; }

  // A mark at the lane's present point, held once for the caller: the newest one, shared, where nothing was
  // queued since. Takes the lane's mutex.
  Status mark(Lane& lane, Mark** mark, bool* recorded = nullptr);
  // An event of the caller's, recorded already on some stream, as a mark of no lane; held once. `forget`
  // after its last holder.
  Mark* adopt(Event event);

  // Makes all that follows on `waiter` wait for the mark, unless it is known to be after it. The caller holds
  // the waiter's mutex and the mark.
  Status wait(Lane& waiter, Mark& mark, bool* issued) {
    const bool needed = !before(waiter, mark);
    if (issued) *issued = needed;
    if (needed) return join(waiter, mark);
    elided(waiter, 1);
    return Status::ok;
  }
  // The same where it is known not to be after it.
  Status join(Lane& waiter, Mark& mark);
  // So many waits there was no need for.
  static void elided(Lane& waiter, std::uint64_t waits) {
    waiter.waitsElided_.store(waiter.waitsElided_.load(std::memory_order_relaxed) + waits,
                              std::memory_order_relaxed);
  }
  // Is point of `other` before whatever `lane` queues next? The caller holds the lane's mutex.
  static bool before(const Lane& lane, const Lane& other, Count point) {
    return &lane == &other || lane.known(other.id) >= point || other.done() >= point;
  }
  // Is the mark? One of no lane is before nothing.
  static bool before(const Lane& lane, const Mark& mark) {
    return mark.lane != nullptr && before(lane, *mark.lane, mark.point);
  }
  bool complete(const Mark& mark) const { return mark.lane != nullptr && mark.lane->done() >= mark.point; }

  // One question to the driver: ok, notReady, or its failure. What it learns moves the watermark of the
  // mark's lane. Asked on behalf of a lane, its mutex is held: the question is counted there, which no other
  // thread waits for.
  Status poll(Mark& mark, Lane* asker = nullptr) { return complete(mark) ? Status::ok : ask(mark, asker); }
  Status ask(Mark& mark, Lane* asker);  // of one that is not known to be complete
  Status pollLane(Lane& lane);
  // These block.
  Status synchronize(Mark& mark);
  Status synchronizeLane(Lane& lane);
  Status drain(Lane& lane);  // the same without an event

  struct Counters {
    std::uint64_t recorded = 0, shared = 0, waits = 0, waitsElided = 0, queries = 0, synchronizations = 0,
                  created = 0;
  };
  Counters counters() const;

 private:
  // One of the lane's marks that nobody holds, of the newest and the next eight of its ring; and another one.
  static Mark* spare(Lane& lane);
  [[gnu::noinline, gnu::cold]] Mark* make(Lane& lane, Status* status);

  Driver& driver_;
  std::mutex mutex_;  // lanes and allocators coming and going
  bool places_[Lane::mostAllocators] = {};
  std::unique_ptr<Lane> lanes_[most];
  std::atomic<std::size_t> count_{0};
  std::mutex adoptedMutex_;
  std::deque<Mark> adopted_;
  std::atomic<std::uint64_t> queries_{0}, synchronizations_{0}, created_{0};
};

}  // namespace braid::caching
