#include "executor/program.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace braid {

Program::Program(std::shared_ptr<Driver> driver, ProgramSpec spec)
    : memory(driver),
      // Not yet checked: sizes that `load` is going to refuse must not be taken for real here.
      order(std::min(spec.lanes.size(), mostLanes), std::clamp<std::size_t>(spec.inFlight, 1, mostInFlight)),
      objects(*driver),
      driver_(std::move(driver)),
      spec_(std::move(spec)) {}

MaybeFailure Program::load(const ReferenceFactory& reference) {
  if (MaybeFailure failure = decode(spec_, &decoded_)) return failure;
  views_.resize(spec_.buffers.size());
  for (std::uint32_t i = 0; i < spec_.buffers.size(); ++i) views_[spec_.buffers[i].root].push_back(i);
  // Memory first: it is what most often fails, and compiling takes long.
  if (MaybeFailure failure = memory.take(spec_)) return failure;
  if (MaybeFailure failure = makeStreams()) return failure;
  if (MaybeFailure failure = makeEvents()) return failure;
  return prepareKernels(reference);
}

MaybeFailure Program::makeStreams() {
  const DeviceInfo& info = driver_->info();
  for (const LaneSpec& lane : spec_.lanes) {
    // A plan counts priorities upward from 0, a driver downward.
    const int priority = std::clamp(-lane.priority, info.greatestPriority, info.leastPriority);
    Stream stream = nullptr;
    if (const Status status = objects.stream(&stream, priority); status != Status::ok) {
      Failure failure = failureOf(*driver_, status, "streamCreate");
      failure.lane = lane.name;
      return failure;
    }
    streams_.push_back(stream);
  }
  if (const Status status = objects.stream(&service_, info.leastPriority); status != Status::ok)
    return failureOf(*driver_, status, "streamCreate");
  return std::nullopt;
}

MaybeFailure Program::makeEvents() {
  Status status = Status::ok;
  const auto marker = [&] {
    Event event = nullptr;
    if (status == Status::ok) status = objects.event(&event, EventKind::order);
    markerEvents_.push_back(event);
    return order.addMarker();
  };
  for (std::uint32_t event = 0; event < spec_.events; ++event) {
    markers_.push_back(marker());
    if (decoded_.alternating[event]) marker();
  }
  std::vector<Order::Marker> spare;
  for (std::size_t lane = 0; lane < streams_.size(); ++lane) spare.push_back(marker());

  std::vector<bool> busy(streams_.size());
  std::size_t allocs = 0;
  for (const Step& step : decoded_.steps) {
    if (step.kind == StepKind::run || step.kind == StepKind::wait || step.kind == StepKind::record ||
        step.kind == StepKind::alloc)
      busy[step.lane] = true;
    allocs += step.kind == StepKind::alloc ? 1 : 0;
  }
  for (LaneId lane = 0; lane < streams_.size(); ++lane) {
    if (busy[lane]) busyLanes_.push_back(lane);
  }
  tickEnds_.resize(spec_.inFlight * streams_.size());
  for (std::uint32_t slot = 0; slot < spec_.inFlight; ++slot) {
    for (const LaneId lane : busyLanes_) {
      if (status == Status::ok) status = objects.event(&tickEnds_[slot * streams_.size() + lane], EventKind::awaited);
    }
  }
  if (status != Status::ok) return failureOf(*driver_, status, "eventCreate");

  for (const Space space : {Space::device, Space::pinned}) {
    auto& pool = pools[space == Space::device ? 0 : 1];
    pool = std::make_unique<Allocator>(*driver_, order, spec_.planned ? 0 : memory.poolBytes(space), streams_,
                                       markerEvents_);
    pool->setSpareMarkers(spare);
    pool->reserve(allocs);
  }
  return std::nullopt;
}

KernelSpec Program::specOf(const Step& run) const {
  KernelSpec spec = spec_.kernels[spec_.nodes[run.subject].kernel];
  spec.readCount = run.reads;
  spec.writeCount = run.writes;
  if (spec.kind == KernelSpec::Kind::copy) {
    const Space from = spec_.buffers[decoded_.operands[run.operands]].space;
    const Space to = spec_.buffers[decoded_.operands[run.operands + run.reads]].space;
    if (from == Space::pinned)
      spec.direction = static_cast<int>(to == Space::device ? CopyKind::hostToDevice : CopyKind::hostToHost);
    else
      spec.direction = static_cast<int>(to == Space::device ? CopyKind::deviceToDevice : CopyKind::deviceToHost);
  }
  return spec;
}

MaybeFailure Program::prepareKernels(const ReferenceFactory& reference) {
  // One prepared kernel for all runs of one kernel in one direction; a user's kernel on the host device has one for
  // each run, so that its failure can name the node.
  using Key = std::tuple<std::uint32_t, int, std::uint32_t, std::uint32_t, std::uint32_t>;
  std::map<Key, const Kernel*> prepared;
  const bool onHost = driver_->info().kind == "host";
  runKernels_.reserve(decoded_.runs);
  for (const Step& step : decoded_.steps) {
    if (step.kind != StepKind::run) continue;
    const NodeSpec& node = spec_.nodes[step.subject];
    const KernelSpec spec = specOf(step);
    const bool referenced = onHost && spec.kind == KernelSpec::Kind::cuda;
    const Key key{node.kernel, spec.direction, step.reads, step.writes, referenced ? step.run + 1 : 0};
    const Kernel*& kernel = prepared[key];
    if (kernel == nullptr) {
      HostCallback callback;
      if (referenced && reference) {
        std::vector<std::size_t> reads, writes;
        for (std::uint32_t i = 0; i < step.reads + step.writes; ++i) {
          (i < step.reads ? reads : writes).push_back(spec_.buffers[decoded_.operands[step.operands + i]].bytes);
        }
        callback = reference(node.kernel, step.subject, std::move(reads), std::move(writes));
      }
      std::unique_ptr<Kernel> made;
      Status status = Status::ok;
      Failure failure;
      if (referenced && !callback) {
        status = Status::invalidValue;
        failure =
            invalidProgram("references[" + std::to_string(node.kernel) + "]",
                           "the host device computes kernel " + spec.name + " by its reference, and none was given");
      } else if (status = driver_->prepare(&made, spec, std::move(callback)); status != Status::ok) {
        failure = failureOf(*driver_, status, "");
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
  }
  return std::nullopt;
}

}  // namespace braid
