#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "memory/caching/allocator.h"
#include "test/memory/caching/checking_driver.h"
#include "test/memory/caching/invariants.h"
#include "test/memory/caching/simulated_device.h"

// Shared by the tests of the caching allocator: a simulated device that advances only on request, and a
// driver that checks every call.
namespace braid::test {

constexpr std::uint64_t kibi = 1024, mebi = 1024 * kibi;

struct Caching {
  explicit Caching(const caching::Options& options = {}, const SimulatedDevice::Config& config = {})
      : device(config),
        driver(device),
        lanes(driver),
        allocator(std::make_unique<caching::Allocator>(lanes, std::make_unique<caching::DeviceSource>(driver),
                                                       options)) {}
  ~Caching() {
    EXPECT_EQ(driver.problem(), "");
    device.finish();
  }

  Lane& lane(bool tracked = true) {
    Stream stream = nullptr;
    Lane* made = nullptr;
    EXPECT_EQ(driver.streamCreate(&stream, 0), Status::ok);
    EXPECT_EQ(lanes.add(stream, tracked, "", &made), Status::ok);
    return *made;
  }
  // Null where it is refused.
  caching::Block* malloc(std::uint64_t bytes, Lane& on, caching::MemPool* pool = nullptr,
                         std::uint32_t site = 0) {
    caching::Block* block = nullptr;
    status = allocator->malloc(bytes, on, &block, &shortage, pool, site);
    if (status != Status::ok) return nullptr;
    driver.owned(block->address, block->size, on.stream);
    return block;
  }
  // The owner's own work on the home lane counts as its use of the block.
  void free(caching::Block* block) {
    driver.released(block->address, block->size, {driver.reached(block->lane->stream)});
    EXPECT_EQ(allocator->free(block), Status::ok);
  }
  void work(Lane& on) {
    EXPECT_EQ(driver.fill32(0, 0, 1, on.stream), Status::ok);
    on.queued();
  }
  // What follows on `to` comes after what is queued on `from`.
  void order(Lane& from, Lane& to) {
    Mark* mark = nullptr;
    EXPECT_EQ(lanes.mark(from, &mark), Status::ok);
    {
      std::lock_guard guard(to.mutex);
      EXPECT_EQ(lanes.wait(to, *mark, nullptr), Status::ok);
    }
    mark->release();
  }
  // Reads the block on another lane and records the use.
  void use(caching::Block* block, Lane& on) {
    work(on);
    EXPECT_EQ(allocator->recordUse(block, on), Status::ok);
  }
  caching::Stats stats() const { return allocator->stats(); }
  std::string violations(const Expected& expected) { return test::violations(*allocator, &driver, expected); }

  SimulatedDevice device;
  CheckingDriver driver;
  Lanes lanes;
  std::unique_ptr<caching::Allocator> allocator;
  caching::Shortage shortage;
  Status status = Status::ok;
};

inline caching::Options with(const caching::Policy& policy) {
  caching::Options options;
  options.policy = &policy;
  return options;
}

}  // namespace braid::test
