#include "host/stream.h"

#if defined(__linux__)
#include <sys/prctl.h>
#endif

#include <algorithm>
#include <cstring>
#include <optional>

#include "driver/meanwhile.h"
#include "host/context.h"
#include "host/graph_run.h"
#include "host/helpers.h"
#include "host/touching.h"

namespace braid::host {
namespace {

// How far the engines' time may fall behind the clock before it is advanced.
constexpr Duration kSlack = std::chrono::milliseconds(20);

std::uint64_t splitmix(std::uint64_t* state) {
  std::uint64_t z = (*state += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

std::string hex(DeviceAddress address) {
  char text[20];
  std::snprintf(text, sizeof(text), "0x%llx", static_cast<unsigned long long>(address));
  return text;
}

void fillRow(DeviceAddress to, std::uint32_t value, std::uint32_t elementBytes, std::size_t width) {
  if (elementBytes == 4)
    std::fill_n(reinterpret_cast<std::uint32_t*>(to), width, value);
  else if (elementBytes == 2)
    std::fill_n(reinterpret_cast<std::uint16_t*>(to), width, static_cast<std::uint16_t>(value));
  else
    std::memset(reinterpret_cast<void*>(to), static_cast<int>(value & 0xff), width);
}

thread_local int callbacks = 0;

}  // namespace

bool insideCallback() { return callbacks > 0; }
CallbackScope::CallbackScope() { ++callbacks; }
CallbackScope::~CallbackScope() { --callbacks; }

StreamQueue::StreamQueue(Context* context) : context_(context) {
  for (int i = 0; i < 64; ++i) {
    Piece* piece = grow();
    piece->next = spare_;
    spare_ = piece;
  }
  thread_ = std::thread([this] { serve(); });
}

void StreamQueue::open(std::uint64_t jitterState) {
  std::lock_guard lock(mutex_);
  jitter_ = jitterState;
}

bool StreamQueue::idle() const {
  std::lock_guard lock(mutex_);
  return issued_.load(std::memory_order_relaxed) == done_.load(std::memory_order_relaxed);
}

Piece* StreamQueue::grow() {
  pieces_.push_back(std::make_unique<Piece>());
  pieces_.back()->addresses.reserve(16);
  return pieces_.back().get();
}

Time Progress::await(std::uint64_t pieces) {
  std::unique_lock lock(mutex_);
  while (done_.load(std::memory_order_relaxed) < pieces) {
    if (meanwhile != nullptr) {
      lock.unlock();
      meanwhile();
      lock.lock();
      if (done_.load(std::memory_order_relaxed) >= pieces) break;
    }
    awaited_ = std::min(awaited_, pieces);
    if (meanwhile == nullptr)
      progress_.wait(lock);
    else
      progress_.wait_for(lock, std::chrono::microseconds(200));
  }
  const bool remembered = done_.load(std::memory_order_relaxed) - pieces < kHistory;
  return remembered ? doneAt_[pieces % kHistory] : Time{};
}

void Progress::advanceLocked(Time time) {
  const std::uint64_t done = done_.load(std::memory_order_relaxed) + 1;
  doneAt_[done % kHistory] = time;
  done_.store(done, std::memory_order_release);
  if (done >= awaited_) {
    awaited_ = ~std::uint64_t{0};  // threads that wait for a later piece set it again
    progress_.notify_all();
  }
}

void StreamQueue::stop() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    sleeping_ = false;
  }
  work_.notify_one();
}

void StreamQueue::join() {
  if (!thread_.joinable()) return;
  stop();
  thread_.join();
}

void StreamQueue::serve() {
#if defined(__linux__)
  // Makes sleeps end within microseconds of their time, not within the usual 50.
  prctl(PR_SET_TIMERSLACK, 1000, 0, 0, 0);
#endif
  std::unique_lock lock(mutex_);
  for (;;) {
    while (!first_ && !stopping_) {
      sleeping_ = true;
      work_.wait(lock);
    }
    if (!first_) return;
    Piece* piece = first_;
    first_ = piece->next;
    if (!first_) last_ = nullptr;

    lock.unlock();
    time_ = perform(*piece);
    piece->kernel.reset();
    piece->keep.reset();
    piece->graph.reset();
    lock.lock();

    piece->next = spare_;
    spare_ = piece;
    advanceLocked(time_);
  }
}

Time StreamQueue::perform(Piece& piece) {
  const Time ready = std::max(piece.issued, time_);
  if (piece.kind == Piece::Kind::wait) return std::max(ready, piece.mark.stream->await(piece.mark.pieces));
  if (piece.kind == Piece::Kind::stamp) {
    const Time at = context_->slowed() ? ready : Clock::now();
    std::lock_guard lock(piece.event->mutex);
    EventState& event = *piece.event;
    // Recorded again meanwhile, or reused by another event: the time is dropped.
    if (event.mark.stream == this && event.mark.pieces == done_.load(std::memory_order_relaxed) + 1) {
      event.stamped = true;
      event.at = at;
    }
    return ready;
  }
  if (piece.kind == Piece::Kind::graph) return piece.graph->run(ready);
  return performWork(*context_, piece, piece.fault, piece.label, ready, &jitter_, scratch_);
}

namespace {

// Whether a piece may touch the bytes. If not, the device has failed.
bool touches(Context& context, const WorkLabel& label, DeviceAddress address, std::size_t bytes,
             std::uint32_t alignment, bool peers) {
  if (address % alignment != 0)
    context.fail(Status::misalignedAddress,
                 hex(address) + " is not aligned to " + std::to_string(alignment) + " bytes", label);
  else if (context.reaches(address, bytes, peers))
    return true;
  else
    context.fail(Status::illegalAddress,
                 hex(address) + ", " + std::to_string(bytes) + " bytes: not memory of this device", label);
  return false;
}

bool copyPart(Context& context, const Work& work, const WorkLabel& label, Part part) {
  const Touching::Scope touching(Touching::all());
  const bool toDevice = work.copyKind == CopyKind::hostToDevice || work.copyKind == CopyKind::deviceToDevice;
  const bool fromDevice =
      work.copyKind == CopyKind::deviceToHost || work.copyKind == CopyKind::deviceToDevice;
  if ((toDevice && !touches(context, label, work.to, work.bytes, 1, false)) ||
      (fromDevice && !touches(context, label, work.from, work.bytes, 1, false)))
    return false;
  const PartRange bytes(part, static_cast<std::int64_t>(work.bytes));
  const auto first = static_cast<std::size_t>(bytes.first), last = static_cast<std::size_t>(bytes.last);
  std::memmove(reinterpret_cast<void*>(work.to + first), reinterpret_cast<const void*>(work.from + first),
               last - first);
  return true;
}

bool fillPart(Context& context, const Work& work, const WorkLabel& label, Part part) {
  const Touching::Scope touching(Touching::all());
  const std::size_t row = work.width * work.elementBytes;
  const PartRange rows(part, static_cast<std::int64_t>(work.height));
  for (auto i = static_cast<std::size_t>(rows.first); i < static_cast<std::size_t>(rows.last); ++i) {
    const DeviceAddress to = work.to + i * work.pitch;
    if (!touches(context, label, to, row, work.elementBytes, false)) return false;
    fillRow(to, work.value, work.elementBytes, work.width);
  }
  return true;
}

bool launchPart(Context& context, const Work& work, const WorkLabel& label, Part part, Scratch& scratch) {
  const CpuKernel& kernel = *work.kernel;
  // A user's reference is computed by the JavaScript thread, which may be the one that frees memory: were it
  // counted, each would wait for the other.
  std::optional<Touching::Scope> touching;
  if (!kernel.callsUser) touching.emplace(Touching::all());
  for (std::size_t i = 0; i < kernel.extents.size(); ++i)
    if (!touches(context, label, work.addresses[i], kernel.extents[i].bytes, kernel.extents[i].alignment,
                 kernel.reachesPeers))
      return false;
  try {
    if (kernel.run(work.addresses.data(), scratch, part)) return true;
    context.fail(Status::launchFailed, "the kernel's reference failed", label);
  } catch (const std::bad_alloc&) {
    context.fail(Status::launchOutOfResources, "no memory for the kernel's scratch", label);
  } catch (...) {
    context.fail(Status::launchFailed, "the kernel's reference threw", label);
  }
  return false;
}

// False after a failure of the device. What a half touches is checked when it begins: memory may have been
// freed since the other half.
bool performPart(Context& context, const Work& work, const WorkLabel& label, Part part, Scratch& scratch) {
  if (context.failure() != Status::ok) return false;
  switch (work.kind) {
    case Work::Kind::copy: return copyPart(context, work, label, part);
    case Work::Kind::fill: return fillPart(context, work, label, part);
    case Work::Kind::launch: return launchPart(context, work, label, part, scratch);
    case Work::Kind::function: {
      if (part == Part::first) return true;
      const CallbackScope scope;
      work.function(work.data);
      return true;
    }
    default: return true;
  }
}

// Work of a kernel from which on two threads are worth their waking: some 100 microseconds of one.
constexpr double kLargeFlops = 5e6, kLargeBytes = 4e5;

// All of a piece of work, a large kernel's halves beside each other where a core is free.
bool performAll(Context& context, const Work& work, const WorkLabel& label, Scratch& scratch) {
  const bool isLarge = work.kind == Work::Kind::launch && !work.kernel->callsUser &&
                       (work.kernel->flops >= kLargeFlops || work.kernel->movedBytes >= kLargeBytes);
  if (!isLarge) return performPart(context, work, label, Part::all, scratch);
  struct Second : Helpers::Half {
    Context* context;
    const Work* work;
    const WorkLabel* label;
  } second;
  second.context = &context, second.work = &work, second.label = &label;
  second.run = [](Helpers::Half* half, Scratch& own) {
    const auto& mine = *static_cast<Second*>(half);
    return performPart(*mine.context, *mine.work, *mine.label, Part::second, own);
  };
  bool first = false;
  const bool both = Helpers::instance().beside(
      &second, [&] { first = performPart(context, work, label, Part::first, scratch); });
  return both ? first && second.succeeded : performPart(context, work, label, Part::all, scratch);
}

// A delay of a random length, before half of the pieces: so that either side of every race comes first at
// times. Returns whether there was one.
bool jitterDelay(const Context& context, std::uint64_t* jitter) {
  if (*jitter == 0) return false;
  const std::uint64_t random = splitmix(jitter);
  const double share = static_cast<double>(random >> 11) * 0x1p-53;
  if ((random & 1) == 0) return false;
  std::this_thread::sleep_for(
      std::chrono::duration<double, std::micro>(share * context.options().jitterMicroseconds));
  return true;
}

}  // namespace

Time performWork(Context& context, const Work& work, const HostOptions::Fault* fault, const WorkLabel& label,
                 Time ready, std::uint64_t* jitter, Scratch& scratch) {
  // As on a GPU, queued work is dropped: copies, kernels, and host functions, which are never called.
  if (context.failure() != Status::ok) return ready;
  if (jitterDelay(context, jitter)) ready = Clock::now();
  const double delay = fault ? fault->delayMicroseconds : 0;
  if (fault && delay == 0) {
    context.fail(fault->status, "this piece of work was made to fail", label);
    return ready;
  }
  const bool engine = work.cost.engine != EngineKind::none && work.cost.duration.count() > 0;
  const Time until = engine ? context.engine(work.cost.engine).reserve(ready, work.cost.duration) : ready;
  if (!engine && delay == 0) {
    performAll(context, work, label, scratch);
    return context.slowed() ? Clock::now() : until;
  }
  const Time began = Clock::now();
  if (!performPart(context, work, label, Part::first, scratch)) return ready;
  const Duration half = Clock::now() - began;
  if (delay > 0) std::this_thread::sleep_for(std::chrono::duration<double, std::micro>(delay));
  // The second half takes as long as the first did.
  if (engine) std::this_thread::sleep_until(until - half);
  if (!performPart(context, work, label, Part::second, scratch)) return ready;
  // Where the time is late, the processor was busy, or cannot reach the rate. The next pieces make up for a
  // little of it.
  const Time now = Clock::now();
  if (now > until) return std::max(until, now - kSlack);
  std::this_thread::sleep_until(until);
  return until;
}

}  // namespace braid::host
