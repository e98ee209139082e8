#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "driver/driver.h"
#include "memory/caching/allocator.h"

// Shared by the benchmarks of the allocator. Each prints what it measured on standard output, one JSON object
// a line. spec/bench/allocator.ts has the requirements.
namespace braid::bench {

struct Run {
  Driver& driver;
  int repeats = 21;
  double repeatMs = 20;  // each repeat takes about as long
  bool cuda() const { return driver.info().kind == "cuda"; }
};

// Ends the program with the driver's message where a call failed.
void must(Driver& driver, Status status, const char* what);

struct Spread {
  double median = 0, least = 0, most = 0;
};
Spread spread(std::vector<double> values);

// One line of JSON. Keys and strings are the program's own and need no escaping.
class Line {
 public:
  Line(const char* bench, const std::string& what);
  ~Line();
  Line(const Line&) = delete;
  Line& add(const char* key, double value);
  Line& add(const char* key, const std::string& value);
  Line& add(const Spread& spread, const char* unit);

 private:
  std::string text_;
};

using Clock = std::chrono::steady_clock;
inline double nanoseconds(Clock::duration duration) {
  return std::chrono::duration<double, std::nano>(duration).count();
}

template <class Loop>
double timed(Loop& loop, std::uint64_t turns) {
  const auto began = Clock::now();
  loop(turns);
  return nanoseconds(Clock::now() - began);
}

// How many turns of `loop(turns)` take so many milliseconds, at least one.
template <class Loop>
std::uint64_t turnsIn(double milliseconds, Loop& loop) {
  std::uint64_t turns = 256;
  double took = timed(loop, turns);
  while (took < milliseconds * 5e5 && turns < (std::uint64_t{1} << 40)) took = timed(loop, turns *= 2);
  return std::max<std::uint64_t>(
      1, static_cast<std::uint64_t>(static_cast<double>(turns) * milliseconds * 1e6 / took));
}

// Nanoseconds of one turn of `loop(turns)`, over the repeats.
template <class Loop>
Spread perTurn(const Run& run, Loop loop) {
  const std::uint64_t turns = turnsIn(run.repeatMs, loop);
  std::vector<double> each;
  for (int repeat = 0; repeat < run.repeats; ++repeat)
    each.push_back(timed(loop, turns) / static_cast<double>(turns));
  return spread(each);
}

// The same together with a floor, the calls that it needs in any case. The two are measured in turn, a few
// milliseconds each, so that a slow phase of the machine affects both.
struct Beside {
  Spread time, floor, over;  // over: the difference of the two, pair by pair
};
template <class Loop, class Floor>
Beside perTurnBeside(const Run& run, Loop loop, Floor floor) {
  constexpr int slices = 4;
  const std::uint64_t turns = turnsIn(run.repeatMs / slices, loop),
                      floors = turnsIn(run.repeatMs / slices, floor);
  std::vector<double> times, bare, over;
  for (int slice = 0; slice < slices * run.repeats; ++slice) {
    times.push_back(timed(loop, turns) / static_cast<double>(turns));
    bare.push_back(timed(floor, floors) / static_cast<double>(floors));
    over.push_back(times.back() - bare.back());
  }
  return {spread(times), spread(bare), spread(over)};
}

// An allocator over the device's memory with lanes of its own, all idle when it goes.
class Bed {
 public:
  explicit Bed(const Run& run, const caching::Options& options = {});
  ~Bed();
  Lane& lane(bool tracked = true);  // a new one
  caching::Block* malloc(std::uint64_t bytes, Lane& lane) {
    caching::Block* block = nullptr;
    const Status status = allocator->malloc(bytes, lane, &block, &shortage_);
    if (status != Status::ok) must(driver, status, "malloc");
    return block;
  }
  void free(caching::Block* block) {
    if (const Status status = allocator->free(block); status != Status::ok) must(driver, status, "free");
  }
  void use(caching::Block* block, Lane& lane) {
    if (const Status status = allocator->recordUse(block, lane); status != Status::ok)
      must(driver, status, "recordUse");
  }
  void synchronize();

  Driver& driver;
  Lanes lanes;
  std::unique_ptr<caching::Allocator> allocator;

 private:
  std::vector<Stream> streams_;
  caching::Shortage shortage_;  // written only where an allocation fails
};

// The same numbers in every run, and in the peer's.
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

// Sizes spread evenly over the powers of two from `least` to `most`, and which live block each one takes the
// place of.
struct Mix {
  std::vector<std::uint64_t> sizes;
  std::vector<std::uint32_t> places;
};
Mix mix(std::size_t count, std::uint64_t least, std::uint64_t most, std::uint32_t live, std::uint64_t seed);

std::string sizeName(std::uint64_t bytes);

// One a file.
void driverCalls(const Run& run);
void allocateFree(const Run& run);
void crossLane(const Run& run);
void threads(const Run& run);
void streaming(const Run& run);
void pageMoves(const Run& run);
void executor(const Run& run);
void graphLaunches(const Run& run);

}  // namespace braid::bench
