#pragma once

#include <atomic>
#include <cstddef>

namespace braid::cuda {

// The capacity of the queues between the driver and a device, which the streams of a process share in turn. A
// call that puts work into a full queue blocks.
//
// The driver does not report it. Measured on an H200, driver 580, with every stream held by a kernel that
// does not end: 1 to 8 streams take 1,021 pieces each, 16 take 510, 32 take 255, all evenly filled.
// CUDA_DEVICE_MAX_CONNECTIONS is the number of queues, 8 by default. Streams that other code creates are not
// counted.
class Queues {
 public:
  static Queues& of(int ordinal);
  void streamMade() { streams_.fetch_add(1, std::memory_order_relaxed); }
  void streamGone() { streams_.fetch_sub(1, std::memory_order_relaxed); }
  // The pieces that each stream may hold if all are equally full.
  std::size_t streamDepth() const;

 private:
  std::atomic<std::size_t> streams_{0};
};

}  // namespace braid::cuda
