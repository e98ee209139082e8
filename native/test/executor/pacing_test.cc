// The pieces of work in flight stay below the capacity of a stream's queue, and a session that has filled its
// queue does not delay others.
#include <map>
#include <random>
#include <thread>

#include "test/executor/held_driver.h"
#include "test/executor/support.h"
#include "tools/bench/idle_driver.h"

namespace braid {
namespace {

using namespace test;
using Unbegun = Session::Unbegun;

// One lane's queue, whose pieces complete when the test lets them.
struct Queue : bench::IdleDriver {
  Queue() : IdleDriver(nullptr) {}
  Status eventRecord(Event event, Stream) override {
    ++pieces;
    recorded[event] = pieces;
    return Status::ok;
  }
  Status eventQuery(Event event) override { return done >= recorded[event] ? Status::ok : Status::notReady; }
  std::map<Event, std::uint64_t> recorded;
  std::uint64_t pieces = 0, done = 0;
};

// Whatever is queued and whenever it is done: never more in flight than the queue takes, and nothing small is
// held up while half the queue is empty.
TEST(Pacing, WhatIsInFlightStaysUnderTheDepth) {
  for (std::uint32_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    Queue queue;
    std::uint64_t depth = 4 + random() % 1100;
    const std::uint64_t largest = 1 + random() % (seed % 3 == 0 ? depth : 8);
    Pacing pacing;
    ASSERT_EQ(pacing.addLane(depth, ~0ull, [&](Event* e) { return queue.eventCreate(e, EventKind::order); }),
              Status::ok);
    ASSERT_TRUE(pacing.isPaced(0));
    for (int step = 0; step < 4000; ++step) {
      // Streams come and go, never so many at once that what is in flight already is too much.
      if (random() % 64 == 0 && queue.done == queue.pieces) pacing.adjust(0, depth = 4 + random() % 1100);
      if (random() % 4 == 0) queue.done += random() % (queue.pieces - queue.done + 1) / (1 + random() % 8);
      const std::uint64_t pieces = 1 + random() % largest;
      bool fits = false;
      ASSERT_EQ(pacing.room(0, pieces, queue, nullptr, &fits), Status::ok);
      const std::uint64_t inFlight = queue.pieces - queue.done;
      if (inFlight + pieces <= depth / 2 && largest <= depth / 8) {
        ASSERT_TRUE(fits) << inFlight << " of " << depth << " and " << pieces;
      }
      if (!fits) continue;
      queue.pieces += pieces;
      ASSERT_LE(queue.pieces - queue.done, std::max(depth, pieces));
      ASSERT_EQ(pacing.queued(0, pieces, queue, nullptr), Status::ok);
      ASSERT_LE(queue.pieces - queue.done, std::max(depth, pieces + 1));
    }
    queue.done = queue.pieces;
    bool fits = false;
    ASSERT_EQ(pacing.room(0, 10 * depth, queue, nullptr, &fits), Status::ok);
    // It may have marked the end only now.
    queue.done = queue.pieces;
    ASSERT_EQ(pacing.room(0, 10 * depth, queue, nullptr, &fits), Status::ok);
    EXPECT_TRUE(fits) << "an empty queue takes anything";
  }
}

TEST(Pacing, LanesThatNeverComeNearAreNotCounted) {
  Pacing pacing;
  const auto none = [](Event*) { return ADD_FAILURE() << "an event for nothing", Status::ok; };
  ASSERT_EQ(pacing.addLane(1021, 112, none), Status::ok);
  ASSERT_EQ(pacing.addLane(0, ~0ull, none), Status::ok);
  EXPECT_FALSE(pacing.isPaced(0));
  EXPECT_FALSE(pacing.isPaced(1));
}

// The pipeline, its sum taken so many times over.
ProgramSpec longPipeline(std::size_t sums, std::uint32_t inFlight = 2) {
  ProgramSpec spec = pipeline(inFlight);
  const std::vector<std::uint32_t> sum = {2, 1, 1, 2, 1, 1, 4, 2};
  const auto at = std::search(spec.commands.begin(), spec.commands.end(), sum.begin(), sum.end());
  EXPECT_NE(at, spec.commands.end());
  std::vector<std::uint32_t> more;
  for (std::size_t i = 1; i < sums; ++i) more.insert(more.end(), sum.begin(), sum.end());
  spec.commands.insert(at, more.begin(), more.end());
  return spec;
}

constexpr std::size_t depth = 64, sums = 500;

// A session whose sums wait for the gate, on a device of its own whose streams hold 64 pieces.
struct Held {
  explicit Held(Gate& gate, HostOptions options = {}) {
    options.queueDepth = depth;
    driver = std::make_shared<WatchedDriver>(hostDriver(options));
    driver->onLaunch = [this, &gate](Stream stream) {
      // The second of a tick is the first sum.
      const std::uint64_t nth = launches++;
      if (nth != 1) return Status::ok;
      return driver->inner().hostFunction(
          stream, [](void* gate) { static_cast<Gate*>(gate)->pass(); }, &gate);
    };
    session = opened(driver, longPipeline(sums), ends);
    const std::vector<float> w(count, 10);
    EXPECT_FALSE(session->load(4, w.data()));
  }
  void submit(float x) {
    std::fill_n(static_cast<float*>(session->pinned(0, 0)), count, x);
    ASSERT_TRUE(session->submit(0));
  }
  void awaitFull() {
    while (session->stats().fullQueues == 0) std::this_thread::yield();
  }
  std::atomic<std::uint64_t> launches{0};
  std::shared_ptr<WatchedDriver> driver;
  Ends ends;
  std::unique_ptr<Session> session;
};

TEST(Pacing, AFullQueueHoldsUpItsOwnSessionAlone) {
  Gate gate;
  Held held(gate);
  Ends ends;
  auto other = opened(hostDriver(), pipeline(), ends);
  const std::vector<float> w(count, 10);
  ASSERT_FALSE(other->load(4, w.data()));
  held.submit(1);
  held.awaitFull();
  runTicks(*other, ends, 50);
  EXPECT_EQ(ends.failed(), 0u);
  // Behind the host function: sums alone, and not as many as would have blocked the thread.
  EXPECT_LT(held.launches.load(), depth);
  EXPECT_GT(held.launches.load(), depth / 2);
  EXPECT_EQ(held.session->stats().fullQueues, 1u) << "asked for often, counted once";
  gate.give(1);
  held.ends.await(1);
  EXPECT_EQ(held.ends.failed(), 0u);
  EXPECT_EQ(held.launches.load(), sums + 2);
  EXPECT_EQ(static_cast<const float*>(held.session->pinned(3, 0))[7], 11.0f);
}

TEST(Pacing, AHeldTickIsIssuedToItsEndWhenTheSessionCloses) {
  for (const Unbegun unbegun : {Unbegun::drop, Unbegun::issue}) {
    Gate gate;
    Held held(gate);
    held.submit(1);
    ASSERT_TRUE(held.session->submit(1));
    held.awaitFull();
    std::thread closing([&] { held.session->close(unbegun); });
    // The held tick may go on only when the session takes no more ticks. A tick that it still takes is
    // dropped with the one before.
    if (unbegun == Unbegun::drop)
      for (std::uint64_t tick = 2; held.session->submit(tick); ++tick) std::this_thread::yield();
    gate.give(1);
    closing.join();
    EXPECT_EQ(held.ends.failed(), 0u);
    EXPECT_EQ(held.session->stats().ticks, unbegun == Unbegun::drop ? 1u : 2u);
  }
}

TEST(Pacing, ADeviceThatVanishesFailsWhatItHeldUp) {
  Gate gate;
  Held held(gate);
  held.submit(1);
  held.awaitFull();
  held.driver->vanish();
  gate.give(1);
  held.ends.await(1);
  const MaybeFailure failure = held.ends.failure(0);
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->code, statusName(Status::contextIsDestroyed));
  held.session.reset();
}

// Answers are the same however little a stream holds, with all that is queued beside the plan's own work.
TEST(Pacing, AnswersDoNotDependOnTheDepth) {
  for (std::uint64_t seed = 1; seed <= 24; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    HostOptions options;
    options.queueDepth = 4 + random() % 60;
    options.poison = true;
    options.jitterSeed = seed;
    options.jitterMicroseconds = 10;
    Ends ends;
    auto session = opened(hostDriver(options), longPipeline(1 + random() % 80), ends, seed % 2 == 0);
    const std::vector<float> w(count, 10);
    ASSERT_FALSE(session->load(4, w.data()));
    runTicks(*session, ends, 12);
    EXPECT_EQ(ends.failed(), 0u);
  }
}

}  // namespace
}  // namespace braid
