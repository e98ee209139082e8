#include <cstring>
#include <system_error>

#include "host/host_driver.h"

// Streams, events, the work between them, and what a capture makes of it.

namespace braid::host {

class HostKernel final : public Kernel {
 public:
  // Shared with the pieces in flight, so that a kernel may be destroyed before its last launch has run.
  std::shared_ptr<const CpuKernel> cpu;
  Cost cost;
};

namespace {

class SetCondition final : public CpuKernel {
 public:
  SetCondition() {
    readCount = writeCount = 1;
    extents = {Extent{4, 4}, Extent{0, 1}};  // the condition is a number, and no memory
  }
  bool run(const DeviceAddress* addresses, Scratch&, Part part) const override {
    if (part == Part::first) return true;
    GraphLaunch* launch = GraphLaunch::current();
    if (launch == nullptr) return false;
    launch->setCondition(addresses[1], *reinterpret_cast<const std::uint32_t*>(addresses[0]));
    return true;
  }
};

Duration seconds(double value) {
  // A low rate may give a time that a clock cannot represent: a year is the most.
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(std::min(value, 3.2e7)));
}

}  // namespace

Status HostDriver::unknown(const char* what) {
  return fail(Status::invalidHandle,
              std::string("not a ") + what + " of this device: null, destroyed, or another's");
}

Status HostDriver::streamCreate(Stream* stream, int) {
  if (const Status status = enter(Call::streamCreate); status != Status::ok) return status;
  if (!stream) return fail(Status::invalidValue, "no place for the stream");
  StreamQueue* queue = nullptr;
  const std::uint64_t number = ++streamsMade_;
  const std::uint64_t handle = marks_->streams.create(
      &queue, [](const StreamQueue& retired) { return retired.idle(); },
      [this]() -> std::unique_ptr<StreamQueue> {
        try {
          return std::make_unique<StreamQueue>(&context_);
        } catch (const std::system_error&) {
          return nullptr;  // the system has no more threads
        }
      });
  if (handle == 0) return fail(Status::outOfMemory, "no more threads for streams");
  const std::uint64_t seed = context_.options().jitterSeed;
  const std::uint64_t place = number + (static_cast<std::uint64_t>(info_.ordinal) << 32);
  queue->open(seed == 0 ? 0 : seed * 0x9e3779b97f4a7c15u ^ place * 0xd1342543de82ef95u);
  *stream = reinterpret_cast<Stream>(handle);
  return Status::ok;
}

Status HostDriver::streamDestroy(Stream stream) {
  if (const Status status = enterRelease(Call::streamDestroy); status != Status::ok) return status;
  if (StreamQueue* queue = find(stream); queue && queue->capture != 0) graphs_.forget(queue);
  if (!marks_->streams.retire(reinterpret_cast<std::uint64_t>(stream), [](StreamQueue&) {}))
    return unknown("stream");
  return leave();
}

Status HostDriver::streamSynchronize(Stream stream) {
  if (const Status status = enterRelease(Call::streamSynchronize); status != Status::ok) return status;
  StreamQueue* queue = find(stream);
  if (!queue) return unknown("stream");
  if (const std::uint64_t capture = queue->capture; capture != 0) {
    std::string detail;
    const Status status = graphs_.forbid(capture, Status::captureUnsupported, "streamSynchronize", &detail);
    return fail(status, std::move(detail));
  }
  queue->await(queue->mark().pieces);
  return leave();
}

Status HostDriver::streamQuery(Stream stream) {
  if (const Status status = enter(Call::streamQuery); status != Status::ok) return status;
  StreamQueue* queue = find(stream);
  if (!queue) return unknown("stream");
  if (const std::uint64_t capture = queue->capture; capture != 0) {
    std::string detail;
    const Status status = graphs_.forbid(capture, Status::captureUnsupported, "streamQuery", &detail);
    return fail(status, std::move(detail));
  }
  if (!queue->reached(queue->mark().pieces)) return Status::notReady;
  return leave();
}

Status HostDriver::streamWait(Stream stream, Event event) {
  if (const Status status = enter(Call::streamWait); status != Status::ok) return status;
  StreamQueue* queue = find(stream);
  if (!queue) return unknown("stream");
  Mark mark;
  std::shared_ptr<const void> keep;
  std::uint64_t captured = 0;
  std::vector<std::uint64_t> nodes;
  if (EventState* state = find(event)) {
    std::lock_guard lock(state->mutex);
    mark = state->mark;
    captured = state->capture;
    if (captured != 0) nodes = state->captured;
  } else if (!Neighbours::all().find(reinterpret_cast<std::uint64_t>(event), &mark, &keep))
    return unknown("event");
  std::string detail;
  if (captured != 0) {
    const Status status = graphs_.waitCaptured(queue, captured, nodes, &detail);
    return status == Status::ok ? status : fail(status, std::move(detail));
  }
  if (const std::uint64_t capture = queue->capture; capture != 0) {
    const Status status = graphs_.forbid(capture, Status::captureIsolation,
                                         "a wait for an event that was recorded outside", &detail);
    return fail(status, std::move(detail));
  }
  // A stream need not wait for itself, nor for completed work.
  if (!mark.stream || mark.stream == queue || mark.stream->reached(mark.pieces)) return Status::ok;
  push(*queue, Piece::Kind::wait, Cost{}, [&](Piece& piece) {
    piece.mark = mark;
    piece.keep = std::move(keep);
  });
  return Status::ok;
}

Status HostDriver::eventCreate(Event* event, EventKind kind) {
  if (const Status status = enter(Call::eventCreate); status != Status::ok) return status;
  if (!event) return fail(Status::invalidValue, "no place for the event");
  EventState* state = nullptr;
  const std::uint64_t handle = events_.create(
      &state, [](const EventState&) { return true; }, [] { return std::make_unique<EventState>(); });
  if (handle == 0) return fail(Status::outOfMemory, "too many events");
  state->reset(kind == EventKind::timed);
  *event = reinterpret_cast<Event>(handle);
  return Status::ok;
}

Status HostDriver::eventDestroy(Event event) {
  if (const Status status = enterRelease(Call::eventDestroy); status != Status::ok) return status;
  if (!events_.retire(reinterpret_cast<std::uint64_t>(event), [](EventState& state) { state.reset(false); }))
    return unknown("event");
  return leave();
}

Status HostDriver::eventRecord(Event event, Stream stream) {
  if (const Status status = enter(Call::eventRecord); status != Status::ok) return status;
  EventState* state = find(event);
  if (!state) return unknown("event");
  StreamQueue* queue = find(stream);
  if (!queue) return unknown("stream");
  if (queue->capture != 0) {
    std::string detail;
    const Status status = graphs_.recordCaptured(queue, state, &detail);
    return status == Status::ok ? status : fail(status, std::move(detail));
  }
  // The event's lock is held during the push, so that the time stamp finds its own mark. Not while the queue
  // is full: a queued piece may be a time stamp of this event.
  queue->awaitRoom(streamDepth());
  std::lock_guard lock(state->mutex);
  state->mark = state->timed
                    ? push(*queue, Piece::Kind::stamp, Cost{}, [&](Piece& piece) { piece.event = state; })
                    : queue->mark();
  state->stamped = false;
  state->capture = 0;
  return Status::ok;
}

// The event's mark, unless it was last recorded in a capture.
Status HostDriver::outside(EventState& state, const char* call, Mark* mark) {
  std::uint64_t capture = 0;
  {
    std::lock_guard lock(state.mutex);
    *mark = state.mark;
    capture = state.capture;
  }
  if (capture == 0) return Status::ok;
  std::string detail;
  const Status status = graphs_.forbid(capture, Status::capturedEvent, call, &detail);
  return fail(status, std::move(detail));
}

Status HostDriver::eventQuery(Event event) {
  if (const Status status = enter(Call::eventQuery); status != Status::ok) return status;
  EventState* state = find(event);
  if (!state) return unknown("event");
  Mark mark;
  if (const Status status = outside(*state, "eventQuery", &mark); status != Status::ok) return status;
  if (const Status status = enterUnsafe(Call::eventQuery); status != Status::ok) return status;
  if (mark.stream && !mark.stream->reached(mark.pieces)) return Status::notReady;
  return leave();
}

Status HostDriver::eventSynchronize(Event event) {
  if (const Status status = enterRelease(Call::eventSynchronize); status != Status::ok) return status;
  EventState* state = find(event);
  if (!state) return unknown("event");
  Mark mark;
  if (const Status status = outside(*state, "eventSynchronize", &mark); status != Status::ok) return status;
  if (mark.stream) mark.stream->await(mark.pieces);
  return leave();
}

Status HostDriver::eventElapsed(float* milliseconds, Event from, Event to) {
  if (const Status status = enter(Call::eventElapsed); status != Status::ok) return status;
  if (!milliseconds) return fail(Status::invalidValue, "no place for the time");
  Time times[2];
  const Event events[] = {from, to};
  bool ready = true;
  for (int i = 0; i < 2; ++i) {
    EventState* state = find(events[i]);
    if (!state) return unknown("event");
    std::lock_guard lock(state->mutex);
    if (state->capture != 0)
      return fail(Status::invalidValue, "an event that was last recorded in a capture");
    if (!state->timed || !state->mark.stream)
      return fail(Status::invalidHandle, "an event that is not timed, or was never recorded");
    ready = ready && state->stamped && state->mark.stream->reached(state->mark.pieces);
    times[i] = state->at;
  }
  if (!ready) return Status::notReady;
  *milliseconds = std::chrono::duration<float, std::milli>(times[1] - times[0]).count();
  return Status::ok;
}

Cost HostDriver::computeCost(double amount, double rate) const {
  return rate > 0 ? Cost{EngineKind::compute, seconds(amount / rate)} : Cost{};
}

Cost HostDriver::transferCost(CopyKind kind, std::size_t bytes) const {
  const HostOptions& options = context_.options();
  if (kind == CopyKind::hostToHost) return Cost{};
  if (kind == CopyKind::deviceToDevice)
    return computeCost(2.0 * static_cast<double>(bytes), options.deviceBytesPerSecond);
  if (options.copyBytesPerSecond == 0) return Cost{};
  const EngineKind engine = kind == CopyKind::hostToDevice ? EngineKind::upload : EngineKind::download;
  return Cost{engine, seconds(static_cast<double>(bytes) / options.copyBytesPerSecond)};
}

Status HostDriver::copy(CopyKind kind, DeviceAddress to, DeviceAddress from, std::size_t bytes,
                        Stream stream) {
  if (const Status status = enter(Call::copy); status != Status::ok) return status;
  StreamQueue* queue = find(stream);
  if (!queue) return unknown("stream");
  if (static_cast<unsigned>(kind) > static_cast<unsigned>(CopyKind::hostToHost))
    return fail(Status::invalidValue, "unknown kind of copy");
  if (bytes == 0) return Status::ok;
  if (to == 0 || from == 0 || to + bytes < to || from + bytes < from)
    return fail(Status::invalidValue, "a copy to or from no memory");
  Work work;
  work.kind = Work::Kind::copy;
  work.cost = transferCost(kind, bytes);
  work.to = to;
  work.from = from;
  work.bytes = bytes;
  work.copyKind = kind;
  return submit(*queue, NodeKind::copy, std::move(work));
}

Status HostDriver::fill32(DeviceAddress to, std::uint32_t value, std::size_t words, Stream stream) {
  if (const Status status = enter(Call::fill32); status != Status::ok) return status;
  StreamQueue* queue = find(stream);
  if (!queue) return unknown("stream");
  if (words == 0) return Status::ok;
  if (to == 0 || to % 4 != 0 || words > SIZE_MAX / 4)
    return fail(Status::invalidValue, "a fill of no memory, or not aligned to 4 bytes");
  Work work;
  work.kind = Work::Kind::fill;
  work.cost = computeCost(4.0 * static_cast<double>(words), context_.options().deviceBytesPerSecond);
  work.to = to;
  work.value = value;
  work.width = words;
  return submit(*queue, NodeKind::fill, std::move(work));
}

Status HostDriver::fill(const NodeParams& fill, Stream stream) {
  if (const Status status = enter(Call::fill); status != Status::ok) return status;
  StreamQueue* queue = find(stream);
  if (!queue) return unknown("stream");
  NewNode node;
  if (const Status status = describe(fill, &node); status != Status::ok) return status;
  return submit(*queue, NodeKind::fill, std::move(node.work));
}

Status HostDriver::prepare(std::unique_ptr<Kernel>* kernel, const KernelSpec& spec, HostCallback callback) {
  if (const Status status = enter(Call::prepare); status != Status::ok) return status;
  if (!kernel) return fail(Status::invalidValue, "no place for the kernel");
  std::unique_ptr<CpuKernel> cpu;
  std::string detail;
  if (const Status status = prepareCpu(&cpu, spec, std::move(callback), &detail); status != Status::ok)
    return fail(status, detail);
  auto made = std::make_unique<HostKernel>();
  const HostOptions& options = context_.options();
  if (spec.kind == KernelSpec::Kind::copy)
    made->cost = transferCost(static_cast<CopyKind>(spec.direction), spec.bytes);
  else if (cpu->flops > 0)
    made->cost = computeCost(cpu->flops, options.flopsPerSecond);
  else
    made->cost = computeCost(cpu->movedBytes, options.deviceBytesPerSecond);
  cpu->reachesPeers = spec.reachesPeers;
  made->cpu = std::move(cpu);
  *kernel = std::move(made);
  return Status::ok;
}

Status HostDriver::prepareCondition(std::unique_ptr<Kernel>* kernel) {
  if (const Status status = enter(Call::prepareCondition); status != Status::ok) return status;
  if (!kernel) return fail(Status::invalidValue, "no place for the kernel");
  auto made = std::make_unique<HostKernel>();
  made->cpu = std::make_shared<SetCondition>();
  *kernel = std::move(made);
  return Status::ok;
}

Status HostDriver::reachPeer(Driver& other) {
  const bool host = dynamic_cast<HostDriver*>(&other) != nullptr;
  return host ? Status::ok : fail(Status::notSupported, "the host device reaches other host devices only");
}

Status HostDriver::preparePeerCopy(std::unique_ptr<Kernel>* kernel, std::size_t bytes, Driver* from,
                                   Driver* to) {
  KernelSpec spec;
  spec.bytes = bytes;
  spec.readCount = spec.writeCount = 1;
  spec.reachesPeers = true;
  const Status status = prepare(kernel, spec, {});
  if (status != Status::ok) return status;
  // Copies between devices and between a device and the host have the same rate.
  const double rate = context_.options().copyBytesPerSecond;
  const EngineKind engine = from == nullptr ? EngineKind::upload
                            : to == nullptr ? EngineKind::download
                                            : EngineKind::peer;
  auto& made = static_cast<HostKernel&>(**kernel);
  made.cost = rate > 0 ? Cost{engine, seconds(static_cast<double>(bytes) / rate)} : Cost{};
  return Status::ok;
}

Status HostDriver::launch(const Kernel& kernel, const DeviceAddress* reads, const DeviceAddress* writes,
                          Stream stream) {
  if (const Status status = enter(Call::launch); status != Status::ok) return status;
  StreamQueue* queue = find(stream);
  if (!queue) return unknown("stream");
  const HostKernel* host = nullptr;
  if (const Status status = check(kernel, reads, writes, &host); status != Status::ok) return status;
  if (queue->capture != 0) {
    Work work;
    describeLaunch(kernel, reads, writes, &work);
    return submit(*queue, NodeKind::kernel, std::move(work));
  }
  push(*queue, Piece::Kind::launch, host->cost,
       [&](Piece& piece) { fillLaunch(*host, reads, writes, &piece); });
  return Status::ok;
}

Status HostDriver::check(const Kernel& kernel, const DeviceAddress* reads, const DeviceAddress* writes,
                         const HostKernel** host) {
  *host = dynamic_cast<const HostKernel*>(&kernel);
  if (!*host) return fail(Status::invalidHandle, "a kernel of another device");
  const CpuKernel& cpu = *(*host)->cpu;
  if ((cpu.readCount > 0 && !reads) || (cpu.writeCount > 0 && !writes))
    return fail(Status::invalidValue, "no addresses");
  return Status::ok;
}

// Assigning keeps the capacity of a piece's addresses, so that no launch allocates in steady state.
void HostDriver::fillLaunch(const HostKernel& host, const DeviceAddress* reads, const DeviceAddress* writes,
                            Work* work) {
  work->kernel = host.cpu;
  work->addresses.assign(reads, reads + host.cpu->readCount);
  work->addresses.insert(work->addresses.end(), writes, writes + host.cpu->writeCount);
}

Status HostDriver::describeLaunch(const Kernel& kernel, const DeviceAddress* reads,
                                  const DeviceAddress* writes, Work* work) {
  const HostKernel* host = nullptr;
  if (const Status status = check(kernel, reads, writes, &host); status != Status::ok) return status;
  work->kind = Work::Kind::launch;
  work->cost = host->cost;
  fillLaunch(*host, reads, writes, work);
  return Status::ok;
}

Status HostDriver::hostFunction(Stream stream, void (*function)(void*), void* data) {
  if (const Status status = enter(Call::hostFunction); status != Status::ok) return status;
  StreamQueue* queue = find(stream);
  if (!queue) return unknown("stream");
  if (!function) return fail(Status::invalidValue, "no function");
  Work work;
  work.kind = Work::Kind::function;
  work.function = function;
  work.data = data;
  return submit(*queue, NodeKind::hostFunction, std::move(work));
}

Status HostDriver::submit(StreamQueue& queue, NodeKind kind, Work work) {
  if (queue.capture != 0) {
    std::string detail;
    NewNode node;
    node.kind = kind;
    node.label = label_;
    node.work = std::move(work);
    const Status status = graphs_.capture(&queue, node, &detail);
    return status == Status::ok ? status : fail(status, std::move(detail));
  }
  push(queue, work.kind, work.cost, [&](Piece& piece) {
    work.addresses.swap(piece.addresses);  // keeps their capacity
    static_cast<Work&>(piece) = std::move(work);
  });
  return Status::ok;
}

}  // namespace braid::host
