#include "executor/session.h"

#include <chrono>
#include <cstring>
#include <system_error>
#include <utility>

namespace braid {

Session::Session(std::vector<std::shared_ptr<DeviceMemory>> devices, ProgramSpec spec, SessionOptions options)
    : Queue(spec.inFlight),
      devices_(std::move(devices)),
      drivers_(driversOf(devices_)),
      options_(std::move(options)),
      spec_(spec),
      issueThread_(IssueThread::of(drivers_[0]->info())),
      program_(std::make_unique<Program>(devices_, std::move(spec))),
      trace_(std::max<std::size_t>(1, options_.traceRows)),
      launches_(options_.sequence ? spec_.inFlight : 0) {}

std::unique_ptr<Session> Session::open(std::vector<std::shared_ptr<DeviceMemory>> devices, ProgramSpec spec,
                                       SessionOptions options, MaybeFailure* failure) {
  std::unique_ptr<Session> session = begin(std::move(devices), std::move(spec), std::move(options), failure);
  if (session && (*failure = session->finish())) return nullptr;
  return session;
}

std::unique_ptr<Session> Session::begin(std::vector<std::shared_ptr<DeviceMemory>> devices, ProgramSpec spec,
                                        SessionOptions options, MaybeFailure* failure) {
  std::unique_ptr<Session> session(new Session(std::move(devices), std::move(spec), std::move(options)));
  Driver& first = *session->drivers_[0];
  if (const Status status = first.bind(); status != Status::ok) {
    *failure = failureOf(first, status, "bind");
    return nullptr;
  }
  if ((*failure = session->program_->takeMemory(session->options_.memory))) return nullptr;
  return session;
}

MaybeFailure Session::finish() {
  Driver& first = *drivers_[0];
  if (const Status status = first.bind(); status != Status::ok) return failureOf(first, status, "bind");
  if (MaybeFailure failure = program_->load(options_.reference, options_.trace, options_.onPrepared))
    return failure;
  if (options_.trace)
    if (MaybeFailure failure = trace_.prepare(*program_)) return failure;
  if (MaybeFailure failure = graphs_.make(*program_, trace_, options_.poison)) return failure;
  issuer_ = std::make_unique<Issuer>(*program_, trace_, options_.poison, true, &graphs_);
  eventsAtFirstTick_ = program_->objects.eventsCreated();
  try {
    issueThread_.enter();
    entered_ = true;
    completing_ = std::thread([this] { completeLoop(); });
    completer_ = completing_.get_id();
  } catch (const std::system_error&) {
    Failure failure;
    failure.code = statusName(Status::outOfMemory);
    failure.op = "program";
    failure.detail = "the system has no more threads";
    return failure;
  }
  return std::nullopt;
}

void* Session::pinned(std::uint32_t buffer, std::uint32_t slot) const {
  return reinterpret_cast<void*>(program_->memory.address(spec_, buffer, slot));
}

bool Session::submit(std::uint64_t tick, std::uint32_t slot, const std::vector<Mark*>& uses) {
  if (slot >= spec_.inFlight) return false;
  Sequence* const sequence = options_.sequence.get();
  if (!sequence && !uses.empty()) return false;
  if (sequence && tick != issueThread_.submitted(*this)) return false;
  {
    std::lock_guard lock(mutex_);
    if (!issuer_ || end_ != open_) return false;
    issuer_->useSlot(tick, slot);
    if (sequence) {
      Launch& launch = launches_[tick % launches_.size()];
      launch.turn = sequence->take();
      for (Mark* const use : uses) use->hold();
      launch.uses = uses;
    }
  }
  if (issueThread_.submit(*this, tick)) return true;
  if (sequence) {
    Launch& launch = launches_[tick % launches_.size()];
    sequence->giveBack(launch.turn);
    for (Mark* const use : uses) use->release();
    launch.uses.clear();
  }
  return false;
}

bool Session::mayIssue(std::uint64_t tick) {
  if (!options_.sequence || inSequence_) return true;
  std::lock_guard lock(mutex_);
  return options_.sequence->isNext(launches_[tick % launches_.size()].turn);
}

std::vector<Mark*> Session::takeUses(std::uint64_t tick) {
  std::lock_guard lock(mutex_);
  return std::exchange(launches_[tick % launches_.size()].uses, {});
}

MaybeFailure Session::enterSequence(std::uint64_t tick) {
  if (!options_.sequence || std::exchange(inSequence_, true)) return std::nullopt;
  std::vector<Mark*> uses = takeUses(tick);
  return options_.sequence->enter(*program_, uses);
}

void Session::leaveSequence(std::uint64_t tick, const MaybeFailure& failure) {
  if (!options_.sequence) return;
  if (!failure) {
    options_.sequence->leave(*program_, static_cast<std::uint32_t>(tick % spec_.inFlight));
    return;
  }
  // A session that has failed before enters no more.
  for (Mark* const use : takeUses(tick)) use->release();
  options_.sequence->leaveFailed(*failure);
}

bool Session::issueTick(std::uint64_t tick) {
  // As where a stream is full: it is called again, after the sessions whose launches come first.
  if (!mayIssue(tick)) return false;
  MaybeFailure failure;
  bool failed = false;
  {
    std::lock_guard lock(mutex_);
    failed = failure_.has_value();
  }
  if (!failed) {
    // Measures issuing alone: tick - inFlight has completed and no lock is held. It includes driver calls
    // that wait, for example because another thread uses the same context;
    // CudaDevice.WhatEachCallCostsTheIssuingThread measures them. It excludes the time until a full queue has
    // room.
    const auto start = std::chrono::steady_clock::now();
    failure = enterSequence(tick);
    if (!failure) failure = issuer_->issue(tick);
    partNanoseconds_ +=
        std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count();
    if (!failure && !issuer_->isWhole()) return false;
  }
  {
    std::lock_guard lock(mutex_);
    if (!failed) issueNanoseconds_[tick % issueNanoseconds_.size()] = partNanoseconds_;
    if (failure) fail(tick, std::move(*failure));
    // A tick that was not issued to its end has no end events, so it must not be awaited.
    if (failure_) failedTick_ = std::min(failedTick_, tick);
    failure = failure_;
    ++issued_;
  }
  leaveSequence(tick, failure);
  inSequence_ = false;
  partNanoseconds_ = 0;
  toComplete_.notify_one();
  return true;
}

void Session::completeLoop() {
  drivers_[0]->bind();
  std::unique_lock lock(mutex_);
  for (;;) {
    toComplete_.wait(lock, [&] { return completed_ < issued_ || completed_ == end_; });
    if (completed_ == end_) return;
    const std::uint64_t tick = completed_;
    if (tick < failedTick_) {
      lock.unlock();
      MaybeFailure failure = awaitTick(tick);
      if (!failure && trace_.enabled()) trace_.collect(*program_, tick, issuer_->slotOf(tick));
      lock.lock();
      if (failure) fail(tick, std::move(*failure));
    }
    const bool failed = tick >= failedTick_;
    succeeded_ += failed ? 0 : 1;
    lock.unlock();
    if (failed) finishFailure(tick);
    // A final failure never changes, so it is read without the lock.
    if (options_.onTick) options_.onTick(tick, failed ? &*failure_ : nullptr);
    issueThread_.completed(*this);
    lock.lock();
    ++completed_;
    ended_.notify_all();
  }
}

void Session::fail(std::uint64_t tick, Failure failure) {
  if (!failure_ || (failure_->noticed && !failure.noticed && !failureFinal_)) failure_ = std::move(failure);
  failedTick_ = std::min(failedTick_, tick);
}

void Session::finishFailure(std::uint64_t tick) {
  drain();
  std::lock_guard lock(mutex_);
  if (failureFinal_) return;
  failureFinal_ = true;
  if (failure_->noticed) {
    const auto lane = static_cast<LaneId>(failure_->laneId < 0 ? 0 : failure_->laneId);
    failure_ = asynchronous(*failure_, tick, lane);
  }
  if (options_.amend) options_.amend(&*failure_);
}

void Session::drain() {
  const std::vector<Stream>& streams = program_->streams();
  for (std::size_t stream = 0; stream < streams.size(); ++stream)
    program_->driverOfStream(stream).streamSynchronize(streams[stream]);
}

Status Session::awaitEnd(Driver& driver, Event end) {
  // The host device computes on the processors that this would take.
  if (driver.info().kind == "host") return driver.eventSynchronize(end);
  Status status = Status::notReady;
  const auto isOver = [&] { return (status = driver.eventQuery(end)) != Status::notReady; };
  return patience_.await(isOver) ? status : driver.eventSynchronize(end);
}

MaybeFailure Session::awaitTick(std::uint64_t tick) {
  const auto slot = static_cast<std::uint32_t>(tick % spec_.inFlight);
  const auto began = std::chrono::steady_clock::now();
  for (const LaneId lane : program_->busyLanes()) {
    Driver& driver = program_->driverOf(lane);
    if (drivers_.size() > 1) driver.bind();
    const Status status = awaitEnd(driver, program_->tickEnd(slot, lane));
    if (status != Status::ok) return asynchronous(failureOf(driver, status, "run"), tick, lane);
  }
  patience_.waited(std::chrono::steady_clock::now() - began);
  // Graphs that other devices launch are over now.
  for (const Step& run : program_->launchedElsewhere()) {
    Driver& driver = program_->driverOf(run.lane);
    driver.bind();
    const Status status = driver.streamQuery(program_->service(program_->deviceOf(run.lane)));
    if (status != Status::ok && status != Status::notReady)
      return asynchronous(failureOf(driver, status, "run"), tick, run.lane);
  }
  return std::nullopt;
}

// The device of the reporting lane comes first: another device's failure may be an earlier one.
WorkLabel Session::failedWork(LaneId lane) {
  WorkLabel culprit = program_->driverOf(lane).failedWork();
  for (std::size_t device = 0; device < drivers_.size() && culprit.owner == nullptr; ++device)
    culprit = drivers_[device]->failedWork();
  return culprit;
}

// Explains a failure of work that was issued earlier. Some devices label their work and know which piece
// failed. On others the runs of the reporting lane are the suspects, and the failure names the first of them
// as likely.
Failure Session::asynchronous(Failure noticed, std::uint64_t tick, LaneId lane) {
  Failure failure = std::move(noticed);
  failure.noticed = false;
  failure.node = -1;
  const auto& steps = program_->steps();
  const WorkLabel culprit = failedWork(lane);
  if (culprit.owner == program_.get()) {
    const Step& step = steps[culprit.step];
    const bool run = step.kind == StepKind::run;
    if (run) failure.node = static_cast<int>(step.subject);
    failure.op = run ? "run " + spec_.nodes[step.subject].name : "fill32 " + spec_.buffers[step.subject].name;
    failure.laneId = static_cast<int>(step.lane);
    failure.lane = spec_.lanes[step.lane].name;
    failure.device = deviceName(program_->driverOf(step.lane).info());
    failure.detail += (failure.detail.empty() ? "in tick " : "; in tick ") + std::to_string(culprit.tick);
    return failure;
  }
  if (culprit.owner != nullptr) {
    failure.op = "run";
    failure.lane.clear();
    failure.laneId = -1;
    failure.detail += "; another program on this device failed";
    return failure;
  }
  failure.op = "run";
  failure.lane = spec_.lanes[lane].name;
  std::string suspects;
  std::size_t count = 0;
  // Beside those of the lane, its device's nodes in graphs that another device launches.
  const std::uint32_t device = program_->deviceOf(lane);
  for (const Step& step : steps) {
    if (step.kind != StepKind::run) continue;
    const LaneId issuedOn = program_->schedule().issuedOn[step.command];
    const bool elsewhere = program_->deviceOf(step.lane) == device && program_->deviceOf(issuedOn) != device;
    if (issuedOn != lane && !elsewhere) continue;
    if (count++ == 0) failure.node = static_cast<int>(step.subject);
    if (count <= 4) suspects += (suspects.empty() ? "" : ", ") + spec_.nodes[step.subject].name;
  }
  if (count == 1) failure.op = "run, likely " + suspects;
  if (count > 1) failure.op = "run, likely one of " + suspects;
  if (count > 4) failure.op += " and " + std::to_string(count - 4) + " more";
  failure.detail += (failure.detail.empty() ? "found at the end of tick " : "; found at the end of tick ") +
                    std::to_string(tick);
  return failure;
}

MaybeFailure Session::transfer(std::uint32_t buffer, void* host, bool toDevice) {
  const BufferSpec& spec = spec_.buffers[buffer];
  if (spec.bytes == 0) return std::nullopt;
  const DeviceAddress device = program_->memory.address(spec_, buffer, 0);
  if (spec.space == Space::pinned) {
    void* pinned = reinterpret_cast<void*>(device);
    std::memcpy(toDevice ? pinned : host, toDevice ? host : pinned, spec.bytes);
    return std::nullopt;
  }
  const auto outside = reinterpret_cast<DeviceAddress>(host);
  Driver& driver = *drivers_[spec.device];
  driver.bind();
  const Stream service = program_->service(spec.device);
  Status status = toDevice ? driver.copy(CopyKind::hostToDevice, device, outside, spec.bytes, service)
                           : driver.copy(CopyKind::deviceToHost, outside, device, spec.bytes, service);
  // Waits even after a failed call: the device must not use the caller's bytes after this returns.
  const Status drained = driver.streamSynchronize(service);
  if (status == Status::ok) status = drained;
  if (status == Status::ok) return std::nullopt;
  return failureOf(driver, status, (toDevice ? "load " : "read ") + spec.name);
}

MaybeFailure Session::awaitSubmitted(const char* op) {
  if (!program_) return invalidProgram(op, "the program is closed");
  const std::uint64_t target = issueThread_.submitted(*this);
  std::unique_lock lock(mutex_);
  ended_.wait(lock, [&] { return completed_ >= std::min(target, end_); });
  if (completed_ < target) return invalidProgram(op, "the program is closed");
  return failure_;
}

MaybeFailure Session::load(std::uint32_t buffer, const void* bytes) {
  std::lock_guard hold(transferMutex_);
  if (MaybeFailure failure = awaitSubmitted("load")) return failure;
  return transfer(buffer, const_cast<void*>(bytes), true);
}

MaybeFailure Session::read(std::uint32_t buffer, void* bytes) {
  std::lock_guard hold(transferMutex_);
  if (MaybeFailure failure = awaitSubmitted("read")) return failure;
  return transfer(buffer, bytes, false);
}

// Begins one copy of `take`.
MaybeFailure Session::copyFrom(const Session& from, std::uint32_t there, std::uint32_t here) {
  const auto kept = [](const Session& session, std::uint32_t buffer) {
    if (buffer >= session.spec_.buffers.size()) return false;
    const Life life = session.spec_.buffers[buffer].life;
    return life == Life::state || life == Life::param;
  };
  if (!kept(from, there) || !kept(*this, here))
    return invalidProgram("take", "a buffer that is neither state nor parameter");
  const BufferSpec& source = from.spec_.buffers[there];
  const BufferSpec& target = spec_.buffers[here];
  if (source.bytes != target.bytes || source.space != target.space || source.device != target.device)
    return invalidProgram("take", target.name + " has another length, or lies elsewhere");
  if (target.bytes == 0) return std::nullopt;
  const DeviceAddress to = program_->memory.address(spec_, here, 0);
  const DeviceAddress at = from.program_->memory.address(from.spec_, there, 0);
  if (to == at) return std::nullopt;  // a block that both share
  if (target.space == Space::pinned) {
    std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(at), target.bytes);
    return std::nullopt;
  }
  Driver& driver = *drivers_[target.device];
  driver.bind();
  const Status status =
      driver.copy(CopyKind::deviceToDevice, to, at, target.bytes, program_->service(target.device));
  if (status == Status::ok) return std::nullopt;
  return failureOf(driver, status, "take " + target.name);
}

MaybeFailure Session::take(Session& from,
                           const std::vector<std::pair<std::uint32_t, std::uint32_t>>& buffers) {
  if (&from == this) return invalidProgram("take", "a program takes from another one");
  std::scoped_lock hold(transferMutex_, from.transferMutex_);
  if (MaybeFailure failure = from.awaitSubmitted("take")) return failure;
  if (MaybeFailure failure = awaitSubmitted("take")) return failure;
  if (devices_ != from.devices_) return invalidProgram("take", "the programs are on other devices");
  MaybeFailure failure;
  for (const auto& [there, here] : buffers)
    if (!failure) failure = copyFrom(from, there, here);
  // Waits even after a failed call, as `transfer` does.
  for (std::uint32_t device = 0; device < drivers_.size(); ++device) {
    drivers_[device]->bind();
    const Status status = drivers_[device]->streamSynchronize(program_->service(device));
    if (!failure && status != Status::ok) failure = failureOf(*drivers_[device], status, "take");
  }
  return failure;
}

SessionStats Session::count() const {
  SessionStats stats;
  const SessionMemory& memory = program_->memory;
  for (std::size_t which = 0; which < memory.count(); ++which) {
    const SessionAllocator::Counters counters = program_->pools[which]->counters();
    stats.byOrder += counters.byOrder;
    stats.byWait += counters.byWait;
    stats.byGrowth += counters.byGrowth;
    stats.bySynchronize += counters.bySynchronize;
    if (which == memory.pinned()) continue;
    // Planned storage allocates the whole arena for the life of the session.
    const std::uint64_t fixed = memory.fixedBytes(which) + (spec_.planned ? memory.poolBytes(which) : 0);
    const DeviceStats device{fixed + counters.allocatedBytes, fixed + counters.allocatedPeak,
                             memory.totalBytes(which), fixed + program_->pools[which]->peak()};
    stats.allocated += device.allocated;
    stats.allocatedPeak += device.allocatedPeak;
    stats.reserved += device.reserved;
    stats.poolPeak += device.poolPeak;
    stats.devices.push_back(device);
  }
  stats.fullQueues = issuer_->fullQueues();
  stats.graphLaunches = issuer_->graphLaunches();
  stats.reservedPeak = stats.reserved;
  stats.pinned = memory.totalBytes(memory.pinned());
  stats.eventsCreated = program_->objects.eventsCreated() - eventsAtFirstTick_;
  return stats;
}

SessionStats Session::stats() const {
  std::lock_guard lock(mutex_);
  SessionStats stats = program_ ? count() : last_;
  stats.ticks = succeeded_;
  const std::uint64_t kept = std::min<std::uint64_t>(issued_, issueNanoseconds_.size());
  for (std::uint64_t i = issued_ - kept; i < issued_; ++i)
    stats.issueNanoseconds.push_back(issueNanoseconds_[i % issueNanoseconds_.size()]);
  return stats;
}

TraceRows Session::trace() const { return trace_.rows(); }

void Session::close(Unbegun unbegun) {
  // This comes before all waits: another thread's `read` may be waiting for a tick that is dropped here.
  const std::uint64_t submitted = issueThread_.submitted(*this);
  const std::uint64_t end = issueThread_.end(*this, unbegun == Unbegun::drop);
  if (options_.sequence && end < submitted) options_.sequence->end();
  {
    std::lock_guard lock(mutex_);
    end_ = std::min(end_, end);
  }
  toComplete_.notify_one();
  ended_.notify_all();
  if (std::this_thread::get_id() == completer_) return;

  std::lock_guard hold(transferMutex_);
  if (!program_) return;
  if (completing_.joinable()) completing_.join();
  // Every tick has completed, but the issuing thread may not have returned from the last one yet.
  if (entered_) issueThread_.leave(*this);
  drivers_[0]->bind();
  drain();
  std::unique_ptr<Program> program;
  {
    std::lock_guard lock(mutex_);
    if (issuer_) {
      issuer_->abandon();
      last_ = count();
      last_.allocated = last_.reserved = last_.pinned = 0;
      for (DeviceStats& device : last_.devices) device.allocated = device.reserved = 0;
    }
    program = std::move(program_);
    for (Launch& launch : launches_) {
      for (Mark* const use : launch.uses) use->release();
      launch.uses.clear();
    }
  }
  if (options_.sequence) options_.sequence->forget(*program);
  issuer_.reset();
  graphs_.clear();
  program.reset();
  drivers_.clear();
  devices_.clear();
}

}  // namespace braid
