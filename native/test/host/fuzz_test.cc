#include "test/host/support.h"

// Whatever the arguments, in whatever order: an answer, no crash, no hang, and nothing that a sanitizer
// minds.

namespace braid::test {
namespace {

template <class T>
T pick(Random& random, const std::vector<T>& values) {
  return values[random.below(values.size())];
}

TEST(HostFuzz, AnyCallsInAnyOrder) {
  constexpr std::size_t kPage = std::size_t{2} << 20;
  std::vector<char> outside(
      1 << 16);  // host memory that the device has not given: fine for copies, illegal for kernels
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random{seed};
    HostOptions options;
    options.memoryBytes = 16 * kPage;
    options.poison = seed % 2 == 0;
    options.jitterSeed = seed % 3;
    options.jitterMicroseconds = 20;
    if (seed % 4 == 0) options.copyBytesPerSecond = 1e9, options.deviceBytesPerSecond = 1e9;
    if (seed % 5 == 0)
      options.faults = {{"run", 5 + random.below(200), Status::illegalAddress},
                        {"launch", 3, Status::unknown}};
    const auto driver = host(options);
    const auto other = host();
    // Everything ever made stays in the pools, so most handles are of things destroyed.
    std::vector<Stream> streams = {nullptr, stream(*other), reinterpret_cast<Stream>(std::uintptr_t{12345})};
    std::vector<Event> events = {nullptr, event(*other), reinterpret_cast<Event>(~std::uintptr_t{0})};
    std::vector<Pages> pages = {nullptr, reinterpret_cast<Pages>(streams[1])};
    std::vector<DeviceAddress> addresses = {
        0, 1, 4096, ~DeviceAddress{0}, ~DeviceAddress{0} - kPage + 1, address(outside.data())};
    std::vector<std::unique_ptr<Kernel>> kernels;
    const std::vector<std::size_t> sizes = {0,
                                            1,
                                            3,
                                            4,
                                            512,
                                            4096,
                                            kPage,
                                            3 * kPage,
                                            15 * kPage,
                                            SIZE_MAX,
                                            SIZE_MAX - kPage + 1,
                                            SIZE_MAX / 2 + 1};
    const auto near = [&] {
      return pick(random, addresses) + random.below(3) * 4 * random.below(600) +
             (random.below(9) == 0 ? 1 : 0);
    };
    // The caller orders what touches the same memory: its half of the contract. Each piece of work waits for
    // the one before.
    const Event chain = event(*driver);
    const auto inOrder = [&](Stream on, auto work) {
      driver->streamWait(on, chain);
      const Status status = work();
      driver->eventRecord(chain, on);
      return status;
    };
    int failures = 0, successes = 0;
    for (int i = 0; i < 1500; ++i) {
      Status status = Status::ok;
      const Stream s = pick(random, streams);
      const Event e = pick(random, events);
      switch (random.below(26)) {
        case 0:
        case 1: {
          Stream made = nullptr;
          status = driver->streamCreate(&made, static_cast<int>(random.next()));
          if (made && streams.size() < 12)
            streams.push_back(made);
          else if (made)
            driver->streamDestroy(made);
          break;
        }
        case 2:
        case 3: {
          Event made = nullptr;
          status = driver->eventCreate(&made, static_cast<EventKind>(random.below(3)));
          if (made) events.push_back(made);
          break;
        }
        case 4: status = random.below(4) == 0 ? driver->streamDestroy(s) : Status::ok; break;
        case 5: status = driver->eventDestroy(e); break;
        case 6:
        case 7:
        case 8: status = driver->eventRecord(e, s); break;
        case 9:
        case 10:
        case 11: status = driver->streamWait(s, e); break;
        case 12: status = driver->eventQuery(e); break;
        case 13: status = random.below(10) == 0 ? driver->eventSynchronize(e) : driver->streamQuery(s); break;
        case 14: {
          float time = 0;
          status = driver->eventElapsed(&time, e, pick(random, events));
          break;
        }
        case 15:
        case 16: {
          DeviceAddress made = 0;
          status = driver->memAllocate(&made, pick(random, sizes));
          if (made) addresses.push_back(made);
          break;
        }
        case 17: {
          // The caller makes sure that nothing uses the memory: its half of the contract.
          for (const Stream each : streams) driver->streamSynchronize(each);
          status = driver->memFree(pick(random, addresses));
          break;
        }
        case 18: {
          DeviceAddress made = 0;
          status = driver->addressReserve(&made, pick(random, sizes));
          if (made) addresses.push_back(made);
          break;
        }
        case 19: {
          Pages made = nullptr;
          status = driver->pagesCreate(&made, pick(random, sizes));
          if (made) pages.push_back(made);
          break;
        }
        case 20:
          status = driver->pagesMap(pick(random, addresses), pick(random, sizes), pick(random, pages));
          break;
        case 21: {
          for (const Stream each : streams) driver->streamSynchronize(each);
          status = random.below(2) ? driver->pagesUnmap(pick(random, addresses), pick(random, sizes))
                                   : driver->pagesRelease(pick(random, pages));
          if (random.below(3) == 0) driver->addressRelease(pick(random, addresses), pick(random, sizes));
          break;
        }
        case 22:
          status = inOrder(s, [&] {
            return random.below(4) ? driver->fill32(addresses.back(), 7, random.below(64), s)
                                   : driver->fill32(near(), 7, pick(random, sizes), s);
          });
          break;
        case 23: {
          const std::size_t bytes = random.below(4) ? random.below(64) : pick(random, sizes);
          const CopyKind kind = random.below(3) ? CopyKind::deviceToDevice : static_cast<CopyKind>(99);
          const DeviceAddress to = near(), from = random.below(8) ? addresses.back() : near();
          status = inOrder(s, [&] { return driver->copy(kind, to, from, bytes, s); });
          break;
        }
        case 24: {
          KernelSpec spec;
          spec.kind = static_cast<KernelSpec::Kind>(random.below(6));
          spec.bytes = random.below(2000);
          spec.shape = {static_cast<std::int64_t>(random.below(40)), 3};
          spec.operands = {{static_cast<DType>(random.below(5)),
                            static_cast<std::int64_t>(random.below(4)),
                            {3, static_cast<std::int64_t>(random.below(3))}}};
          spec.code = {{MapOp::operand, 0}, {static_cast<MapOp>(random.below(30)), 0, 0, 0, 1}};
          spec.results = {{static_cast<std::int32_t>(random.below(3)), static_cast<DType>(random.below(6))}};
          spec.m = spec.n = spec.k = static_cast<std::int64_t>(random.below(20));
          spec.outer = spec.length = spec.inner = static_cast<std::int64_t>(random.below(9));
          spec.readCount = random.below(5) ? 0 : random.below(4);
          std::unique_ptr<Kernel> kernel;
          status = driver->prepare(
              &kernel, spec, random.below(2) ? HostCallback{} : HostCallback{[](auto&&...) { return true; }});
          if (kernel) kernels.push_back(std::move(kernel));
          break;
        }
        default: {
          if (kernels.empty()) break;
          const DeviceAddress reads[4] = {addresses.back(), near(), near(), near()},
                              writes[4] = {addresses.back(), near(), near(), near()};
          const Kernel& kernel = *kernels[random.below(kernels.size())];
          const DeviceAddress* from = random.below(9) ? reads : nullptr;
          status = inOrder(s, [&] { return driver->launch(kernel, from, writes, s); });
          if (random.below(4) == 0) kernels.erase(kernels.begin());
        }
      }
      ++(status == Status::ok || status == Status::notReady ? successes : failures);
    }
    EXPECT_GT(failures, 0);
    EXPECT_GT(successes, 0);
  }
}

}  // namespace
}  // namespace braid::test
