#include "executor/issuer.h"

#include <map>
#include <set>

namespace braid {

Issuer::Issuer(Program& program, Trace& trace, bool poison, bool mayRepeat, PlanGraphs* graphs)
    : program_(program),
      trace_(trace),
      graphs_(graphs),
      slots_(program.spec().inFlight),
      poison_(poison),
      mayRepeat_(mayRepeat),
      severalDevices_(program.devices() > 1),
      driver_(&program.driver()),
      steadyState_(program),
      addressesKnown_(program.spec().planned),
      blocksOf_(program.memory.count()),
      addresses_(program.spec().buffers.size()),
      operands_(program.decoded().mostOperands),
      blocks_(program.spec().buffers.size()) {
  for (std::uint32_t slot = 0; slot < slots_.size(); ++slot) slots_[slot] = slot;
  const ProgramSpec& spec = program.spec();
  for (std::uint32_t i = 0; i < spec.buffers.size(); ++i) {
    const BufferSpec& root = spec.buffers[spec.buffers[i].root];
    const bool own = root.life == Life::tick && spec.arenas > 1;
    if (own || root.life == Life::input || root.life == Life::output) bySlot_.push_back(i);
    if (program.memory.isFixed(spec.buffers[i].root)) addresses_[i] = program.memory.address(spec, i, 0);
  }
  for (const Step& step : program.steps())
    if (step.kind == StepKind::alloc) ++blocksOf_[memoryOf(step.subject)], ++allBlocks_;
  findFirstWrites();
  if (!poison) return;
  std::vector<bool> inGraph(program.steps().size());
  for (std::size_t i = 0; i < program.decoded().graphs.size(); ++i) {
    if (!program.schedule().launched[i]) continue;
    const GraphRange& range = program.decoded().graphs[i];
    std::fill(inGraph.begin() + range.from, inGraph.begin() + range.to, true);
  }
  for (const FirstTouch& touch : firstTouches(program))
    if (!inGraph[touch.command]) firstTouches_.push_back(touch);
}

void Issuer::findFirstWrites() {
  const ProgramSpec& spec = program_.spec();
  std::map<std::uint32_t, std::size_t> numbers;        // by root, its index in `readers_`
  std::set<std::pair<std::uint32_t, LaneId>> written;  // roots, by lane
  const auto add = [&](const Step& run, std::size_t at, LaneId lane) {
    for (std::uint32_t i = run.reads; i < run.reads + run.writes; ++i) {
      const std::uint32_t root = spec.buffers[program_.decoded().operands[run.operands + i]].root;
      const BufferSpec& buffer = spec.buffers[root];
      if (buffer.life != Life::output || buffer.space != Space::device) continue;
      const auto [known, isNew] = numbers.try_emplace(root, readers_.size());
      if (isNew) readers_.push_back({root, {}});
      if (written.emplace(root, lane).second) firstWrites_.push_back({at, known->second});
    }
  };
  const std::vector<Step>& steps = program_.schedule().steps;
  for (std::size_t at = 0; at < steps.size(); ++at) {
    if (steps[at].kind == StepKind::run) add(steps[at], at, steps[at].lane);
    if (steps[at].kind != StepKind::launch) continue;
    const GraphRange& range = program_.decoded().graphs[steps[at].subject];
    for (std::uint32_t node = range.from; node < range.to; ++node)
      if (program_.steps()[node].kind == StepKind::run) add(program_.steps()[node], at, steps[at].lane);
  }
}

MaybeFailure Issuer::issue(std::uint64_t tick) {
  call_ = "bind";
  driver_ = &program_.driver();
  if (const Status status = driver_->bind(); status != Status::ok) return explain(status);
  if (!begun_) begin(tick);
  if (MaybeFailure failure = orderAfterTickBefore(tick)) return failure;
  if (nextOrder_ < tickOrders()) return std::nullopt;
  const std::vector<Step>& steps = program_.schedule().steps;
  for (; next_ < steps.size(); ++next_) {
    const Step& command = steps[next_];
    const std::uint64_t pieces = isPaced(command) ? piecesOf(command) : 0;
    if (severalDevices_ && command.kind != StepKind::free && command.kind != StepKind::use) {
      if (const Status status = bindDeviceOf(command.lane); status != Status::ok)
        return explain(command, status);
    }
    if (pieces > 0) {
      bool fitting = false;
      if (const Status status = fits(command.lane, pieces, &fitting); status != Status::ok)
        return explain(command, status);
      if (!fitting) return std::nullopt;
    }
    if (command.kind == StepKind::run || command.kind == StepKind::alloc || command.kind == StepKind::launch)
      driver_->label({&program_, tick, command.command});
    Status status = waitForReaders(next_);
    if (status == Status::ok && command.kind == StepKind::run) status = poisonFirstTouches(command.command);
    if (status == Status::ok) status = step(command, tick);
    if (status == Status::ok && pieces > 0) status = countQueued(command.lane, pieces);
    if (status != Status::ok) return explain(command, status);
  }
  begun_ = false;
  releaseReaders();
  return end(tick);
}

void Issuer::begin(std::uint64_t tick) {
  begun_ = true;
  next_ = 0;
  nextOrder_ = tick > 0 ? 0 : tickOrders();
  slot_ = slotOf(tick);
  if (!addressesKnown_) {
    program_.order.beginTick(tick);
    for (const auto& pool : program_.pools) pool->forgetCompleted();
    enterSteadyState(tick);
  }
  for (const std::uint32_t buffer : bySlot_)
    addresses_[buffer] = program_.memory.address(program_.spec(), buffer, slot_);
  for (const std::uint32_t stream : program_.pacing.lanes())
    program_.pacing.adjust(stream, program_.driverOfStream(stream).streamDepth());
  nextTouch_ = nextWrite_ = 0;
  for (auto& [root, marks] : readers_) program_.memory.takeUses(program_.spec(), root, slot_, &marks);
  if (period_ > 0) nextAddress_ = (tick - periodStart_) % period_ * allBlocks_;
}

// Where the bound is enforced every lane comes after the end of the tick before, on all lanes: the first lane
// waits for the others' ends, and then the others for the first. Where a lane's queue is full it stops, and
// is called again.
MaybeFailure Issuer::orderAfterTickBefore(std::uint64_t tick) {
  const std::vector<LaneId>& lanes = program_.busyLanes();
  const auto slot =
      static_cast<std::uint32_t>((tick + program_.spec().inFlight - 1) % program_.spec().inFlight);
  for (; nextOrder_ < tickOrders(); ++nextOrder_) {
    const bool isOfFirst = nextOrder_ < lanes.size();
    const LaneId lane = isOfFirst ? lanes.front() : lanes[nextOrder_ - lanes.size() + 1];
    if (severalDevices_) {
      if (const Status status = bindDeviceOf(lane); status != Status::ok) return explain(status, lane);
    }
    const bool paced = isPaced(lane);
    bool fitting = true;
    Status status = paced ? fits(lane, 1, &fitting) : Status::ok;
    if (status == Status::ok && !fitting) return std::nullopt;
    const Stream stream = program_.stream(lane, slot_);
    if (status == Status::ok && nextOrder_ + 1 == lanes.size()) {
      call_ = "eventRecord";
      status = driver_->eventRecord(program_.tickOrder(), stream);
    } else if (status == Status::ok) {
      call_ = "streamWait";
      status = driver_->streamWait(
          stream, isOfFirst ? program_.tickEnd(slot, lanes[nextOrder_ + 1]) : program_.tickOrder());
    }
    if (status == Status::ok && paced) status = countQueued(lane, 1);
    if (status != Status::ok) return explain(status, lane);
  }
  return std::nullopt;
}

MaybeFailure Issuer::end(std::uint64_t tick) {
  if (addressesKnown_) {
    for (std::size_t which = 0; which < blocksOf_.size(); ++which)
      if (blocksOf_[which] > 0) program_.pools[which]->countRepeated(blocksOf_[which]);
  } else {
    program_.order.endTick(tick);
  }
  const auto slot = static_cast<std::uint32_t>(tick % program_.spec().inFlight);
  for (const LaneId lane : program_.busyLanes()) {
    Status status = severalDevices_ ? bindDeviceOf(lane) : Status::ok;
    if (status != Status::ok) return explain(status, lane);
    call_ = "eventRecord";
    status = driver_->eventRecord(program_.tickEnd(slot, lane), program_.stream(lane, slot_));
    if (status == Status::ok && isPaced(lane)) status = countQueued(lane, 1);
    if (status != Status::ok) return explain(status, lane);
  }
  return std::nullopt;
}

std::uint64_t Issuer::piecesOf(const Step& step) const {
  if (step.kind == StepKind::alloc) return poison_ ? 1 : 0;
  if (step.kind != StepKind::run) return 1;
  std::uint64_t waits = 0;
  for (std::size_t i = nextWrite_; i < firstWrites_.size() && firstWrites_[i].step == next_; ++i)
    waits += readers_[firstWrites_[i].output].marks.size();
  std::uint64_t poisoned = 0;
  for (std::size_t i = nextTouch_; i < firstTouches_.size() && firstTouches_[i].command == step.command; ++i)
    ++poisoned;
  return program_.pieces(step.run) + waits + poisoned + (trace_.enabled() ? 2 : 0);
}

Status Issuer::fits(LaneId lane, std::uint64_t pieces, bool* fits) {
  call_ = "eventQuery";
  const Status status = program_.pacing.room(program_.streamOf(lane, slot_), pieces, *driver_,
                                             program_.stream(lane, slot_), fits);
  if (!*fits && !full_) fullQueues_.fetch_add(1, std::memory_order_relaxed);
  full_ = !*fits;
  return status;
}

// Counts pieces that were put into the queue of a lane of the bound device.
Status Issuer::countQueued(LaneId lane, std::uint64_t pieces) {
  call_ = "eventRecord";
  return program_.pacing.queued(program_.streamOf(lane, slot_), pieces, *driver_,
                                program_.stream(lane, slot_));
}

Status Issuer::bindDeviceOf(LaneId lane) {
  Driver& wanted = program_.driverOf(lane);
  if (&wanted == driver_) return Status::ok;
  call_ = "bind";
  const Status status = wanted.bind();
  if (status == Status::ok) driver_ = &wanted;
  return status;
}

// Where addresses are known, neither the order nor the allocators are used any more, so they are not
// advanced.
Status Issuer::step(const Step& step, std::uint64_t tick) {
  switch (step.kind) {
    case StepKind::alloc: return alloc(step);
    case StepKind::free:
      if (!addressesKnown_) pool(step.subject).free(blocks_[step.subject]);
      return Status::ok;
    case StepKind::run: return run(step, tick);
    case StepKind::record: {
      call_ = "eventRecord";
      const TickOrder::Marker marker = program_.marker(step.subject, tick);
      if (!addressesKnown_) program_.order.record(marker, step.lane);
      return driver_->eventRecord(program_.event(marker), program_.stream(step.lane, slot_));
    }
    case StepKind::wait: {
      call_ = "streamWait";
      // In the first tick a wait for the tick before waits for nothing: the driver ignores an event that was
      // never recorded, and so does the order.
      const TickOrder::Marker marker = program_.marker(step.subject, step.previous ? tick - 1 : tick);
      if (!addressesKnown_) program_.order.wait(marker, step.lane);
      return driver_->streamWait(program_.stream(step.lane, slot_), program_.event(marker));
    }
    case StepKind::use:
      if (!addressesKnown_)
        pool(step.subject)
            .recordUse(blocks_[step.subject], program_.order.marked(program_.marker(step.event, tick)));
      return Status::ok;
    case StepKind::launch: return launch(step, tick);
  }
  return Status::invalidValue;
}

// The addresses of one period are recorded, and repeated from the next period on. Of an enforced bound every
// tick is a period, since it begins after the end of the tick before.
void Issuer::enterSteadyState(std::uint64_t tick) {
  constexpr std::size_t most = std::size_t{1} << 22;
  if (period_ > 0) {
    addressesKnown_ = tick == periodStart_ + period_;
    return;
  }
  const bool enforced = program_.spec().enforced;
  if (!enforced && !mayRepeat_) return;
  const std::uint64_t period = enforced ? 1 : steadyState_.period(program_, tick);
  const std::size_t blocks = allBlocks_;
  if (period == 0 || (!enforced && period > most / (blocks + 1))) return;
  period_ = period;
  periodStart_ = tick;
  periodAddresses_.resize(period * blocks);
}

Status Issuer::poison(std::uint32_t root, LaneId lane) {
  const BufferSpec& buffer = program_.spec().buffers[root];
  if (buffer.space != Space::device) return Status::ok;
  call_ = "fill32";
  return driver_->fill32(addresses_[root], garbage, RangePool::rounded(buffer.bytes) / sizeof(garbage),
                         program_.stream(lane, slot_));
}

Status Issuer::alloc(const Step& step) {
  if (addressesKnown_) {
    place(step.subject, periodAddresses_[nextAddress_++]);
    return poison_ ? poison(step.subject, step.lane) : Status::ok;
  }
  const BufferSpec& buffer = program_.spec().buffers[step.subject];
  SessionAllocator& pool = this->pool(step.subject);
  const bool paced = isPaced(step);
  const std::uint64_t waits = paced ? pool.counters().waitsIssued : 0;
  call_ = "alloc";
  Status status = pool.malloc(buffer.bytes, step.lane, &blocks_[step.subject]);
  if (status == Status::ok && paced) status = countQueued(step.lane, pool.counters().waitsIssued - waits);
  if (status != Status::ok) return status;
  const DeviceAddress address =
      program_.memory.poolBase(memoryOf(step.subject)) + pool.block(blocks_[step.subject]).offset;
  place(step.subject, address);
  if (period_ > 0) periodAddresses_[nextAddress_++] = address;
  return poison_ ? poison(step.subject, step.lane) : Status::ok;
}

// The marks stay held, since another lane may write a part of the same output.
Status Issuer::waitForReaders(std::size_t at) {
  for (; nextWrite_ < firstWrites_.size() && firstWrites_[nextWrite_].step == at; ++nextWrite_) {
    for (const Mark* const mark : readers_[firstWrites_[nextWrite_].output].marks) {
      if (Lanes::complete(*mark)) continue;
      call_ = "streamWait";
      const Status status =
          driver_->streamWait(program_.stream(program_.schedule().steps[at].lane, slot_), mark->event);
      if (status != Status::ok) return status;
    }
  }
  return Status::ok;
}

void Issuer::releaseReaders() {
  for (auto& [root, marks] : readers_) {
    for (Mark* const mark : marks) mark->release();
    marks.clear();
  }
}

Status Issuer::poisonFirstTouches(std::uint32_t command) {
  for (; nextTouch_ < firstTouches_.size() && firstTouches_[nextTouch_].command == command; ++nextTouch_) {
    const std::uint32_t buffer = firstTouches_[nextTouch_].buffer;
    call_ = "fill32";
    const Status status =
        driver_->fill32(addresses_[buffer], garbage, program_.spec().buffers[buffer].bytes / sizeof(garbage),
                        program_.stream(program_.steps()[command].lane, slot_));
    if (status != Status::ok) return status;
  }
  return Status::ok;
}

void Issuer::place(std::uint32_t root, DeviceAddress address) {
  for (const std::uint32_t view : program_.views()[root])
    addresses_[view] = address + program_.spec().buffers[view].rootOffset;
}

Status Issuer::run(const Step& step, std::uint64_t tick) {
  call_ = "eventRecord";
  if (trace_.enabled()) {
    Status status = trace_.anchor(program_, tick, slot_, step.lane);
    if (status == Status::ok) status = trace_.begin(program_, slot_, step);
    if (status != Status::ok) return status;
  }
  call_ = "run";
  const std::uint32_t* buffers = program_.decoded().operands.data() + step.operands;
  for (std::uint32_t i = 0; i < step.reads + step.writes; ++i) operands_[i] = addresses_[buffers[i]];
  const Status status = driver_->launch(program_.kernel(step.run), operands_.data(),
                                        operands_.data() + step.reads, program_.stream(step.lane, slot_));
  if (status != Status::ok) return status;
  if (!addressesKnown_) program_.order.run(step.lane);
  call_ = "eventRecord";
  return trace_.enabled() ? trace_.end(program_, slot_, step) : Status::ok;
}

Status Issuer::launch(const Step& step, std::uint64_t tick) {
  if (trace_.enabled()) {
    call_ = "eventRecord";
    if (const Status status = trace_.anchor(program_, tick, slot_, step.lane); status != Status::ok)
      return status;
  }
  call_ = "execLaunch";
  graphLaunches_.fetch_add(1, std::memory_order_relaxed);
  return graphs_->launch(step.subject, slot_, program_.stream(step.lane, slot_));
}

Failure Issuer::explain(Status status) {
  Failure failure = failureOf(*driver_, status, call_);
  // A device on which even a query fails has failed before this call.
  for (std::size_t device = 0; device < program_.devices(); ++device) {
    const Status known = program_.driver(device).streamQuery(program_.service(device));
    failure.noticed |= known != Status::ok && known != Status::notReady;
  }
  return failure;
}

Failure Issuer::explain(Status status, LaneId lane) {
  Failure failure = explain(status);
  failure.lane = program_.spec().lanes[lane].name;
  failure.laneId = static_cast<int>(lane);
  return failure;
}

Failure Issuer::explain(const Step& step, Status status) {
  const ProgramSpec& spec = program_.spec();
  Failure failure = explain(status, step.lane);
  if (step.kind == StepKind::run) {
    failure.op = std::string(call_) + " " + spec.nodes[step.subject].name;
    failure.node = static_cast<int>(step.subject);
  } else if (step.kind == StepKind::alloc) {
    failure.op = std::string(call_) + " " + spec.buffers[step.subject].name;
    if (status == Status::outOfMemory) {
      const SessionAllocator::Shortage shortage = pool(step.subject).shortage();
      failure.memory = true;
      failure.wantedBytes = shortage.wanted;
      failure.freeBytes = shortage.free;
      failure.detail = pool(step.subject).describe(shortage);
    }
  }
  return failure;
}

void Issuer::abandon() {
  if (addressesKnown_ && !program_.spec().planned) program_.order.completeAll();
  addressesKnown_ = program_.spec().planned;
  begun_ = false;
  releaseReaders();
  steadyState_.forget();
  period_ = 0;
  for (const auto& pool : program_.pools) pool->reset();
}

}  // namespace braid
