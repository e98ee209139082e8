#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>

namespace braid::caching {

// A current value, its highest value, and the sums of everything added to it and taken from it.
struct Figure {
  std::int64_t current = 0, peak = 0;
  std::uint64_t allocated = 0, freed = 0;
};

// Named as PyTorch's statistics where the meaning is the same.
struct SizeStats {
  Figure allocation, allocatedBytes;  // live blocks
  Figure active, activeBytes;         // live and pending blocks
  Figure requestedBytes;              // before rounding
  Figure segment, reservedBytes;      // segments or address ranges; memory held from the source
  // Free pieces of plain segments that are in use in part, neighbours as one piece. Their peaks and sums are
  // of the moments at which statistics were read.
  Figure inactiveSplit, inactiveSplitBytes;
};

struct Stats {
  SizeStats all, small, large;
  std::array<std::uint64_t, 8> served{};  // by fallback, in the order of Allocator::Fallback
  std::uint64_t retries = 0;              // allocations that had to give memory back first
  std::uint64_t outOfMemory = 0, refusedEarly = 0;
  std::uint64_t sourceCalls = 0, sourceReleases = 0;
  std::uint64_t synchronizations = 0;  // of the calling thread
  std::uint64_t moves = 0, pagesMoved = 0, pagesMade = 0;
  std::uint64_t moveNanoseconds = 0;  // of the calling thread: pages unmapped and mapped again
  std::uint64_t uses = 0, usesShared = 0, waits = 0, waitsElided = 0, queries = 0, eventsCreated = 0;
  Figure oversizeAllocations, oversizeSegments;  // from Options::maxSplit on; segments: plain ones
};

// The statistics of the blocks that one thread allocated, written by that thread alone, so that threads do
// not contend for cache lines. Blocks that another thread frees are counted in `freedByOthers`, which the
// owner subtracts before it raises a peak. Kept for its speed: one shared set of counters would cost every
// allocation ten atomic additions on contended cache lines.
struct ThreadCounters {
  // The first three count live blocks, the last two live and pending ones.
  enum Kind { blocks, bytes, requested, active, activeBytes, kinds };
  struct alignas(256) Sizes {
    std::atomic<std::int64_t> level[kinds]{}, peak[kinds]{};
    std::atomic<std::uint64_t> allocatedBytes{}, allocatedRequested{};  // sums since the start
    std::atomic<std::uint64_t> served[5]{};  // by fallback without the mutex; the last: by all others
  };
  Sizes sizes[2];  // small, large
  std::atomic<std::int64_t> peakOfAll[kinds]{};
  alignas(128) std::atomic<std::int64_t> freedByOthers[2][kinds]{};
};

// The counters of all threads. With one thread, peaks are exact. With several, a peak of the sum is the
// highest sum that `sample` saw, and at least each thread's own peak.
class StatsCounters {
 public:
  static constexpr std::uint32_t threads = 63;  // with counters of their own; all others share one set
  StatsCounters();
  ~StatsCounters();

  // An allocation of the calling thread. `served` is its Allocator::Fallback, or `slow` if the slow path
  // counts it. Returns the index of the thread's counters, which the other calls about this block take.
  static constexpr std::uint8_t slow = 4;
  std::uint8_t allocated(int size, std::uint64_t bytes, std::uint64_t requested, std::uint8_t served);
  void freed(std::uint8_t counters, int size, std::uint64_t bytes, std::uint64_t requested, bool pending);
  // The uses of a pending block are over.
  void finished(std::uint8_t counters, int size, std::uint64_t bytes);

  // Whether more than one thread has ever allocated.
  bool several() const { return made_.load(std::memory_order_relaxed) > 1; }
  // Sums over all threads. The caller holds the allocator's mutex, here and for all that follows.
  void sample(Stats* stats);
  void resetPeaks();
  void resetAccumulated();

  std::array<std::uint64_t, 8> served{};
  std::uint64_t retries = 0, outOfMemory = 0, refusedEarly = 0, sourceCalls = 0, sourceReleases = 0;
  std::uint64_t moves = 0, pagesMoved = 0, pagesMade = 0, moveNanoseconds = 0;
  Figure oversizeSegments;
  struct Held {
    Figure segment, reservedBytes, split, splitBytes;
  };
  Held held[3];  // all, small, large
  static void add(Figure& figure, std::int64_t by);
  void segments(int size, std::int64_t by) {
    add(held[0].segment, by);
    add(held[1 + size].segment, by);
  }
  void reserved(int size, std::int64_t bytes) {
    add(held[0].reservedBytes, bytes);
    add(held[1 + size].reservedBytes, bytes);
  }
  // What is split at this moment: all, small, large.
  void split(const std::array<std::int64_t, 3>& pieces, const std::array<std::int64_t, 3>& bytes);
  // Any thread, without the mutex: one more or less.
  [[gnu::noinline, gnu::cold]] void oversize(std::int64_t by);

 private:
  std::atomic<std::int64_t> oversize_{0}, oversizePeak_{0};
  std::atomic<std::uint64_t> oversizeAllocated_{0};
  ThreadCounters& at(std::size_t index);
  [[gnu::noinline, gnu::cold]] ThreadCounters& make(std::size_t index);
  std::atomic<ThreadCounters*> threads_[1 + threads];  // the first is shared by all further threads
  std::atomic<std::size_t> made_{0};
  Stats base_;   // the accumulated sums at the last reset, to be subtracted
  Stats peaks_;  // the highest sums that `sample` saw
};

}  // namespace braid::caching
