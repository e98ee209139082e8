#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "host/clock.h"
#include "kernels/cpu.h"

namespace braid::host {

class Context;
class Progress;
class GraphLaunch;
struct EventState;

// A point of a stream, or of a node of a graph that records an event: so many of its pieces are done. The
// mark of an event is one.
struct Mark {
  Progress* stream = nullptr;  // null: nothing to wait for
  std::uint64_t pieces = 0;
  bool operator==(const Mark&) const = default;
};

// Numbered pieces that complete in order. It lives as long as the device, since any event may refer to it.
class Progress {
 public:
  bool reached(std::uint64_t pieces) const { return done_.load(std::memory_order_acquire) >= pieces; }
  // Blocks without spinning. Returns the engines' time at which the piece was done, which may be long ago.
  Time await(std::uint64_t pieces);
  // One more piece is done.
  void advance(Time time) {
    std::lock_guard lock(mutex_);
    advanceLocked(time);
  }

 protected:
  void advanceLocked(Time time);

  static constexpr std::size_t kHistory = 1024;
  mutable std::mutex mutex_;
  std::condition_variable progress_;
  std::atomic<std::uint64_t> done_{0};
  std::uint64_t awaited_ = ~std::uint64_t{0};  // the nearest piece that a thread waits for
  Time doneAt_[kHistory]{};                    // of the last pieces, by their number
};

// What a piece of a stream's queue, or a node of a graph, does.
struct Work {
  enum class Kind : unsigned char { copy, fill, launch, wait, stamp, function, graph };
  Kind kind = Kind::copy;
  Cost cost;
  DeviceAddress to = 0, from = 0;
  std::size_t bytes = 0;  // of a copy
  CopyKind copyKind = CopyKind::hostToHost;
  std::uint32_t value = 0, elementBytes = 4;     // of a fill
  std::size_t width = 0, height = 1, pitch = 0;  // of a fill, as in NodeParams
  std::shared_ptr<const CpuKernel> kernel;
  std::vector<DeviceAddress> addresses;
  void (*function)(void*) = nullptr;
  void* data = nullptr;
};

// Does a copy, a fill, a kernel or a function, at a time of the engines, on a thread with this state of
// delays (0: none) and scratch. Returns the time at which it is done. `fault`: its failure or delay, or null.
// Work that takes time is done in halves, one at the start of its time and one at the end: so a reader that
// does not wait for it finds values that are half old, and what overwrites its operands meanwhile is seen.
Time performWork(Context& context, const Work& work, const HostOptions::Fault* fault, const WorkLabel& label,
                 Time ready, std::uint64_t* jitter, Scratch& scratch);

// Whether the calling thread runs a host function or a user object's destructor, which must not call the
// driver.
bool insideCallback();
struct CallbackScope {
  CallbackScope();
  ~CallbackScope();
};

// One thing in a stream's queue.
struct Piece : Work {
  const HostOptions::Fault* fault = nullptr;
  WorkLabel label;
  Time issued{};
  Mark mark;
  std::shared_ptr<const void> keep;  // keeps a mark on another device valid
  EventState* event = nullptr;
  std::shared_ptr<GraphLaunch> graph;

  Piece* next = nullptr;
};

// A FIFO of work and the thread that does it. It outlives its stream: after streamDestroy it drains, and then
// serves another stream. Its count of pieces goes on, so that earlier marks stay valid.
class StreamQueue final : public Progress {
 public:
  explicit StreamQueue(Context* context);
  ~StreamQueue() { join(); }

  // Starts serving a new stream; only while idle.
  void open(std::uint64_t jitterState);
  bool idle() const;

  // `fill(Piece&)` describes the work. Allocates only where the queue is longer than ever before.
  template <class Fill>
  Mark push(Fill fill) {
    bool wake = false;
    Mark mark{this, 0};
    {
      std::lock_guard lock(mutex_);
      Piece* piece = spare_;
      if (piece)
        spare_ = piece->next;
      else
        piece = grow();
      piece->next = nullptr;
      fill(*piece);
      (last_ ? last_->next : first_) = piece;
      last_ = piece;
      mark.pieces = issued_.fetch_add(1, std::memory_order_relaxed) + 1;
      wake = sleeping_;
      sleeping_ = false;
    }
    if (wake) work_.notify_one();
    return mark;
  }

  // Blocks while `depth` or more pieces are queued (0: never), so that one more may be pushed.
  void awaitRoom(std::size_t depth) {
    const std::uint64_t issued = issued_.load(std::memory_order_acquire);
    if (depth > 0 && issued - done_.load(std::memory_order_acquire) >= depth) await(issued - depth + 1);
  }

  // The end of the queue as it is now.
  Mark mark() { return Mark{this, issued_.load(std::memory_order_acquire)}; }

  // The capture that this stream is part of, 0 for none. Changed by Captures.
  std::atomic<std::uint64_t> capture{0};

  // Does the queued work, then ends the thread. Nothing may be pushed afterwards.
  void stop();
  void join();

 private:
  Piece* grow();
  void serve();
  // Returns when the piece is done by the engines' time.
  Time perform(Piece& piece);

  Context* const context_;
  std::condition_variable work_;
  bool stopping_ = false, sleeping_ = false;
  Piece *first_ = nullptr, *last_ = nullptr, *spare_ = nullptr;
  std::vector<std::unique_ptr<Piece>> pieces_;
  std::atomic<std::uint64_t> issued_{0};

  std::uint64_t jitter_ = 0;  // state of this stream's delays; 0: none
  Time time_{};               // when the last piece was done, by the engines' time
  Scratch scratch_;
  std::thread thread_;
};

// An event: the mark of its last record. Used again by later events.
struct EventState {
  std::mutex mutex;
  Mark mark;
  bool timed = false;
  bool stamped = false;
  Time at{};
  // Last recorded in a capture: its number, and the nodes that the event carries.
  std::uint64_t capture = 0;
  std::vector<std::uint64_t> captured;

  void reset(bool withTime) {
    std::lock_guard lock(mutex);
    mark = Mark{};
    timed = withTime;
    stamped = false;
    capture = 0;
    captured.clear();
  }
  Mark current() {
    std::lock_guard lock(mutex);
    return mark;
  }
};

}  // namespace braid::host
