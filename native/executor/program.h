#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "executor/decode.h"
#include "executor/driver_objects.h"
#include "executor/pacing.h"
#include "executor/schedule.h"
#include "executor/session_memory.h"
#include "memory/session_allocator.h"

namespace braid {

std::vector<std::shared_ptr<Driver>> driversOf(const std::vector<std::shared_ptr<DeviceMemory>>& devices);

// Makes the callback that computes a user's kernel on the host device. `reads` and `writes` are the operands'
// bytes.
using ReferenceFactory =
    std::function<HostCallback(std::uint32_t kernel, std::uint32_t node, std::vector<std::size_t> reads,
                               std::vector<std::size_t> writes)>;
// Called on the loading thread after each run whose kernel is prepared.
using PreparedCallback = std::function<void(std::uint32_t runs, std::uint32_t total)>;

// A plan that is ready to be issued: steps decoded, kernels prepared, memory allocated, streams and events
// created. After `load` nothing here allocates, compiles or creates a driver object.
class Program {
 public:
  // One for each device of the spec, all of one kind.
  Program(const std::vector<std::shared_ptr<DeviceMemory>>& devices, ProgramSpec spec);
  Program(std::shared_ptr<Driver> driver, ProgramSpec spec)
      : Program(std::vector{DeviceMemory::alone(std::move(driver))}, std::move(spec)) {}
  Program(const Program&) = delete;

  // Decodes the commands and takes the memory. After a failure the program can only be destroyed.
  MaybeFailure takeMemory(const MemorySources& sources = {});
  // All the rest, after `takeMemory`: may take long, since kernels are compiled.
  // `traced`: the nodes of graphs are to record events.
  MaybeFailure load(const ReferenceFactory& reference, bool traced = false,
                    const PreparedCallback& onPrepared = {});

  std::size_t devices() const { return drivers_.size(); }
  Driver& driver(std::size_t device = 0) const { return *drivers_[device]; }
  const std::shared_ptr<Driver>& sharedDriver(std::size_t device) const { return drivers_[device]; }
  std::uint32_t deviceOf(LaneId lane) const { return spec_.lanes[lane].device; }
  Driver& driverOf(LaneId lane) const { return *laneDrivers_[lane]; }
  Driver& driverOfStream(std::size_t stream) const { return *laneDrivers_[stream % spec_.lanes.size()]; }
  const ProgramSpec& spec() const { return spec_; }
  const std::vector<Step>& steps() const { return decoded_.steps; }  // the plan's commands
  // What is issued in their place.
  const Schedule& schedule() const { return schedule_; }
  const Decoded& decoded() const { return decoded_; }
  const Kernel& kernel(std::uint32_t run) const { return *runKernels_[run]; }
  // Of slot 0's lanes, and where slots have lanes of their own of all others too: (slot, lane) in order.
  const std::vector<Stream>& streams() const { return streams_; }
  // The slot whose streams a tick in this slot is issued on.
  std::uint32_t lanesOf(std::uint32_t slot) const { return spec_.arenas > 1 ? slot : 0; }
  // Where a lane's stream stands in `streams` and its queue in `pacing`.
  LaneId streamOf(LaneId lane, std::uint32_t slot) const {
    return lanesOf(slot) * static_cast<LaneId>(spec_.lanes.size()) + lane;
  }
  Stream stream(LaneId lane, std::uint32_t slot) const { return streams_[streamOf(lane, slot)]; }
  // The most pieces of work that the run puts into its stream's queue.
  std::uint32_t pieces(std::uint32_t run) const { return runPieces_[run]; }
  Event event(TickOrder::Marker marker) const { return markerEvents_[marker]; }
  // The marker that a record in this tick sets. A wait for the tick before passes tick - 1.
  TickOrder::Marker marker(std::uint32_t event, std::uint64_t tick) const {
    return markers_[event] + (schedule_.alternating[event] ? tick & 1 : 0);
  }
  Event tickEnd(std::uint32_t slot, LaneId lane) const { return tickEnds_[slot * spec_.lanes.size() + lane]; }
  // Recorded on the first of the busy lanes; only where the bound is enforced.
  Event tickOrder() const { return tickOrder_; }
  // Lanes on whose streams something is issued. The other lanes' ticks have no end to wait for.
  const std::vector<LaneId>& busyLanes() const { return busyLanes_; }
  Stream service(std::size_t device) const { return services_[device]; }
  // A run on each device whose runs are nodes of graphs that another device launches. No stream of that
  // device comes to know that they have failed.
  const std::vector<Step>& launchedElsewhere() const { return launchedElsewhere_; }
  // By root buffer: its views.
  const std::vector<std::vector<std::uint32_t>>& views() const { return views_; }

  SessionMemory memory;
  TickOrder order;
  std::vector<std::unique_ptr<SessionAllocator>> pools;  // by memory, as SessionMemory numbers them
  DriverObjects objects;
  Pacing pacing;

 private:
  MaybeFailure findGraphs(bool traced);
  void findLaunchedElsewhere();
  MaybeFailure enablePeers();
  MaybeFailure afterPreviousUses(Driver& driver, Stream stream);
  MaybeFailure makeStreams();
  MaybeFailure makeStream(LaneId lane);
  void findBusyLanes();
  MaybeFailure makeEvents();
  MaybeFailure makePools(const std::vector<TickOrder::Marker>& spare);
  MaybeFailure prepareKernels(const ReferenceFactory& reference, const PreparedCallback& onPrepared);
  MaybeFailure makePacing();
  KernelSpec specOf(const Step& run) const;
  const BufferSpec& operand(const Step& run, std::uint32_t index) const {
    return spec_.buffers[decoded_.operands[run.operands + index]];
  }
  bool reachesPeers(const Step& run) const;
  Status prepare(const Step& run, const KernelSpec& spec, HostCallback callback,
                 std::unique_ptr<Kernel>* kernel);

  const std::vector<std::shared_ptr<Driver>> drivers_;
  ProgramSpec spec_;
  Decoded decoded_;
  Schedule schedule_;
  std::vector<std::unique_ptr<Kernel>> kernels_;
  std::vector<const Kernel*> runKernels_;
  std::vector<std::uint32_t> runPieces_;
  std::vector<Stream> streams_;
  std::vector<Driver*> laneDrivers_;
  std::vector<Stream> services_;
  std::vector<Event> markerEvents_;
  std::vector<TickOrder::Marker> markers_;
  std::vector<Event> tickEnds_;
  Event tickOrder_ = nullptr;
  std::vector<LaneId> busyLanes_;
  std::vector<Step> launchedElsewhere_;
  // By pair of devices of which one accesses the other: 1 where it can, 2 where it cannot; else 0.
  std::vector<std::uint8_t> reachable_;
  std::vector<std::vector<std::uint32_t>> views_;
};

}  // namespace braid
