#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>

#include "driver/driver.h"

namespace braid {

// The one thread that issues on a device, whichever of the process's sessions the work belongs to. A device
// is what DeviceInfo's kind and ordinal name: drivers opened one after the other on the same device share its
// thread.
//
// Sessions with a tick to issue stand in one line; each issues one tick, or as much of one as its streams
// have room for, and goes to its end. A session whose ticks are in flight to their limit is not in the line,
// so it costs the others nothing; one whose driver call blocks delays them by that call.
//
// Lives for ever, its thread from the first entry to the last leaving: a submit that comes too late finds it,
// and nothing is left for static destructors to take down.
class IssueThread {
 public:
  // A session's ticks, from the first to the last. What stands here is the issue thread's; all of it under
  // its lock.
  class Queue {
   public:
    explicit Queue(std::uint64_t inFlight) : inFlight_(inFlight) {}
    Queue(const Queue&) = delete;
    Queue& operator=(const Queue&) = delete;

   protected:
    ~Queue() = default;

   private:
    friend class IssueThread;
    // Issues a tick, or takes note that it cannot. False: only a part, since a stream is full; it is asked
    // for the rest after others have had their turn. On the issuing thread, no lock held: it may not enter,
    // leave, or wait for this thread.
    virtual bool issueTick(std::uint64_t tick) = 0;
    bool ready() const { return partly_ || (issued_ < submitted_ && issued_ < completed_ + inFlight_); }

    const std::uint64_t inFlight_;
    std::uint64_t submitted_ = 0, issued_ = 0, completed_ = 0;  // ticks; completed_ ≤ issued_ ≤ submitted_
    bool partly_ = false;    // the last of the issued ticks is not whole yet
    bool ended_ = false;     // nothing more is submitted
    bool standing_ = false;  // in the line
    Queue* next_ = nullptr;  // in the line
  };

  static IssueThread& of(const DeviceInfo& device);

  // Throws std::system_error where the system has no more threads.
  void enter();
  // False where this is not the next tick, or the queue has ended. Also after `leave`.
  bool submit(Queue& queue, std::uint64_t tick);
  // One more tick has completed: the slot that it took is free.
  void completed(Queue& queue);
  std::uint64_t submitted(const Queue& queue) const;
  // Takes no more ticks; those not yet begun are dropped if told so. Returns how many it will have issued.
  std::uint64_t end(Queue& queue, bool drop);
  // After `end`, when every tick has been issued: once it returns, the thread does not touch the queue again.
  // Waits for no other queue.
  void leave(Queue& queue);

 private:
  IssueThread(const DeviceInfo& device, int process)
      : kind_(device.kind), ordinal_(device.ordinal), process_(process) {}
  void run();
  bool stand(Queue& queue);
  void unstand(Queue& queue);
  bool allAreFull() const;

  const std::string kind_;
  const int ordinal_;
  const int process_;
  IssueThread* nextDevice_ = nullptr;

  mutable std::mutex mutex_;
  std::condition_variable work_, turned_;
  Queue *first_ = nullptr, *last_ = nullptr;  // the line
  Queue* current_ = nullptr;                  // issuing, no lock held
  bool sleeping_ = false, stopping_ = false;

  std::mutex life_;  // held while the thread is started or ended
  std::size_t entered_ = 0;
  std::thread thread_;
};

}  // namespace braid
