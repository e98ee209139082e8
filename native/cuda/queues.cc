#include "cuda/queues.h"

#include <algorithm>
#include <cstdlib>

namespace braid::cuda {
namespace {

constexpr std::size_t pieces = 1021;  // of a queue
constexpr int most = 64;              // devices: others count together with the last

// Read once, as the driver does.
std::size_t queues() {
  static const std::size_t count = [] {
    const char* given = std::getenv("CUDA_DEVICE_MAX_CONNECTIONS");
    const int connections = given != nullptr ? std::atoi(given) : 0;
    return static_cast<std::size_t>(connections >= 1 && connections <= 32 ? connections : 8);
  }();
  return count;
}

}  // namespace

Queues& Queues::of(int ordinal) {
  static constinit Queues all[most];
  return all[std::clamp(ordinal, 0, most - 1)];
}

std::size_t Queues::streamDepth() const {
  const std::size_t streams = streams_.load(std::memory_order_relaxed);
  const std::size_t sharing = std::max<std::size_t>(1, (streams + queues() - 1) / queues());
  return std::max<std::size_t>(1, pieces / sharing);
}

}  // namespace braid::cuda
