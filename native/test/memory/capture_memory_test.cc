// Memory of captures: reuse by the order of captured work, without a call of the driver about order; pools
// that are held; other threads meanwhile.
#include "memory/capture_memory.h"

#include <atomic>
#include <thread>

#include "test/memory/caching/support.h"

namespace braid::test {
namespace {

using namespace caching;

constexpr std::uint64_t size = 4 * mebi;

// Counts the calls that only make sense for work that runs.
struct OrderCalls final : SimulatedDevice {
  using SimulatedDevice::SimulatedDevice;
  std::atomic<int> count{0};
  Status streamWait(Stream stream, Event event) override {
    ++count;
    return SimulatedDevice::streamWait(stream, event);
  }
  Status eventRecord(Event event, Stream stream) override {
    ++count;
    return SimulatedDevice::eventRecord(event, stream);
  }
  Status eventQuery(Event event) override {
    ++count;
    return SimulatedDevice::eventQuery(event);
  }
  Status eventSynchronize(Event event) override {
    ++count;
    return SimulatedDevice::eventSynchronize(event);
  }
};

struct MemoryOfCaptures : ::testing::TestWithParam<const Policy*> {
  MemoryOfCaptures() {
    Options options;
    options.policy = GetParam();
    memory = std::make_shared<DeviceMemory>(device, options, options);
    for (Lane*& lane : lanes) lane = add();
  }
  ~MemoryOfCaptures() override { device->finish(); }

  Lane* add() const {
    Stream stream = nullptr;
    Lane* made = nullptr;
    EXPECT_EQ(device->streamCreate(&stream, 0), Status::ok);
    EXPECT_EQ(memory->lanes().add(stream, true, "", &made), Status::ok);
    return made;
  }
  Block* malloc(const Lane& on, MemPool* pool, Status wanted = Status::ok) {
    Block* block = nullptr;
    Shortage shortage;
    Lane* const captured = capture ? capture->captured(on) : nullptr;
    Lane& lane = captured != nullptr ? *captured : const_cast<Lane&>(on);
    EXPECT_EQ(memory->device().malloc(size, lane, &block, &shortage, pool), wanted);
    return block;
  }
  void begin() {
    capture = std::make_unique<CaptureMemory>(memory);
    for (Lane* lane : lanes) EXPECT_EQ(capture->join(*lane), Status::ok);
  }

  std::shared_ptr<OrderCalls> device = std::make_shared<OrderCalls>(SimulatedDevice::Config{});
  std::shared_ptr<DeviceMemory> memory;
  std::unique_ptr<CaptureMemory> capture;
  Lane* lanes[3] = {};
};

TEST_P(MemoryOfCaptures, ReuseByOrderWithoutACallOfTheDriver) {
  if (!GetParam()->order) GTEST_SKIP() << "lanes share nothing";
  begin();
  MemPool* const pool = capture->ownPool();
  const std::shared_ptr<const void> holder = capture->hold(pool);
  ASSERT_NE(holder, nullptr);
  EXPECT_EQ(capture->hold(pool), nullptr) << "once for each capture";
  device->count = 0;
  Block* const block = malloc(*lanes[0], pool);
  ASSERT_TRUE(capture->has(*block));
  EXPECT_EQ(capture->worked(*lanes[0], {block}), Status::ok);
  int forked = 0, joined = 0;
  EXPECT_EQ(capture->record(*lanes[0], &forked), Status::ok);
  EXPECT_EQ(capture->wait(*lanes[1], &forked), Status::ok);
  EXPECT_EQ(capture->worked(*lanes[1], {block}), Status::ok);
  const DeviceAddress address = block->address;
  EXPECT_EQ(memory->free(block), Status::ok);
  EXPECT_NE(malloc(*lanes[0], pool)->address, address) << "the other branch uses it";
  EXPECT_NE(malloc(*lanes[2], pool)->address, address) << "it comes after nothing";
  EXPECT_EQ(capture->record(*lanes[1], &joined), Status::ok);
  EXPECT_EQ(capture->wait(*lanes[2], &joined), Status::ok);
  EXPECT_EQ(malloc(*lanes[2], pool)->address, address) << "the branch came after the trunk's use";
  EXPECT_EQ(device->count, 0);
  capture->end();
  EXPECT_EQ(device->count, 0);
}

TEST_P(MemoryOfCaptures, AHeldPoolServesCapturesAloneAndKeepsItsMemory) {
  MemPool* const pool = memory->device().makePool(true, false);
  begin();
  std::shared_ptr<const void> holder = capture->hold(pool);
  Block* const block = malloc(*lanes[0], pool);
  const DeviceAddress from = block->address;
  EXPECT_EQ(memory->free(block), Status::ok);
  capture->end();
  capture.reset();
  const std::uint64_t held = memory->device().reserved();
  EXPECT_EQ(malloc(*lanes[0], pool, Status::illegalState), nullptr);
  EXPECT_EQ(memory->device().emptyCache(), Status::ok);
  EXPECT_EQ(memory->device().emptyCache(pool), Status::ok);
  EXPECT_EQ(memory->device().reserved(), held);
  // Memory that runs out elsewhere borrows nothing of it and moves no page of it.
  for (;;) {
    Block* other = nullptr;
    Shortage shortage;
    if (memory->device().malloc(size, *lanes[1], &other, &shortage) != Status::ok) break;
    EXPECT_TRUE(other->address + size <= from || from + size <= other->address);
  }
  memory->close(pool);
  EXPECT_EQ(memory->device().emptyCache(), Status::ok);
  const std::uint64_t before = memory->device().reserved();
  holder.reset();
  EXPECT_EQ(memory->device().reserved(), before - held);
}

TEST_P(MemoryOfCaptures, LanesOfEndedCapturesAreUsedAgain) {
  for (int turn = 0; turn < 300; ++turn) {
    begin();
    MemPool* const pool = capture->ownPool();
    const std::shared_ptr<const void> holder = capture->hold(pool);
    Block* const block = malloc(*lanes[0], pool);
    EXPECT_EQ(capture->worked(*lanes[1], {block}), Status::ok);
    EXPECT_EQ(memory->free(block), Status::ok);
    capture.reset();
  }
  EXPECT_LE(memory->lanes().count(), 6u);
  EXPECT_EQ(memory->device().reserved(), 0u);
  // A number that a captured lane had serves an ordinary one.
  Lane* const lane = add();
  Block* const block = malloc(*lane, nullptr);
  EXPECT_EQ(device->fill32(0, 0, 1, lanes[0]->stream), Status::ok);
  lanes[0]->queued();
  EXPECT_EQ(memory->device().recordUse(block, *lanes[0]), Status::ok);
  lane->queued();
  Mark* mark = nullptr;
  EXPECT_EQ(memory->lanes().mark(*lane, &mark), Status::ok);
  EXPECT_EQ(memory->lanes().synchronize(*mark), Status::ok);
  mark->release();
  EXPECT_EQ(memory->free(block), Status::ok);
}

TEST_P(MemoryOfCaptures, OtherThreadsGoOnMeanwhile) {
  std::atomic<bool> stop{false};
  std::atomic<int> turns{0};
  std::thread eager([&] {
    Lane *const home = add(), *const reader = add();
    while (!stop) {
      Block* block = nullptr;
      Shortage shortage;
      if (memory->device().malloc(size / 8, *home, &block, &shortage) != Status::ok) continue;
      reader->queued();
      EXPECT_EQ(memory->device().recordUse(block, *reader), Status::ok);
      EXPECT_EQ(memory->free(block), Status::ok);
      EXPECT_EQ(memory->device().emptyCache(), Status::ok);
      ++turns;
    }
  });
  for (int turn = 0; turn < 100 || turns < 20; ++turn) {
    begin();
    MemPool* const pool = capture->ownPool();
    const std::shared_ptr<const void> holder = capture->hold(pool);
    int key = 0;
    for (int i = 0; i < 4; ++i) {
      Block* const block = malloc(*lanes[i % 3], pool);
      if (block == nullptr) continue;
      EXPECT_EQ(capture->worked(*lanes[(i + 1) % 3], {block}), Status::ok);
      EXPECT_EQ(memory->free(block), Status::ok);
      EXPECT_EQ(capture->record(*lanes[(i + 1) % 3], &key), Status::ok);
      EXPECT_EQ(capture->wait(*lanes[i % 3], &key), Status::ok);
    }
    capture.reset();
  }
  stop = true;
  eager.join();
}

INSTANTIATE_TEST_SUITE_P(EveryPolicy, MemoryOfCaptures, ::testing::ValuesIn(policies), [](const auto& info) {
  std::string name(info.param->name);
  std::erase(name, '-');
  return name;
});

}  // namespace
}  // namespace braid::test
