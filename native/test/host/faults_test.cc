#include <chrono>
#include <thread>

#include "test/host/support.h"

// Failures that a fault asks for, and those of wild addresses. Nothing hangs or crashes, and a failed device
// reports its failure.

namespace braid::test {
namespace {

HostOptions failing(const std::string& call, std::uint64_t nth, Status status) {
  HostOptions options;
  options.faults.push_back({call, nth, status});
  return options;
}

TEST(HostFaults, TheNthUseOfACallFailsAndDoesNothing) {
  const auto driver = host(failing("memAllocate", 2, Status::outOfMemory));
  DeviceAddress first = 0, second = 77, third = 0;
  EXPECT_EQ(driver->memAllocate(&first, 512), Status::ok);
  EXPECT_EQ(driver->memAllocate(&second, 512), Status::outOfMemory);
  EXPECT_EQ(second, 77u);
  EXPECT_EQ(driver->lastDetail(), "memAllocate was made to fail");
  EXPECT_EQ(driver->memAllocate(&third, 512), Status::ok);
}

TEST(HostFaults, EveryCallCanFail) {
  using Use = std::function<Status(Driver&)>;
  Stream s = nullptr;
  Event e = nullptr;
  Pages p = nullptr;
  void* pinned = nullptr;
  float elapsed = 0;
  DeviceAddress a = 0;
  std::size_t n = 0;
  std::unique_ptr<Kernel> kernel;
  KernelSpec spec;
  spec.bytes = 4;
  const std::vector<std::pair<std::string, Use>> calls = {
      {"bind", [&](Driver& d) { return d.bind(); }},
      {"memAllocate", [&](Driver& d) { return d.memAllocate(&a, 4); }},
      {"memFree", [&](Driver& d) { return d.memFree(a); }},
      {"memInfo", [&](Driver& d) { return d.memInfo(&n, &n); }},
      {"pinnedAllocate", [&](Driver& d) { return d.pinnedAllocate(&pinned, 4); }},
      {"pinnedFree", [&](Driver& d) { return d.pinnedFree(pinned); }},
      {"addressReserve", [&](Driver& d) { return d.addressReserve(&a, 2 << 20); }},
      {"addressRelease", [&](Driver& d) { return d.addressRelease(a, 2 << 20); }},
      {"pagesCreate", [&](Driver& d) { return d.pagesCreate(&p, 2 << 20); }},
      {"pagesRelease", [&](Driver& d) { return d.pagesRelease(p); }},
      {"pagesMap", [&](Driver& d) { return d.pagesMap(a, 2 << 20, p); }},
      {"pagesUnmap", [&](Driver& d) { return d.pagesUnmap(a, 2 << 20); }},
      {"streamCreate", [&](Driver& d) { return d.streamCreate(&s, 0); }},
      {"streamDestroy", [&](Driver& d) { return d.streamDestroy(s); }},
      {"streamSynchronize", [&](Driver& d) { return d.streamSynchronize(s); }},
      {"streamQuery", [&](Driver& d) { return d.streamQuery(s); }},
      {"streamWait", [&](Driver& d) { return d.streamWait(s, e); }},
      {"eventCreate", [&](Driver& d) { return d.eventCreate(&e, EventKind::order); }},
      {"eventDestroy", [&](Driver& d) { return d.eventDestroy(e); }},
      {"eventRecord", [&](Driver& d) { return d.eventRecord(e, s); }},
      {"eventQuery", [&](Driver& d) { return d.eventQuery(e); }},
      {"eventSynchronize", [&](Driver& d) { return d.eventSynchronize(e); }},
      {"eventElapsed", [&](Driver& d) { return d.eventElapsed(&elapsed, e, e); }},
      {"copy", [&](Driver& d) { return d.copy(CopyKind::hostToDevice, a, a, 4, s); }},
      {"fill32", [&](Driver& d) { return d.fill32(a, 0, 1, s); }},
      {"fill", [&](Driver& d) { return d.fill(NodeParams::fill(a, 0, 1, 1), s); }},
      {"prepare", [&](Driver& d) { return d.prepare(&kernel, spec, {}); }},
      {"hostFunction",
       [&](Driver& d) {
         return d.hostFunction(
             s, [](void*) {}, nullptr);
       }},
  };
  for (const auto& [name, use] : calls) {
    std::unique_ptr<Driver> driver;
    ASSERT_EQ(openHost(&driver, failing(name, 1, Status::systemNotReady), nullptr), Status::ok) << name;
    EXPECT_EQ(use(*driver), Status::systemNotReady) << name;
    EXPECT_NE(use(*driver), Status::systemNotReady) << name;  // only the first
  }
}

TEST(HostFaults, AFaultThatNamesNothingIsRefused) {
  std::unique_ptr<Driver> driver;
  std::string detail;
  EXPECT_EQ(openHost(&driver, failing("memAlloc", 1, Status::unknown), &detail), Status::invalidValue);
  EXPECT_NE(detail.find("memAlloc"), std::string::npos);
  EXPECT_EQ(openHost(&driver, failing("copy", 0, Status::unknown), &detail), Status::invalidValue);
  HostOptions options;
  options.copyBytesPerSecond = -1;
  EXPECT_EQ(openHost(&driver, options, &detail), Status::invalidValue);
  options = {};
  options.memoryBytes = 0;
  EXPECT_EQ(openHost(&driver, options, &detail), Status::invalidValue);
}

TEST(HostFaults, ADelayedPieceOfWorkTakesSoMuchLongerAndSucceeds) {
  HostOptions options;
  options.faults.push_back({"run", 2, Status::unknown, 30'000});
  const auto driver = host(options);
  const Stream on = stream(*driver), beside = stream(*driver);
  const DeviceAddress memory = allocate(*driver, 64);
  const auto seconds = [&](Stream of) {
    const auto start = std::chrono::steady_clock::now();
    EXPECT_EQ(driver->fill32(memory + (of == on ? 0 : 32), 7, 1, of), Status::ok);
    EXPECT_EQ(driver->streamSynchronize(of), Status::ok);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  seconds(beside);
  EXPECT_GE(seconds(on), 0.030);
  EXPECT_EQ(download<std::uint32_t>(memory, 1)[0], 7u);
  EXPECT_EQ(driver->bind(), Status::ok);
}

TEST(HostFaults, OnlyWorkCanBeDelayed) {
  std::unique_ptr<Driver> driver;
  std::string detail;
  HostOptions options;
  options.faults.push_back({"copy", 1, Status::unknown, 5});
  EXPECT_EQ(openHost(&driver, options, &detail), Status::invalidValue);
  EXPECT_EQ(detail, "faults: copy cannot be delayed; only run can");
  options.faults = {{"run", 1, Status::unknown, -1}};
  EXPECT_EQ(openHost(&driver, options, &detail), Status::invalidValue);
  EXPECT_NE(detail.find("delayMicroseconds"), std::string::npos);
}

TEST(HostFaults, AFailedPieceOfWorkIsTheDevicesFailureFromThenOn) {
  for (const std::uint64_t nth : {1, 2, 5, 12}) {
    SCOPED_TRACE(nth);
    const auto driver = host(failing("run", nth, Status::launchFailed));
    const Stream first = stream(*driver), second = stream(*driver);
    const Event mark = event(*driver);
    const DeviceAddress memory = allocate(*driver, 4096);
    std::memset(reinterpret_cast<void*>(memory), 0, 4096);
    Status status = Status::ok;
    for (std::uint32_t i = 0; i < 6 && status == Status::ok; ++i) {
      // Calls may already find the device failed: no thread is as fast as another.
      driver->fill32(memory + 256 * i, 1, 1, first);
      driver->eventRecord(mark, first);
      driver->streamWait(second, mark);
      driver->fill32(memory + 256 * i + 4, 1, 1, second);
      driver->eventRecord(mark, second);
      status = driver->streamWait(first, mark);
    }
    EXPECT_EQ(driver->streamSynchronize(first), Status::launchFailed);
    EXPECT_EQ(driver->streamSynchronize(second), Status::launchFailed);
    EXPECT_EQ(driver->eventQuery(mark), Status::launchFailed);
    EXPECT_EQ(driver->eventSynchronize(mark), Status::launchFailed);
    EXPECT_NE(driver->lastDetail(), "");
    DeviceAddress more = 0;
    EXPECT_EQ(driver->memAllocate(&more, 4), Status::launchFailed);
    EXPECT_EQ(driver->fill32(memory, 1, 1, first), Status::launchFailed);
    EXPECT_EQ(driver->bind(), Status::ok);
    // Exactly what came before the failed piece was done.
    for (std::uint64_t i = 0; i < 12; ++i)
      EXPECT_EQ(*reinterpret_cast<std::uint32_t*>(memory + 256 * (i / 2) + 4 * (i % 2)),
                i + 1 < nth ? 1u : 0u)
          << i;
    EXPECT_EQ(driver->memFree(memory), Status::launchFailed);  // and yet given back
    EXPECT_EQ(driver->memFree(memory), Status::invalidValue);
    EXPECT_EQ(driver->eventDestroy(mark), Status::launchFailed);
    EXPECT_EQ(driver->streamDestroy(first), Status::launchFailed);
    const auto another = host();  // the process can open another
    EXPECT_EQ(another->fill32(allocate(*another, 4), 1, 1, stream(*another)), Status::ok);
  }
}

TEST(HostFaults, AWildAddressIsAnIllegalAddress) {
  const std::vector<std::function<Status(Driver&, DeviceAddress, Stream)>> uses = {
      [](Driver& d, DeviceAddress a, Stream s) { return d.fill32(a, 1, 1025, s); },  // beyond the end
      [](Driver& d, DeviceAddress a, Stream s) {
        return d.copy(CopyKind::deviceToDevice, a, a + 4000, 100, s);
      },                                                                             // beyond the end
      [](Driver& d, DeviceAddress, Stream s) { return d.fill32(0x5000, 1, 1, s); },  // nowhere
      [](Driver& d, DeviceAddress a, Stream s) { return d.memFree(a), d.fill32(a, 1, 1, s); },  // freed
  };
  for (const auto& use : uses) {
    const auto driver = host();
    const Stream on = stream(*driver);
    const DeviceAddress memory = allocate(*driver, 4096);
    EXPECT_EQ(use(*driver, memory, on), Status::ok);  // found out only when it runs
    EXPECT_EQ(driver->streamSynchronize(on), Status::illegalAddress);
    EXPECT_NE(driver->lastDetail().find("not memory of this device"), std::string::npos);
  }
}

TEST(HostFaults, AMisalignedAddressIsFoundOut) {
  const auto driver = host();
  const DeviceAddress memory = allocate(*driver, 4096);
  KernelSpec spec;
  spec.kind = KernelSpec::Kind::reduce;
  spec.outer = spec.length = spec.inner = 2;
  EXPECT_EQ(launch(*driver, spec, {memory + 2}, {memory + 1024}), Status::misalignedAddress);
}

TEST(HostFaults, AThrowingReferenceFailsTheDeviceAndDrains) {
  const auto driver = host();
  const Stream on = stream(*driver);
  const DeviceAddress memory = allocate(*driver, 64);
  KernelSpec spec;
  spec.kind = KernelSpec::Kind::cuda;
  spec.name = "user";
  spec.readCount = spec.writeCount = 1;
  std::unique_ptr<Kernel> kernel;
  EXPECT_EQ(driver->prepare(&kernel, spec, {}), Status::notSupported);
  EXPECT_NE(driver->lastDetail().find("user"), std::string::npos);
  ASSERT_EQ(driver->prepare(
                &kernel, spec,
                [](const DeviceAddress*, std::size_t, const DeviceAddress*, std::size_t) { return false; }),
            Status::ok);
  ASSERT_EQ(driver->launch(*kernel, &memory, &memory, on), Status::ok);
  kernel.reset();  // before it has run
  EXPECT_EQ(driver->streamSynchronize(on), Status::launchFailed);
}

TEST(HostFaults, BadArgumentsAreRefusedAtOnce) {
  const auto driver = host();
  const Stream on = stream(*driver);
  const DeviceAddress memory = allocate(*driver, 64);
  EXPECT_EQ(driver->copy(CopyKind::deviceToDevice, 0, memory, 4, on), Status::invalidValue);
  EXPECT_EQ(driver->copy(CopyKind::deviceToDevice, memory, 0, 4, on), Status::invalidValue);
  EXPECT_EQ(driver->copy(CopyKind::deviceToDevice, memory, memory, SIZE_MAX, on), Status::invalidValue);
  EXPECT_EQ(driver->copy(static_cast<CopyKind>(9), memory, memory, 4, on), Status::invalidValue);
  EXPECT_EQ(driver->copy(CopyKind::deviceToDevice, 0, 0, 0, on), Status::ok);  // nothing to copy
  EXPECT_EQ(driver->fill32(memory + 1, 0, 1, on), Status::invalidValue);
  EXPECT_EQ(driver->fill32(memory, 0, SIZE_MAX / 2, on), Status::invalidValue);
  EXPECT_EQ(driver->hostFunction(on, nullptr, nullptr), Status::invalidValue);
  EXPECT_EQ(driver->streamCreate(nullptr, 0), Status::invalidValue);
  EXPECT_EQ(driver->eventCreate(nullptr, EventKind::order), Status::invalidValue);
  EXPECT_EQ(driver->streamSynchronize(on), Status::ok);
}

}  // namespace
}  // namespace braid::test
