#pragma once

#include <memory>
#include <set>
#include <vector>

#include "bindings/allocator_device.h"
#include "bindings/graph_queue.h"
#include "graphs/executable.h"

namespace braid::bindings {

// A JavaScript object that holds graphs of the driver's. The device ends all of them before it goes.
class GraphPart {
 public:
  explicit GraphPart(std::shared_ptr<AllocatorDevice> device);
  virtual ~GraphPart();
  GraphPart(const GraphPart&) = delete;
  GraphPart& operator=(const GraphPart&) = delete;
  // Gives up what it holds of the driver. Idempotent.
  virtual void end() = 0;

  const std::shared_ptr<AllocatorDevice> device;
};

// The graphs of one share of a device. Made when the share makes its first graph.
struct GraphState {
  explicit GraphState(AllocatorDevice& device);

  // Makes the state where there is none yet.
  static GraphState& of(AllocatorDevice& device);
  // Destroys all graphs and releases what they held. Its lanes are idle. Idempotent.
  void end();

  std::shared_ptr<GraphQueue> javascript;
  std::shared_ptr<graphs::CleanupQueue> cleanup;
  std::shared_ptr<Kernel> conditionKernel;  // null before its first use
  std::set<GraphPart*> parts;
  std::vector<graphs::ExecutableGraph*> executables;  // by number from 1; null once destroyed

 private:
  // `waker` is given the queue that the cleanup queue wakes.
  GraphState(AllocatorDevice& device, const std::shared_ptr<std::weak_ptr<GraphQueue>>& waker);
};

}  // namespace braid::bindings
