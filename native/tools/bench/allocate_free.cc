// One thread, one lane, nothing outstanding: what most allocations of a program are.
#include <bit>

#include "tools/bench/bench.h"

namespace braid::bench {
namespace {

// 256 live, each turn a random one of which gives way to one of another size.
constexpr std::uint32_t live = 256;

void mixed(const Run& run, const char* name, const Mix& drawn) {
  Bed bed(run);
  Lane& lane = bed.lane();
  caching::Block* held[live] = {};
  std::size_t at = 0;
  const auto turn = [&] {
    caching::Block*& place = held[drawn.places[at]];
    if (place != nullptr) bed.free(place);
    place = bed.malloc(drawn.sizes[at], lane);
    at = (at + 1) % drawn.sizes.size();
  };
  // To its steady state: a pool that is new moves pages rather than grow, until that has cost it enough.
  std::uint64_t warm = 0;
  for (std::uint64_t moved = ~std::uint64_t{0}, before = 0; moved > 96 && warm < 64; ++warm) {
    for (std::size_t i = 0; i < drawn.sizes.size(); ++i) turn();
    const std::uint64_t now = bed.allocator->stats().pagesMoved;
    moved = now - before;
    before = now;
  }
  const caching::Stats before = bed.allocator->stats();
  std::uint64_t turned = 0;
  const Spread time = perTurn(run, [&](std::uint64_t turns) {
    turned += turns;
    for (; turns > 0; --turns) turn();
  });
  const caching::Stats after = bed.allocator->stats();
  Line line("allocate-free", name);
  line.add(time, "ns")
      .add("turns", static_cast<double>(turned))
      .add("warmTurns", static_cast<double>(warm * drawn.sizes.size()));
  line.add("cached", static_cast<double>(after.served[0] - before.served[0]));
  line.add("moves", static_cast<double>(after.moves - before.moves));
  line.add("pagesMoved", static_cast<double>(after.pagesMoved - before.pagesMoved));
  line.add("pagesMade", static_cast<double>(after.pagesMade - before.pagesMade));
  line.add("reservedOverPeak", static_cast<double>(after.all.reservedBytes.peak) /
                                   static_cast<double>(after.all.allocatedBytes.peak));
  for (caching::Block* block : held)
    if (block != nullptr) bed.free(block);
}

}  // namespace

void allocateFree(const Run& run) {
  for (const std::uint64_t bytes :
       {std::uint64_t{4} << 10, std::uint64_t{1} << 20, std::uint64_t{64} << 20}) {
    Bed bed(run);
    Lane& lane = bed.lane();
    Line("allocate-free", sizeName(bytes))
        .add(perTurn(run,
                     [&](std::uint64_t turns) {
                       for (; turns > 0; --turns) bed.free(bed.malloc(bytes, lane));
                     }),
             "ns");
  }
  const Mix any = mix(std::size_t{1} << 16, 512, std::uint64_t{16} << 20, live, 1);
  Mix powers = mix(std::size_t{1} << 16, 512, std::uint64_t{32} << 20, live, 1);
  for (std::uint64_t& size : powers.sizes) size = std::bit_floor(size);
  mixed(run, "512 B to 16 MiB, 256 live", powers);
  mixed(run, "512 B to 16 MiB, 256 live, no size twice", any);
}

}  // namespace braid::bench
