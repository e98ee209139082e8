#include "graphs/cleanup.h"

namespace braid::graphs {

void CleanupQueue::destroyed(void* data) noexcept {
  auto* payload = static_cast<Payload*>(data);
  // Another thread may release the payload as soon as it is pushed.
  const std::shared_ptr<CleanupQueue> queue = std::move(payload->queue);
  // Nothing of anybody's ends with it, so nobody need drain it.
  if (ownsNothing(payload->owners) && payload->more.empty()) {
    delete payload;
    --queue->outstanding_;
    return;
  }
  payload->next = queue->first_.load(std::memory_order_relaxed);
  while (!queue->first_.compare_exchange_weak(payload->next, payload, std::memory_order_release,
                                              std::memory_order_relaxed)) {
  }
  queue->retry();
}

void CleanupQueue::retry() noexcept {
  if (!wake_ || closed_.load() || !hasWork()) return;
  if (asked_.exchange(true)) return;
  if (!wake_()) asked_.store(false);
}

std::size_t CleanupQueue::drain() {
  asked_.store(false);
  if (closed_.load()) return 0;
  Payload* payload = first_.exchange(nullptr, std::memory_order_acquire);
  // Oldest first.
  Payload* ordered = nullptr;
  while (payload) {
    Payload* const next = payload->next;
    payload->next = ordered;
    ordered = payload;
    payload = next;
  }
  std::size_t count = 0;
  while (ordered) {
    const std::unique_ptr<Payload> dead(ordered);
    ordered = ordered->next;
    ++count;
  }
  outstanding_ -= count;
  return count;
}

Status makeUserObject(Driver& driver, std::unique_ptr<Payload> payload, UserObject* object) {
  const std::shared_ptr<CleanupQueue> queue = payload->queue;
  ++queue->outstanding_;
  const Status status = driver.userObjectCreate(object, CleanupQueue::destroyed, payload.get(), 1);
  if (status == Status::ok)
    payload.release();
  else
    --queue->outstanding_;
  return status;
}

}  // namespace braid::graphs
