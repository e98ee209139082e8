#include "executor/issue_thread.h"

#include <unistd.h>

#include <cassert>
#include <chrono>
#include <utility>

namespace braid {

IssueThread& IssueThread::of(const DeviceInfo& device) {
  // Neither has a destructor that runs: sessions may be closed by static destructors.
  static constinit std::mutex registry;
  static constinit IssueThread* devices = nullptr;
  // A fork takes the registry along but not the threads: the child makes its own.
  const int process = getpid();
  std::lock_guard lock(registry);
  for (IssueThread* known = devices; known != nullptr; known = known->nextDevice_)
    if (known->process_ == process && known->ordinal_ == device.ordinal && known->kind_ == device.kind)
      return *known;
  auto* made = new IssueThread(device, process);
  made->nextDevice_ = devices;
  return *(devices = made);
}

void IssueThread::enter() {
  std::lock_guard life(life_);
  if (entered_ == 0) thread_ = std::thread([this] { run(); });
  ++entered_;
}

// Puts the queue into the ready list and returns whether it did. The queue that is being issued comes back by
// itself.
bool IssueThread::enqueue(Queue& queue) {
  if (queue.queued_ || &queue == current_ || !queue.ready()) return false;
  queue.queued_ = true;
  queue.next_ = nullptr;
  (last_ ? last_->next_ : first_) = &queue;
  last_ = &queue;
  news_.fetch_add(1, std::memory_order_release);
  return true;
}

void IssueThread::dequeue(Queue& queue) {
  if (!std::exchange(queue.queued_, false)) return;
  Queue* before = nullptr;
  for (Queue* at = first_; at != &queue; at = at->next_) before = at;
  (before ? before->next_ : first_) = queue.next_;
  if (last_ == &queue) last_ = before;
}

// Whether every queue in the ready list only has the rest of a tick that a full stream held up.
bool IssueThread::allAreFull() const {
  for (const Queue* queue = first_; queue != nullptr; queue = queue->next_)
    if (!queue->partly_) return false;
  return first_ != nullptr;
}

bool IssueThread::submit(Queue& queue, std::uint64_t tick) {
  bool wake = false;
  {
    std::lock_guard lock(mutex_);
    if (queue.ended_ || tick != queue.submitted_) return false;
    ++queue.submitted_;
    wake = enqueue(queue) && std::exchange(sleeping_, false);
  }
  if (wake) work_.notify_one();
  return true;
}

void IssueThread::completed(Queue& queue) {
  bool wake = false;
  {
    std::lock_guard lock(mutex_);
    ++queue.completed_;
    --unfinished_;
    enqueue(queue);
    // Woken even with nothing to issue: the callback of a finished tick submits the next one, and waking a
    // thread that was awake a moment ago takes a third less (14 µs instead of 21 on a machine with two
    // cores).
    wake = std::exchange(sleeping_, false);
  }
  if (wake) work_.notify_one();
}

std::uint64_t IssueThread::submitted(const Queue& queue) const {
  std::lock_guard lock(mutex_);
  return queue.submitted_;
}

std::uint64_t IssueThread::end(Queue& queue, bool drop) {
  std::lock_guard lock(mutex_);
  queue.ended_ = true;
  if (drop) {
    queue.submitted_ = queue.issued_;
    if (!queue.partly_) dequeue(queue);
  }
  return queue.submitted_;
}

void IssueThread::leave(Queue& queue) {
  {
    std::unique_lock lock(mutex_);
    assert(queue.ended_ && queue.issued_ == queue.submitted_);
    turned_.wait(lock, [&] { return current_ != &queue; });
  }
  std::lock_guard life(life_);
  assert(thread_.get_id() != std::this_thread::get_id());
  if (--entered_ > 0) return;
  // Every queue has left, so the ready list is empty and the thread sleeps or is about to: joining it takes
  // no time.
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    news_.fetch_add(1, std::memory_order_release);
  }
  work_.notify_one();
  thread_.join();
  stopping_ = false;
}

// Waits for a queue in the ready list, or the end. While the thread is awake it is not `sleeping_`, so nobody
// wakes it, and the lock is free.
void IssueThread::idle(std::unique_lock<std::mutex>& lock) {
  // JavaScript takes no longer to answer the end of a tick with the next one.
  constexpr std::chrono::microseconds answer{200};
  const auto began = std::chrono::steady_clock::now();
  // The host device computes on the processors that this would take.
  if (kind_ != "host") {
    const std::uint64_t known = news_.load(std::memory_order_acquire);
    const Patience::Duration longest = unfinished_ > 0 ? Patience::most : answer;
    lock.unlock();
    patience_.await([&] { return news_.load(std::memory_order_acquire) != known; }, longest);
    lock.lock();
  }
  while (first_ == nullptr && !stopping_) {
    sleeping_ = true;
    work_.wait(lock);
    sleeping_ = false;
  }
  patience_.waited(std::chrono::steady_clock::now() - began);
}

void IssueThread::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    if (first_ == nullptr && !stopping_) idle(lock);
    if (first_ == nullptr) return;
    Queue& queue = *first_;
    first_ = queue.next_;
    if (first_ == nullptr) last_ = nullptr;
    queue.queued_ = false;
    if (!queue.partly_) ++queue.issued_, ++unfinished_;
    const std::uint64_t tick = queue.issued_ - 1;
    current_ = &queue;

    lock.unlock();
    const bool whole = queue.issueTick(tick);
    lock.lock();

    current_ = nullptr;
    queue.partly_ = !whole;
    enqueue(queue);
    turned_.notify_all();
    // A full stream still has more than half of its work left when it is known to have room, so this wait
    // costs nothing.
    if (!whole && allAreFull()) {
      sleeping_ = true;
      work_.wait_for(lock, std::chrono::microseconds(50));
      sleeping_ = false;
    }
  }
}

}  // namespace braid
