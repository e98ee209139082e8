#pragma once

#include <atomic>
#include <vector>

#include "executor/plan_graphs.h"
#include "executor/poison.h"
#include "executor/program.h"
#include "executor/steady_state.h"
#include "executor/trace.h"

namespace braid {

// Issues one tick after another on the device's issuing thread, which may issue for other sessions in
// between. A program for several devices is issued by one thread too: it binds each device when a command
// needs it. Nothing here compiles, creates a driver object, or, after the first few ticks, allocates memory.
// The caller has seen tick - inFlight complete.
//
// The addresses of planned buffers are fixed, and those of pooled buffers are known from the steady state on
// (see SteadyState). Then a tick consists of its driver calls alone. Where the bound is enforced, that is
// from the second tick on.
class Issuer {
 public:
  // Without `mayRepeat` every tick calls the allocators for every block: for tests. `graphs`: the executables
  // that the program's schedule launches; null where it launches none.
  Issuer(Program& program, Trace& trace, bool poison, bool mayRepeat = true, PlanGraphs* graphs = nullptr);

  // Issues the tick. Where a lane's queue is full it stops before that command, with `isWhole` false, and is
  // called again for the same tick later. The first failure ends the tick; commands before it run on.
  MaybeFailure issue(std::uint64_t tick);
  // The slot of inputs and outputs that a tick uses; from any thread, before the tick is issued.
  void useSlot(std::uint64_t tick, std::uint32_t slot) {
    slots_[tick % slots_.size()].store(slot, std::memory_order_relaxed);
  }
  // That slot; until the tick has ended.
  std::uint32_t slotOf(std::uint64_t tick) const {
    return slots_[tick % slots_.size()].load(std::memory_order_relaxed);
  }
  bool isWhole() const { return !begun_; }
  // How many commands have found their lane's queue full.
  std::uint64_t fullQueues() const { return fullQueues_; }
  // How many graphs have been launched.
  std::uint64_t graphLaunches() const { return graphLaunches_; }
  // Whether the addresses of all buffers of the next tick are known.
  bool addressesKnown() const { return addressesKnown_; }
  // Frees the blocks that a failed tick left behind. All work has completed.
  void abandon();
  ~Issuer() { releaseReaders(); }
  Issuer(const Issuer&) = delete;

 private:
  void findFirstWrites();
  void begin(std::uint64_t tick);
  MaybeFailure end(std::uint64_t tick);
  MaybeFailure orderAfterTickBefore(std::uint64_t tick);
  std::size_t tickOrders() const {
    return program_.spec().enforced && !program_.busyLanes().empty() ? 2 * program_.busyLanes().size() - 1
                                                                     : 0;
  }
  bool isPaced(LaneId lane) const { return program_.pacing.isPaced(program_.streamOf(lane, slot_)); }
  bool isPaced(const Step& step) const {
    return step.kind != StepKind::free && step.kind != StepKind::use && isPaced(step.lane);
  }
  std::uint64_t piecesOf(const Step& step) const;
  Status fits(LaneId lane, std::uint64_t pieces, bool* fits);
  Status countQueued(LaneId lane, std::uint64_t pieces);
  Status step(const Step& step, std::uint64_t tick);
  void enterSteadyState(std::uint64_t tick);
  Status alloc(const Step& step);
  Status poison(std::uint32_t root, LaneId lane);
  Status run(const Step& step, std::uint64_t tick);
  Status waitForReaders(std::size_t at);
  void releaseReaders();
  Status launch(const Step& step, std::uint64_t tick);
  Status poisonFirstTouches(std::uint32_t command);
  Status bindDeviceOf(LaneId lane);
  void place(std::uint32_t root, DeviceAddress address);
  std::size_t memoryOf(std::uint32_t buffer) const {
    return program_.memory.of(program_.spec().buffers[buffer]);
  }
  SessionAllocator& pool(std::uint32_t buffer) { return *program_.pools[memoryOf(buffer)]; }
  Failure explain(Status status);
  Failure explain(Status status, LaneId lane);
  Failure explain(const Step& step, Status status);

  Program& program_;
  Trace& trace_;
  PlanGraphs* const graphs_;
  std::vector<std::atomic<std::uint32_t>> slots_;  // by tick modulo inFlight
  bool poison_;
  bool mayRepeat_;
  const bool severalDevices_;
  Driver* driver_;  // of the device that the thread is bound to
  SteadyState steadyState_;
  bool addressesKnown_;
  // In steady state: the addresses of the blocks of one period, in order of their allocs, as recorded from
  // tick `periodStart_` on.
  std::uint64_t period_ = 0, periodStart_ = 0;
  std::vector<DeviceAddress> periodAddresses_;
  std::size_t nextAddress_ = 0;
  std::vector<std::uint64_t> blocksOf_;  // by pool: blocks of a tick
  std::uint64_t allBlocks_ = 0;          // their sum
  const char* call_ = "";                // the present driver call, for failures
  std::uint32_t slot_ = 0;               // of the tick
  std::size_t next_ = 0;                 // the first step of the tick's schedule that is not issued yet
  std::size_t nextOrder_ = 0;            // the first of `tickOrders` that is not issued yet
  bool begun_ = false;                   // a tick has begun and is not issued to its end
  bool full_ = false;                    // command `next_` has found its lane's queue full
  std::atomic<std::uint64_t> fullQueues_{0}, graphLaunches_{0};
  std::vector<DeviceAddress> addresses_;  // by buffer, at command `next_`
  std::vector<DeviceAddress> operands_;   // of the run that is being launched
  std::vector<BlockId> blocks_;           // by root buffer
  std::vector<std::uint32_t> bySlot_;     // buffers and views whose address is the slot's
  std::vector<FirstTouch> firstTouches_;  // with poison: those outside graphs
  std::size_t nextTouch_ = 0;
  // Outputs on a device: lanes of users may still read the slot, as its last lease left it. A lane's first
  // write of an output in a tick comes after those readers, whose marks are held until the tick is issued.
  struct FirstWrite {
    std::size_t step;    // of the schedule: a run, or the launch of a graph
    std::size_t output;  // index in `readers_`
  };
  struct Readers {
    std::uint32_t root;
    std::vector<Mark*> marks;
  };
  std::vector<FirstWrite> firstWrites_;  // in order of steps
  std::size_t nextWrite_ = 0;
  std::vector<Readers> readers_;
};

}  // namespace braid
