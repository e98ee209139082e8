#pragma once

#include <atomic>
#include <cstddef>

namespace braid::cuda {

// What lies between the driver and a device: a few queues, which the streams of a process share in turn. A
// call for one more piece of work than its stream's queue takes blocks its caller.
//
// Nothing tells how much they take. Measured on an H200, driver 580, with every stream held by a kernel that
// does not end: 1 to 8 streams take 1,021 pieces each, 16 take 510, 32 take 255, all evenly filled.
// CUDA_DEVICE_MAX_CONNECTIONS says how many queues there are, 8 where it is not set. Streams that others made
// are not seen.
class Queues {
 public:
  static Queues& of(int ordinal);
  void streamMade() { streams_.fetch_add(1, std::memory_order_relaxed); }
  void streamGone() { streams_.fetch_sub(1, std::memory_order_relaxed); }
  // Pieces that each stream may hold, were all of them as full.
  std::size_t streamDepth() const;

 private:
  std::atomic<std::size_t> streams_{0};
};

}  // namespace braid::cuda
