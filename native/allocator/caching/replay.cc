#include "allocator/caching/replay.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <unordered_map>

namespace braid::caching {
namespace {

// Holds a stream until it is opened.
class Gate {
 public:
  static void wait(void* gate) {
    auto* self = static_cast<Gate*>(gate);
    std::unique_lock lock(self->mutex_);
    self->opened_.wait(lock, [&] { return self->open_; });
  }
  void open() {
    std::lock_guard lock(mutex_);
    open_ = true;
    opened_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable opened_;
  bool open_ = false;
};

struct Owned {
  Block* block = nullptr;
  std::uint64_t bytes = 0;
  Gate* gate = nullptr;  // of its outstanding use
  Mark* use = nullptr;
};

using Clock = std::chrono::steady_clock;

class Replay {
 public:
  Replay(Driver& driver, const Options& options)
      : driver_(driver), lanes_(driver), allocator_(lanes_, std::make_unique<DeviceSource>(driver), options) {}

  ~Replay() {
    for (Gate& gate : gates_) gate.open();
    for (auto& [id, owned] : owned_)
      if (owned.use) owned.use->drop();
    for (const Stream stream : streams_) {
      driver_.streamSynchronize(stream);
      driver_.streamDestroy(stream);
    }
  }

  Status run(const std::vector<TraceOp>& ops, ReplayFigures* figures, std::string* detail) {
    // Which frees have a use that ends later: those whose completion is not the next thing that happens.
    std::uint64_t live = 0;
    for (std::size_t i = 0; i < ops.size(); ++i) {
      const TraceOp& op = ops[i];
      const bool outstanding =
          op.kind == TraceOp::Kind::freeRequested &&
          !(i + 1 < ops.size() && ops[i + 1].id == op.id && ops[i + 1].kind == TraceOp::Kind::freeCompleted);
      const Status status = step(op, outstanding, &live, detail);
      if (status != Status::ok) {
        *detail = "ops[" + std::to_string(i) + "]: " + *detail;
        return status;
      }
      figures->peakLive = std::max(figures->peakLive, live);
      figures->peakReserved = std::max(figures->peakReserved, allocator_.reserved());
    }
    figures->events = ops.size();
    figures->nsPerEvent =
        ops.empty() ? 0 : std::chrono::duration<double, std::nano>(inCalls_).count() / static_cast<double>(ops.size());
    figures->stats = allocator_.stats();
    figures->segments = static_cast<std::uint64_t>(figures->stats.all.segment.peak);
    figures->waits = figures->stats.waits;
    figures->moves = figures->stats.moves;
    figures->pagesMoved = figures->stats.pagesMoved;
    return Status::ok;
  }

 private:
  Status lane(std::uint32_t stream, bool consumer, Lane** found) {
    auto& lanes = consumer ? consumers_ : homes_;
    if (lanes.size() <= stream) lanes.resize(stream + 1);
    if (lanes[stream] == nullptr) {
      Stream made = nullptr;
      if (const Status status = driver_.streamCreate(&made, 0); status != Status::ok) return status;
      streams_.push_back(made);
      if (const Status status = lanes_.add(made, true, "", &lanes[stream]); status != Status::ok) return status;
    }
    *found = lanes[stream];
    return Status::ok;
  }

  template <class Call>
  Status timed(Call call) {
    const auto began = Clock::now();
    const Status status = call();
    inCalls_ += Clock::now() - began;
    return status;
  }

  Status step(const TraceOp& op, bool outstanding, std::uint64_t* live, std::string* detail) {
    Lane* home = nullptr;
    if (const Status status = lane(op.stream, false, &home); status != Status::ok) return status;
    switch (op.kind) {
      case TraceOp::Kind::allocate: {
        auto [at, fresh] = owned_.try_emplace(op.id);
        if (!fresh) return wrong(detail, "allocated twice");
        at->second.bytes = op.bytes;
        *live += op.bytes;
        if (op.bytes == 0) return Status::ok;
        Shortage shortage;
        const Status status = timed([&] { return allocator_.malloc(op.bytes, *home, &at->second.block, &shortage); });
        if (status != Status::ok) *detail = std::to_string(op.bytes) + " bytes are not to be had";
        return status;
      }
      case TraceOp::Kind::freeRequested: {
        const auto at = owned_.find(op.id);
        if (at == owned_.end()) return wrong(detail, "freed without having been allocated");
        Owned& owned = at->second;
        if (owned.block == nullptr) return Status::ok;
        if (outstanding) {
          Lane* consumer = nullptr;
          if (const Status status = lane(op.stream, true, &consumer); status != Status::ok) return status;
          owned.gate = &gates_.emplace_back();
          if (const Status status = driver_.hostFunction(consumer->stream, Gate::wait, owned.gate);
              status != Status::ok)
            return status;
          consumer->queued();
          if (const Status status = timed([&] { return allocator_.recordUse(owned.block, *consumer); });
              status != Status::ok)
            return status;
          if (const Status status = lanes_.mark(*consumer, &owned.use); status != Status::ok) return status;
        }
        const Status status = timed([&] { return allocator_.free(owned.block); });
        owned.block = nullptr;
        return status;
      }
      case TraceOp::Kind::freeCompleted: {
        const auto at = owned_.find(op.id);
        if (at == owned_.end() || at->second.block != nullptr) return wrong(detail, "completed before it was freed");
        *live -= at->second.bytes;
        if (at->second.gate) {
          at->second.gate->open();
          // The driver knows before the next call asks; the allocator has to find out for itself.
          if (const Status status = driver_.eventSynchronize(at->second.use->event); status != Status::ok)
            return status;
          at->second.use->drop();
        }
        owned_.erase(at);
        return Status::ok;
      }
    }
    return Status::invalidValue;
  }

  // Lanes that waited for this use alone go on by themselves: until they have, what the trace calls complete is not yet
  // so here, and the figures would be those of the machine's mood. Those that wait for more stay as they are.
  void settle() {
    const auto until = Clock::now() + std::chrono::microseconds(200);
    const auto idle = [&](const Lane* lane) {
      return lane == nullptr || driver_.streamQuery(lane->stream) != Status::notReady;
    };
    while (!std::all_of(homes_.begin(), homes_.end(), idle) && Clock::now() < until) std::this_thread::yield();
  }

  static Status wrong(std::string* detail, const char* what) {
    *detail = what;
    return Status::invalidValue;
  }

  Driver& driver_;
  Lanes lanes_;
  Allocator allocator_;
  std::vector<Lane*> homes_, consumers_;  // by stream
  std::vector<Stream> streams_;
  std::deque<Gate> gates_;
  std::unordered_map<std::uint64_t, Owned> owned_;
  Clock::duration inCalls_{};
};

}  // namespace

Status replay(Driver& driver, const Options& options, const std::vector<TraceOp>& ops, ReplayFigures* figures,
              std::string* detail) {
  if (const Status status = driver.bind(); status != Status::ok) return status;
  return Replay(driver, options).run(ops, figures, detail);
}

}  // namespace braid::caching
