// A block that another lane reads: allocate + recordUse + free, over and over. Three ways in which the next
// owner's lane may come after the reader.
#include <set>
#include <vector>

#include "tools/bench/bench.h"

namespace braid::bench {
namespace {

bool waits(const caching::Policy& policy) { return &policy == &caching::orderThenWait; }

// A caller that makes only the necessary driver calls by hand, with as many events as blocks in rotation: a
// query that succeeds is about an event recorded that many turns before, and no event is recorded again while
// its use is outstanding.
class ByHand {
 public:
  ByHand(Bed& bed, Lane& reader, Lane& home, std::size_t blocks)
      : driver_(bed.driver), reader_(reader.stream), home_(home.stream), ring_(blocks) {
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
  void wait() { driver_.streamWait(home_, next()); }
  void query() { driver_.eventQuery(next()); }

 private:
  Event next() {
    if (++at_ == ring_.size()) at_ = 0;
    return ring_[at_];
  }
  Driver& driver_;
  const Stream reader_, home_;
  std::vector<Event> ring_;
  std::size_t at_ = 0;
};

// The same for a program that records events of its own on the reader's lane, for purposes of its own.
class OwnMarks {
 public:
  OwnMarks(Bed& bed, Lane& reader, Lane& home, std::size_t blocks)
      : bed_(bed), reader_(reader), home_(home.stream), ring_(blocks) {
    for (Mark*& each : ring_) each = marked(bed_, reader_);
  }
  ~OwnMarks() {
    for (Mark* each : ring_) each->release();
  }
  OwnMarks(const OwnMarks&) = delete;
  void record() {
    ring_[at_]->release();
    ring_[at_] = marked(bed_, reader_);
  }
  void wait() { bed_.driver.streamWait(home_, next()); }
  void query() { bed_.driver.eventQuery(next()); }
  // A mark of the program's, at what it has just queued on the lane. Held.
  static Mark* marked(Bed& bed, Lane& reader) {
    Mark* mark = nullptr;
    reader.queued();
    must(bed.driver, bed.lanes.mark(reader, &mark), "mark");
    return mark;
  }

 private:
  Event next() {
    if (++at_ == ring_.size()) at_ = 0;
    return ring_[at_]->event;
  }

  Bed& bed_;
  Lane& reader_;
  const Stream home_;
  std::vector<Mark*> ring_;
  std::size_t at_ = 0;
};

// Times `turn`, which returns the block that it used, and the driver calls that `Floor` needs; and reports
// the allocator's counters for each turn.
template <class Floor, class Turn>
void measure(const Run& run, Bed& bed, const std::string& what, const caching::Policy& policy, Lane& home,
             Lane& reader, Turn turn) {
  for (int i = 0; i < 2048; ++i) turn();
  std::set<const caching::Block*> blocks;
  for (int i = 0; i < 2048; ++i) blocks.insert(turn());
  Floor hand(bed, reader, home, blocks.size());
  const auto floor = [&, wait = waits(policy)] {
    hand.record();
    wait ? hand.wait() : hand.query();
  };
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
  const auto each = [&](std::uint64_t count) {
    return static_cast<double>(count) / static_cast<double>(turned);
  };
  Line line("cross-lane", what + ", " + std::string(policy.name));
  line.add(measured.time, "ns").add("floor", measured.floor.median).add("over", measured.over.median);
  line.add("overLeast", measured.over.least).add("overMost", measured.over.most);
  line.add("blocks", static_cast<double>(blocks.size()))
      .add("sharedEach", each(after.usesShared - before.usesShared));
  line.add("waitsEach", each(after.waits - before.waits))
      .add("queriesEach", each(after.queries - before.queries));
}

// All memory but one block is live, so that this block is reused again and again.
void leaveOne(Bed& bed, std::uint64_t bytes, Lane& home) {
  caching::Block* const one = bed.malloc(bytes, home);
  for (caching::Stats stats = bed.allocator->stats();; stats = bed.allocator->stats()) {
    const auto& all = stats.all;
    if (all.reservedBytes.current - all.allocatedBytes.current < static_cast<std::int64_t>(one->size)) break;
    bed.malloc(bytes, home);
  }
  bed.free(one);
}

caching::Options under(const caching::Policy& policy) {
  caching::Options options;
  options.policy = &policy;
  return options;
}

// The reader is a caller's stream, which may get work at any time: no event is shared, and each turn records
// one and waits for it, or queries it.
void recorded(const Run& run, std::uint64_t bytes, const caching::Policy& policy) {
  Bed bed(run, under(policy));
  Lane &home = bed.lane(), &reader = bed.lane(false);
  leaveOne(bed, bytes, home);
  const auto turn = [&] {
    caching::Block* block = bed.malloc(bytes, home);
    bed.use(block, reader);
    bed.free(block);
    return block;
  };
  measure<ByHand>(run, bed, "recorded, " + sizeName(bytes), policy, home, reader, turn);
}

// The reader's newest event marks the point already, since the program recorded one of its own there: that
// one is in the floor as well.
void shared(const Run& run, std::uint64_t bytes, const caching::Policy& policy) {
  Bed bed(run, under(policy));
  Lane &home = bed.lane(), &reader = bed.lane();
  leaveOne(bed, bytes, home);
  const auto turn = [&] {
    caching::Block* block = bed.malloc(bytes, home);
    OwnMarks::marked(bed, reader)->release();
    bed.use(block, reader);
    bed.free(block);
    return block;
  };
  measure<OwnMarks>(run, bed, "shared, " + sizeName(bytes), policy, home, reader, turn);
}

// The home lane is after the reader's newest event already: no call of the driver is left.
void known(const Run& run, std::uint64_t bytes) {
  Bed bed(run);
  Lane &home = bed.lane(), &reader = bed.lane();
  Mark* const mark = OwnMarks::marked(bed, reader);
  {
    std::lock_guard guard(home.mutex);
    must(bed.driver, bed.lanes.wait(home, *mark, nullptr), "wait");
  }
  mark->release();
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
  for (const std::uint64_t bytes :
       {std::uint64_t{4} << 10, std::uint64_t{1} << 20, std::uint64_t{64} << 20}) {
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
