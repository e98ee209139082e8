#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>

#include "driver/driver.h"
#include "executor/patience.h"

namespace braid {

// The one thread that issues on a device, for all sessions of the process. DeviceInfo's kind and ordinal
// identify the device: drivers opened one after the other on it share its thread.
//
// Sessions with a tick to issue are in one ready list. The first issues one tick, or as much of it as its
// streams have room for, and goes to the end of the list. A session with inFlight ticks in flight is not in
// the list, so it costs the others nothing; one whose driver call blocks delays them by that call.
//
// Never destroyed, so a late submit still finds it and no static destructor has to stop it. Its thread runs
// while at least one session has entered.
class IssueThread {
 public:
  // The ticks of one session. The members are the issue thread's, guarded by its lock.
  class Queue {
   public:
    explicit Queue(std::uint64_t inFlight) : inFlight_(inFlight) {}
    Queue(const Queue&) = delete;
    Queue& operator=(const Queue&) = delete;

   protected:
    ~Queue() = default;

   private:
    friend class IssueThread;
    // Issues a tick, or records that it cannot. Returns false after a part of it where a stream is full: it
    // is called for the rest after the other queues. Runs on the issuing thread with no lock held; it must
    // not enter, leave, or wait for this thread.
    virtual bool issueTick(std::uint64_t tick) = 0;
    bool ready() const { return partly_ || (issued_ < submitted_ && issued_ < completed_ + inFlight_); }

    const std::uint64_t inFlight_;
    std::uint64_t submitted_ = 0, issued_ = 0, completed_ = 0;  // ticks; completed_ ≤ issued_ ≤ submitted_
    bool partly_ = false;    // the last of the issued ticks is not whole yet
    bool ended_ = false;     // nothing more is submitted
    bool queued_ = false;    // in the ready list
    Queue* next_ = nullptr;  // in the ready list
  };

  static IssueThread& of(const DeviceInfo& device);

  // Throws std::system_error where the system has no more threads.
  void enter();
  // False where this is not the next tick, or the queue has ended. May be called after `leave`.
  bool submit(Queue& queue, std::uint64_t tick);
  // One more tick has completed and its slot is free.
  void completed(Queue& queue);
  std::uint64_t submitted(const Queue& queue) const;
  // Ends the submits. With `drop`, ticks not yet begun are dropped. Returns how many ticks will have been
  // issued in all.
  std::uint64_t end(Queue& queue, bool drop);
  // Called after `end`, when every tick has been issued. Afterwards the thread does not touch the queue
  // again. Waits for no other queue.
  void leave(Queue& queue);

 private:
  IssueThread(const DeviceInfo& device, int process)
      : kind_(device.kind), ordinal_(device.ordinal), process_(process) {}
  void run();
  bool enqueue(Queue& queue);
  void dequeue(Queue& queue);
  bool allAreFull() const;
  void idle(std::unique_lock<std::mutex>& lock);

  const std::string kind_;
  const int ordinal_;
  const int process_;
  IssueThread* nextDevice_ = nullptr;

  mutable std::mutex mutex_;
  std::condition_variable work_, turned_;
  Queue *first_ = nullptr, *last_ = nullptr;  // the ready list
  Queue* current_ = nullptr;                  // issuing, no lock held
  bool sleeping_ = false, stopping_ = false;
  Patience patience_;
  std::uint64_t unfinished_ = 0;  // ticks that were issued and have not completed, of all queues
  // Grows where there is something new for the thread: a queue in the ready list, the end.
  std::atomic<std::uint64_t> news_ = 0;

  std::mutex life_;  // held while the thread is started or ended
  std::size_t entered_ = 0;
  std::thread thread_;
};

}  // namespace braid
