#pragma once

#include <mutex>
#include <vector>

#include "executor/program.h"

namespace braid {

// The runs that were issued, one row each, in order of issue, in milliseconds since the first traced run. A
// long session keeps the newest.
struct TraceRows {
  std::vector<double> tick, start, end;
  std::vector<std::int32_t> node, lane;
  std::uint64_t dropped = 0;  // older rows that are no longer kept
};

// Times every run by a pair of events around it. `prepare` creates inFlight + 1 sets of events, so the set of
// tick t - 1 is still intact when tick t is read, which relates one tick's times to the next. (The driver
// returns elapsed times as 32-bit floats, so times are summed from tick to tick, not measured from a distant
// origin.) Issuing thread: begin, end. Completion thread: collect. Any thread: rows.
//
// Events of two devices cannot be compared, so each device has its own clock. The clocks are related when the
// program is opened, by an event on each idle device and the time at which this thread saw it complete. That
// is exact to some 20 µs, and the clocks drift apart afterwards.
class Trace {
 public:
  static constexpr std::size_t mostRows = std::size_t{1} << 20;  // 32 bytes each
  explicit Trace(std::size_t most = mostRows) : most_(most) {}

  MaybeFailure prepare(Program& program);
  bool enabled() const { return sets_ > 0; }

  Status begin(Program& program, std::uint64_t tick, const Step& run);
  Status end(Program& program, std::uint64_t tick, const Step& run);
  // The tick has completed.
  void collect(Program& program, std::uint64_t tick);
  TraceRows rows() const;

 private:
  Event at(std::uint64_t tick, std::uint32_t run, int edge) const {
    return events_[((tick % sets_) * runs_ + run) * 2 + static_cast<std::size_t>(edge)];
  }

  std::size_t sets_ = 0, runs_ = 0;
  std::vector<Event> events_;  // sets × runs × {start, end}
  struct Clock {
    std::uint32_t first = 0;  // the first run of a tick on this device
    bool runs = false;        // there is one
    Event opening = nullptr;  // of several devices: when the program was opened
    double origin = 0;        // of the first run of the tick last collected, on the common clock
  };
  MaybeFailure tie(Program& program);
  std::vector<Clock> clocks_;  // by device
  struct Row {
    double tick, start, end;
    std::int32_t node, lane;
  };
  void keep(const Row& row);

  const std::size_t most_;
  mutable std::mutex mutex_;
  std::vector<Row> ring_;    // at most most_
  std::uint64_t count_ = 0;  // rows ever; row i stands at i mod most_
};

}  // namespace braid
