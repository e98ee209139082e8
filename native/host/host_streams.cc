#include <cstring>
#include <system_error>

#include "host/host_driver.h"

// Streams, events, and the work between them.

namespace braid::host {
namespace {

class HostKernel final : public Kernel {
 public:
  // Shared with the pieces in flight, so that a kernel may be destroyed before its last launch has run.
  std::shared_ptr<const CpuKernel> cpu;
  Cost cost;
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
  const std::uint64_t handle = streams_->create(
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
  if (!streams_->retire(reinterpret_cast<std::uint64_t>(stream), [](StreamQueue&) {}))
    return unknown("stream");
  return leave();
}

Status HostDriver::streamSynchronize(Stream stream) {
  if (const Status status = enterRelease(Call::streamSynchronize); status != Status::ok) return status;
  StreamQueue* queue = find(stream);
  if (!queue) return unknown("stream");
  queue->await(queue->mark().pieces);
  return leave();
}

Status HostDriver::streamQuery(Stream stream) {
  if (const Status status = enter(Call::streamQuery); status != Status::ok) return status;
  StreamQueue* queue = find(stream);
  if (!queue) return unknown("stream");
  if (!queue->reached(queue->mark().pieces)) return Status::notReady;
  return leave();
}

Status HostDriver::streamWait(Stream stream, Event event) {
  if (const Status status = enter(Call::streamWait); status != Status::ok) return status;
  StreamQueue* queue = find(stream);
  if (!queue) return unknown("stream");
  Mark mark;
  std::shared_ptr<const void> keep;
  if (EventState* state = find(event))
    mark = state->current();
  else if (!Neighbours::all().find(reinterpret_cast<std::uint64_t>(event), &mark, &keep))
    return unknown("event");
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
  // The event's lock is held during the push, so that the time stamp finds its own mark. Not while the queue
  // is full: a queued piece may be a time stamp of this event.
  queue->awaitRoom(streamDepth());
  std::lock_guard lock(state->mutex);
  state->mark = state->timed
                    ? push(*queue, Piece::Kind::stamp, Cost{}, [&](Piece& piece) { piece.event = state; })
                    : queue->mark();
  state->stamped = false;
  return Status::ok;
}

Status HostDriver::eventQuery(Event event) {
  if (const Status status = enter(Call::eventQuery); status != Status::ok) return status;
  EventState* state = find(event);
  if (!state) return unknown("event");
  const Mark mark = state->current();
  if (mark.stream && !mark.stream->reached(mark.pieces)) return Status::notReady;
  return leave();
}

Status HostDriver::eventSynchronize(Event event) {
  if (const Status status = enterRelease(Call::eventSynchronize); status != Status::ok) return status;
  EventState* state = find(event);
  if (!state) return unknown("event");
  const Mark mark = state->current();
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
  push(*queue, Piece::Kind::copy, transferCost(kind, bytes), [&](Piece& piece) {
    piece.to = to;
    piece.from = from;
    piece.bytes = bytes;
    piece.copyKind = kind;
  });
  return Status::ok;
}

Status HostDriver::fill32(DeviceAddress to, std::uint32_t value, std::size_t words, Stream stream) {
  if (const Status status = enter(Call::fill32); status != Status::ok) return status;
  StreamQueue* queue = find(stream);
  if (!queue) return unknown("stream");
  if (words == 0) return Status::ok;
  if (to == 0 || to % 4 != 0 || words > SIZE_MAX / 4)
    return fail(Status::invalidValue, "a fill of no memory, or not aligned to 4 bytes");
  const double bytes = 4.0 * static_cast<double>(words);
  push(*queue, Piece::Kind::fill, computeCost(bytes, context_.options().deviceBytesPerSecond),
       [&](Piece& piece) {
         piece.to = to;
         piece.value = value;
         piece.bytes = words * 4;
       });
  return Status::ok;
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
  const auto* host = dynamic_cast<const HostKernel*>(&kernel);
  if (!host) return fail(Status::invalidHandle, "a kernel of another device");
  const CpuKernel& cpu = *host->cpu;
  if ((cpu.readCount > 0 && !reads) || (cpu.writeCount > 0 && !writes))
    return fail(Status::invalidValue, "no addresses");
  push(*queue, Piece::Kind::launch, host->cost, [&](Piece& piece) {
    piece.kernel = host->cpu;
    piece.addresses.assign(reads, reads + cpu.readCount);
    piece.addresses.insert(piece.addresses.end(), writes, writes + cpu.writeCount);
  });
  return Status::ok;
}

Status HostDriver::hostFunction(Stream stream, void (*function)(void*), void* data) {
  if (const Status status = enter(Call::hostFunction); status != Status::ok) return status;
  StreamQueue* queue = find(stream);
  if (!queue) return unknown("stream");
  if (!function) return fail(Status::invalidValue, "no function");
  push(*queue, Piece::Kind::function, Cost{}, [&](Piece& piece) {
    piece.function = function;
    piece.data = data;
  });
  return Status::ok;
}

}  // namespace braid::host
