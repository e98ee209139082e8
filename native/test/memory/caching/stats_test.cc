// Statistics when any thread allocates and any thread frees: threads with their own counters, and those that
// share.
#include <atomic>
#include <thread>
#include <vector>

#include "test/memory/caching/support.h"

namespace braid::test {
namespace {

using namespace caching;

constexpr int threads = 80;  // more than have figures of their own

struct Rows {
  explicit Rows(Caching& c) : reader(c.lane()) {
    for (int i = 0; i < threads; ++i) homes.push_back(&c.lane());
    blocks.resize(2 * threads);
  }
  // All threads at once, each on a lane of its own; none ends before all have begun.
  template <class Work>
  void all(Work work) {
    std::atomic<int> begun{0};
    std::vector<std::thread> running;
    for (int i = 0; i < threads; ++i)
      running.emplace_back([&, i] {
        begun.fetch_add(1);
        while (begun.load() < threads) std::this_thread::yield();
        work(i);
      });
    for (std::thread& each : running) each.join();
  }
  Lane& reader;
  std::vector<Lane*> homes;
  std::vector<Block*> blocks;
};

// One small and one large block for each thread; the large ones are read on another lane.
void allocateAll(Caching& c, Rows& rows) {
  rows.all([&](int i) {
    Shortage shortage;
    EXPECT_EQ(c.allocator->malloc(kibi, *rows.homes[i], &rows.blocks[2 * i], &shortage), Status::ok);
    EXPECT_EQ(c.allocator->malloc(2 * mebi, *rows.homes[i], &rows.blocks[2 * i + 1], &shortage), Status::ok);
  });
  for (int i = 0; i < threads; ++i) c.use(rows.blocks[2 * i + 1], rows.reader);
}

void expect(const Figure& figure, std::int64_t current, std::uint64_t allocated, const char* what) {
  EXPECT_EQ(figure.current, current) << what;
  EXPECT_EQ(figure.allocated, allocated) << what;
  EXPECT_EQ(figure.freed, allocated - static_cast<std::uint64_t>(current)) << what;
}

void expectAllLive(const Stats& stats) {
  expect(stats.all.allocation, 2 * threads, 2 * threads, "blocks");
  expect(stats.small.allocatedBytes, threads * kibi, threads * kibi, "bytes of small ones");
  expect(stats.large.requestedBytes, threads * 2 * mebi, threads * 2 * mebi, "requested of large ones");
  expect(stats.all.active, 2 * threads, 2 * threads, "active");
  EXPECT_EQ(stats.all.allocation.peak, 2 * threads);
}

TEST(CachingStats, OfMoreThreadsThanHaveTheirOwnCounters) {
  Caching c;
  Rows rows(c);
  for (std::uint64_t round = 1; round <= 2; ++round) {
    c.allocator->resetAccumulated();
    allocateAll(c, rows);
    expectAllLive(c.stats());
    rows.all([&](int i) {
      for (int k = 0; k < 2; ++k) EXPECT_EQ(c.allocator->free(rows.blocks[2 * i + k]), Status::ok);
    });
    // The device has not come to the reads.
    Stats stats = c.stats();
    expect(stats.all.allocation, 0, 2 * threads, "blocks after the frees");
    expect(stats.large.active, threads, threads, "pending ones");
    expect(stats.large.activeBytes, threads * 2 * mebi, threads * 2 * mebi, "bytes of pending ones");
    c.device.finish();
    EXPECT_EQ(c.allocator->emptyCache(), Status::ok);
    expect(c.stats().all.active, 0, 2 * threads, "active at the end");
    EXPECT_EQ(c.violations({}), "");
  }
}

TEST(CachingStats, OfBlocksFreedByAThreadThatNeverAllocated) {
  Caching c;
  Rows rows(c);
  allocateAll(c, rows);
  std::thread([&] {
    for (Block* block : rows.blocks) EXPECT_EQ(c.allocator->free(block), Status::ok);
  }).join();
  expect(c.stats().all.allocation, 0, 2 * threads, "blocks after the frees");
  expect(c.stats().large.active, threads, threads, "pending ones");
  // Their own threads are gone: what comes next takes some of them over from others' figures.
  rows.all([&](int i) {
    Shortage shortage;
    EXPECT_EQ(c.allocator->malloc(2 * mebi, *rows.homes[i], &rows.blocks[2 * i + 1], &shortage), Status::ok);
  });
  expect(c.stats().large.allocation, threads, 2 * threads, "large blocks again");
  for (int i = 0; i < threads; ++i) EXPECT_EQ(c.allocator->free(rows.blocks[2 * i + 1]), Status::ok);
  c.device.finish();
  EXPECT_EQ(c.allocator->emptyCache(), Status::ok);
  expect(c.stats().all.active, 0, 3 * threads, "active at the end");
  EXPECT_EQ(c.stats().all.reservedBytes.current, 0);
}

// Neither size class is at a peak of its own when both together are.
TEST(CachingStats, ThePeakOfAllIsOfTheSameMoment) {
  Caching c;
  Lane& lane = c.lane();
  Block* small = c.malloc(kibi, lane);
  c.free(small);
  Block* large = c.malloc(2 * mebi, lane);
  small = c.malloc(kibi, lane);
  c.free(small);
  c.free(large);
  const Stats stats = c.stats();
  EXPECT_EQ(stats.small.allocation.peak, 1);
  EXPECT_EQ(stats.large.allocation.peak, 1);
  EXPECT_EQ(stats.all.allocation.peak, 2);
  EXPECT_EQ(stats.all.allocatedBytes.peak, static_cast<std::int64_t>(2 * mebi + kibi));
  EXPECT_EQ(stats.all.requestedBytes.peak, static_cast<std::int64_t>(2 * mebi + kibi));
  EXPECT_EQ(stats.all.active.peak, 2);
}

}  // namespace
}  // namespace braid::test
