// What every allocation and every free runs through; `climb.cc` is for those that find nothing at hand.
#include "allocator/caching/allocator.h"

#include <algorithm>
#include <bit>

namespace braid::caching {
namespace {

constexpr std::uint64_t smallest = 512, smallAtMost = std::uint64_t{1} << 20, exbibyte = std::uint64_t{1} << 60;

int sizeOf(const Block& block) { return static_cast<int>(block.heap->config.sizes); }

}  // namespace

Allocator::Allocator(Lanes& lanes, std::unique_ptr<Source> source, const Options& options)
    : lanes_(lanes), place_(lanes.join()), source_(std::move(source)), options_(options), pages_(lanes.driver()) {
  const bool expandable = options_.expandable && source_->expandable();
  small_ = std::make_unique<Heap>(lanes_, blocks_, options_,
                                  HeapConfig{0, SizeClass::small, false, expandable, source_.get()});
  large_ = std::make_unique<Heap>(lanes_, blocks_, options_,
                                  HeapConfig{0, SizeClass::large, false, expandable, source_.get()});
  heaps_ = {small_.get(), large_.get()};
}

inline std::uint64_t Allocator::rounded(std::uint64_t bytes) const {
  if (bytes <= options_.roundToPowerOfTwoUpTo) return std::max(smallest, std::bit_ceil(bytes));
  const int power = static_cast<int>(std::bit_width(bytes)) - 1;
  const std::uint32_t steps = options_.divisions[static_cast<std::size_t>(std::clamp(power - 20, 0, 15))];
  if (steps > 1 && bytes > smallest * steps && !std::has_single_bit(bytes)) {
    const std::uint64_t step = (std::uint64_t{1} << power) / steps;
    bytes = (bytes + step - 1) / step * step;
  }
  return (bytes + smallest - 1) / smallest * smallest;
}

Heap& Allocator::heapFor(std::uint64_t size, MemPool* pool) {
  if (pool != nullptr) return size <= smallAtMost ? *pool->small : *pool->large;
  // What was reserved beforehand serves all sizes.
  return size <= smallAtMost && options_.reserveFirst == 0 ? *small_ : *large_;
}

Status Allocator::malloc(std::uint64_t bytes, Lane& lane, Block** block, Shortage* shortage, MemPool* pool,
                         std::uint32_t site) {
  if (bytes == 0 || lane.retired) [[unlikely]]
    return Status::invalidValue;
  if (bytes > exbibyte) [[unlikely]] {
    *shortage = {};
    shortage->status = Status::outOfMemory;
    shortage->wanted = shortage->size = bytes;
    return Status::outOfMemory;
  }
  const std::uint64_t size = rounded(bytes);
  Heap& heap = heapFor(size, pool);
  Block* found = nullptr;
  Block* evicted = nullptr;
  Rung rung = Rung::cache;
  const Lane* refused = nullptr;
  {
    std::lock_guard guard(lane.mutex);
    found = shelf(lane).cache.take(&heap, heap.number(), size, &evicted);
    if (found == nullptr && evicted == nullptr && !shelf(lane).pending.empty())
      found = quickPending(lane, heap, size, &rung, &refused);
  }
  std::uint8_t quick = static_cast<std::uint8_t>(rung);
  bool resumed = rung != Rung::cache;
  if (found == nullptr) [[unlikely]] {
    quick = StatsCounters::slow;
    resumed = false;
    const Status status = slow({bytes, size, lane, pool, heap, refused}, evicted, &found, shortage);
    if (status != Status::ok || found == nullptr) return status;
  }
  found->state = BlockState::live;
  found->requested = bytes;
  found->site = site;
  const int sizes = static_cast<int>(heap.config.sizes);
  found->stripe = resumed ? counters_.resumed(found->stripe, sizes, size, bytes, quick)
                          : counters_.allocated(sizes, found->size, bytes, quick);
  if (history_.on()) [[unlikely]] {
    found->id = ids_.fetch_add(1, std::memory_order_relaxed) + 1;
    history_.add(Action::alloc, found->address, found->size, lane.id, heap.config.pool, site, found->id);
  }
  *block = found;
  return Status::ok;
}

Status Allocator::free(Block* block) {
  if (block->state != BlockState::live) return Status::invalidHandle;
  Lane& home = *block->lane;
  if (block->noted) [[unlikely]] {
    // A use that cannot be recorded is waited for; where that fails too, the block stays its owner's.
    for (Lane* lane : *block->noted)
      if (recordUse(block, *lane) != Status::ok)
        if (const Status failed = lanes_.drain(*lane); failed != Status::ok) return failed;
    block->noted.reset();
  }
  // Once it is in the cache, another thread may merge it away: what is told of it is noted before.
  const bool told = history_.on();
  Record record{};
  if (told) [[unlikely]] {
    record = {Action::freeRequested,
              home.id,
              block->site,
              block->address,
              block->size,
              block->heap->config.pool,
              block->id,
              0};
    history_.add(record.action, record.address, record.size, home.id, record.pool, record.site, record.id);
  }
  // So is what it counted: a block that is nobody's any more may be somebody's at once.
  const std::uint8_t stripe = block->stripe;
  const int sizes = sizeOf(*block);
  const std::uint64_t size = block->size, requested = block->requested;
  block->release = home.present();
  bool pending = false, taken = false;
  {
    std::lock_guard guard(home.mutex);
    pending = !block->uses.empty() && (!options_.policy->order || !covered(*block, home));
    if (pending) {
      block->age = home.waits();
      shelf(home).pending.push(block);
    } else {
      // What the home lane is after by order came to it by a wait, which may be later than the free.
      if (!block->uses.empty()) dropUses(*block);
      if (size <= options_.cacheUpTo && !block->heap->closed.load(std::memory_order_relaxed))
        taken = shelf(home).cache.give(block, block->heap->number());
    }
  }
  counters_.freed(stripe, sizes, size, requested, pending);
  if (pending) return Status::ok;
  if (told) [[unlikely]]
    history_.add(Action::freeCompleted, record.address, record.size, home.id, record.pool, record.site, record.id);
  if (!taken) {
    std::lock_guard lock(mutex_);
    giveBack(block);
    sweepPools();
  }
  return Status::ok;
}

Status Allocator::addUse(Block& block, Mark* held) {
  Uses& uses = block.uses;
  for (std::size_t i = 0; i < uses.size(); ++i) {
    if (uses[i] != held && (held->lane == nullptr || uses[i]->lane != held->lane)) continue;
    // Of one lane the later point says it all; an event of the caller's counts once.
    if (held->point > uses[i]->point) std::swap(uses[i], held);
    held->drop();
    return Status::ok;
  }
  uses.push(held);
  return Status::ok;
}

Status Allocator::recordUse(Block* block, Lane& lane) {
  if (block->state != BlockState::live) return Status::invalidHandle;
  if (block->lane == &lane) return Status::ok;
  Mark* mark = nullptr;
  if (const Status status = lanes_.mark(lane, &mark); status != Status::ok) return status;
  if (history_.on()) [[unlikely]]
    history_.add(Action::useRecorded, block->address, block->size, lane.id, block->heap->config.pool, block->site,
                 block->id);
  std::lock_guard guard(block->lane->mutex);
  return addUse(*block, mark);
}

Status Allocator::recordStream(Block* block, Lane& lane) {
  if (block->state != BlockState::live) return Status::invalidHandle;
  if (block->lane == &lane) return Status::ok;
  std::lock_guard guard(block->lane->mutex);
  if (!block->noted) block->noted = std::make_unique<std::vector<Lane*>>();
  if (std::find(block->noted->begin(), block->noted->end(), &lane) == block->noted->end())
    block->noted->push_back(&lane);
  return Status::ok;
}

Status Allocator::keepUntil(Block* block, Mark& mark) {
  if (block->state != BlockState::live) return Status::invalidHandle;
  if (mark.lane == block->lane) return Status::ok;
  mark.hold();
  std::lock_guard guard(block->lane->mutex);
  return addUse(*block, &mark);
}

std::size_t Allocator::uncovered(const Block& block, const Lane& lane, std::size_t from) const {
  while (from < block.uses.size() && Lanes::before(lane, *block.uses[from])) ++from;
  return from;
}

void Allocator::letGo(Uses& uses) {
  for (; !uses.empty(); uses.popBack()) uses[uses.size() - 1]->drop();
}

void Allocator::dropUses(Block& block) {
  bool byOrder = false;
  for (std::size_t i = 0; i < block.uses.size(); ++i) byOrder = byOrder || !lanes_.complete(*block.uses[i]);
  letGo(block.uses);
  if (byOrder) block.release = std::max<Count>(block.release, block.lane->present());
}

void Allocator::settle(Block& block) {
  counters_.settled(block.stripe, sizeOf(block), block.size);
  complete(block);
}

void Allocator::complete(Block& block) {
  dropUses(block);
  if (history_.on()) [[unlikely]]
    completed(block);
}

void Allocator::completed(const Block& block) {
  history_.add(Action::freeCompleted, block.address, block.size, block.lane->id, block.heap->config.pool, block.site,
               block.id);
}

// What a lane does over and over: it takes the block of this size that it freed the longest ago. The caller holds the
// lane's mutex, and counts what is found as resumed. Null where the rungs have to be climbed one by one.
Block* Allocator::quickPending(Lane& lane, const Heap& heap, std::uint64_t size, Rung* rung, const Lane** refused) {
  constexpr int most = 8;
  const Policy& policy = *options_.policy;
  Block* block = shelf(lane).pending.first();
  for (int looked = 0; block != nullptr && (block->size != size || block->heap != &heap); block = block->next)
    if (++looked == most) return nullptr;
  if (block == nullptr) return nullptr;
  const std::size_t uses = block->uses.size();
  const auto next = [&](std::size_t from) {
    if (!policy.order || from == uses) return from;
    // One that it was not after when it freed the block it is after by now only if it has waited, or all is done.
    if (uses == 1 && block->age == lane.waits()) return lanes_.complete(*block->uses[0]) ? uses : 0;
    return uncovered(*block, lane, from);
  };
  std::size_t left = next(0);
  if (policy.order && left == uses) {
    *rung = Rung::order;
  } else if (policy.poll) {
    *rung = Rung::done;
    for (; left < uses; left = next(left + 1)) {
      Mark& mark = *block->uses[left];
      if (lanes_.poll(mark, &lane) == Status::ok) continue;
      *refused = mark.lane;
      return nullptr;
    }
  } else if (policy.waitFirst && heap.freeBytes() < size) {
    // Nothing free can come before it.
    *rung = Rung::wait;
    if (waitForUses(*block, lane, left) != Status::ok) return nullptr;
  } else {
    return nullptr;
  }
  shelf(lane).pending.remove(block);
  // It is somebody's at once: nobody asks when it was released.
  letGo(block->uses);
  if (history_.on()) [[unlikely]]
    completed(*block);
  block->settled = false;
  block->next = block->previous = nullptr;
  return block;
}

Status Allocator::waitForUses(const Block& block, Lane& lane, std::size_t from) {
  std::size_t waits = 0;
  for (; from < block.uses.size(); from = uncovered(block, lane, from + 1), ++waits) {
    if (const Status status = lanes_.join(lane, *block.uses[from]); status != Status::ok) return status;
    if (history_.on()) [[unlikely]]
      history_.add(Action::waitIssued, block.address, block.size, lane.id, block.heap->config.pool, block.site,
                   block.id);
  }
  Lanes::elided(lane, block.uses.size() - waits);
  return Status::ok;
}

}  // namespace braid::caching
