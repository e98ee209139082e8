// Runs random owners of an allocator for a given time, seed after seed, each kind of run in turn; or makes
// the nth use of each driver call fail. Ends with one line of JSON; status 1 where a law was broken.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <string>

#include "test/memory/caching/random_owner.h"

namespace {

using namespace braid;
using namespace braid::test;
using Clock = std::chrono::steady_clock;

struct Kind {
  const char* name;
  const char* what;
  void (*shape)(ModelPlan* plan);
};

constexpr Kind kinds[] = {
    {"one", "one thread, simulated device, every law at every step",
     [](ModelPlan* plan) {
       plan->operations = 6000;
       plan->audit = 64;
     }},
    {"many", "two to five threads, simulated device",
     [](ModelPlan* plan) {
       plan->threads = 2 + plan->seed % 4;
       plan->operations = 3000;
     }},
    {"data", "two to five threads, host device with jitter and poison, real data, every hand-out checked",
     [](ModelPlan* plan) {
       plan->host = true;
       plan->threads = 2 + plan->seed % 4;
       plan->operations = 1500;
     }},
    {"free", "the same with no lock but the allocator's own",
     [](ModelPlan* plan) {
       plan->host = true;
       plan->watched = false;
       plan->threads = 2 + plan->seed % 4;
       plan->operations = 3000;
     }},
};

constexpr const char* calls[] = {"memAllocate", "memFree",          "memInfo",          "pinnedAllocate",
                                 "pinnedFree",  "addressReserve",   "addressRelease",   "pagesCreate",
                                 "pagesMap",    "pagesUnmap",       "pagesRelease",     "eventCreate",
                                 "eventRecord", "eventQuery",       "eventSynchronize", "streamWait",
                                 "streamQuery", "streamSynchronize"};

struct Sums {
  std::uint64_t runs = 0, operations = 0, allocations = 0, uses = 0, readings = 0, refused = 0;
  std::uint64_t waits = 0, moves = 0, pagesMoved = 0, retries = 0, served[8] = {};
  void add(const ModelReport& report) {
    ++runs;
    operations += report.operations;
    allocations += report.allocations;
    uses += report.uses;
    readings += report.checked;
    refused += report.refused;
    waits += report.stats.waits;
    moves += report.stats.moves;
    pagesMoved += report.stats.pagesMoved;
    retries += report.stats.retries;
    for (std::size_t i = 0; i < 8; ++i) served[i] += report.stats.served[i];
  }
};

// Kilobytes that the process holds now: what it holds after an hour must be what it held after a minute.
std::uint64_t resident() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;)
    if (word == "VmRSS:") {
      std::uint64_t kilobytes = 0;
      status >> kilobytes;
      return kilobytes;
    }
  return 0;
}

using ull = unsigned long long;

int failed(const ModelPlan& plan, const ModelReport& report, const std::string& again) {
  std::printf("%s\n  %s\n  again: braid_soak %s\n", report.problem.c_str(), describe(plan).c_str(),
              again.c_str());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  double minutes = 10;
  std::uint64_t seed = 1, nth = 0;
  bool faults = false;
  std::string only;
  for (int i = 1; i < argc; ++i) {
    const std::string option = argv[i];
    const auto value = [&] { return i + 1 < argc ? argv[++i] : ""; };
    if (option == "--minutes")
      minutes = std::atof(value());
    else if (option == "--seed")
      seed = std::strtoull(value(), nullptr, 10);
    else if (option == "--faults")
      faults = true;
    else if (option == "--only")
      only = value();
    else if (option == "--nth")
      nth = std::strtoull(value(), nullptr, 10);
    else {
      std::fprintf(stderr,
                   "braid_soak [--minutes N] [--seed N] [--faults] [--only KIND|CALL [--nth N]]\n"
                   "  --only repeats the one run of that seed\n");
      return 2;
    }
  }
  const auto began = Clock::now();
  const auto elapsed = [&] { return std::chrono::duration<double>(Clock::now() - began).count(); };
  const std::uint64_t first = seed;

  if (faults) {
    std::map<std::string, std::uint64_t> struck;
    std::uint64_t runs = 0;
    for (; elapsed() < minutes * 60; ++seed) {
      for (const char* call : calls) {
        if (!only.empty() && only != call) continue;
        for (std::uint64_t use = nth == 0 ? 1 : nth;; ++use) {
          ModelPlan plan = randomPlan(seed);
          plan.operations = 400;
          plan.audit = 8;
          plan.fault = call;
          plan.nth = use;
          plan.failure = (seed + use) % 2 == 0 ? Status::unknown : Status::outOfMemory;
          const ModelReport report = runModel(plan);
          ++runs;
          if (!report.problem.empty())
            return failed(plan, report,
                          "--faults --only " + plan.fault + " --seed " + std::to_string(seed) + " --nth " +
                              std::to_string(use));
          if (!report.struck || nth != 0) break;
          ++struck[call];
        }
      }
      if (!only.empty()) break;
    }
    std::printf("{\"seconds\": %.0f, \"seed\": %llu, \"seeds\": %llu, \"runs\": %llu, \"failures\": {",
                elapsed(), static_cast<ull>(first), static_cast<ull>(seed - first), static_cast<ull>(runs));
    const char* comma = "";
    for (const auto& [call, count] : struck) {
      std::printf("%s\"%s\": %llu", comma, call.c_str(), static_cast<ull>(count));
      comma = ", ";
    }
    std::printf("}, \"problems\": 0}\n");
    return 0;
  }

  std::map<std::string, Sums> sums;
  std::uint64_t early = 0;
  for (; elapsed() < minutes * 60; ++seed) {
    for (const Kind& kind : kinds) {
      if (!only.empty() && only != kind.name) continue;
      // The kinds take very different times: so many of each that every one has its share.
      const std::uint64_t repeats =
          std::strcmp(kind.name, "one") == 0 || std::strcmp(kind.name, "many") == 0 ? 8 : 1;
      for (std::uint64_t repeat = 0; repeat < (only.empty() ? repeats : 1); ++repeat) {
        ModelPlan plan = randomPlan(only.empty() ? seed * 8 + repeat : seed);
        kind.shape(&plan);
        const ModelReport report = runModel(plan);
        if (!report.problem.empty())
          return failed(plan, report,
                        std::string("--only ") + kind.name + " --seed " + std::to_string(plan.seed));
        sums[kind.name].add(report);
      }
    }
    if (early == 0 && elapsed() > minutes * 60 / 4) early = resident();
    if (!only.empty()) break;
  }
  std::printf(
      "{\"seconds\": %.0f, \"seed\": %llu, \"seeds\": %llu, \"residentMiB\": [%llu, %llu], \"kinds\": {",
      elapsed(), static_cast<ull>(first), static_cast<ull>(seed - first), static_cast<ull>(early / 1024),
      static_cast<ull>(resident() / 1024));
  const char* comma = "";
  for (const Kind& kind : kinds) {
    const Sums& s = sums[kind.name];
    std::printf(
        "%s\"%s\": {\"what\": \"%s\", \"runs\": %llu, \"operations\": %llu, \"allocations\": %llu, \"uses\": "
        "%llu, "
        "\"readings\": %llu, \"refused\": %llu, \"waits\": %llu, \"moves\": %llu, \"pagesMoved\": %llu, "
        "\"served\": [%llu, %llu, %llu, %llu, %llu, %llu, %llu, %llu]}",
        comma, kind.name, kind.what, static_cast<ull>(s.runs), static_cast<ull>(s.operations),
        static_cast<ull>(s.allocations), static_cast<ull>(s.uses), static_cast<ull>(s.readings),
        static_cast<ull>(s.refused), static_cast<ull>(s.waits), static_cast<ull>(s.moves),
        static_cast<ull>(s.pagesMoved), static_cast<ull>(s.served[0]), static_cast<ull>(s.served[1]),
        static_cast<ull>(s.served[2]), static_cast<ull>(s.served[3]), static_cast<ull>(s.served[4]),
        static_cast<ull>(s.served[5]), static_cast<ull>(s.served[6]), static_cast<ull>(s.served[7]));
    comma = ", ";
  }
  std::printf("}, \"problems\": 0}\n");
  return 0;
}
