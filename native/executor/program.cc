#include "executor/program.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "executor/divided_graphs.h"

namespace braid {

std::vector<std::shared_ptr<Driver>> driversOf(const std::vector<std::shared_ptr<DeviceMemory>>& devices) {
  std::vector<std::shared_ptr<Driver>> drivers;
  for (const auto& device : devices) drivers.push_back(device->sharedDriver());
  return drivers;
}

Program::Program(const std::vector<std::shared_ptr<DeviceMemory>>& devices, ProgramSpec spec)
    : memory(devices),
      // Clamped, since `load` has not checked the spec yet.
      order(std::min(spec.lanes.size(), mostLanes), std::clamp<std::size_t>(spec.inFlight, 1, mostInFlight)),
      drivers_(driversOf(devices)),
      spec_(std::move(spec)) {}

MaybeFailure Program::takeMemory(const MemorySources& sources) {
  if (spec_.devices.size() != drivers_.size())
    return invalidProgram("devices", "the program is for " + std::to_string(spec_.devices.size()) + ", and " +
                                         std::to_string(drivers_.size()) + " are open");
  if (MaybeFailure failure = decode(spec_, &decoded_)) return failure;
  views_.resize(spec_.buffers.size());
  for (std::uint32_t i = 0; i < spec_.buffers.size(); ++i) views_[spec_.buffers[i].root].push_back(i);
  return memory.take(spec_, sources);
}

MaybeFailure Program::load(const ReferenceFactory& reference, bool traced,
                           const PreparedCallback& onPrepared) {
  if (MaybeFailure failure = enablePeers()) return failure;
  if (MaybeFailure failure = findGraphs(traced)) return failure;
  if (MaybeFailure failure = makeStreams()) return failure;
  if (MaybeFailure failure = makeEvents()) return failure;
  if (MaybeFailure failure = prepareKernels(reference, onPrepared)) return failure;
  return makePacing();
}

// A driver without graphs gets each command by itself: the answers are the same. A graph is divided where it
// has nodes of two devices of which one accesses the other and cannot reach it, and before each run of
// another device where nodes record events, each of which belongs to one device.
MaybeFailure Program::findGraphs(bool traced) {
  bool supported = !decoded_.graphs.empty();
  for (std::size_t device = 0; device < drivers_.size() && supported; ++device) {
    Driver& driver = *drivers_[device];
    Graph graph = nullptr;
    Status status = driver.bind();
    if (status == Status::ok) status = driver.graphCreate(&graph);
    supported = status != Status::notSupported;
    if (status == Status::ok) status = driver.graphDestroy(graph);
    if (supported && status != Status::ok) return failureOf(driver, status, "graphCreate");
  }
  if (drivers_.size() > 1) {
    drivers_[0]->bind();
    decoded_.graphs = dividedGraphs(spec_, decoded_, [&](std::uint32_t one, std::uint32_t other) {
      return !traced && reachable_[one * drivers_.size() + other] != 2 &&
             reachable_[other * drivers_.size() + one] != 2;
    });
  }
  schedule_ = scheduleOf(spec_, decoded_, supported);
  findLaunchedElsewhere();
  return std::nullopt;
}

void Program::findLaunchedElsewhere() {
  std::vector<bool> found(drivers_.size());
  for (const Step& step : decoded_.steps) {
    const std::uint32_t device = deviceOf(step.lane);
    if (step.kind != StepKind::run || found[device]) continue;
    if (deviceOf(schedule_.issuedOn[step.command]) == device) continue;
    found[device] = true;
    launchedElsewhere_.push_back(step);
  }
}

// Enables peer access between all devices that copy from or to each other. Where the machine has none, only
// kernels that need it are refused.
MaybeFailure Program::enablePeers() {
  if (drivers_.size() == 1) return std::nullopt;
  for (const auto& driver : drivers_) {
    if (driver->info().kind == drivers_[0]->info().kind) continue;
    return invalidProgram("devices", "a program runs on devices of one kind, not on " +
                                         deviceName(drivers_[0]->info()) + " and " +
                                         deviceName(driver->info()));
  }
  reachable_.resize(drivers_.size() * drivers_.size());
  for (const Step& step : decoded_.steps) {
    if (step.kind != StepKind::run) continue;
    const std::uint32_t own = spec_.lanes[step.lane].device;
    for (std::uint32_t i = 0; i < step.reads + step.writes; ++i) {
      const BufferSpec& buffer = operand(step, i);
      if (buffer.space == Space::pinned || buffer.device == own) continue;
      for (const auto& [from, to] : {std::pair{own, buffer.device}, std::pair{buffer.device, own}}) {
        std::uint8_t& known = reachable_[from * drivers_.size() + to];
        if (known == 0) {
          drivers_[from]->bind();
          const Status status = drivers_[from]->reachPeer(*drivers_[to]);
          if (status != Status::ok && status != Status::notSupported)
            return failureOf(*drivers_[from], status, "reachPeer");
          known = status == Status::ok ? 1 : 2;
        }
        const NodeSpec& node = spec_.nodes[step.subject];
        if (known == 1 || from != own || spec_.kernels[node.kernel].kind == KernelSpec::Kind::copy) continue;
        Failure failure = failureOf(*drivers_[from], Status::notSupported, "prepare " + node.name);
        failure.node = static_cast<int>(step.subject);
        failure.detail = "reads or writes memory of " + deviceName(drivers_[to]->info()) + ", which " +
                         deviceName(drivers_[from]->info()) + " cannot reach on this machine";
        return failure;
      }
    }
  }
  return std::nullopt;
}

MaybeFailure Program::afterPreviousUses(Driver& driver, Stream stream) {
  const Status status = memory.orderAfterPreviousUses(driver, stream);
  if (status == Status::ok) return std::nullopt;
  return failureOf(driver, status, "streamWait");
}

MaybeFailure Program::makeStream(LaneId lane) {
  Driver& driver = *laneDrivers_[lane];
  const DeviceInfo& info = driver.info();
  // Higher priorities are greater numbers in a plan, lesser ones in a driver.
  const int priority = std::clamp(-spec_.lanes[lane].priority, info.greatestPriority, info.leastPriority);
  driver.bind();
  Stream stream = nullptr;
  if (const Status status = objects.stream(driver, &stream, priority); status != Status::ok) {
    Failure failure = failureOf(driver, status, "streamCreate");
    failure.lane = spec_.lanes[lane].name;
    return failure;
  }
  streams_.push_back(stream);
  return afterPreviousUses(driver, stream);
}

void Program::findBusyLanes() {
  std::vector<bool> busy(spec_.lanes.size());
  for (const Step& step : schedule_.steps)
    if (step.kind != StepKind::free && step.kind != StepKind::use) busy[step.lane] = true;
  for (LaneId lane = 0; lane < busy.size(); ++lane)
    if (busy[lane]) busyLanes_.push_back(lane);
}

MaybeFailure Program::makeStreams() {
  findBusyLanes();
  const auto lanes = static_cast<LaneId>(spec_.lanes.size());
  for (const LaneSpec& lane : spec_.lanes) laneDrivers_.push_back(drivers_[lane.device].get());
  for (std::uint32_t slot = 0; slot < spec_.arenas; ++slot) {
    for (LaneId lane = 0; lane < lanes; ++lane) {
      const bool issued = std::binary_search(busyLanes_.begin(), busyLanes_.end(), lane);
      // Of further slots only the lanes on which something is issued have streams.
      if (slot > 0 && !issued)
        streams_.push_back(streams_[lane]);
      else if (MaybeFailure failure = makeStream(lane))
        return failure;
    }
  }
  for (const auto& driver : drivers_) {
    driver->bind();
    Stream stream = nullptr;
    if (const Status status = objects.stream(*driver, &stream, driver->info().leastPriority);
        status != Status::ok)
      return failureOf(*driver, status, "streamCreate");
    if (MaybeFailure failure = afterPreviousUses(*driver, stream)) return failure;
    services_.push_back(stream);
  }
  return std::nullopt;
}

// An event belongs to the device whose lane records it; lanes of every device may wait for it.
MaybeFailure Program::makeEvents() {
  MaybeFailure failure;
  const auto make = [&](Event* event, LaneId lane, EventKind kind) {
    if (failure) return;
    Driver& driver = *laneDrivers_[lane];
    if (drivers_.size() > 1) driver.bind();
    if (const Status status = objects.event(driver, event, kind); status != Status::ok)
      failure = failureOf(driver, status, "eventCreate");
  };
  const auto marker = [&](LaneId lane) {
    Event event = nullptr;
    make(&event, lane, EventKind::order);
    markerEvents_.push_back(event);
    return order.addMarker();
  };
  for (std::uint32_t event = 0; event < schedule_.events; ++event) {
    markers_.push_back(marker(schedule_.recordedOn[event]));
    if (schedule_.alternating[event]) marker(schedule_.recordedOn[event]);
  }
  std::vector<TickOrder::Marker> spare;
  for (LaneId lane = 0; lane < spec_.lanes.size(); ++lane) spare.push_back(marker(lane));

  tickEnds_.resize(spec_.inFlight * spec_.lanes.size());
  for (std::uint32_t slot = 0; slot < spec_.inFlight; ++slot) {
    for (const LaneId lane : busyLanes_)
      make(&tickEnds_[slot * spec_.lanes.size() + lane], lane, EventKind::order);
  }
  if (spec_.enforced && !busyLanes_.empty()) make(&tickOrder_, busyLanes_.front(), EventKind::order);
  return failure ? failure : makePools(spare);
}

MaybeFailure Program::makePools(const std::vector<TickOrder::Marker>& spare) {
  std::vector<std::size_t> allocs(memory.count());
  for (const Step& step : decoded_.steps)
    if (step.kind == StepKind::alloc) ++allocs[memory.of(spec_.buffers[step.subject])];
  for (std::size_t which = 0; which < memory.count(); ++which) {
    pools.push_back(std::make_unique<SessionAllocator>(laneDrivers_, order,
                                                       spec_.planned ? 0 : memory.poolBytes(which), streams_,
                                                       markerEvents_, SessionAllocator::Policy{}));
    pools[which]->setSpareMarkers(spare);
    pools[which]->reserve(allocs[which]);
  }
  return std::nullopt;
}

// The most pieces that a tick puts into each lane's queue: a traced run has an event before and after it,
// poison adds a fill for each allocation, and an enforced bound the order of ticks.
MaybeFailure Program::makePacing() {
  const std::size_t lanes = spec_.lanes.size();
  std::vector<std::uint64_t> pieces(lanes, 1);
  for (const Step& step : schedule_.steps) {
    if (step.kind == StepKind::run) pieces[step.lane] += this->pieces(step.run) + 3;
    if (step.kind == StepKind::record || step.kind == StepKind::wait || step.kind == StepKind::launch)
      ++pieces[step.lane];
    if (step.kind == StepKind::alloc) pieces[step.lane] += 2;
  }
  for (const LaneId lane : busyLanes_) {
    if (spec_.enforced) pieces[lane] += lane == busyLanes_.front() ? busyLanes_.size() : 1;
  }
  const std::uint32_t ticks = spec_.inFlight / spec_.arenas;  // on one stream
  for (std::size_t stream = 0; stream < streams_.size(); ++stream) {
    Driver& driver = driverOfStream(stream);
    if (drivers_.size() > 1) driver.bind();
    const Status status =
        pacing.addLane(driver.streamDepth(), pieces[stream % lanes] * ticks,
                       [&](Event* event) { return objects.event(driver, event, EventKind::order); });
    if (status != Status::ok) return failureOf(driver, status, "eventCreate");
  }
  return std::nullopt;
}

// Whether a run touches memory of a device that is not its lane's.
bool Program::reachesPeers(const Step& run) const {
  for (std::uint32_t i = 0; i < run.reads + run.writes; ++i) {
    const BufferSpec& buffer = operand(run, i);
    if (buffer.space == Space::device && buffer.device != spec_.lanes[run.lane].device) return true;
  }
  return false;
}

KernelSpec Program::specOf(const Step& run) const {
  KernelSpec spec = spec_.kernels[spec_.nodes[run.subject].kernel];
  spec.readCount = run.reads;
  spec.writeCount = run.writes;
  spec.reachesPeers = reachesPeers(run);
  if (spec.kind == KernelSpec::Kind::copy) {
    const Space from = operand(run, 0).space, to = operand(run, run.reads).space;
    if (from == Space::pinned)
      spec.direction = static_cast<int>(to == Space::device ? CopyKind::hostToDevice : CopyKind::hostToHost);
    else
      spec.direction =
          static_cast<int>(to == Space::device ? CopyKind::deviceToDevice : CopyKind::deviceToHost);
  }
  return spec;
}

Status Program::prepare(const Step& run, const KernelSpec& spec, HostCallback callback,
                        std::unique_ptr<Kernel>* kernel) {
  Driver& driver = *laneDrivers_[run.lane];
  if (!spec.reachesPeers || spec.kind != KernelSpec::Kind::copy)
    return driver.prepare(kernel, spec, std::move(callback));
  const auto end = [&](const BufferSpec& buffer) {
    return buffer.space == Space::device ? drivers_[buffer.device].get() : nullptr;
  };
  return driver.preparePeerCopy(kernel, spec.bytes, end(operand(run, 0)), end(operand(run, run.reads)));
}

MaybeFailure Program::prepareKernels(const ReferenceFactory& reference, const PreparedCallback& onPrepared) {
  // All runs of a kernel in one direction on one device share a prepared kernel. A user's kernel on the host
  // device is prepared for each run, so that its failure can name the node; so is a run that accesses other
  // devices.
  using Key = std::tuple<std::uint32_t, int, std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t>;
  std::map<Key, const Kernel*> prepared;
  const bool onHost = drivers_[0]->info().kind == "host";
  Driver* bound = nullptr;
  runKernels_.reserve(decoded_.runs);
  runPieces_.reserve(decoded_.runs);
  for (const Step& step : decoded_.steps) {
    if (step.kind != StepKind::run) continue;
    const NodeSpec& node = spec_.nodes[step.subject];
    KernelSpec spec = specOf(step);
    const bool referenced = onHost && spec.kind == KernelSpec::Kind::cuda;
    const bool alone = referenced || spec.reachesPeers;
    const Key key{node.kernel, spec.direction,           step.reads,
                  step.writes, alone ? step.run + 1 : 0, spec_.lanes[step.lane].device};
    const Kernel*& kernel = prepared[key];
    if (kernel == nullptr) {
      HostCallback callback;
      if (referenced && reference) {
        std::vector<std::size_t> reads, writes;
        for (std::uint32_t i = 0; i < step.reads + step.writes; ++i) {
          (i < step.reads ? reads : writes).push_back(operand(step, i).bytes);
          spec.bytes += operand(step, i).bytes;
        }
        callback = reference(node.kernel, step.subject, std::move(reads), std::move(writes));
      }
      Driver& driver = *laneDrivers_[step.lane];
      if (bound != &driver) driver.bind();
      bound = &driver;
      std::unique_ptr<Kernel> made;
      Status status = Status::ok;
      Failure failure;
      if (referenced && !callback) {
        status = Status::invalidValue;
        failure = invalidProgram(
            "references[" + std::to_string(node.kernel) + "]",
            "the host device computes kernel " + spec.name + " by its reference, and none was given");
      } else if (status = prepare(step, spec, std::move(callback), &made); status != Status::ok) {
        failure = failureOf(driver, status, "");
      }
      if (status != Status::ok) {
        failure.op = "prepare " + node.name;
        failure.node = static_cast<int>(step.subject);
        return failure;
      }
      kernel = made.get();
      kernels_.push_back(std::move(made));
    }
    runKernels_.push_back(kernel);
    runPieces_.push_back(static_cast<std::uint32_t>(kernel->pieces()));
    if (onPrepared) onPrepared(step.run + 1, decoded_.runs);
  }
  return std::nullopt;
}

}  // namespace braid
