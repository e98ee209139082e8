// The fallbacks `transfer` and `grow`: memory for an allocation that no free block can serve.
#include <algorithm>
#include <chrono>
#include <tuple>

#include "memory/caching/allocator.h"

namespace braid::caching {
namespace {

constexpr std::uint64_t mebibyte = std::uint64_t{1} << 20;

// Adjacent blocks, free or unmapped, that can hold a request once `missing` pages are mapped. They start at
// `first`, without its first `skip` bytes. `taken` adds the pages that its free blocks could give to others.
struct Run {
  Block* first = nullptr;
  std::uint64_t skip = 0, missing = ~std::uint64_t{0}, taken = ~std::uint64_t{0};
};

enum class Fewest { missing, taken };

// The run with the fewest pages, at the lowest address, of blocks that the lane may take now; null where no
// addresses are left. Without `share` only the lane's own blocks count. The caller holds the lane's lock.
Run bestRun(const Heap& heap, const Lane& lane, bool share, std::uint64_t size, std::uint64_t page,
            Fewest fewest) {
  Run best;
  const auto usable = [&](const Block& block) {
    return block.state == BlockState::unmapped ||
           (block.state == BlockState::free && heap.before(block, lane) && (share || block.lane == &lane));
  };
  const auto measure = [&](Block* first) {
    std::uint64_t length = 0, missing = 0, given = 0;
    Block* last = first;
    for (Block* block = first; length < size; block = block->nextInSegment) {
      if (block == nullptr || !usable(*block)) return;
      if (block->state == BlockState::unmapped) {
        missing += std::min(block->size, up(size - length, page)) / page;
      } else if (fewest == Fewest::taken && Heap::complete(*block)) {
        const DeviceAddress end = block->address + block->size;
        const DeviceAddress used = block->address + std::min(block->size, size - length);
        given += wholePages(block->address, end, page) - wholePages(used, end, page);
      }
      length += block->size;
      last = block;
    }
    // A run that begins unmapped and ends in a free block: skip the leading pages that are not needed.
    std::uint64_t skip = 0;
    if (first->state == BlockState::unmapped && last->state == BlockState::free)
      skip = down(std::min(length - size, first->size - page), page);
    missing -= skip / page;
    const Run run{first, skip, missing, missing + given};
    const auto rank = [](const Run& run) {
      return std::tuple(run.taken, run.missing,
                        run.first != nullptr ? run.first->address : ~DeviceAddress{0});
    };
    if (rank(run) < rank(best)) best = run;
  };
  for (Block* block = heap.firstUnmapped(); block != nullptr; block = block->next) {
    measure(block);
    Block* low = block->previousInSegment;
    for (int back = 0; back < 8 && low != nullptr && usable(*low); ++back, low = low->previousInSegment)
      measure(low);
  }
  return best;
}

}  // namespace

std::uint64_t Allocator::segmentBytes(std::uint64_t size, const Heap& heap) const {
  if (heap.config.segments == SegmentSize::exact) return size;
  if (heap.segments().empty() && &heap == large_.get() && options_.reserveFirst >= size)
    return up(options_.reserveFirst, smallSegment);
  if (options_.roundToPowerOfTwoUpTo != 0 || heap.config.source != source_.get())
    return up(size, smallSegment);
  if (heap.config.sizes == SizeClass::small) return smallSegment;
  return size < 10 * mebibyte ? std::max(options_.largeSegment, up(size, smallSegment))
                              : up(size, smallSegment);
}

// A request beyond the limit or the device's memory is refused before anything is released or waited for.
bool Allocator::possible(const Request& request) const {
  if (request.size > options_.limit) return false;
  return !request.heap.config.source->expandable() || request.size <= lanes_.driver().info().totalBytes;
}

bool Allocator::mayGrow(std::uint64_t bytes) const {
  return bytes <= options_.limit && reserved() <= options_.limit - bytes;
}

Block* Allocator::grow(const Request& request, Status* status, Fallback* fallback) {
  if (!possible(request)) return nullptr;
  if (options_.collectAbove > 0 && options_.limit != unlimited) collectGarbage(request.size);
  return request.heap.config.expandable ? growRange(request, status, fallback) : growPlain(request, status);
}

Block* Allocator::growPlain(const Request& request, Status* status) {
  const std::uint64_t bytes = segmentBytes(request.size, request.heap);
  if (!mayGrow(bytes) || !request.heap.config.source->callable()) return nullptr;
  DeviceAddress address = 0;
  ++counters_.sourceCalls;
  Source& source = *request.heap.config.source;
  *status = source.allocate(&address, bytes, streamFor(source, request.lane));
  if (*status == Status::outOfMemory && source.foreign()) asked_ = bytes;
  if (*status != Status::ok) return nullptr;
  Heap& heap = request.heap;
  const bool kept = heap.segments().empty() && &heap == large_.get() && options_.reserveFirst >= request.size;
  Block* block = heap.addSegment(address, bytes, request.lane, ++segmentCounter_);
  block->segment->kept = kept;
  plain_.fetch_add(bytes, std::memory_order_relaxed);
  heap.addReserved(static_cast<std::int64_t>(bytes));
  const int sizes = static_cast<int>(heap.config.sizes);
  counters_.segments(sizes, 1);
  counters_.reserved(sizes, static_cast<std::int64_t>(bytes));
  if (bytes >= options_.maxSplit) counters_.add(counters_.oversizeSegments, 1);
  if (history_.on())
    history_.add({.action = Action::segmentAlloc,
                  .lane = request.lane.id,
                  .address = address,
                  .size = bytes,
                  .pool = heap.config.pool,
                  .id = segmentCounter_});
  return heap.carve(block, request.size, request.lane);
}

Status Allocator::reserve(Lane& lane) {
  if (options_.reserveFirst == 0) return Status::ok;
  std::lock_guard lock(mutex_);
  const std::uint64_t least = std::min<std::uint64_t>(options_.reserveFirst, Bins::granule);
  Status status = Status::ok;
  Block* const block = growPlain({least, Bins::granule, lane, nullptr, *large_}, &status);
  if (block == nullptr) return status == Status::ok ? Status::outOfMemory : status;
  block->release = 0;
  large_->give(block);
  return Status::ok;
}

// Takes the run that needs the fewest pages from elsewhere. Where some of them would have to be created, the
// run is chosen `again`, by the fewest pages altogether: that one may leave enough free pages to move.
Block* Allocator::growRange(const Request& request, Status* status, Fallback* fallback, bool again) {
  Heap& heap = request.heap;
  const std::uint64_t page = pages_.pageBytes();
  const auto place = [&] {
    std::lock_guard guard(request.lane.mutex);
    return bestRun(heap, request.lane, options_.policy->order, request.size, page,
                   again ? Fewest::taken : Fewest::missing);
  };
  Run run = place();
  if (run.first == nullptr) {
    // Addresses cost nothing: reserve enough for all of the device's memory, however pages move.
    const std::uint64_t bytes = up(std::max(4 * lanes_.driver().info().totalBytes, 2 * request.size), page);
    DeviceAddress address = 0;
    *status = lanes_.driver().addressReserve(&address, bytes);
    if (*status != Status::ok) return nullptr;
    heap.addRange(address, bytes, page, request.lane, ++segmentCounter_);
    counters_.segments(static_cast<int>(heap.config.sizes), 1);
    run = place();
  }

  if (run.skip > 0) {
    Block* rest = heap.split(run.first, run.skip);
    heap.addUnmapped(rest);
    run.first = rest;
  }
  // The parts leave their lists and count as live, so that nothing merges with them while pages move.
  std::vector<std::pair<Block*, BlockState>> parts;
  for (std::uint64_t length = 0; length < request.size; length += parts.back().first->size) {
    Block* part = parts.empty() ? run.first : parts.back().first->nextInSegment;
    // The part of the last block that the request does not need may still give pages.
    if (part->state == BlockState::free && length + part->size > request.size) {
      heap.extract(part);
      Block* rest = heap.split(part, request.size - length);
      heap.insert(part);
      heap.insert(rest);
    }
    parts.emplace_back(part, part->state);
  }
  for (auto& [part, state] : parts) {
    state == BlockState::free ? heap.extract(part) : heap.removeUnmapped(part);
    part->state = BlockState::live;
  }
  const auto putBack = [&] {
    // One by one: a part must not merge with the next before that one is in a list.
    for (auto& [part, state] : parts) {
      if (state == BlockState::free)
        heap.give(part);
      else
        heap.mergeUnmapped(part);
    }
    return nullptr;
  };
  using Clock = std::chrono::steady_clock;
  Clock::time_point began{};
  Clock::duration moving{};
  if (options_.movePages && pages_.spare() < run.missing && mayMove(run.missing - pages_.spare())) {
    began = Clock::now();
    if (transferPages(run.missing - pages_.spare()) > 0) *fallback = Fallback::transfer;
    moving = Clock::now() - began;
  }
  const bool moved = *fallback == Fallback::transfer;
  const std::uint64_t more = run.missing > pages_.spare() ? run.missing - pages_.spare() : 0;
  if (more > 0 && options_.movePages && !again) {
    putBack();
    return growRange(request, status, fallback, true);
  }
  if (more > 0) {
    *fallback = Fallback::grow;
    if (!mayGrow(more * page)) return putBack();
    const std::uint64_t before = pages_.reserved();
    *status = pages_.make(run.missing);
    counters_.pagesMade += (pages_.reserved() - before) / page;
    if (*status != Status::ok) return putBack();
  }

  if (moved) began = Clock::now();
  std::uint64_t length = 0;
  for (auto& [part, state] : parts) {
    if (state == BlockState::unmapped) {
      const std::uint64_t bytes = std::min(part->size, up(request.size - length, page));
      Segment& segment = *part->segment;
      *status =
          pages_.map(part->address, bytes / page, &segment.pages[(part->address - segment.base) / page]);
      if (*status != Status::ok) return putBack();
      if (part->size > bytes) {
        Block* rest = heap.split(part, bytes);
        rest->anyLane = false;
        heap.mergeUnmapped(rest);  // the block above may have just given its pages
      }
      state = BlockState::free;
      part->lane = &request.lane;
      part->release = 0;
      part->anyLane = options_.policy->order;
      mapped(heap, segment, part->address, bytes, request.lane);
    }
    length += part->size;
  }
  if (moved) {
    moving += Clock::now() - began;
    counters_.moveNanoseconds +=
        static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(moving).count());
  }
  Block* whole = parts.front().first;
  bool anyLane = true;
  for (const auto& [part, state] : parts) anyLane = anyLane && heap.forAnyLane(*part);
  for (std::size_t i = 1; i < parts.size(); ++i) heap.join(whole, parts[i].first);
  // The lane is after every part, so everything after the lane's present point is too.
  whole->anyLane = anyLane;
  whole->lane = &request.lane;
  if (!anyLane) {
    std::lock_guard guard(request.lane.mutex);
    whole->release = request.lane.present();
  }
  return heap.carve(whole, request.size, request.lane);
}

void Allocator::mapped(Heap& heap, Segment& segment, DeviceAddress address, std::uint64_t bytes,
                       const Lane& lane) {
  segment.mapped += bytes;
  heap.addReserved(static_cast<std::int64_t>(bytes));
  counters_.reserved(static_cast<int>(heap.config.sizes), static_cast<std::int64_t>(bytes));
  if (history_.on())
    history_.add({.action = Action::segmentMap,
                  .lane = lane.id,
                  .address = address,
                  .size = bytes,
                  .pool = heap.config.pool,
                  .id = segment.counter});
}

}  // namespace braid::caching
