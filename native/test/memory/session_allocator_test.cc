// How a session's allocator waits when neither order nor growth serves an allocation.
#include "memory/session_allocator.h"

#include <atomic>
#include <chrono>
#include <thread>

#include "test/executor/support.h"

namespace braid {
namespace {

using test::hostDriver;

HostOptions jittered() {
  HostOptions options;
  options.jitterSeed = 9;
  options.poison = true;
  return options;
}

// An allocator over bare streams; its caller is the issuer.
struct Bare {
  explicit Bare(SessionAllocator::Policy policy, bool spare = false) : driver(hostDriver(jittered())) {
    for (Stream& stream : streams) EXPECT_EQ(driver->streamCreate(&stream, 0), Status::ok);
    for (Event& event : events) {
      EXPECT_EQ(driver->eventCreate(&event, EventKind::order), Status::ok);
      markers.push_back(order.addMarker());
    }
    allocator = std::make_unique<SessionAllocator>(drivers, order, 4096, streams, events, policy);
    if (spare) allocator->setSpareMarkers(markers);
  }
  ~Bare() {
    for (const Stream stream : streams) driver->streamSynchronize(stream);
  }
  // Work on a lane that takes its time, and does not end before it is let go on.
  void work(LaneId lane) {
    order.run(lane);
    ASSERT_EQ(driver->hostFunction(
                  streams[lane],
                  [](void* data) {
                    auto* bare = static_cast<Bare*>(data);
                    do std::this_thread::sleep_for(std::chrono::milliseconds(10));
                    while (!bare->open);
                    bare->done = true;
                  },
                  this),
              Status::ok);
  }
  std::atomic<bool> open{true}, done{false};
  std::shared_ptr<Driver> driver;
  std::vector<Driver*> drivers{2, driver.get()};
  std::vector<Stream> streams = std::vector<Stream>(2);
  std::vector<Event> events = std::vector<Event>(2);
  std::vector<TickOrder::Marker> markers;
  TickOrder order{2, 1};
  std::unique_ptr<SessionAllocator> allocator;
};

TEST(SessionAllocator, TheHostWaitsWhereTheLaneMayNot) {
  for (const SessionAllocator::Policy policy :
       {SessionAllocator::Policy{false, true}, SessionAllocator::Policy{true, true}}) {
    Bare bare(policy);  // no spare event either, so that a lane that may wait has nothing to wait for
    BlockId first = 0, second = 0;
    ASSERT_EQ(bare.allocator->malloc(4096, 0, &first), Status::ok);
    bare.work(0);
    bare.allocator->free(first);
    ASSERT_EQ(bare.allocator->malloc(4096, 1, &second), Status::ok);
    EXPECT_TRUE(bare.done) << "the block's last access is over";
    EXPECT_EQ(bare.allocator->block(second).offset, 0u);
    EXPECT_EQ(bare.allocator->counters().bySynchronize, 1u);
    EXPECT_EQ(bare.allocator->counters().byWait, 0u);
    // All lanes are after what the host has waited for, so the next allocation is served by order.
    bare.allocator->free(second);
    ASSERT_EQ(bare.allocator->malloc(4096, 1, &second), Status::ok);
    EXPECT_EQ(bare.allocator->counters().byOrder, 1u);
  }
}

TEST(SessionAllocator, TheLaneWaitsAndTheHostDoesNot) {
  Bare bare({}, true);
  bare.open = false;
  BlockId first = 0, second = 0;
  ASSERT_EQ(bare.allocator->malloc(4096, 0, &first), Status::ok);
  bare.work(0);
  bare.allocator->free(first);
  ASSERT_EQ(bare.allocator->malloc(4096, 1, &second), Status::ok);
  EXPECT_FALSE(bare.done);
  EXPECT_EQ(bare.allocator->counters().byWait, 1u);
  EXPECT_EQ(bare.allocator->counters().waitsIssued, 1u);
  bare.open = true;
  EXPECT_EQ(bare.driver->streamSynchronize(bare.streams[1]), Status::ok);
  EXPECT_TRUE(bare.done) << "the second lane stands behind the first one's work";
}

TEST(SessionAllocator, WithoutEitherTheShortageIsReported) {
  Bare bare({false, false}, true);
  BlockId first = 0, second = 0;
  ASSERT_EQ(bare.allocator->malloc(3072, 0, &first), Status::ok);
  bare.work(0);
  bare.allocator->free(first);
  EXPECT_EQ(bare.allocator->malloc(2048, 1, &second), Status::outOfMemory);
  const SessionAllocator::Shortage shortage = bare.allocator->shortage();
  EXPECT_EQ(shortage.wanted, 2048u);
  EXPECT_EQ(shortage.free, 4096u);
  EXPECT_EQ(shortage.limit, 4096u);
  EXPECT_EQ(bare.allocator->malloc(1024, 1, &second), Status::ok) << "what was never used is still there";
}

}  // namespace
}  // namespace braid
