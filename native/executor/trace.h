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

// Times every run by a pair of events around it, one pair for each slot of inputs and outputs: a graph's
// nodes record the events of the slot that its executable is for. A slot is used again only after its tick
// has been read.
//
// Times of a tick are relative to its anchor, an event on each device, and anchors to the one before. (The
// driver returns elapsed times as 32-bit floats, so times are summed from tick to tick, not measured from a
// distant origin.) There are inFlight + 1 anchors, so that of tick t - 1 is still intact when tick t is read.
// Issuing thread: anchor, begin, end. Completion thread: collect. Any thread: rows.
//
// Events of two devices cannot be compared, so each device has its own clock. The clocks are related when the
// program is opened, by an event on each idle device and the time at which this thread saw it complete. That
// is exact to some 20 µs, and the clocks drift apart afterwards.
class Trace {
 public:
  static constexpr std::size_t mostRows = std::size_t{1} << 20;  // 32 bytes each
  explicit Trace(std::size_t most = mostRows) : most_(most) {}

  MaybeFailure prepare(Program& program);
  bool enabled() const { return runs_ > 0; }

  // Before the first run or launch of a tick on a device: the others do nothing.
  Status anchor(Program& program, std::uint64_t tick, std::uint32_t slot, LaneId lane);
  Status begin(Program& program, std::uint32_t slot, const Step& run);
  Status end(Program& program, std::uint32_t slot, const Step& run);
  // Of a run in a slot: 0 the start, 1 the end.
  Event event(std::uint32_t slot, std::uint32_t run, int edge) const {
    return events_[(slot * runs_ + run) * 2 + static_cast<std::size_t>(edge)];
  }
  // The tick has completed in this slot.
  void collect(Program& program, std::uint64_t tick, std::uint32_t slot);
  TraceRows rows() const;

 private:
  std::size_t runs_ = 0;
  std::vector<Event> events_;  // slots × runs × {start, end}
  struct Clock {
    std::vector<Event> anchors;                  // by tick modulo their number; none where nothing runs
    std::uint64_t anchored = ~std::uint64_t{0};  // issuing thread: the last tick with an anchor
    Event opening = nullptr;                     // of several devices: when the program was opened
    double origin = 0;                           // of the last anchor collected, on the common clock
  };
  MaybeFailure tie(Program& program);
  std::vector<Clock> clocks_;  // by device
  struct Row {
    double tick, start, end;
    std::int32_t node, lane;
  };
  void keep(const Row& row);
  template <class Take>
  void times(Program& program, std::uint64_t tick, std::uint32_t slot, Take take);

  const std::size_t most_;
  mutable std::mutex mutex_;
  std::vector<Row> ring_;    // at most most_
  std::uint64_t count_ = 0;  // rows ever; row i stands at i mod most_
};

}  // namespace braid
