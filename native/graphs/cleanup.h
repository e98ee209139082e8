#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "driver/driver.h"

namespace braid::graphs {

// Something that must outlive what refers to it: a kernel, an allocation, an event, a callback, a block of
// bytes. Native owners share their handle's own control block; a null owner owns nothing.
using Owner = std::shared_ptr<const void>;

// The two owners of a node, which never change: new parameters get a new pair.
//   kernel: the kernel, its arguments as one owner. host function: the function, its data.
//   copy: destination, source. fill: destination. event record and wait: the event.
using OwnerPair = std::array<Owner, 2>;
inline bool ownsNothing(const OwnerPair& owners) { return !owners[0] && !owners[1]; }

class CleanupQueue;

// What a user object of the driver stands for. Made before the driver is called, so that nothing is allocated
// when its destructor runs.
struct Payload {
  std::shared_ptr<CleanupQueue> queue;
  OwnerPair owners;
  std::vector<OwnerPair> more;  // of an executable's updated nodes
  Payload* next = nullptr;
};

// Owners whose last reference the driver has given up. Its destructor callback runs on a thread of the
// driver's, at any time, and may neither call the driver nor wait: it only pushes. Owners die where `drain`
// is called, which may call the driver, as an allocation's end does. Whoever makes a queue drains it once
// more after the last graph has gone; what is never drained is leaked.
class CleanupQueue {
 public:
  // `wake` asks for a drain, once however much is pushed before it. It runs on the driver's thread, under its
  // rules. Returns false if it cannot ask now.
  explicit CleanupQueue(std::function<bool()> wake = {}) : wake_(std::move(wake)) {}
  CleanupQueue(const CleanupQueue&) = delete;
  CleanupQueue& operator=(const CleanupQueue&) = delete;

  // The destructor of every user object; `payload` is one.
  static void destroyed(void* payload) noexcept;

  // Releases what has been pushed. Returns how many payloads that were.
  std::size_t drain();
  // Whether something has been pushed and not been released yet.
  bool hasWork() const { return first_.load(std::memory_order_relaxed) != nullptr; }
  // How many user objects' payloads have not been released yet.
  std::size_t outstanding() const { return outstanding_.load(); }
  // Asks again where an earlier wake could not. Called when graphs and executables go.
  void retry() noexcept;
  // The process ends: from now on nothing is woken or released, since owners may need a language or a driver
  // that has gone.
  void close() { closed_.store(true); }

 private:
  friend Status makeUserObject(Driver& driver, std::unique_ptr<Payload> payload, UserObject* object);
  const std::function<bool()> wake_;
  std::atomic<std::size_t> outstanding_{0};
  std::atomic<Payload*> first_{nullptr};
  std::atomic<bool> asked_{false}, closed_{false};
};

// A user object with one reference of the caller's. After a failure there is none, and the payload is gone.
Status makeUserObject(Driver& driver, std::unique_ptr<Payload> payload, UserObject* object);

}  // namespace braid::graphs
