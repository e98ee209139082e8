// PyTorch's caching allocator, from C++, in the same loops as native/tools/bench: the peer of
// spec/bench/allocator.ts. Also cudaMallocAsync, CUDA's own. One JSON object a line. Built by
// allocator_peer.py.
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <string>
#include <thread>
#include <vector>

// Exported, but declared in no header: PyTorch's larger libraries set it when they are loaded.
namespace c10::cuda::_internal {
void setHasPrimaryContext(bool (*known)(c10::DeviceIndex));
}

namespace {

namespace torch_allocator = c10::cuda::CUDACachingAllocator;
using Clock = std::chrono::steady_clock;

int repeats = 21;

void must(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(status));
  std::exit(1);
}

double nanoseconds(Clock::duration duration) {
  return std::chrono::duration<double, std::nano>(duration).count();
}

struct Spread {
  double median, least, most;
};
Spread spread(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return {values.size() % 2 ? values[middle] : (values[middle - 1] + values[middle]) / 2, values.front(),
          values.back()};
}

template <class Loop>
Spread perTurn(Loop loop) {
  const auto timed = [&](std::uint64_t turns) {
    const auto began = Clock::now();
    loop(turns);
    return nanoseconds(Clock::now() - began);
  };
  std::uint64_t turns = 256;
  double took = timed(turns);
  while (took < 1e7) took = timed(turns *= 2);
  turns = std::max<std::uint64_t>(1, static_cast<std::uint64_t>(static_cast<double>(turns) * 2e7 / took));
  std::vector<double> each;
  for (int repeat = 0; repeat < repeats; ++repeat) each.push_back(timed(turns) / static_cast<double>(turns));
  return spread(std::move(each));
}

void print(const char* bench, const std::string& what, const Spread& time, const char* unit,
           const std::string& more = "") {
  std::printf(
      "{\"bench\":\"%s\",\"case\":\"%s\",\"unit\":\"%s\",\"median\":%.6g,\"least\":%.6g,\"most\":%.6g%s}\n",
      bench, what.c_str(), unit, time.median, time.least, time.most, more.c_str());
  std::fflush(stdout);
}

template <class Body>
void each(const char* bench, const std::string& what, Body body) {
  print(bench, what, perTurn([&](std::uint64_t turns) {
          for (; turns > 0; --turns) body();
        }),
        "ns");
  must(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}

// As in native/tools/bench.
struct Random {
  std::uint64_t state;
  std::uint64_t next() {
    std::uint64_t z = (state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  double unit() { return static_cast<double>(next() >> 11) * 0x1p-53; }
};

constexpr std::uint32_t live = 256;

void mixed(const char* name, const std::vector<std::size_t>& drawn, const std::vector<std::uint32_t>& places,
           cudaStream_t stream) {
  void* held[live] = {};
  std::size_t at = 0;
  const auto turn = [&] {
    void*& place = held[places[at]];
    if (place != nullptr) torch_allocator::raw_delete(place);
    place = torch_allocator::raw_alloc_with_stream(drawn[at], stream);
    at = (at + 1) % drawn.size();
  };
  torch_allocator::emptyCache();
  torch_allocator::resetPeakStats(0);
  for (std::size_t i = 0; i < drawn.size(); ++i) turn();
  const Spread time = perTurn([&](std::uint64_t turns) {
    for (; turns > 0; --turns) turn();
  });
  const auto stats = torch_allocator::getDeviceStats(0);
  print("allocate-free", name, time, "ns",
        ",\"reservedOverPeak\":" + std::to_string(static_cast<double>(stats.reserved_bytes[0].peak) /
                                                  static_cast<double>(stats.allocated_bytes[0].peak)));
  for (void* pointer : held)
    if (pointer != nullptr) torch_allocator::raw_delete(pointer);
}

void allocateFree(cudaStream_t stream) {
  const std::pair<const char*, std::size_t> sizes[] = {
      {"4 KiB", std::size_t{4} << 10}, {"1 MiB", std::size_t{1} << 20}, {"64 MiB", std::size_t{64} << 20}};
  for (const auto& [name, bytes] : sizes)
    each("allocate-free", name, [&, bytes = bytes] {
      torch_allocator::raw_delete(torch_allocator::raw_alloc_with_stream(bytes, stream));
    });

  Random random{1};
  std::vector<std::size_t> any, powers;
  std::vector<std::uint32_t> places;
  for (std::size_t i = 0; i < std::size_t{1} << 16; ++i) {
    const double drawn = random.unit();
    any.push_back(static_cast<std::size_t>(512.0 * std::exp2(drawn * 15)));
    powers.push_back(std::bit_floor(static_cast<std::size_t>(512.0 * std::exp2(drawn * 16))));
    places.push_back(static_cast<std::uint32_t>(random.next() % live));
  }
  mixed("512 B to 16 MiB, 256 live", powers, places, stream);
  mixed("512 B to 16 MiB, 256 live, no size twice", any, places, stream);

  cudaMemPool_t pool = nullptr;
  std::uint64_t most = ~std::uint64_t{0};
  must(cudaDeviceGetDefaultMemPool(&pool, 0), "cudaDeviceGetDefaultMemPool");
  must(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &most), "cudaMemPoolSetAttribute");
  for (const auto& [name, bytes] : sizes)
    each("cudaMallocAsync", name, [&, bytes = bytes] {
      void* pointer = nullptr;
      cudaMallocAsync(&pointer, bytes, stream);
      cudaFreeAsync(pointer, stream);
    });
}

void crossLane(c10::cuda::CUDAStream home, c10::cuda::CUDAStream reader) {
  c10::cuda::setCurrentCUDAStream(home);
  cudaEvent_t event = nullptr;
  must(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags");
  must(cudaEventRecord(event, reader.stream()), "cudaEventRecord");
  must(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  each("driver-calls", "record", [&] { cudaEventRecord(event, reader.stream()); });
  each("driver-calls", "query", [&] { cudaEventQuery(event); });
  each("driver-calls", "wait", [&] { cudaStreamWaitEvent(home.stream(), event, 0); });
  auto* allocator = torch_allocator::get();
  const std::pair<const char*, std::size_t> sizes[] = {
      {"4 KiB", std::size_t{4} << 10}, {"1 MiB", std::size_t{1} << 20}, {"64 MiB", std::size_t{64} << 20}};
  for (const auto& [name, bytes] : sizes) {
    each("cross-lane", std::string("record_stream, ") + name, [&, bytes = bytes] {
      const c10::DataPtr block = allocator->allocate(bytes);
      torch_allocator::recordStream(block, reader);
    });
    each("cross-lane", std::string("event by hand, ") + name, [&, bytes = bytes] {
      const c10::DataPtr block = allocator->allocate(bytes);
      cudaEventRecord(event, reader.stream());
      cudaStreamWaitEvent(home.stream(), event, 0);
    });
  }
  must(cudaEventDestroy(event), "cudaEventDestroy");
}

void threads() {
  double alone = 0;
  for (const unsigned count : {1u, 2u, 4u, 8u}) {
    constexpr std::uint64_t turns = 1000;
    // The better of adjacent cores and every second core, as in native/tools/bench/threads.cc.
    Spread rate{};
    for (const unsigned apart : {1u, 2u}) {
      if (apart > 1 && (count == 1 || count * apart > std::thread::hardware_concurrency())) continue;
      std::vector<double> rates;
      for (int repeat = 0; repeat < std::min(repeats, 7); ++repeat) {
        struct alignas(128) Counted {
          std::atomic<std::uint64_t> turns{0};
        };
        std::vector<Counted> done(count);
        std::atomic<unsigned> ready{0};
        std::atomic<bool> stop{false};
        std::vector<std::thread> all;
        for (unsigned i = 0; i < count; ++i) {
          all.emplace_back([&, i] {
            c10::cuda::set_device(0);
            const cudaStream_t stream = c10::cuda::getStreamFromPool(false, 0).stream();
            const auto body = [&] {
              for (std::uint64_t turn = 0; turn < turns; ++turn)
                torch_allocator::raw_delete(torch_allocator::raw_alloc_with_stream(1 << 20, stream));
            };
            body();
            ready.fetch_add(1);
            while (!stop.load(std::memory_order_relaxed)) {
              body();
              done[i].turns.fetch_add(turns, std::memory_order_relaxed);
            }
          });
          cpu_set_t cores;
          CPU_ZERO(&cores);
          CPU_SET(i * apart, &cores);
          if (i * apart < std::thread::hardware_concurrency())
            pthread_setaffinity_np(all.back().native_handle(), sizeof cores, &cores);
        }
        const auto sum = [&] {
          std::uint64_t all = 0;
          for (const Counted& each : done) all += each.turns.load(std::memory_order_relaxed);
          return static_cast<double>(all);
        };
        while (ready.load() < count) std::this_thread::yield();
        const double before = sum();
        const auto began = Clock::now();
        std::this_thread::sleep_for(std::chrono::milliseconds(40));
        const double after = sum();
        rates.push_back((after - before) * 1e3 / nanoseconds(Clock::now() - began));
        stop.store(true);
        for (std::thread& thread : all) thread.join();
      }
      if (const Spread found = spread(rates); found.median > rate.median) rate = found;
    }
    if (count == 1) alone = rate.median;
    print("threads", "1 MiB, " + std::to_string(count) + (count == 1 ? " thread" : " threads"), rate,
          "million/s",
          ",\"threads\":" + std::to_string(count) + ",\"overOne\":" + std::to_string(rate.median / alone));
  }
}

__global__ void reader(const uint4* words, unsigned* wrong, int count, unsigned expected, int passes) {
  unsigned bad = 0;
  for (int pass = 0; pass < passes; ++pass)
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
      const uint4 w = __ldcg(words + i);
      bad += (w.x != expected) + (w.y != expected) + (w.z != expected) + (w.w != expected);
    }
  if (bad) atomicAdd(wrong, bad);
}

// The loop of native/tools/bench/streaming.cc with `record_stream`, and by hand: a block is dropped once the
// upload stream waits for its reader.
void streaming(c10::cuda::CUDAStream upload, c10::cuda::CUDAStream compute, std::size_t bytes) {
  constexpr unsigned sources = 5;
  std::vector<void*> pinned(sources);
  for (unsigned i = 0; i < sources; ++i) {
    must(cudaMallocHost(&pinned[i], bytes), "cudaMallocHost");
    std::fill_n(static_cast<unsigned*>(pinned[i]), bytes / 4, i + 1);
  }
  unsigned* wrong = nullptr;
  must(cudaMalloc(&wrong, 512), "cudaMalloc");
  must(cudaMemset(wrong, 0, 4), "cudaMemset");
  auto* allocator = torch_allocator::get();
  const auto event = [] {
    cudaEvent_t made = nullptr;
    must(cudaEventCreateWithFlags(&made, cudaEventDisableTiming), "cudaEventCreateWithFlags");
    return made;
  };
  std::vector<cudaEvent_t> ready(8), read(8);
  for (auto& each : ready) each = event();
  for (auto& each : read) each = event();
  constexpr unsigned ahead = 2;
  for (const bool byHand : {false, true}) {
    for (const unsigned layers : {8u, 16u, 32u, 64u, 128u}) {
      must(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
      torch_allocator::emptyCache();
      torch_allocator::resetPeakStats(0);
      const auto reservedBefore = torch_allocator::getDeviceStats(0).reserved_bytes[0].current;
      struct Uploaded {
        c10::DataPtr block;
        unsigned layer;
      };
      std::deque<Uploaded> window, stash;
      std::vector<double> times, issues;
      const auto consume = [&] {
        Uploaded next = std::move(window.front());
        window.pop_front();
        must(cudaStreamWaitEvent(compute.stream(), ready[next.layer % 8], 0), "cudaStreamWaitEvent");
        reader<<<528, 256, 0, compute.stream()>>>(static_cast<const uint4*>(next.block.get()), wrong,
                                                  static_cast<int>(bytes / 16), next.layer % sources + 1, 48);
        if (byHand) {
          must(cudaEventRecord(read[next.layer % 8], compute.stream()), "cudaEventRecord");
          stash.push_back(std::move(next));
        } else {
          torch_allocator::recordStream(next.block, compute);
        }
      };
      for (int pass = 0; pass < 3; ++pass) {
        const auto began = Clock::now();
        c10::cuda::setCurrentCUDAStream(upload);
        for (unsigned layer = 0; layer < layers; ++layer) {
          while (!stash.empty() && stash.size() + window.size() > ahead) {
            must(cudaStreamWaitEvent(upload.stream(), read[stash.front().layer % 8], 0),
                 "cudaStreamWaitEvent");
            stash.pop_front();
          }
          Uploaded next{allocator->allocate(bytes), layer};
          must(cudaMemcpyAsync(next.block.get(), pinned[layer % sources], bytes, cudaMemcpyHostToDevice,
                               upload.stream()),
               "cudaMemcpyAsync");
          must(cudaEventRecord(ready[layer % 8], upload.stream()), "cudaEventRecord");
          window.push_back(std::move(next));
          if (window.size() > ahead) consume();
        }
        while (!window.empty()) consume();
        issues.push_back(nanoseconds(Clock::now() - began) / 1e3 / layers);
        must(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
        times.push_back(nanoseconds(Clock::now() - began) / 1e6 / layers);
        stash.clear();
      }
      const auto stats = torch_allocator::getDeviceStats(0);
      const double mib = static_cast<double>(stats.reserved_bytes[0].peak - reservedBefore) / 1048576;
      const double block = static_cast<double>(bytes) / 1048576;
      const std::string policy = byHand ? "PyTorch, events by hand" : "PyTorch, record_stream";
      print("streaming", policy + ", ahead 2, " + std::to_string(layers) + " layers", spread(times),
            "ms a layer",
            ",\"policy\":\"" + policy + "\",\"layers\":" + std::to_string(layers) +
                ",\"ahead\":2,\"blockMiB\":" + std::to_string(block) +
                ",\"reservedMiB\":" + std::to_string(mib) + ",\"blocks\":" + std::to_string(mib / block) +
                ",\"issueUsALayer\":" + std::to_string(spread(issues).median));
    }
  }
  unsigned bad = 0;
  must(cudaMemcpy(&bad, wrong, sizeof bad, cudaMemcpyDeviceToHost), "cudaMemcpy");
  if (bad != 0) {
    std::fprintf(stderr, "streaming: %u wrong words\n", bad);
    std::exit(1);
  }
}

}  // namespace

int main(int count, char** words) {
  std::vector<std::string> chosen;
  for (int i = 1; i < count; ++i) {
    if (std::strcmp(words[i], "--repeats") == 0 && i + 1 < count)
      repeats = std::atoi(words[++i]);
    else
      chosen.emplace_back(words[i]);
  }
  const auto wanted = [&](const char* name) {
    return chosen.empty() || std::find(chosen.begin(), chosen.end(), name) != chosen.end();
  };
  must(cudaSetDevice(0), "cudaSetDevice");
  must(cudaFree(nullptr), "cudaFree");
  c10::cuda::_internal::setHasPrimaryContext([](c10::DeviceIndex) { return true; });
  torch_allocator::init(1);
  const auto first = c10::cuda::getStreamFromPool(false, 0), second = c10::cuda::getStreamFromPool(false, 0);
  if (wanted("allocate-free")) allocateFree(first.stream());
  if (wanted("cross-lane")) crossLane(first, second);
  if (wanted("threads")) threads();
  if (wanted("streaming")) streaming(first, second, std::size_t{128} << 20);
}
