// A block that another lane reads: allocate + recordUse + free, over and over. Three ways in which the next owner's
// lane may come after the reader.
#include "bench/bench.h"

namespace braid::bench {
namespace {

// The reader is a stream of the caller's, which may have been given work at any time: no event is shared, each turn
// records one and waits for it, or asks.
void recorded(const Run& run, std::uint64_t bytes, const caching::Policy& policy) {
  caching::Options options;
  options.policy = &policy;
  Bed bed(run, options);
  caching::Lane &home = bed.lane(), &reader = bed.lane(false);
  const auto turn = [&] {
    caching::Block* block = bed.malloc(bytes, home);
    bed.use(block, reader);
    bed.free(block);
  };
  for (int i = 0; i < 2048; ++i) turn();
  const caching::Stats before = bed.allocator->stats();
  std::uint64_t turned = 0;
  const Spread time = perTurn(run, [&](std::uint64_t turns) {
    turned += turns;
    for (; turns > 0; --turns) turn();
  });
  const caching::Stats after = bed.allocator->stats();
  const auto each = [&](std::uint64_t count) { return static_cast<double>(count) / static_cast<double>(turned); };
  Line line("cross-lane", "recorded, " + sizeName(bytes) + ", " + std::string(policy.name));
  line.add(time, "ns").add("policy", std::string(policy.name)).add("bytes", static_cast<double>(bytes));
  line.add("recordsEach", each(after.uses - before.uses)).add("waitsEach", each(after.waits - before.waits));
  line.add("queriesEach", each(after.queries - before.queries));
  line.add("reservedMiB", static_cast<double>(bed.allocator->reserved()) / 1048576);
}

// The reader's newest event marks the point already, since the program recorded one of its own there. What that one
// costs is measured by itself, and taken off.
void shared(const Run& run, std::uint64_t bytes, const caching::Policy& policy) {
  caching::Options options;
  options.policy = &policy;
  Bed bed(run, options);
  caching::Lane &home = bed.lane(), &reader = bed.lane();
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
  const Spread alone = perTurn(run, [&](std::uint64_t turns) {
    for (; turns > 0; --turns) own();
  });
  for (int i = 0; i < 2048; ++i) turn();
  const caching::Stats before = bed.allocator->stats();
  std::uint64_t turned = 0;
  Spread time = perTurn(run, [&](std::uint64_t turns) {
    turned += turns;
    for (; turns > 0; --turns) turn();
  });
  for (double* value : {&time.median, &time.least, &time.most}) *value -= alone.median;
  const caching::Stats after = bed.allocator->stats();
  const auto each = [&](std::uint64_t count) { return static_cast<double>(count) / static_cast<double>(turned); };
  Line line("cross-lane", "shared, " + sizeName(bytes) + ", " + std::string(policy.name));
  line.add(time, "ns")
      .add("policy", std::string(policy.name))
      .add("ownEvent", alone.median)
      .add("sharedEach", each(after.usesShared - before.usesShared));
  line.add("waitsEach", each(after.waits - before.waits)).add("queriesEach", each(after.queries - before.queries));
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
