// braid_allocator_bench [--device host|cuda:N|none] [--repeats N] [NAME…]: the allocator's benchmarks, from
// C++. One JSON object a line. `none` is a driver that does nothing: what is left is what the allocator
// itself costs.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "tools/bench/bench.h"
#include "tools/bench/idle_driver.h"

namespace {

using namespace braid;

struct Named {
  const char* name;
  void (*run)(const bench::Run&);
};

// In the order of what they build on: the driver's calls are the floor of all others.
constexpr Named all[] = {
    {"driver-calls", bench::driverCalls}, {"allocate-free", bench::allocateFree},
    {"cross-lane", bench::crossLane},     {"threads", bench::threads},
    {"page-moves", bench::pageMoves},     {"streaming", bench::streaming},
    {"executor", bench::executor},        {"graph-launches", bench::graphLaunches},
};

int misuse(const char* what) {
  std::fprintf(
      stderr,
      "%s\nusage: braid_allocator_bench [--device host|cuda:N|none] [--repeats N] [NAME…]\nbenchmarks:",
      what);
  for (const Named& each : all) std::fprintf(stderr, " %s", each.name);
  std::fprintf(stderr, "\n");
  return 2;
}

}  // namespace

int main(int count, char** words) {
  std::string device = "host";
  int repeats = 21;
  std::vector<const Named*> chosen;
  for (int i = 1; i < count; ++i) {
    const std::string_view word = words[i];
    if (word == "--device" && i + 1 < count) {
      device = words[++i];
    } else if (word == "--repeats" && i + 1 < count) {
      repeats = std::atoi(words[++i]);
      if (repeats < 1) return misuse("--repeats is a number from 1 on");
    } else {
      const Named* found = nullptr;
      for (const Named& each : all)
        if (word == each.name) found = &each;
      if (found == nullptr) return misuse(("no benchmark " + std::string(word)).c_str());
      chosen.push_back(found);
    }
  }
  if (chosen.empty())
    for (const Named& each : all) chosen.push_back(&each);

  std::unique_ptr<Driver> driver;
  std::string detail;
  Status status = Status::invalidValue;
  if (device == "host") {
    HostOptions options;
    // Slow enough that the thread which issues is far ahead, as on a GPU.
    options.copyBytesPerSecond = 2e9;
    status = openHost(&driver, options, &detail);
  } else if (device == "none") {
    driver = std::make_unique<bench::IdleDriver>(nullptr);
    status = Status::ok;
  } else if (device.rfind("cuda:", 0) == 0) {
    status = openCuda(&driver, std::atoi(device.c_str() + 5), &detail);
  } else {
    return misuse("--device is host, cuda:N or none");
  }
  if (status == Status::ok) status = driver->bind();
  if (status != Status::ok) {
    std::fprintf(stderr, "%s: %s\n", device.c_str(), detail.c_str());
    return 1;
  }
  bench::Run run{*driver};
  run.repeats = repeats;
  bench::Line("device", driver->info().name).add("device", device).add("repeats", repeats);
  for (const Named* each : chosen) each->run(run);
}
