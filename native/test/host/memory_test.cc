#include <thread>

#include "host/memory.h"
#include "test/host/support.h"

// Memory of the host device: real, limited, remappable, and poisoned on request.

namespace braid::test {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20, kPage = 2 * kMiB;

HostOptions limited(std::size_t bytes, bool poison = false) {
  HostOptions options;
  options.memoryBytes = bytes;
  options.poison = poison;
  return options;
}

std::uint32_t* words(DeviceAddress address) { return reinterpret_cast<std::uint32_t*>(address); }

TEST(HostMemory, IsLimitedToTheByte) {
  const auto driver = host(limited(10'000'001));
  std::size_t free = 0, total = 0;
  const DeviceAddress first = allocate(*driver, 10'000'000);
  ASSERT_EQ(driver->memInfo(&free, &total), Status::ok);
  EXPECT_EQ(free, 1u);
  EXPECT_EQ(total, 10'000'001u);
  DeviceAddress second = 0;
  EXPECT_EQ(driver->memAllocate(&second, 2), Status::outOfMemory);
  EXPECT_NE(driver->lastDetail().find("1 of 10000001 free"), std::string::npos) << driver->lastDetail();
  EXPECT_EQ(driver->memAllocate(&second, SIZE_MAX), Status::outOfMemory);
  EXPECT_EQ(driver->memAllocate(&second, 1), Status::ok);
  EXPECT_EQ(first % 512, 0u);
  EXPECT_EQ(second % 512, 0u);
  EXPECT_EQ(driver->memFree(first), Status::ok);
  driver->memInfo(&free, &total);
  EXPECT_EQ(free, 10'000'000u);
}

TEST(HostMemory, UnknownAddressesAreInvalid) {
  const auto driver = host();
  const DeviceAddress memory = allocate(*driver, 8192);
  EXPECT_EQ(driver->memFree(0), Status::invalidValue);
  EXPECT_EQ(driver->memFree(memory + 512), Status::invalidValue);
  EXPECT_EQ(driver->pinnedFree(reinterpret_cast<void*>(memory)), Status::invalidValue);
  EXPECT_EQ(driver->memFree(memory), Status::ok);
  EXPECT_EQ(driver->memFree(memory), Status::invalidValue);
  EXPECT_EQ(driver->memAllocate(nullptr, 8), Status::invalidValue);
  DeviceAddress none = 0;
  EXPECT_EQ(driver->memAllocate(&none, 0), Status::invalidValue);
}

TEST(HostMemory, PinnedMemoryHasNoLimitAndIsReachedByWork) {
  const auto driver = host(limited(4096));
  void* pinned = nullptr;
  ASSERT_EQ(driver->pinnedAllocate(&pinned, 1 << 20), Status::ok);
  const Stream on = stream(*driver);
  EXPECT_EQ(driver->fill32(address(pinned), 42, 1 << 18, on), Status::ok);
  EXPECT_EQ(driver->streamSynchronize(on), Status::ok);
  EXPECT_EQ(static_cast<std::uint32_t*>(pinned)[(1 << 18) - 1], 42u);
  EXPECT_EQ(driver->memFree(address(pinned)), Status::invalidValue);
  EXPECT_EQ(driver->pinnedFree(pinned), Status::ok);
}

TEST(HostMemory, PagesCarryTheirContentToAnotherAddress) {
  const auto driver = host(limited(8 * kPage));
  ASSERT_EQ(driver->info().pageBytes, kPage);
  DeviceAddress range = 0;
  ASSERT_EQ(driver->addressReserve(&range, 64 * kPage), Status::ok);  // addresses are not memory
  EXPECT_EQ(range % kPage, 0u);
  Pages pages = nullptr;
  ASSERT_EQ(driver->pagesCreate(&pages, 3 * kPage), Status::ok);
  ASSERT_EQ(driver->pagesMap(range + kPage, 3 * kPage, pages), Status::ok);
  for (std::size_t i = 0; i < 3; ++i)
    words(range + kPage + i * kPage)[7] = static_cast<std::uint32_t>(100 + i);
  ASSERT_EQ(driver->pagesMap(range + 10 * kPage, 3 * kPage, pages), Status::ok);  // at both addresses at once
  words(range + kPage)[8] = 5;
  EXPECT_EQ(words(range + 10 * kPage)[8], 5u);
  ASSERT_EQ(driver->pagesUnmap(range + kPage, 3 * kPage), Status::ok);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(words(range + 10 * kPage + i * kPage)[7], 100 + i);
  ASSERT_EQ(driver->pagesUnmap(range + 10 * kPage, 3 * kPage), Status::ok);
  ASSERT_EQ(driver->pagesMap(range, 3 * kPage, pages), Status::ok);  // and after a time at none
  EXPECT_EQ(words(range + 2 * kPage)[7], 102u);
  EXPECT_EQ(driver->pagesUnmap(range, 3 * kPage), Status::ok);
  EXPECT_EQ(driver->pagesRelease(pages), Status::ok);
  EXPECT_EQ(driver->addressRelease(range, 64 * kPage), Status::ok);
}

TEST(HostMemory, PagesCountFromTheirMakingToTheirLastMapping) {
  const auto driver = host(limited(4 * kPage));
  DeviceAddress range = 0;
  driver->addressReserve(&range, 4 * kPage);
  Pages first = nullptr, second = nullptr;
  ASSERT_EQ(driver->pagesCreate(&first, 3 * kPage), Status::ok);
  EXPECT_EQ(driver->pagesCreate(&second, 2 * kPage), Status::outOfMemory);
  DeviceAddress block = 0;
  EXPECT_EQ(driver->memAllocate(&block, 2 * kPage), Status::outOfMemory);  // one budget for both
  ASSERT_EQ(driver->pagesMap(range, 3 * kPage, first), Status::ok);
  ASSERT_EQ(driver->pagesRelease(first), Status::ok);
  words(range)[0] = 9;  // still mapped, so still memory
  EXPECT_EQ(driver->pagesCreate(&second, 2 * kPage), Status::outOfMemory);
  ASSERT_EQ(driver->pagesUnmap(range, 3 * kPage), Status::ok);
  ASSERT_EQ(driver->pagesCreate(&second, 4 * kPage), Status::ok);
  EXPECT_EQ(driver->pagesRelease(second), Status::ok);
  std::size_t free = 0;
  driver->memInfo(&free, nullptr);
  EXPECT_EQ(free, 4 * kPage);
}

TEST(HostMemory, RecycledPagesDoNotLeakTheirContent) {
  const auto driver = host(limited(2 * kPage));
  DeviceAddress range = 0;
  driver->addressReserve(&range, kPage);
  for (int round = 0; round < 3; ++round) {
    Pages pages = nullptr;
    ASSERT_EQ(driver->pagesCreate(&pages, kPage), Status::ok);
    ASSERT_EQ(driver->pagesMap(range, kPage, pages), Status::ok);
    EXPECT_EQ(words(range)[100], 0u);
    words(range)[100] = 77;
    driver->pagesUnmap(range, kPage);
    driver->pagesRelease(pages);
  }
}

TEST(HostMemory, VirtualMemoryIsStrictAboutRanges) {
  const auto driver = host(limited(16 * kPage));
  DeviceAddress range = 0, other = 0;
  Pages pages = nullptr, more = nullptr;
  EXPECT_EQ(driver->addressReserve(&range, 0), Status::invalidValue);
  EXPECT_EQ(driver->addressReserve(&range, kPage + 4096), Status::invalidValue);
  EXPECT_EQ(driver->pagesCreate(&pages, 4096), Status::invalidValue);
  ASSERT_EQ(driver->addressReserve(&range, 8 * kPage), Status::ok);
  ASSERT_EQ(driver->addressReserve(&other, 8 * kPage), Status::ok);
  ASSERT_EQ(driver->pagesCreate(&pages, 2 * kPage), Status::ok);
  ASSERT_EQ(driver->pagesCreate(&more, 2 * kPage), Status::ok);
  EXPECT_EQ(driver->pagesMap(range, 2 * kPage, nullptr), Status::invalidHandle);
  EXPECT_EQ(driver->pagesMap(range, kPage, pages), Status::invalidValue);             // not whole
  EXPECT_EQ(driver->pagesMap(range + 4096, 2 * kPage, pages), Status::invalidValue);  // not aligned
  EXPECT_EQ(driver->pagesMap(range + 7 * kPage, 2 * kPage, pages), Status::invalidValue);
  EXPECT_EQ(driver->pagesMap(0, 2 * kPage, pages), Status::invalidValue);
  EXPECT_EQ(driver->pagesMap(~std::uint64_t{0} - kPage + 1, 2 * kPage, pages), Status::invalidValue);
  ASSERT_EQ(driver->pagesMap(range + 2 * kPage, 2 * kPage, pages), Status::ok);
  for (const std::size_t at : {1, 2, 3})
    EXPECT_EQ(driver->pagesMap(range + at * kPage, 2 * kPage, more), Status::invalidValue) << at;
  ASSERT_EQ(driver->pagesMap(range + 4 * kPage, 2 * kPage, more), Status::ok);
  EXPECT_EQ(driver->pagesUnmap(range + 2 * kPage, kPage), Status::invalidValue);
  EXPECT_EQ(driver->pagesUnmap(range + 2 * kPage, 3 * kPage), Status::invalidValue);
  EXPECT_EQ(driver->pagesUnmap(range, 2 * kPage), Status::invalidValue);
  EXPECT_EQ(driver->pagesUnmap(range, 0), Status::invalidValue);
  EXPECT_EQ(driver->addressRelease(range, 8 * kPage), Status::invalidValue);
  EXPECT_EQ(driver->addressRelease(range + kPage, 7 * kPage), Status::invalidValue);
  EXPECT_EQ(driver->pagesUnmap(range + 2 * kPage, 4 * kPage), Status::ok);  // both at once
  EXPECT_EQ(driver->pagesRelease(pages), Status::ok);
  EXPECT_EQ(driver->pagesRelease(pages), Status::invalidHandle);
  EXPECT_EQ(driver->addressRelease(range, 8 * kPage), Status::ok);
  EXPECT_EQ(driver->addressRelease(range, 8 * kPage), Status::invalidValue);
}

TEST(HostMemory, PoisonIsVisibleInEveryType) {
  const auto driver = host(limited(8 * kPage, true));
  const DeviceAddress memory = allocate(*driver, 4099);
  const auto halves = download<std::uint16_t>(memory, 2049);
  for (const std::uint16_t half : halves) EXPECT_EQ(half, host::kPoison);
  float single = 0;
  std::memcpy(&single, words(memory), 4);
  EXPECT_TRUE(std::isnan(single));
  EXPECT_EQ(halves[0] & 0x7f80, 0x7f80);  // bf16: all exponent bits, and a fraction
  EXPECT_EQ(halves[0] & 0x7c00, 0x7c00);  // f16
  EXPECT_NE(halves[0] & 0x7f, 0);
  void* pinned = nullptr;
  ASSERT_EQ(driver->pinnedAllocate(&pinned, 8), Status::ok);
  EXPECT_EQ(static_cast<std::uint16_t*>(pinned)[3], host::kPoison);

  DeviceAddress range = 0;
  Pages pages = nullptr;
  driver->addressReserve(&range, 2 * kPage);
  driver->pagesCreate(&pages, kPage);
  driver->pagesMap(range, kPage, pages);
  EXPECT_EQ(words(range)[12345], 0xffbbffbbu);
  words(range)[12345] = 1;
  driver->pagesUnmap(range, kPage);
  driver->pagesMap(range + kPage, kPage, pages);  // the same memory again: its content, not poison
  EXPECT_EQ(words(range + kPage)[12345], 1u);
}

TEST(HostMemory, ManyThreadsTakeAndGiveBack) {
  const auto driver = host(limited(64 * kMiB));
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      Random random{static_cast<std::uint64_t>(t)};
      for (int i = 0; i < 100; ++i) {
        DeviceAddress block = 0;
        ASSERT_EQ(driver->memAllocate(&block, 1 + random.below(kMiB)), Status::ok);
        words(block)[0] = 1;
        ASSERT_EQ(driver->memFree(block), Status::ok);
      }
    });
  for (std::thread& thread : threads) thread.join();
  std::size_t free = 0;
  driver->memInfo(&free, nullptr);
  EXPECT_EQ(free, 64 * kMiB);
}

// Before the copy, during it, or after it: the process goes on in each case.
TEST(HostMemory, MemoryFreedUnderACopyFailsTheDeviceAtMost) {
  constexpr std::size_t kBytes = 4 << 20;
  std::vector<char> source(kBytes, 1);
  for (int round = 0; round < 60; ++round) {
    const auto driver = host();
    const Stream on = stream(*driver);
    const DeviceAddress memory = allocate(*driver, kBytes);
    driver->copy(CopyKind::hostToDevice, memory, address(source.data()), kBytes, on);
    std::this_thread::sleep_for(std::chrono::microseconds(round * 10));
    driver->memFree(memory);
    const Status status = driver->streamSynchronize(on);
    EXPECT_TRUE(status == Status::ok || status == Status::illegalAddress);
  }
}

}  // namespace
}  // namespace braid::test
