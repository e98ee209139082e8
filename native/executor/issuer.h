#pragma once

#include <atomic>
#include <vector>

#include "executor/program.h"
#include "executor/settling.h"
#include "executor/trace.h"

namespace braid {

// Issues one tick after another on the device's one issuing thread, between which that thread may have issued
// on other drivers. Of a program for several devices it is one thread all the same, and makes each device
// current where the order of commands comes to it. Nothing here compiles, creates a driver object, or, once a
// few ticks have gone by, allocates memory. The caller has seen tick - inFlight complete.
//
// Buffers of a planned program have their places; those of a pool have them once it has settled (see
// Settling). From then on a tick is its driver calls alone.
class Issuer {
 public:
  // Pools that may not settle are asked for every block of every tick: for tests.
  Issuer(Program& program, Trace& trace, bool poison, bool maySettle = true);

  // Issues the tick; or, where a lane's queue is full before its end, only the commands before that one:
  // `isWhole` says which, and the same tick is asked for again later. The first failure stops the tick where
  // it stands; what was issued before it runs on.
  MaybeFailure issue(std::uint64_t tick);
  bool isWhole() const { return !begun_; }
  // How often a command has found its lane's queue full.
  std::uint64_t fullQueues() const { return fullQueues_; }
  // Whether it is known already where every buffer of the next tick lies.
  bool inPlace() const { return inPlace_; }
  // Everything has completed: blocks that a failed tick left behind go back.
  void abandon();

 private:
  void begin(std::uint64_t tick);
  MaybeFailure end(std::uint64_t tick);
  bool isPaced(const Step& step) const {
    return step.kind != StepKind::free && step.kind != StepKind::use && program_.pacing.isPaced(step.lane);
  }
  std::uint64_t piecesOf(const Step& step) const;
  Status hasRoom(LaneId lane, std::uint64_t pieces, bool* room);
  Status note(LaneId lane, std::uint64_t pieces);
  Status step(const Step& step, std::uint64_t tick);
  Status stepInPlace(const Step& step, std::uint64_t tick);
  void settle(std::uint64_t tick);
  Status alloc(const Step& step);
  Status poison(std::uint32_t root, LaneId lane);
  Status run(const Step& step, std::uint64_t tick);
  Status poisonTenants(std::size_t at);
  Status become(LaneId lane);
  void place(std::uint32_t root, DeviceAddress address);
  std::size_t memoryOf(std::uint32_t buffer) const {
    return program_.memory.of(program_.spec().buffers[buffer]);
  }
  Allocator& pool(std::uint32_t buffer) { return *program_.pools[memoryOf(buffer)]; }
  Failure explain(Status status);
  Failure explain(Status status, LaneId lane);
  Failure explain(const Step& step, Status status);

  Program& program_;
  Trace& trace_;
  bool poison_;
  bool maySettle_;
  const bool several_;  // devices
  Driver* driver_;      // of the device that is current
  Settling settling_;
  bool inPlace_;
  // Of a pool that has settled: places of blocks over one round of ticks, in order of their allocs, as noted
  // from the tick `noted_` on.
  std::uint64_t period_ = 0, noted_ = 0;
  std::vector<DeviceAddress> places_;
  std::size_t nextPlace_ = 0;
  std::vector<std::uint64_t> blocksOf_;  // by pool: of a tick
  std::uint64_t allBlocks_ = 0;          // their sum
  const char* call_ = "";                // the driver call in hand
  std::size_t next_ = 0;                 // the first command of the tick that is not issued yet
  bool begun_ = false;                   // and some before it are, or may be
  bool full_ = false;                    // it has found its lane's queue full
  std::atomic<std::uint64_t> fullQueues_{0};
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
