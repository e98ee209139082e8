#include "memory/replay/replay.h"

#include <algorithm>
#include <chrono>
#include <unordered_map>

#include "memory/replay/replay_driver.h"

namespace braid::caching {
namespace {

using Clock = std::chrono::steady_clock;
using Time = ReplayDriver::Time;

double nanoseconds(Clock::duration duration) {
  return std::chrono::duration<double, std::nano>(duration).count();
}

// The time that the clock measures for a call that does nothing.
double clockCost() {
  std::vector<double> costs(1001);
  for (double& cost : costs) {
    const auto began = Clock::now();
    cost = nanoseconds(Clock::now() - began);
  }
  std::nth_element(costs.begin(), costs.begin() + 500, costs.end());
  return costs[500];
}

// A use that is outstanding when its block is freed, and the index of its lane among the lanes for uses.
struct Use {
  Time until = 0;  // 0: none; the completion is the very next thing that happens
  std::uint32_t lane = 0;
};

// The uses of a trace, by the operation that requests the free, and the number of lanes that they need.
// Operation i happens at time i and takes effect at i + 1; a free that never completes outlasts the trace.
std::vector<Use> usesOf(const std::vector<TraceOp>& ops, std::size_t most, std::size_t* lanes) {
  std::vector<Use> uses(ops.size());
  std::unordered_map<std::uint64_t, Time> completed;
  for (std::size_t i = ops.size(); i-- > 0;) {
    const TraceOp& op = ops[i];
    if (op.kind == TraceOp::Kind::freeCompleted) completed[op.id] = i + 1;
    if (op.kind != TraceOp::Kind::freeRequested) continue;
    const auto at = completed.find(op.id);
    uses[i].until = at == completed.end() ? ops.size() + 1 : at->second == i + 2 ? 0 : at->second;
    if (at != completed.end()) completed.erase(at);
  }
  // Uses on one lane end in order. So each use goes to the lane whose last use ends latest, but not after
  // this one; else to a new lane; or, with no lane left, to the one that delays it the least.
  std::vector<Time> held;
  for (std::size_t i = 0; i < ops.size(); ++i) {
    const Time until = uses[i].until;
    if (until == 0) continue;
    std::size_t before = most, after = most;
    for (std::size_t lane = 0; lane < held.size(); ++lane) {
      std::size_t& best = held[lane] <= until ? before : after;
      if (best == most || (held[lane] <= until) == (held[lane] > held[best])) best = lane;
    }
    if (before == most && held.size() < most) {
      before = held.size();
      held.push_back(0);
    }
    const std::size_t chosen = before != most ? before : after;
    uses[i].lane = static_cast<std::uint32_t>(chosen);
    held[chosen] = std::max(held[chosen], until);
  }
  *lanes = held.size();
  return uses;
}

class Replay {
 public:
  Replay(Driver& driver, const Options& options, Shortage* shortage, bool gates)
      : driver_(driver, gates),
        lanes_(driver_),
        allocator_(lanes_, std::make_unique<DeviceSource>(driver_), options),
        shortage_(shortage) {}
  ~Replay() { driver_.drain(); }  // freeing memory may wait for the device's work

  Status run(const std::vector<TraceOp>& ops, ReplayFigures* figures, std::string* detail) {
    std::vector<Use> uses(ops.size());
    if (const Status status = prepare(ops, &uses, detail); status != Status::ok) return status;
    calls_.reserve(ops.size());
    const double clock = clockCost();
    for (std::size_t i = 0; i < ops.size(); ++i) {
      const Status status = step(ops[i], uses[i], detail);
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
  Status add(Lane** lane) {
    Stream stream = nullptr;
    if (const Status status = driver_.streamCreate(&stream, 0); status != Status::ok) return status;
    return lanes_.add(stream, true, "", lane);
  }

  // All lanes before the first gate: CUDA waits for some other stream to go on before it makes one more
  // than 32.
  Status prepare(const std::vector<TraceOp>& ops, std::vector<Use>* uses, std::string* detail) {
    std::size_t streams = 0, lanes = 0;
    for (const TraceOp& op : ops)
      if (op.kind == TraceOp::Kind::allocate) streams = std::max<std::size_t>(streams, op.stream + 1);
    if (streams > mostTraceStreams) return wrong(detail, "more streams than there can be lanes");
    *uses = usesOf(ops, Lanes::most - mostTraceStreams, &lanes);
    homes_.resize(streams);
    users_.resize(lanes);
    for (auto* all : {&homes_, &users_})
      for (Lane*& lane : *all)
        if (const Status status = add(&lane); status != Status::ok) return status;
    return Status::ok;
  }

  template <class Call>
  Status timed(Call call) {
    const auto began = Clock::now();
    const Status status = call();
    calls_.push_back(static_cast<float>(nanoseconds(Clock::now() - began)));
    return status;
  }

  Status step(const TraceOp& op, const Use& use, std::string* detail) {
    switch (op.kind) {
      case TraceOp::Kind::allocate: return allocate(op, detail);
      case TraceOp::Kind::freeRequested: return free(op, use, detail);
      case TraceOp::Kind::freeCompleted: return completed(op, detail);
    }
    return Status::invalidValue;
  }

  Status allocate(const TraceOp& op, std::string* detail) {
    Lane* const home = homes_[op.stream];
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

  Status free(const TraceOp& op, const Use& use, std::string* detail) {
    const auto at = owned_.find(op.id);
    if (at == owned_.end()) return wrong(detail, "freed without having been allocated");
    Owned& owned = at->second;
    if (owned.freed) return wrong(detail, "freed twice");
    owned.freed = true;
    if (owned.block == nullptr) return Status::ok;
    if (use.until != 0) {
      Lane* const user = users_[use.lane];
      if (const Status status = driver_.hold(user->stream, use.until); status != Status::ok) return status;
      user->queued();
      owned.outstanding = true;
      ++outstanding_;
      if (const Status status = timed([&] { return allocator_.recordUse(owned.block, *user); });
          status != Status::ok)
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
  std::vector<Lane*> homes_, users_;  // by stream; those that uses are on
  std::unordered_map<std::uint64_t, Owned> owned_;
  std::uint64_t live_ = 0, outstanding_ = 0;
  std::vector<float> calls_;  // nanoseconds of each
};

}  // namespace

Status replay(Driver& driver, const Options& options, const std::vector<TraceOp>& ops, ReplayFigures* figures,
              std::string* detail, Shortage* shortage, bool gates) {
  if (const Status status = driver.bind(); status != Status::ok) return status;
  return Replay(driver, options, shortage, gates).run(ops, figures, detail);
}

}  // namespace braid::caching
