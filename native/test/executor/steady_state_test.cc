// In steady state every block lies where the allocator would place it.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "executor/issuer.h"
#include "tools/bench/idle_driver.h"
#include "tools/bench/task_graphs.h"

namespace braid {
namespace {

// What every launch was given.
class Addresses final : public bench::IdleDriver {
 public:
  Addresses() : IdleDriver(nullptr) {}
  Status prepare(std::unique_ptr<Kernel>* kernel, const KernelSpec& spec, HostCallback callback) override {
    if (const Status status = IdleDriver::prepare(kernel, spec, std::move(callback)); status != Status::ok)
      return status;
    operands_[kernel->get()] = spec.readCount;
    return Status::ok;
  }
  Status launch(const Kernel& kernel, const DeviceAddress* reads, const DeviceAddress* writes,
                Stream) override {
    if (failAt > 0 && --failAt == 0) return Status::unknown;
    given.insert(given.end(), reads, reads + operands_[&kernel]);
    given.push_back(writes[0]);
    return Status::ok;
  }
  Status eventRecord(Event, Stream) override { return ++calls, Status::ok; }
  Status streamWait(Stream, Event) override { return ++calls, Status::ok; }
  std::vector<DeviceAddress> given;
  std::uint64_t calls = 0, failAt = 0;

 private:
  std::map<const Kernel*, std::size_t> operands_;
};

bench::TaskGraph randomGraph(std::mt19937& random) {
  const auto below = [&](std::uint32_t count) { return static_cast<std::uint32_t>(random() % count); };
  bench::TaskGraph graph;
  graph.name = "random";
  graph.lanes = 1 + below(4);
  const std::uint32_t tasks = 2 + below(40);
  for (std::uint32_t task = 0; task < tasks; ++task) {
    std::vector<std::uint32_t> reads;
    for (std::uint32_t i = below(4); i > 0 && task > 0; --i)
      reads.push_back(task - 1 - below(std::min(task, 12u)));
    std::sort(reads.begin(), reads.end());
    reads.erase(std::unique(reads.begin(), reads.end()), reads.end());
    graph.reads.push_back(std::move(reads));
    graph.laneOf.push_back(below(graph.lanes));
  }
  return graph;
}

struct Issued {
  explicit Issued(const ProgramSpec& spec, bool mayRepeat) : program(driver, spec) {
    MaybeFailure failure = program.takeMemory();
    if (!failure) failure = program.load({});
    EXPECT_FALSE(failure) << failure->op << " " << failure->detail;
    issuer = std::make_unique<Issuer>(program, trace, false, mayRepeat);
  }
  MaybeFailure tick() {
    driver->given.clear();
    driver->calls = 0;
    return issuer->issue(next++);
  }
  std::shared_ptr<Addresses> driver = std::make_shared<Addresses>();
  Program program;
  Trace trace;
  std::unique_ptr<Issuer> issuer;
  std::uint64_t next = 0;
};

ProgramSpec randomProgram(std::mt19937& random) {
  const bench::TaskGraph graph = randomGraph(random);
  std::vector<std::uint64_t> bytes;
  for (std::size_t i = 0; i < graph.reads.size(); ++i) bytes.push_back(4 + random() % 5000);
  ProgramSpec spec = bench::programOf(graph, false, bytes);
  spec.inFlight = 1 + random() % 3;
  // Little memory makes lanes wait for what is pending, or fails; with enough no tick does more than its
  // commands.
  spec.devices[0].boundBytes *= 1 + random() % 4;
  // Waits for the tick before, of events that this tick records later.
  std::vector<std::int32_t> carried;
  for (std::uint32_t event = 0; event < spec.events; ++event)
    if (random() % 4 == 0)
      for (const std::int32_t word :
           {4, static_cast<int>(event), static_cast<int>(random() % graph.lanes), -1})
        carried.push_back(word);
  spec.commands.insert(spec.commands.begin(), carried.begin(), carried.end());
  return spec;
}

TEST(SteadyState, PlacesBlocksWhereTheAllocatorWould) {
  std::mt19937 random(20261121);
  int settled = 0;
  constexpr int programs = 200;
  for (int i = 0; i < programs; ++i) {
    const ProgramSpec spec = randomProgram(random);
    Issued settling(spec, true), asked(spec, false);
    for (int tick = 0; tick < 120; ++tick) {
      const bool failed = asked.tick().has_value();
      ASSERT_EQ(settling.tick().has_value(), failed);
      if (failed) break;
      ASSERT_EQ(settling.driver->given, asked.driver->given) << "program " << i << ", tick " << tick;
      ASSERT_EQ(settling.driver->calls, asked.driver->calls) << "program " << i << ", tick " << tick;
    }
    const SessionAllocator::Counters a = settling.program.pools[0]->counters(),
                                     b = asked.program.pools[0]->counters();
    EXPECT_EQ(a.byOrder, b.byOrder);
    EXPECT_EQ(a.byGrowth, b.byGrowth);
    EXPECT_EQ(a.allocatedPeak, b.allocatedPeak);
    EXPECT_EQ(settling.program.pools[0]->peak(), asked.program.pools[0]->peak());
    EXPECT_FALSE(asked.issuer->addressesKnown());
    if (settling.issuer->addressesKnown()) ++settled;
  }
  // Those whose memory is too little fail, and circles may be long.
  EXPECT_GT(settled, programs * 3 / 4);
}

TEST(SteadyState, BeginsAgainAfterATickThatFailed) {
  std::mt19937 random(7);
  int settled = 0;
  for (int i = 0; i < 50; ++i) {
    ProgramSpec spec = randomProgram(random);
    spec.devices[0].boundBytes *= 8;
    Issued settling(spec, true);
    for (int tick = 0; tick < 200; ++tick) ASSERT_FALSE(settling.tick());
    if (settling.issuer->addressesKnown()) ++settled;
    settling.driver->failAt = 1;
    EXPECT_TRUE(settling.tick());
    settling.issuer->abandon();
    EXPECT_FALSE(settling.issuer->addressesKnown());
    for (int tick = 0; tick < 20; ++tick) ASSERT_FALSE(settling.tick());
    EXPECT_LE(settling.program.pools[0]->peak(), spec.devices[0].boundBytes);
  }
  EXPECT_GT(settled, 40);
}

}  // namespace
}  // namespace braid
