#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "memory/caching/allocator.h"

namespace braid::test {

// A run of an allocator by random operations, held against what is known of them without it.
struct ModelPlan {
  std::uint64_t seed = 1;
  std::size_t operations = 1000;  // of each thread
  std::size_t threads = 1, lanes = 4;
  caching::Options options;
  std::uint64_t deviceBytes = std::uint64_t{192} << 20;
  bool pinned = false;   // pinned host memory
  bool host = false;     // the host device, with jitter and poison, and real data; else a simulated one
  bool watched = true;   // false: no lock of the test's orders its threads, and it checks less
  bool changing = true;  // lanes come and go, and so do pools
  bool asking = true;    // the operations poll the device
  std::size_t sizes = 8,
              live = 48;       // sizes that come again and again; blocks that a thread owns at a time, about
  std::uint64_t progress = 1;  // seed of the order in which the device goes on
  std::uint64_t behind =
      3;  // the simulated device advances once in so many operations; 0: only for blocked callers
  std::size_t audit = 16;  // operations between two checks of all invariants
  std::string fault;       // this driver call fails, its nth use
  std::uint64_t nth = 0;
  Status failure = Status::unknown;
  double minutes = 0;  // instead of operations
};

struct ModelReport {
  std::string problem;  // "": every law held
  std::uint64_t operations = 0, allocations = 0, frees = 0, uses = 0, checked = 0, refused = 0;
  bool struck = false;               // the fault did happen
  std::vector<std::uint64_t> trace;  // one thread: addresses and reserved bytes, in order
  caching::Stats stats;
};

ModelReport runModel(const ModelPlan& plan);
// One seed decides all of it: policy, limits, sizes, lanes, and the order in which the device goes on.
ModelPlan randomPlan(std::uint64_t seed);
std::string describe(const ModelPlan& plan);

}  // namespace braid::test
