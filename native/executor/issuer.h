#pragma once

#include <vector>

#include "executor/program.h"
#include "executor/trace.h"

namespace braid {

// Issues one tick after another on the device's one issuing thread, between which that thread may have issued on
// other drivers. Nothing here allocates memory, compiles or creates
// a driver object. The caller has seen tick - inFlight complete.
class Issuer {
 public:
  Issuer(Program& program, Trace& trace, bool poison);

  // The first failure stops the tick where it stands; what was issued before it runs on.
  MaybeFailure issue(std::uint64_t tick);
  // Everything has completed: blocks that a failed tick left behind go back.
  void abandon();

 private:
  Status step(const Step& step, std::uint64_t tick);
  Status alloc(const Step& step);
  Status run(const Step& step, std::uint64_t tick);
  Status poisonTenants(std::size_t at);
  void place(std::uint32_t root, DeviceAddress address);
  Allocator& pool(std::uint32_t buffer) {
    return *program_.pools[program_.spec().buffers[buffer].space == Space::device ? 0 : 1];
  }
  Failure explain(Status status);
  Failure explain(Status status, LaneId lane);
  Failure explain(const Step& step, Status status);

  Program& program_;
  Trace& trace_;
  bool poison_;
  const char* call_ = "";                  // the driver call in hand
  std::vector<DeviceAddress> addresses_;   // by buffer, as of the command in hand
  std::vector<DeviceAddress> operands_;    // scratch of one run
  std::vector<BlockId> blocks_;            // by root buffer
  std::vector<std::uint32_t> handedOver_;  // inputs, outputs and their views
  // With planned storage and poison: by step, in order, the roots that a tick has not touched before it.
  struct Arrival {
    std::size_t step;
    std::uint32_t root;
  };
  std::vector<Arrival> arrivals_;
  std::size_t nextArrival_ = 0;
};

}  // namespace braid
