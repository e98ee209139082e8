#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>

namespace braid::caching {

// What is so now, the most it ever was, and all that was added and taken away.
struct Figure {
  std::int64_t current = 0, peak = 0;
  std::uint64_t allocated = 0, freed = 0;
};

// PyTorch's statistics where the meaning is the same: of all sizes, of small ones, of large ones.
struct SizeStats {
  Figure allocation, allocatedBytes;  // blocks that somebody owns
  Figure active, activeBytes;         // those, and those whose uses are outstanding
  Figure requestedBytes;              // as asked for, before rounding
  Figure segment, reservedBytes;      // segments, or mapped ranges; memory held from the source
  Figure inactiveSplit, inactiveSplitBytes;
};

struct Stats {
  SizeStats all, small, large;
  std::array<std::uint64_t, 8> served{};  // by rung, in the order of `Allocator`
  std::uint64_t retries = 0;              // allocations that had to give memory back first
  std::uint64_t outOfMemory = 0, refusedEarly = 0;
  std::uint64_t sourceCalls = 0, sourceReleases = 0;
  std::uint64_t synchronizations = 0;  // of the calling thread
  std::uint64_t moves = 0, pagesMoved = 0, pagesMade = 0;
  std::uint64_t moveNanoseconds = 0;  // of the calling thread: pages unmapped and mapped again
  std::uint64_t uses = 0, usesShared = 0, waits = 0, waitsElided = 0, queries = 0, eventsCreated = 0;
  std::uint64_t oversizeAllocations = 0, oversizeSegments = 0;
};

// Figures of the blocks that one thread allocated, written by it alone: so threads do not wait for each
// other's cache lines. What another thread takes away from them stands beside, until their own thread has it
// counted in.
struct Stripe {
  // The first three are of blocks that somebody owns; active are those and the pending ones.
  enum Kind { blocks, bytes, requested, active, activeBytes, kinds };
  struct alignas(256) Sizes {
    std::atomic<std::int64_t> level[kinds]{}, peak[kinds]{};
    std::atomic<std::uint64_t> allocatedBytes{}, allocatedRequested{};  // ever
    std::atomic<std::uint64_t> served[5]{};  // by the rungs that need no mutex; by those that do
  };
  Sizes sizes[2];  // small, large
  std::atomic<std::int64_t> peakOfAll[kinds]{};
  alignas(128) std::atomic<std::int64_t> taken[2][kinds]{};  // by other threads
};

// Exact at every moment for one thread; with several, peaks are of the moments at which some thread left its
// cache or asked, and at least each thread's own.
class StatsCounters {
 public:
  static constexpr std::uint32_t alone = 63;  // threads with a stripe of their own
  StatsCounters();
  ~StatsCounters();

  // Returns the stripe that the block counts in from here on.
  // `rung`: of those that need no mutex, or `slow`.
  static constexpr std::uint8_t slow = 4;
  std::uint8_t allocated(int size, std::uint64_t bytes, std::uint64_t requested, std::uint8_t rung);
  void freed(std::uint8_t stripe, int size, std::uint64_t bytes, std::uint64_t requested, bool pending);
  void settled(std::uint8_t stripe, int size, std::uint64_t bytes);  // pending no longer
  // Both at once: from pending straight to a new owner. `stripe`: where it counted.
  std::uint8_t resumed(std::uint8_t stripe, int size, std::uint64_t bytes, std::uint64_t requested,
                       std::uint8_t rung);

  // Whether more than one thread has ever allocated.
  bool several() const { return made_.load(std::memory_order_relaxed) > 1; }
  // All stripes together, peaks as they are known. Under the allocator's mutex, as are the next ones.
  void sample(Stats* stats);
  void resetPeaks();
  void resetAccumulated();

  // Of the mutex's holder.
  std::array<std::uint64_t, 8> served{};
  std::uint64_t retries = 0, outOfMemory = 0, refusedEarly = 0, sourceCalls = 0, sourceReleases = 0;
  std::uint64_t moves = 0, pagesMoved = 0, pagesMade = 0, moveNanoseconds = 0;
  std::uint64_t oversizeAllocations = 0, oversizeSegments = 0;
  struct Held {
    Figure segment, reservedBytes;
    void add(Figure& figure, std::int64_t by) {
      figure.current += by;
      if (by > 0)
        figure.allocated += static_cast<std::uint64_t>(by);
      else
        figure.freed += static_cast<std::uint64_t>(-by);
      if (figure.current > figure.peak) figure.peak = figure.current;
    }
  };
  Held held[3];  // all, small, large
  void segments(int size, std::int64_t by) {
    held[0].add(held[0].segment, by);
    held[1 + size].add(held[1 + size].segment, by);
  }
  void reserved(int size, std::int64_t bytes) {
    held[0].add(held[0].reservedBytes, bytes);
    held[1 + size].add(held[1 + size].reservedBytes, bytes);
  }
  // A page that goes from one size class to the other changes no sum.
  void reservedMoved(int from, int to, std::int64_t bytes) {
    held[1 + from].add(held[1 + from].reservedBytes, -bytes);
    held[1 + to].add(held[1 + to].reservedBytes, bytes);
  }

 private:
  Stripe& at(std::size_t index);
  [[gnu::noinline, gnu::cold]] Stripe& make(std::size_t index);
  std::atomic<Stripe*> stripes_[1 + alone];  // the first one is for all other threads
  std::atomic<std::size_t> made_{0};
  Stats base_;   // what is taken off the accumulated figures
  Stats peaks_;  // of sums, as they were seen
};

}  // namespace braid::caching
