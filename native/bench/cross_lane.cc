// A block that another lane reads: allocate + recordUse + free, over and over. Three ways in which the next owner's
// lane may come after the reader.
#include "bench/bench.h"

namespace braid::bench {
namespace {

bool waits(const caching::Policy& policy) { return &policy == &caching::orderThenWait; }

// Events of a caller who does by hand the least that can be done. What a query finds done was recorded some turns
// before: an event whose use is outstanding is not recorded again.
class ByHand {
 public:
  ByHand(Driver& driver, Stream reader, Stream home) : driver_(driver), reader_(reader), home_(home) {
    for (Event& each : ring_) {
      must(driver_, driver_.eventCreate(&each, EventKind::order), "eventCreate");
      must(driver_, driver_.eventRecord(each, reader_), "eventRecord");
    }
  }
  ~ByHand() {
    for (const Event each : ring_) driver_.eventDestroy(each);
  }
  ByHand(const ByHand&) = delete;
  void record() { driver_.eventRecord(ring_[at_], reader_); }
  void wait() { driver_.streamWait(home_, ring_[at_]); }
  void query() { driver_.eventQuery(ring_[at_ = (at_ + 1) % outstanding]); }

 private:
  static constexpr std::size_t outstanding = 16;
  Driver& driver_;
  Stream reader_, home_;
  Event ring_[outstanding];
  std::size_t at_ = 0;
};

// `turn` beside `floor`, the driver's calls that it cannot do without, and what the allocator counted a turn.
template <class Turn, class Floor>
void measure(const Run& run, Bed& bed, const std::string& what, const caching::Policy& policy, Turn turn, Floor floor) {
  for (int i = 0; i < 2048; ++i) turn();
  const caching::Stats before = bed.allocator->stats();
  std::uint64_t turned = 0;
  const Beside measured = perTurnBeside(
      run,
      [&](std::uint64_t turns) {
        turned += turns;
        for (; turns > 0; --turns) turn();
      },
      [&](std::uint64_t turns) {
        for (; turns > 0; --turns) floor();
      });
  const caching::Stats after = bed.allocator->stats();
  const auto each = [&](std::uint64_t count) { return static_cast<double>(count) / static_cast<double>(turned); };
  Line line("cross-lane", what + ", " + std::string(policy.name));
  line.add(measured.time, "ns").add("floor", measured.floor.median).add("over", measured.over.median);
  line.add("overLeast", measured.over.least).add("overMost", measured.over.most);
  line.add("sharedEach", each(after.usesShared - before.usesShared));
  line.add("waitsEach", each(after.waits - before.waits)).add("queriesEach", each(after.queries - before.queries));
}

caching::Options under(const caching::Policy& policy) {
  caching::Options options;
  options.policy = &policy;
  return options;
}

// The reader is a stream of the caller's, which may have been given work at any time: no event is shared, each turn
// records one and waits for it, or asks.
void recorded(const Run& run, std::uint64_t bytes, const caching::Policy& policy) {
  Bed bed(run, under(policy));
  caching::Lane &home = bed.lane(), &reader = bed.lane(false);
  ByHand hand(bed.driver, reader.stream, home.stream);
  const auto turn = [&] {
    caching::Block* block = bed.malloc(bytes, home);
    bed.use(block, reader);
    bed.free(block);
  };
  const auto floor = [&, wait = waits(policy)] {
    hand.record();
    wait ? hand.wait() : hand.query();
  };
  measure(run, bed, "recorded, " + sizeName(bytes), policy, turn, floor);
}

// The reader's newest event marks the point already, since the program recorded one of its own there: that one is in
// the floor as well.
void shared(const Run& run, std::uint64_t bytes, const caching::Policy& policy) {
  Bed bed(run, under(policy));
  caching::Lane &home = bed.lane(), &reader = bed.lane();
  ByHand hand(bed.driver, reader.stream, home.stream);
  const auto own = [&] {
    caching::Mark* mark = nullptr;
    reader.queued();
    must(bed.driver, bed.lanes.mark(reader, &mark), "mark");
    mark->drop();
  };
  const auto turn = [&] {
    caching::Block* block = bed.malloc(bytes, home);
    own();
    bed.use(block, reader);
    bed.free(block);
  };
  const auto floor = [&, wait = waits(policy)] {
    own();
    wait ? hand.wait() : hand.query();
  };
  measure(run, bed, "shared, " + sizeName(bytes), policy, turn, floor);
}

// The home lane is after the reader's newest event already: no call of the driver is left.
void known(const Run& run, std::uint64_t bytes) {
  Bed bed(run);
  caching::Lane &home = bed.lane(), &reader = bed.lane();
  reader.queued();
  caching::Mark* mark = nullptr;
  must(bed.driver, bed.lanes.mark(reader, &mark), "mark");
  {
    std::lock_guard guard(home.mutex);
    must(bed.driver, bed.lanes.wait(home, *mark, nullptr), "wait");
  }
  mark->drop();
  Line("cross-lane", "known, " + sizeName(bytes))
      .add(perTurn(run,
                   [&](std::uint64_t turns) {
                     for (; turns > 0; --turns) {
                       caching::Block* block = bed.malloc(bytes, home);
                       bed.use(block, reader);
                       bed.free(block);
                     }
                   }),
           "ns");
}

}  // namespace

void crossLane(const Run& run) {
  for (const std::uint64_t bytes : {std::uint64_t{4} << 10, std::uint64_t{1} << 20, std::uint64_t{64} << 20}) {
    for (const caching::Policy* policy : {&caching::orderThenGrow, &caching::orderThenWait}) {
      recorded(run, bytes, *policy);
      shared(run, bytes, *policy);
    }
    known(run, bytes);
  }
  for (const caching::Policy* policy : {&caching::neverWait, &caching::pollOnly})
    recorded(run, std::uint64_t{1} << 20, *policy);
}

}  // namespace braid::bench
