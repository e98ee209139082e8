// The weight-streaming loop, written by hand on the allocator alone: layer after layer is uploaded on one
// lane into a block of its own and read by a kernel on another, k uploads ahead, while the thread that issues
// is far ahead of the device. Each reader checks every word of its layer, so a block taken too early shows as
// wrong data.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <thread>

#include "tools/bench/bench.h"

namespace braid::bench {
namespace {

constexpr std::uint32_t sources = 5;  // no two layers whose blocks may meet have the same words

const char* const readerSource = R"(
extern "C" __global__ void reader(const uint4* words, unsigned* wrong, int count, int expected, int passes) {
  unsigned bad = 0;
  for (int pass = 0; pass < passes; ++pass)
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
      const uint4 w = __ldcg(words + i);
      bad += (w.x != expected) + (w.y != expected) + (w.z != expected) + (w.w != expected);
    }
  if (bad) atomicAdd(wrong, bad);
})";

struct Loop {
  const Run& run;
  std::uint64_t bytes;
  std::vector<void*> pinned;
  std::vector<std::unique_ptr<Kernel>> readers;  // by source
  DeviceAddress wrong = 0;

  Loop(const Run& run, std::uint64_t bytes) : run(run), bytes(bytes) {
    Driver& driver = run.driver;
    must(driver, driver.memAllocate(&wrong, 512), "memAllocate");
    for (std::uint32_t source = 0; source < sources; ++source) {
      pinned.push_back(nullptr);
      must(driver, driver.pinnedAllocate(&pinned.back(), bytes), "pinnedAllocate");
      std::fill_n(static_cast<std::uint32_t*>(pinned.back()), bytes / 4, source + 1);
      KernelSpec spec;
      spec.kind = KernelSpec::Kind::cuda;
      spec.name = "reader";
      spec.source = readerSource;
      spec.grid = {528, 1, 1};
      spec.block = {256, 1, 1};
      // About as long as an upload takes.
      spec.scalars = {{false, static_cast<std::int32_t>(bytes / 16), 0},
                      {false, static_cast<std::int32_t>(source + 1), 0},
                      {false, 48, 0}};
      spec.readCount = spec.writeCount = 1;
      readers.emplace_back();
      must(driver,
           driver.prepare(&readers.back(), spec,
                          [bytes, source](const DeviceAddress* reads, std::size_t,
                                          const DeviceAddress* writes, std::size_t) {
                            const auto* words = reinterpret_cast<const std::uint32_t*>(reads[0]);
                            std::this_thread::sleep_for(std::chrono::microseconds(700));
                            for (std::uint64_t i = 0; i < bytes / 4; i += 16)
                              *reinterpret_cast<std::uint32_t*>(writes[0]) += words[i] != source + 1;
                            return true;
                          }),
           "prepare");
    }
  }
  ~Loop() {
    for (void* each : pinned) run.driver.pinnedFree(each);
    run.driver.memFree(wrong);
  }

  void measure(const caching::Policy& policy, std::uint32_t layers, std::uint32_t ahead) {
    Driver& driver = run.driver;
    caching::Options options;
    options.policy = &policy;
    Bed bed(run, options);
    Lane &upload = bed.lane(), &compute = bed.lane();
    must(driver, driver.fill32(wrong, 0, 1, compute.stream), "fill32");
    compute.queued();
    bed.synchronize();

    struct Uploaded {
      caching::Block* block;
      Mark* ready;
      std::uint32_t source;
    };
    std::deque<Uploaded> window;
    std::uint64_t reserved = 0;
    const auto read = [&] {
      const Uploaded next = window.front();
      window.pop_front();
      {
        std::lock_guard guard(compute.mutex);
        must(driver, bed.lanes.wait(compute, *next.ready, nullptr), "wait");
      }
      next.ready->release();
      must(driver, driver.launch(*readers[next.source], &next.block->address, &wrong, compute.stream),
           "launch");
      compute.queued();
      bed.use(next.block, compute);
      bed.free(next.block);
    };
    const auto pass = [&] {
      for (std::uint32_t layer = 0; layer < layers; ++layer) {
        Uploaded next{bed.malloc(bytes, upload), nullptr, layer % sources};
        reserved = std::max(reserved, bed.allocator->reserved());
        must(driver,
             driver.copy(CopyKind::hostToDevice, next.block->address,
                         reinterpret_cast<DeviceAddress>(pinned[next.source]), bytes, upload.stream),
             "copy");
        upload.queued();
        must(driver, bed.lanes.mark(upload, &next.ready), "mark");
        window.push_back(next);
        if (window.size() > ahead) read();
      }
      while (!window.empty()) read();
    };
    constexpr int passes = 3;
    std::vector<double> msEach, issueEach;
    for (int i = 0; i < passes; ++i) {
      const auto began = Clock::now();
      pass();
      issueEach.push_back(nanoseconds(Clock::now() - began) / 1e3 / layers);
      bed.synchronize();
      msEach.push_back(nanoseconds(Clock::now() - began) / 1e6 / layers);
    }
    std::uint32_t bad = 0;
    must(driver,
         driver.copy(CopyKind::deviceToHost, reinterpret_cast<DeviceAddress>(&bad), wrong, sizeof bad,
                     compute.stream),
         "copy");
    must(driver, driver.streamSynchronize(compute.stream), "streamSynchronize");
    if (bad != 0) {
      std::fprintf(stderr, "streaming, %s: %u wrong words: a block was taken while it was read\n",
                   policy.name.data(), bad);
      std::exit(1);
    }
    const Spread time = spread(msEach);
    Line("streaming", std::string(policy.name) + ", ahead " + std::to_string(ahead) + ", " +
                          std::to_string(layers) + " layers")
        .add("policy", std::string(policy.name))
        .add("layers", layers)
        .add("ahead", ahead)
        .add("blockMiB", static_cast<double>(bytes) / 1048576)
        .add("reservedMiB", static_cast<double>(reserved) / 1048576)
        .add("blocks", static_cast<double>(reserved) / static_cast<double>(bytes))
        .add("issueUsALayer", spread(issueEach).median)
        .add(time, "ms a layer");
  }
};

}  // namespace

void streaming(const Run& run) {
  Loop loop(run, std::uint64_t{run.cuda() ? 128u : 2u} << 20);
  for (const caching::Policy* policy : caching::policies)
    for (const std::uint32_t ahead : {1u, 2u, 3u}) {
      if (ahead != 2 && policy != &caching::orderThenWait) continue;
      for (const std::uint32_t layers : {8u, 16u, 32u, 64u, 128u}) loop.measure(*policy, layers, ahead);
    }
}

}  // namespace braid::bench
