// The cost of the fallback `transfer` compared with `grow`: one allocation of n pages, with pages moved from
// n holes of one page, or from holes of eight pages, or created anew.
#include "tools/bench/bench.h"

namespace braid::bench {
namespace {

enum class How : std::uint8_t { grown, movedOne, movedEight };

double once(const Run& run, std::uint64_t pages, How how, std::uint64_t* moved) {
  Bed bed(run);
  Lane& lane = bed.lane();
  const std::uint64_t page = run.driver.info().pageBytes;
  std::vector<caching::Block*> kept;
  if (how != How::grown) {
    // Every second block is freed, so that no hole has a neighbour.
    const std::uint64_t hole = how == How::movedOne ? 1 : 8;
    std::vector<caching::Block*> holes;
    for (std::uint64_t i = 0; i < pages / hole; ++i) {
      holes.push_back(bed.malloc(hole * page, lane));
      kept.push_back(bed.malloc(page, lane));
    }
    for (caching::Block* block : holes) bed.free(block);
  } else {
    kept.push_back(bed.malloc(page, lane));  // the range of addresses is there already
  }
  const std::uint64_t before = bed.allocator->stats().pagesMoved;
  const auto began = Clock::now();
  caching::Block* block = bed.malloc(pages * page, lane);
  const double took = nanoseconds(Clock::now() - began) / 1e3;
  *moved = bed.allocator->stats().pagesMoved - before;
  bed.free(block);
  for (caching::Block* each : kept) bed.free(each);
  return took;
}

}  // namespace

void pageMoves(const Run& run) {
  if (run.driver.info().pageBytes == 0) return;
  for (const std::uint64_t pages : {2, 8, 32, 128}) {
    for (const How how : {How::grown, How::movedOne, How::movedEight}) {
      if (how == How::movedEight && pages < 16) continue;
      std::vector<double> each;
      std::uint64_t moved = 0;
      for (int repeat = 0; repeat < run.repeats; ++repeat) each.push_back(once(run, pages, how, &moved));
      const char* const words = how == How::grown      ? "grown"
                                : how == How::movedOne ? "moved from holes of 1 page"
                                                       : "moved from holes of 8 pages";
      Line("page-moves", std::to_string(pages) + " pages " + words)
          .add(spread(each), "µs")
          .add("pages", static_cast<double>(pages))
          .add("pagesMoved", static_cast<double>(moved));
    }
  }
}

}  // namespace braid::bench
