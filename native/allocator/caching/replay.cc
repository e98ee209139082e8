#include "allocator/caching/replay.h"

#include <algorithm>
#include <chrono>
#include <unordered_map>

#include "allocator/caching/replay_driver.h"

namespace braid::caching {
namespace {

using Clock = std::chrono::steady_clock;
using Time = ReplayDriver::Time;

double nanoseconds(Clock::duration duration) { return std::chrono::duration<double, std::nano>(duration).count(); }

// What a timed call that does nothing seems to take.
double clockCost() {
  std::vector<double> costs(1001);
  for (double& cost : costs) {
    const auto began = Clock::now();
    cost = nanoseconds(Clock::now() - began);
  }
  std::nth_element(costs.begin(), costs.begin() + 500, costs.end());
  return costs[500];
}

// Until when each free is outstanding, as times of the trace: operation i happens at i, and what it completes is
// complete at i + 1. 0: its completion is the very next thing that happens. What is never completed outlasts the trace.
std::vector<Time> outstandingUntil(const std::vector<TraceOp>& ops) {
  std::vector<Time> until(ops.size());
  std::unordered_map<std::uint64_t, Time> completed;
  for (std::size_t i = ops.size(); i-- > 0;) {
    const TraceOp& op = ops[i];
    if (op.kind == TraceOp::Kind::freeCompleted) completed[op.id] = i + 1;
    if (op.kind != TraceOp::Kind::freeRequested) continue;
    const auto at = completed.find(op.id);
    until[i] = at == completed.end() ? ops.size() + 1 : at->second == i + 2 ? 0 : at->second;
    if (at != completed.end()) completed.erase(at);
  }
  return until;
}

class Replay {
 public:
  Replay(Driver& driver, const Options& options, Shortage* shortage)
      : driver_(driver),
        lanes_(driver_),
        allocator_(lanes_, std::make_unique<DeviceSource>(driver_), options),
        shortage_(shortage) {}
  ~Replay() { driver_.drain(); }  // a device may wait for its work before it takes memory back

  Status run(const std::vector<TraceOp>& ops, ReplayFigures* figures, std::string* detail) {
    const std::vector<Time> until = outstandingUntil(ops);
    calls_.reserve(ops.size());
    const double clock = clockCost();
    for (std::size_t i = 0; i < ops.size(); ++i) {
      const Status status = step(ops[i], until[i], detail);
      if (status != Status::ok) {
        *detail = "ops[" + std::to_string(i) + "]: " + *detail;
        return status;
      }
      driver_.advance(i + 1);
      figures->events = i + 1;
      figures->peakLive = std::max(figures->peakLive, live_);
      figures->outstanding = std::max(figures->outstanding, outstanding_);
      figures->peakReserved = std::max(figures->peakReserved, allocator_.reserved());
    }
    figures->stats = allocator_.stats();
    figures->segments = static_cast<std::uint64_t>(figures->stats.all.segment.peak);
    figures->waits = figures->stats.waits;
    figures->moves = figures->stats.moves;
    figures->pagesMoved = figures->stats.pagesMoved;
    figures->moveNs = static_cast<double>(figures->stats.moveNanoseconds);
    if (calls_.empty()) return Status::ok;
    double sum = 0;
    for (float& call : calls_) sum += call = std::max(0.0F, call - static_cast<float>(clock));
    figures->nsPerEvent = sum / static_cast<double>(ops.size());
    std::sort(calls_.begin(), calls_.end());
    figures->nsMedian = calls_[calls_.size() / 2];
    figures->ns99 = calls_[calls_.size() * 99 / 100];
    figures->nsMost = calls_.back();
    return Status::ok;
  }

 private:
  struct Owned {
    Block* block = nullptr;
    std::uint64_t bytes = 0;
    bool freed = false, outstanding = false;
  };
  struct Consumer {
    Lane* lane;
    Time until;
  };

  Status add(Lane** lane) {
    Stream stream = nullptr;
    if (const Status status = driver_.streamCreate(&stream, 0); status != Status::ok) return status;
    return lanes_.add(stream, true, "", lane);
  }

  // Where a use that ends then may stand: ends on one lane come in order. The one that is held longest so far, a new
  // one, or, where there are too many, the one that holds it too long by least.
  Status consumer(Time until, Lane** lane) {
    Consumer *before = nullptr, *after = nullptr;
    for (Consumer& candidate : consumers_) {
      Consumer*& best = candidate.until <= until ? before : after;
      if (best == nullptr || (candidate.until <= until) == (candidate.until > best->until)) best = &candidate;
    }
    if (before == nullptr && lanes_.count() < Lanes::most - mostTraceStreams) {
      Lane* fresh = nullptr;
      if (const Status status = add(&fresh); status != Status::ok) return status;
      before = &consumers_.emplace_back(Consumer{fresh, 0});
    }
    Consumer& chosen = before ? *before : *after;
    chosen.until = std::max(chosen.until, until);
    *lane = chosen.lane;
    return Status::ok;
  }

  template <class Call>
  Status timed(Call call) {
    const auto began = Clock::now();
    const Status status = call();
    calls_.push_back(static_cast<float>(nanoseconds(Clock::now() - began)));
    return status;
  }

  Status step(const TraceOp& op, Time until, std::string* detail) {
    switch (op.kind) {
      case TraceOp::Kind::allocate: return allocate(op, detail);
      case TraceOp::Kind::freeRequested: return free(op, until, detail);
      case TraceOp::Kind::freeCompleted: return completed(op, detail);
    }
    return Status::invalidValue;
  }

  Status allocate(const TraceOp& op, std::string* detail) {
    if (op.stream >= mostTraceStreams) return wrong(detail, "more streams than there can be lanes");
    if (homes_.size() <= op.stream) homes_.resize(op.stream + 1);
    Lane*& home = homes_[op.stream];
    if (home == nullptr)
      if (const Status status = add(&home); status != Status::ok) return status;
    auto [at, fresh] = owned_.try_emplace(op.id);
    if (!fresh) return wrong(detail, "allocated twice");
    Owned& owned = at->second;
    owned.bytes = op.bytes;
    live_ += op.bytes;
    if (op.bytes == 0) return Status::ok;
    Shortage shortage;
    const Status status = timed([&] { return allocator_.malloc(op.bytes, *home, &owned.block, &shortage); });
    if (status == Status::ok) return status;
    *detail = std::to_string(op.bytes) + " bytes are not to be had";
    if (shortage_) *shortage_ = std::move(shortage);
    return status;
  }

  Status free(const TraceOp& op, Time until, std::string* detail) {
    const auto at = owned_.find(op.id);
    if (at == owned_.end()) return wrong(detail, "freed without having been allocated");
    Owned& owned = at->second;
    if (owned.freed) return wrong(detail, "freed twice");
    owned.freed = true;
    if (owned.block == nullptr) return Status::ok;
    if (until != 0) {
      Lane* user = nullptr;
      if (const Status status = consumer(until, &user); status != Status::ok) return status;
      if (const Status status = driver_.hold(user->stream, until); status != Status::ok) return status;
      user->queued();
      owned.outstanding = true;
      ++outstanding_;
      if (const Status status = timed([&] { return allocator_.recordUse(owned.block, *user); }); status != Status::ok)
        return status;
    }
    // The home lane has worked on it.
    owned.block->lane->queued();
    return timed([&] { return allocator_.free(owned.block); });
  }

  Status completed(const TraceOp& op, std::string* detail) {
    const auto at = owned_.find(op.id);
    if (at == owned_.end() || !at->second.freed) return wrong(detail, "completed before it was freed");
    live_ -= at->second.bytes;
    if (at->second.outstanding) --outstanding_;
    owned_.erase(at);
    return Status::ok;
  }

  static Status wrong(std::string* detail, const char* what) {
    *detail = what;
    return Status::invalidValue;
  }

  ReplayDriver driver_;
  Lanes lanes_;
  Allocator allocator_;
  Shortage* shortage_;
  std::vector<Lane*> homes_;  // by stream
  std::vector<Consumer> consumers_;
  std::unordered_map<std::uint64_t, Owned> owned_;
  std::uint64_t live_ = 0, outstanding_ = 0;
  std::vector<float> calls_;  // nanoseconds of each
};

}  // namespace

Status replay(Driver& driver, const Options& options, const std::vector<TraceOp>& ops, ReplayFigures* figures,
              std::string* detail, Shortage* shortage) {
  if (const Status status = driver.bind(); status != Status::ok) return status;
  return Replay(driver, options, shortage).run(ops, figures, detail);
}

}  // namespace braid::caching
