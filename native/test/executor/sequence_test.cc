// Launches of several sessions over the same memory, in the order of their submission, on the host device.
#include "executor/sequence.h"

#include <atomic>
#include <random>
#include <thread>

#include "test/executor/generated.h"

namespace braid {
namespace {

using namespace test;

// x ← 2x + bit, over two lanes: lane 0 writes it beside, lane 1 copies it back. After launches of both bits x
// is the number whose digits they are, so a launch out of order, or one that overlaps another, is seen.
// Buffers: 0 x, 1 beside.
ProgramSpec shifting(int bit, std::uint32_t inFlight = 4) {
  ProgramSpec spec;
  spec.name = bit == 0 ? "zero" : "one";
  spec.inFlight = inFlight;
  spec.lanes = {{"math", 0}, {"copy", 0}};
  spec.buffers = {buffer("x", Space::device, Life::param, 0, 0),
                  buffer("beside", Space::device, Life::param, 0, 1)};
  KernelSpec shift;
  shift.kind = KernelSpec::Kind::map;
  shift.shape = {static_cast<std::int64_t>(count)};
  shift.operands = {{DType::f32, 0, {1}}};
  shift.code = {{MapOp::operand, 0, 0, 0, 0}, {MapOp::add, 0, 0, 0, 0}};
  if (bit != 0) {
    shift.code.push_back({MapOp::constant, 0, 0, 0, 1});
    shift.code.push_back({MapOp::add, 1, 2, 0, 0});
  }
  shift.results = {{bit == 0 ? 1 : 3, DType::f32}};
  KernelSpec copy;
  copy.bytes = bytes;
  spec.kernels = {shift, copy};
  spec.nodes = {{"shift", 0}, {"back", 1}};
  spec.events = 2;
  spec.devices[0].boundBytes = 4096;
  spec.commands = commandsOf({{0, 0, {0}, {1}}, {1, 1, {1}, {0}}});
  return spec;
}

class Sequenced : public testing::Test {
 protected:
  void open(HostOptions options = {}) {
    driver = hostDriver(options);
    memory = DeviceMemory::alone(driver);
    sequence = std::make_shared<Sequence>(memory);
    Status status = Status::ok;
    Lane* const home = memory->hostLane(&status);
    ASSERT_EQ(status, Status::ok);
    caching::Shortage shortage;
    for (caching::Block*& block : blocks)
      ASSERT_EQ(memory->device().malloc(bytes, *home, &block, &shortage), Status::ok);
    for (int bit : {0, 1}) ASSERT_TRUE(openOne(bit));
    const std::vector<float> zeros(count, 0);
    ASSERT_FALSE(sessions[0]->load(0, zeros.data()));
  }

  bool openOne(int bit) {
    SessionOptions options;
    options.sequence = sequence;
    options.memory.shared = {{0, blocks[0]}, {1, blocks[1]}};
    options.onTick = ends[bit].callback();
    MaybeFailure failure;
    sessions[bit] = Session::open({memory}, shifting(bit), std::move(options), &failure);
    EXPECT_TRUE(sessions[bit]) << (failure ? failure->op + ": " + failure->detail : "");
    next[bit] = 0;
    return sessions[bit] != nullptr;
  }

  void TearDown() override {
    for (auto& session : sessions) session.reset();
    for (caching::Block* const block : blocks)
      if (block) memory->device().free(block);
  }

  // Launches the program of this bit, as soon as it may have one more tick in flight.
  bool launch(int bit, const std::vector<Mark*>& uses = {}) {
    if (next[bit] >= 4) ends[bit].await(next[bit] - 3);
    const std::uint64_t tick = next[bit]++;
    return sessions[bit]->submit(tick, static_cast<std::uint32_t>(tick % 4), uses);
  }
  void awaitAll() {
    for (int bit : {0, 1}) ends[bit].await(next[bit]);
  }
  float value(int bit = 0) {
    awaitAll();
    std::vector<float> x(count);
    EXPECT_FALSE(sessions[bit]->read(0, x.data()));
    for (const float each : x) EXPECT_EQ(each, x[0]);
    return x[0];
  }

  std::shared_ptr<Driver> driver;
  std::shared_ptr<DeviceMemory> memory;
  std::shared_ptr<Sequence> sequence;
  caching::Block* blocks[2] = {nullptr, nullptr};
  Ends ends[2];
  std::unique_ptr<Session> sessions[2];
  std::uint64_t next[2] = {0, 0};
};

TEST_F(Sequenced, RunsInTheOrderOfSubmission) {
  for (const std::uint64_t seed : {0u, 1u, 2u, 3u, 4u, 5u}) {
    HostOptions options;
    options.jitterSeed = seed;
    open(options);
    std::mt19937 random(static_cast<unsigned>(seed));
    float expected = 0;
    for (int i = 0; i < 20; ++i) {
      const int bit = static_cast<int>(random() % 2);
      ASSERT_TRUE(launch(bit));
      expected = 2 * expected + static_cast<float>(bit);
    }
    EXPECT_EQ(value(), expected) << "seed " << seed;
    EXPECT_EQ(sequence->issued(), 20u);
    TearDown();
    for (Ends& each : ends) each.ticks.clear(), each.failures.clear();
  }
  blocks[0] = blocks[1] = nullptr;
}

// A lane outside of the sequence reads x; the launch after it is submitted while that read cannot begin.
TEST_F(Sequenced, ALaunchComesAfterTheUsesItIsGiven) {
  open();
  Stream stream = nullptr;
  ASSERT_EQ(driver->streamCreate(&stream, 0), Status::ok);
  Lane* lane = nullptr;
  ASSERT_EQ(memory->lanes().add(stream, true, "reader", &lane), Status::ok);
  ASSERT_TRUE(launch(1));
  for (int round = 0; round < 3; ++round) {
    const float before = value();
    Gate gate;
    ASSERT_EQ(driver->hostFunction(
                  stream, [](void* held) { static_cast<Gate*>(held)->pass(); }, &gate),
              Status::ok);
    std::vector<float> seen(count);
    ASSERT_EQ(driver->copy(CopyKind::deviceToHost, reinterpret_cast<DeviceAddress>(seen.data()),
                           blocks[0]->address, bytes, stream),
              Status::ok);
    lane->queued();
    Mark* mark = nullptr;
    ASSERT_EQ(memory->lanes().mark(*lane, &mark), Status::ok);
    const std::uint64_t issued = sequence->issued();
    ASSERT_TRUE(launch(0, {mark}));
    ASSERT_TRUE(launch(1));
    sequence->awaitIssued(issued + 1);
    EXPECT_GE(mark->holders(), 1u) << "the caller's own hold";
    gate.give(1);
    ASSERT_EQ(driver->streamSynchronize(stream), Status::ok);
    EXPECT_EQ(seen[0], before);
    EXPECT_EQ(seen[count - 1], before);
    EXPECT_EQ(value(), 4 * before + 1);
    EXPECT_EQ(mark->holders(), 1u) << "the launch holds it no more";
    mark->release();
  }
  ASSERT_EQ(memory->lanes().retire(*lane), Status::ok);
  ASSERT_EQ(driver->streamDestroy(stream), Status::ok);
}

TEST_F(Sequenced, AStreamCanComeAfterTheLaunchThatWasIssuedLast) {
  HostOptions options;
  options.jitterSeed = 3;
  open(options);
  Stream stream = nullptr;
  ASSERT_EQ(driver->streamCreate(&stream, 0), Status::ok);
  ASSERT_EQ(sequence->order(stream), Status::ok) << "after nothing";
  float expected = 0;
  for (int i = 0; i < 12; ++i) {
    ASSERT_TRUE(launch(i % 3 == 0 ? 0 : 1));
    expected = 2 * expected + (i % 3 == 0 ? 0.f : 1.f);
    sequence->awaitIssued(static_cast<std::uint64_t>(i) + 1);
    ASSERT_EQ(sequence->order(stream), Status::ok);
    std::vector<float> seen(count);
    ASSERT_EQ(driver->copy(CopyKind::deviceToHost, reinterpret_cast<DeviceAddress>(seen.data()),
                           blocks[0]->address, bytes, stream),
              Status::ok);
    ASSERT_EQ(driver->streamSynchronize(stream), Status::ok);
    EXPECT_EQ(seen[5], expected);
  }
  awaitAll();
  ASSERT_EQ(driver->streamDestroy(stream), Status::ok);
}

// Its events are destroyed with it; what comes after does not wait for them.
TEST_F(Sequenced, ASessionThatClosesIsForgotten) {
  open();
  ASSERT_TRUE(launch(1));
  ASSERT_TRUE(launch(1));
  sessions[1]->close();
  ASSERT_TRUE(launch(0));
  EXPECT_EQ(value(), 6);
  ASSERT_TRUE(openOne(1));
  ends[1].ticks.clear();
  ends[1].failures.clear();
  ASSERT_TRUE(launch(1));
  EXPECT_EQ(value(), 13);
}

TEST_F(Sequenced, AfterADroppedLaunchNothingRuns) {
  open();
  ASSERT_TRUE(launch(1));
  EXPECT_EQ(value(), 1);
  // A turn that somebody else has: nothing after it is issued.
  const std::uint64_t turn = sequence->take();
  EXPECT_EQ(turn, 1u);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(launch(0));
  ASSERT_TRUE(launch(1));
  EXPECT_EQ(sequence->issued(), 1u);
  sessions[0]->close(Session::Unbegun::drop);
  sequence->awaitIssued(1000);  // or none will be any more
  ends[1].await(2);
  const MaybeFailure failure = ends[1].failure(1);
  ASSERT_TRUE(failure);
  EXPECT_NE(failure->detail.find("dropped"), std::string::npos) << failure->detail;
  EXPECT_FALSE(ends[1].failure(0));
  std::vector<float> x(count);
  const MaybeFailure read = sessions[1]->read(0, x.data());
  EXPECT_TRUE(read) << "a session that failed gives no values";
}

// Part of it may run, with no end to wait for: a launch after it would overlap that part.
TEST_F(Sequenced, NothingIsIssuedAfterALaunchThatFailed) {
  for (const char* call : {"launch", "eventRecord", "streamWait"}) {
    for (const std::uint64_t nth : {1u, 3u, 6u}) {
      HostOptions options;
      options.faults = {{call, nth, Status::launchFailed}};
      open(options);
      for (int i = 0; i < 10; ++i) ASSERT_TRUE(launch(i % 2)) << call << " " << nth;
      awaitAll();
      EXPECT_EQ(sequence->issued(), 10u) << call << " " << nth;
      EXPECT_TRUE(sequence->isNext(1000)) << "it has ended";
      for (Ends& each : ends)
        for (const MaybeFailure& failure : each.failures)
          EXPECT_TRUE(!failure || failure->detail.find("dropped") == std::string::npos)
              << "the cause is kept";
      EXPECT_GT(ends[0].failed() + ends[1].failed(), 0u) << call << " " << nth;
      TearDown();
      for (Ends& each : ends) each.ticks.clear(), each.failures.clear();
      blocks[0] = blocks[1] = nullptr;
    }
  }
}

TEST_F(Sequenced, RefusesUsesAndTicksOutOfOrder) {
  open();
  EXPECT_FALSE(sessions[0]->submit(1, 0, {}));
  EXPECT_FALSE(sessions[0]->submit(0, 9, {}));
  ASSERT_TRUE(launch(0));
  EXPECT_EQ(value(), 0);
  EXPECT_EQ(sequence->issued(), 1u) << "a launch that was refused takes no turn";
  sessions[0]->close();
  EXPECT_FALSE(sessions[0]->submit(1, 0, {}));
  ASSERT_TRUE(launch(1));
  EXPECT_EQ(value(1), 1);
}

TEST(Sequence, ATurnThatIsGivenBackIsTheNextOne) {
  Sequence sequence(DeviceMemory::alone(hostDriver()));
  EXPECT_EQ(sequence.take(), 0u);
  EXPECT_EQ(sequence.take(), 1u);
  sequence.giveBack(1);
  EXPECT_EQ(sequence.take(), 1u);
  EXPECT_TRUE(sequence.isNext(0));
  EXPECT_FALSE(sequence.isNext(1));
  EXPECT_EQ(sequence.issued(), 0u);
}

// Whoever took a turn after it would wait for a launch that never comes.
TEST(Sequence, ATurnThatIsGivenBackBehindOthersEndsIt) {
  Sequence sequence(DeviceMemory::alone(hostDriver()));
  EXPECT_EQ(sequence.take(), 0u);
  EXPECT_EQ(sequence.take(), 1u);
  sequence.giveBack(0);
  EXPECT_TRUE(sequence.isNext(1));
  sequence.awaitIssued(2);
}

// Two threads launch, each its own program, and a third one reads on a stream of its own.
TEST_F(Sequenced, IsThreadSafe) {
  HostOptions options;
  options.jitterSeed = 11;
  open(options);
  constexpr int launches = 100;
  std::atomic<bool> done{false};
  std::thread reading([&] {
    Stream stream = nullptr;
    EXPECT_EQ(driver->bind(), Status::ok);
    EXPECT_EQ(driver->streamCreate(&stream, 0), Status::ok);
    while (!done) {
      EXPECT_EQ(sequence->order(stream), Status::ok);
      EXPECT_EQ(driver->streamSynchronize(stream), Status::ok);
      EXPECT_LE(sequence->issued(), 2u * launches);
    }
    EXPECT_EQ(driver->streamDestroy(stream), Status::ok);
  });
  std::vector<std::thread> threads;
  for (const int bit : {0, 1})
    threads.emplace_back([&, bit] {
      for (int i = 0; i < launches; ++i) EXPECT_TRUE(launch(bit));
      sequence->awaitIssued(static_cast<std::uint64_t>(launches));
    });
  for (std::thread& thread : threads) thread.join();
  awaitAll();
  done = true;
  reading.join();
  EXPECT_EQ(sequence->issued(), 2u * launches);
  EXPECT_EQ(ends[0].failed() + ends[1].failed(), 0u);
}

}  // namespace
}  // namespace braid
