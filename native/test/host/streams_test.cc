// The ordering rules of driver.h, on the host device.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

#include "test/host/support.h"

namespace braid::test {
namespace {

// What ran, in the order in which it ran.
struct Log {
  std::mutex mutex;
  std::vector<int> entries;
};
struct Entry {
  Log* log;
  int value;
};
void append(void* data) {
  auto* entry = static_cast<Entry*>(data);
  std::lock_guard lock(entry->log->mutex);
  entry->log->entries.push_back(entry->value);
}

// A host function that holds its stream until it is opened.
struct Gate {
  std::atomic<bool> open{false};
  static void pass(void* data) {
    auto* gate = static_cast<Gate*>(data);
    while (!gate->open.load()) std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
};

HostOptions jittered(std::uint64_t seed) {
  HostOptions options;
  options.jitterSeed = seed;
  options.jitterMicroseconds = 100;
  return options;
}

TEST(HostStreams, StreamsRunBesideEachOther) {
  const auto driver = host();
  const Stream held = stream(*driver), free = stream(*driver);
  Gate gate;
  Log log;
  Entry entry{&log, 1};
  ASSERT_EQ(driver->hostFunction(held, Gate::pass, &gate), Status::ok);
  ASSERT_EQ(driver->hostFunction(free, append, &entry), Status::ok);
  ASSERT_EQ(driver->streamSynchronize(free), Status::ok);
  EXPECT_EQ(driver->streamQuery(held), Status::notReady);
  EXPECT_EQ(driver->streamQuery(free), Status::ok);
  gate.open = true;
  ASSERT_EQ(driver->streamSynchronize(held), Status::ok);
  EXPECT_EQ(driver->streamQuery(held), Status::ok);
}

TEST(HostStreams, AWaitTakesTheMarkAsItIsAtTheCall) {
  const auto driver = host();
  const Stream first = stream(*driver), second = stream(*driver), third = stream(*driver);
  const Event mark = event(*driver);
  Gate early, late;
  driver->hostFunction(first, Gate::pass, &early);
  driver->eventRecord(mark, first);
  driver->streamWait(second, mark);
  driver->hostFunction(first, Gate::pass, &late);
  driver->eventRecord(mark, first);  // moves the mark: not for `second`
  driver->streamWait(third, mark);
  early.open = true;
  EXPECT_EQ(driver->streamSynchronize(second), Status::ok);
  EXPECT_EQ(driver->streamQuery(third), Status::notReady);
  EXPECT_EQ(driver->eventQuery(mark), Status::notReady);
  late.open = true;
  EXPECT_EQ(driver->eventSynchronize(mark), Status::ok);
  EXPECT_EQ(driver->streamSynchronize(third), Status::ok);
}

TEST(HostStreams, AnEventNeverRecordedIsNoWait) {
  const auto driver = host();
  const Stream on = stream(*driver);
  const Event mark = event(*driver);
  EXPECT_EQ(driver->streamWait(on, mark), Status::ok);
  EXPECT_EQ(driver->eventQuery(mark), Status::ok);
  EXPECT_EQ(driver->eventSynchronize(mark), Status::ok);
  EXPECT_EQ(driver->streamSynchronize(on), Status::ok);
}

TEST(HostStreams, AnEventIsNewWhenItsHandleIsUsedAgain) {
  const auto driver = host();
  const Stream on = stream(*driver);
  Gate gate;
  driver->hostFunction(on, Gate::pass, &gate);
  const Event old = event(*driver);
  driver->eventRecord(old, on);
  ASSERT_EQ(driver->eventDestroy(old), Status::ok);
  const Event made = event(*driver);
  EXPECT_NE(old, made);
  EXPECT_EQ(driver->eventQuery(made), Status::ok);  // never recorded
  EXPECT_EQ(driver->eventQuery(old), Status::invalidHandle);
  gate.open = true;
}

TEST(HostStreams, DestroyingWithWorkQueuedStillCompletesIt) {
  const auto driver = host();
  Log log;
  Entry one{&log, 1}, two{&log, 2};
  Gate gate;
  const Event mark = event(*driver), done = event(*driver);
  const Stream first = stream(*driver), second = stream(*driver);
  driver->hostFunction(first, Gate::pass, &gate);
  driver->hostFunction(first, append, &one);
  driver->eventRecord(mark, first);
  driver->streamWait(second, mark);
  driver->hostFunction(second, append, &two);
  driver->eventRecord(done, second);
  ASSERT_EQ(driver->eventDestroy(mark), Status::ok);
  ASSERT_EQ(driver->streamDestroy(first), Status::ok);
  ASSERT_EQ(driver->streamDestroy(second), Status::ok);
  EXPECT_EQ(driver->hostFunction(first, append, &one), Status::invalidHandle);
  const Stream third = stream(*driver);  // must not queue behind those
  EXPECT_EQ(driver->streamSynchronize(third), Status::ok);
  gate.open = true;
  ASSERT_EQ(driver->eventSynchronize(done), Status::ok);
  EXPECT_EQ(log.entries, (std::vector<int>{1, 2}));
}

TEST(HostStreams, TheDeviceFinishesItsWorkBeforeItGoes) {
  Log log;
  Entry one{&log, 1};
  {
    const auto driver = host(jittered(3));
    const Stream first = stream(*driver), second = stream(*driver);
    const Event mark = event(*driver);
    for (int i = 0; i < 20; ++i) {
      driver->hostFunction(first, append, &one);
      driver->eventRecord(mark, first);
      driver->streamWait(second, mark);
      driver->hostFunction(second, append, &one);
      driver->eventRecord(mark, second);
      driver->streamWait(first, mark);
    }
  }
  EXPECT_EQ(log.entries.size(), 40u);
}

TEST(HostStreams, TimedEventsMeasure) {
  const auto driver = host();
  const Stream on = stream(*driver);
  const Event from = event(*driver, true), to = event(*driver, true), plain = event(*driver);
  Gate gate;
  float elapsed = -1;
  EXPECT_EQ(driver->eventElapsed(&elapsed, from, to), Status::invalidHandle);  // never recorded
  driver->eventRecord(from, on);
  driver->hostFunction(on, Gate::pass, &gate);
  driver->eventRecord(to, on);
  EXPECT_EQ(driver->eventElapsed(&elapsed, from, to), Status::notReady);
  ASSERT_EQ(driver->eventSynchronize(from), Status::ok);  // however late the lane's thread woke up
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  gate.open = true;
  ASSERT_EQ(driver->eventSynchronize(to), Status::ok);
  ASSERT_EQ(driver->eventElapsed(&elapsed, from, to), Status::ok);
  EXPECT_GE(elapsed, 19.0f);
  EXPECT_LT(elapsed, 60'000.0f);
  driver->eventRecord(plain, on);
  EXPECT_EQ(driver->eventElapsed(&elapsed, plain, to), Status::invalidHandle);
}

TEST(HostStreams, ReRecordedTimedEventKeepsTheLastTime) {
  const auto driver = host();
  const Stream first = stream(*driver), second = stream(*driver);
  const Event start = event(*driver, true), moved = event(*driver, true);
  Gate gate;
  driver->eventRecord(start, second);
  driver->hostFunction(first, Gate::pass, &gate);
  driver->eventRecord(moved, first);   // stamped later, and not by a timed record
  driver->eventRecord(moved, second);  // the mark is here now
  ASSERT_EQ(driver->eventSynchronize(moved), Status::ok);
  float before = 0, after = 0;
  ASSERT_EQ(driver->eventElapsed(&before, start, moved), Status::ok);
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  gate.open = true;
  driver->streamSynchronize(first);
  ASSERT_EQ(driver->eventElapsed(&after, start, moved), Status::ok);
  EXPECT_EQ(before, after);
}

// Random graphs of work, under jitter: whatever the delays, the log respects stream order and every wait.
TEST(HostStreams, JitterNeverBreaksOrder) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random{seed};
    const auto driver = host(jittered(seed));
    const std::size_t streams = 1 + random.below(5), operations = 60;
    std::vector<Stream> on;
    std::vector<int> last(streams, -1);  // the last operation of each stream
    for (std::size_t i = 0; i < streams; ++i) on.push_back(stream(*driver));
    std::vector<Event> events;
    std::vector<int> recorded;  // the operation before each event's mark
    for (int i = 0; i < 6; ++i)
      events.push_back(event(*driver, random.below(2) == 0)), recorded.push_back(-1);

    Log log;
    std::vector<Entry> entries(operations);
    std::vector<std::vector<int>> after(operations);  // what must have run before
    std::vector<std::vector<int>> pending(streams);   // waits taken since the stream's last operation
    for (std::size_t i = 0; i < operations; ++i) {
      const std::size_t s = random.below(streams), e = random.below(events.size());
      switch (random.below(3)) {
        case 0: {
          // An event marks what its stream has waited for, too; that holds by the log, as all that was waited
          // for is older.
          driver->eventRecord(events[e], on[s]);
          recorded[e] = last[s];
          if (!pending[s].empty())
            recorded[e] = std::max(recorded[e], *std::max_element(pending[s].begin(), pending[s].end()));
          break;
        }
        case 1:
          driver->streamWait(on[s], events[e]);
          if (recorded[e] >= 0) pending[s].push_back(recorded[e]);
          break;
        default: break;
      }
      entries[i] = {&log, static_cast<int>(i)};
      driver->hostFunction(on[s], append, &entries[i]);
      after[i] = pending[s];
      pending[s].clear();
      if (last[s] >= 0) after[i].push_back(last[s]);
      last[s] = static_cast<int>(i);
      if (random.below(20) == 0) {  // an event is destroyed while it is waited for, and made again
        driver->eventDestroy(events[e]);
        events[e] = event(*driver);
        recorded[e] = -1;
      }
    }
    for (const Stream s : on) ASSERT_EQ(driver->streamSynchronize(s), Status::ok);
    ASSERT_EQ(log.entries.size(), operations);
    std::vector<std::size_t> position(operations);
    for (std::size_t i = 0; i < operations; ++i) position[static_cast<std::size_t>(log.entries[i])] = i;
    for (std::size_t i = 0; i < operations; ++i)
      for (const int before : after[i]) EXPECT_LT(position[static_cast<std::size_t>(before)], position[i]);
  }
}

TEST(HostStreams, ManyThreadsAtOnce) {
  const auto driver = host(jittered(5));
  std::vector<std::thread> threads;
  std::atomic<int> ran{0};
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      driver->bind();
      for (int round = 0; round < 20; ++round) {
        const Stream on = stream(*driver);
        const Event mark = event(*driver, round % 2 == 0);
        for (int i = 0; i < 5; ++i)
          driver->hostFunction(
              on, [](void* data) { ++*static_cast<std::atomic<int>*>(data); }, &ran);
        driver->eventRecord(mark, on);
        driver->streamDestroy(on);
        EXPECT_EQ(driver->eventSynchronize(mark), Status::ok);
        driver->eventDestroy(mark);
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(ran.load(), 4 * 20 * 5);
}

TEST(HostStreams, WrongHandlesAreFoundOut) {
  const auto driver = host(), other = host();
  const Stream on = stream(*driver), foreign = stream(*other);
  const Event mark = event(*driver);
  const auto nonsense = reinterpret_cast<Stream>(std::uintptr_t{0x1234567890});
  for (const Stream wrong : {Stream{nullptr}, foreign, nonsense, reinterpret_cast<Stream>(mark)}) {
    EXPECT_EQ(driver->streamSynchronize(wrong), Status::invalidHandle);
    EXPECT_EQ(driver->streamQuery(wrong), Status::invalidHandle);
    EXPECT_EQ(driver->streamWait(wrong, mark), Status::invalidHandle);
    EXPECT_EQ(driver->eventRecord(mark, wrong), Status::invalidHandle);
    EXPECT_EQ(driver->streamDestroy(wrong), Status::invalidHandle);
    EXPECT_EQ(driver->fill32(4096, 0, 1, wrong), Status::invalidHandle);
    EXPECT_NE(driver->lastDetail(), "");
  }
  for (const Event wrong : {Event{nullptr}, reinterpret_cast<Event>(on)}) {
    EXPECT_EQ(driver->eventQuery(wrong), Status::invalidHandle);
    EXPECT_EQ(driver->eventSynchronize(wrong), Status::invalidHandle);
    EXPECT_EQ(driver->eventRecord(wrong, on), Status::invalidHandle);
    EXPECT_EQ(driver->streamWait(on, wrong), Status::invalidHandle);
    EXPECT_EQ(driver->eventDestroy(wrong), Status::invalidHandle);
  }
  EXPECT_EQ(driver->eventDestroy(mark), Status::ok);
  EXPECT_EQ(driver->eventDestroy(mark), Status::invalidHandle);
  EXPECT_EQ(driver->streamDestroy(on), Status::ok);
  EXPECT_EQ(driver->streamDestroy(on), Status::invalidHandle);
}

// Rings and spare pieces: after one turn of full length, later turns make no heap allocation.
TEST(HostStreams, EnqueueingDoesNotAllocateInSteadyState) {
  const auto driver = host();
  const Stream on = stream(*driver), other = stream(*driver);
  const Event mark = event(*driver, true);
  const DeviceAddress memory = allocate(*driver, 4096);
  KernelSpec spec;
  spec.kind = KernelSpec::Kind::map;
  spec.shape = {8};
  spec.operands.assign(20, MapOperand{DType::f32, 0, {1}});  // more addresses than most kernels have
  spec.code = {{MapOp::operand, 19}};
  spec.results = {{0, DType::f32}};
  std::unique_ptr<Kernel> kernel;
  ASSERT_EQ(driver->prepare(&kernel, spec, {}), Status::ok);
  const std::vector<DeviceAddress> reads(20, memory);
  const auto turn = [&] {
    Gate gate;
    driver->hostFunction(on, Gate::pass, &gate);
    for (int i = 0; i < 200; ++i) {
      driver->launch(*kernel, reads.data(), &memory, on);
      driver->copy(CopyKind::deviceToDevice, memory + 64, memory, 64, on);
      driver->eventRecord(mark, on);
      driver->streamWait(other, mark);
      driver->fill32(memory + 1024, 1, 8, other);
      Event made = nullptr;
      driver->eventCreate(&made, EventKind::order);
      driver->eventDestroy(made);
    }
    gate.open = true;
    driver->streamSynchronize(other);
    driver->streamSynchronize(on);
  };
  for (int i = 0; i < 8; ++i) turn();  // the pieces that launches use again get their room
  const std::uint64_t before = allocations();
  for (int i = 0; i < 5; ++i) turn();
  EXPECT_EQ(allocations() - before, 0u);
}

}  // namespace
}  // namespace braid::test
