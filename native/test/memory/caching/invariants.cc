#include "test/memory/caching/invariants.h"

#include <sstream>

namespace braid::test {

using namespace caching;

std::string violations(const Allocator& allocator, CheckingDriver* driver, const Expected& expected) {
  std::ostringstream wrong;
  const auto equal = [&](const char* what, auto found, auto wanted) {
    if (wrong.tellp() == 0 && static_cast<std::int64_t>(found) != static_cast<std::int64_t>(wanted))
      wrong << what << ": " << found << ", by the blocks " << wanted;
  };
  const auto differs = [&](const char* what, std::uint64_t address) {
    if (wrong.tellp() == 0) wrong << what << " at 0x" << std::hex << address << std::dec;
  };
  struct Sums {
    std::uint64_t live = 0, liveBytes = 0, requested = 0, pending = 0, pendingBytes = 0, reserved = 0,
                  segments = 0;
  } sums[3];
  std::uint64_t segments = 0;
  allocator.eachSegment([&](const Segment& segment) {
    ++segments;
    const int sizes = 1 + static_cast<int>(segment.heap->config.sizes);
    std::uint64_t backed = 0, page = segment.pages.empty() ? 0 : segment.size / segment.pages.size();
    DeviceAddress at = segment.base;
    const Block* previous = nullptr;
    if (segment.first == nullptr) return differs("a segment without blocks", segment.base);
    for (const Block* block = segment.first; block != nullptr;
         previous = block, block = block->nextInSegment) {
      if (block->address != at) return differs("blocks that do not tile", block->address);
      if (block->previousInSegment != previous)
        return differs("a block with the wrong neighbour", block->address);
      if (block->segment != &segment || block->heap != segment.heap)
        return differs("a block astray", block->address);
      if (block->size == 0 || block->size % 512 != 0)
        return differs("a block of an odd size", block->address);
      at += block->size;
      const bool free = block->state == BlockState::free || block->state == BlockState::cached;
      if (free && !block->uses.empty()) return differs("a free block with uses", block->address);
      if (free && block->noted) return differs("a free block with noted lanes", block->address);
      if (block->state == BlockState::unmapped) {
        if (!segment.expandable) return differs("a plain segment with a hole", block->address);
        if (previous && previous->state == BlockState::unmapped)
          return differs("holes side by side", block->address);
        if (block->address % page != 0 || block->size % page != 0)
          return differs("a hole of part pages", block->address);
      } else {
        backed += block->size;
      }
      for (int which : {0, sizes}) {
        if (block->state == BlockState::live) {
          ++sums[which].live;
          sums[which].liveBytes += block->size;
          sums[which].requested += block->requested;
          if (block->requested > block->size)
            return differs("a block shorter than was asked for", block->address);
        } else if (block->state == BlockState::pending) {
          ++sums[which].pending;
          sums[which].pendingBytes += block->size;
          if (block->uses.empty()) return differs("a pending block without uses", block->address);
        }
      }
      if (!segment.expandable) continue;
      for (DeviceAddress first = block->address / page * page; first < at; first += page) {
        const bool mapped = segment.pages[(first - segment.base) / page] != nullptr;
        if (mapped != (block->state != BlockState::unmapped))
          return differs("pages that are not as the block says", first);
      }
    }
    if (at != segment.base + segment.size)
      return differs("blocks that do not fill their segment", segment.base);
    if (backed != segment.mapped) return differs("a segment whose mapped bytes are wrong", segment.base);
    for (int which : {0, sizes}) {
      sums[which].reserved += backed;
      ++sums[which].segments;
    }
  });
  const Stats stats = allocator.stats();
  const SizeStats* figures[3] = {&stats.all, &stats.small, &stats.large};
  const char* names[3] = {"all", "small", "large"};
  for (int which = 0; which < 3 && wrong.tellp() == 0; ++which) {
    const SizeStats& s = *figures[which];
    const Sums& sum = sums[which];
    equal("allocation", s.allocation.current, sum.live);
    equal("allocated bytes", s.allocatedBytes.current, sum.liveBytes);
    equal("requested bytes", s.requestedBytes.current, sum.requested);
    equal("active", s.active.current, sum.live + sum.pending);
    equal("active bytes", s.activeBytes.current, sum.liveBytes + sum.pendingBytes);
    equal("reserved bytes", s.reservedBytes.current, sum.reserved);
    equal("segments", s.segment.current, sum.segments);
    for (const auto& [name, figure] : {std::pair{"allocation", s.allocation},
                                       {"allocatedBytes", s.allocatedBytes},
                                       {"active", s.active},
                                       {"activeBytes", s.activeBytes},
                                       {"requestedBytes", s.requestedBytes},
                                       {"segment", s.segment},
                                       {"reservedBytes", s.reservedBytes}}) {
      if (wrong.tellp() != 0) break;
      if (figure.peak < figure.current || figure.current < 0)
        wrong << name << " is " << figure.current << ", and its peak " << figure.peak;
    }
    for (const Figure& figure : {s.allocation, s.allocatedBytes, s.requestedBytes})
      equal("allocated less freed", figure.allocated - figure.freed, figure.current);
    if (wrong.tellp() != 0) wrong << " (" << names[which] << ")";
  }
  equal("live blocks, as the test counts them", expected.liveBlocks, sums[0].live);
  equal("requested bytes, as the test counts them", expected.requested, sums[0].requested);
  if (driver) {
    const CheckingDriver::Out out = driver->out();
    equal("reserved, and what the driver has given", allocator.reserved(),
          out.plain + out.pinned + out.pages);
    equal("mapped, as the driver knows it", out.mapped + out.plain + out.pinned, sums[0].reserved);
  }
  if (allocator.reserved() > allocator.options().limit && wrong.tellp() == 0)
    wrong << "reserved " << allocator.reserved() << ", more than the limit of " << allocator.options().limit;
  return wrong.str();
}

}  // namespace braid::test
