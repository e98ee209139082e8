// What every allocation and every free runs through; `climb.cc` is for those that find nothing at hand.
#include "memory/caching/allocator.h"

#include <algorithm>
#include <bit>

namespace braid::caching {
namespace {

constexpr std::uint64_t smallest = 512, smallAtMost = std::uint64_t{1} << 20,
                        exbibyte = std::uint64_t{1} << 60;

int sizeOf(const Block& block) { return static_cast<int>(block.heap->config.sizes); }

}  // namespace

Allocator::Allocator(Lanes& lanes, std::unique_ptr<Source> source, const Options& options)
    : lanes_(lanes), source_(std::move(source)), pages_(lanes.driver()) {
  setOptions(options);
  const bool expandable = options_.expandable && source_->expandable();
  small_ = std::make_unique<Heap>(lanes_, blocks_, options_,
                                  HeapConfig{0, SizeClass::small, false, expandable, source_.get()});
  large_ = std::make_unique<Heap>(lanes_, blocks_, options_,
                                  HeapConfig{0, SizeClass::large, false, expandable, source_.get()});
  heaps_ = {small_.get(), large_.get()};
}

inline std::uint64_t Allocator::rounded(std::uint64_t bytes) const {
  return coarse_ ? roundedUp(bytes) : (bytes + smallest - 1) / smallest * smallest;
}

std::uint64_t Allocator::roundedUp(std::uint64_t bytes) const {
  if (bytes <= options_.roundToPowerOfTwoUpTo) return std::max(smallest, std::bit_ceil(bytes));
  const int power = static_cast<int>(std::bit_width(bytes)) - 1;
  const std::uint32_t steps = options_.divisions[static_cast<std::size_t>(std::clamp(power - 20, 0, 15))];
  if (steps > 1 && bytes > smallest * steps && !std::has_single_bit(bytes)) {
    const std::uint64_t step = (std::uint64_t{1} << power) / steps;
    bytes = (bytes + step - 1) / step * step;
  }
  return (bytes + smallest - 1) / smallest * smallest;
}

void Allocator::setOptions(const Options& options) {
  options_ = options;
  coarse_ =
      options.roundToPowerOfTwoUpTo > 0 ||
      std::any_of(options.divisions.begin(), options.divisions.end(), [](auto steps) { return steps > 1; });
}

Heap& Allocator::heapFor(std::uint64_t size, MemPool* pool) {
  if (pool != nullptr) return size <= smallAtMost ? *pool->small : *pool->large;
  // What was reserved beforehand serves all sizes.
  return size <= smallAtMost && options_.reserveFirst == 0 ? *small_ : *large_;
}

Status Allocator::malloc(std::uint64_t bytes, Lane& lane, Block** block, Shortage* shortage, MemPool* pool,
                         std::uint32_t site) {
  if (bytes - 1 >= exbibyte || lane.retired) [[unlikely]]
    return refuse(bytes, lane, shortage);
  const std::uint64_t size = rounded(bytes);
  Heap& heap = heapFor(size, pool);
  Block* found = nullptr;
  Block* evicted = nullptr;
  const Lane* refused = nullptr;
  bool counted = false;
  {
    const BiasedLock::Hold hold(lane.mutex);
    LaneBlocks& own = blocksOf(lane);
    found = own.cache.take(&heap, heap.number, size, &evicted);
    if (found == nullptr && evicted == nullptr && !own.pending.empty()) {
      found = resume(lane, heap, size, bytes, &refused);
      counted = found != nullptr;
    }
  }
  if (!counted) {
    auto rung = static_cast<std::uint8_t>(Rung::cache);
    if (found == nullptr) [[unlikely]] {
      Block* climbed = nullptr;
      const Status status = slow({bytes, size, lane, pool, heap, refused}, evicted, &climbed, shortage);
      if (status != Status::ok || climbed == nullptr) return status;
      found = climbed;
      rung = StatsCounters::slow;
    }
    found->stripe = counters_.allocated(static_cast<int>(heap.config.sizes), found->size, bytes, rung);
  }
  found->state = BlockState::live;
  found->requested = bytes;
  found->site = site;
  if (history_.on()) [[unlikely]] {
    found->id = ids_.fetch_add(1, std::memory_order_relaxed) + 1;
    tell(Action::alloc, *found, lane);
  }
  *block = found;
  return Status::ok;
}

Status Allocator::refuse(std::uint64_t bytes, const Lane& lane, Shortage* shortage) {
  if (bytes == 0 || lane.retired) return Status::invalidValue;
  *shortage = {};
  shortage->status = Status::outOfMemory;
  shortage->wanted = shortage->size = bytes;
  return Status::outOfMemory;
}

inline Mark* const* Allocator::uncovered(const Block& block, const Lane& lane, Mark* const* from) {
  Mark* const* const end = block.uses.end();
  while (from != end && lane.isAfter(**from)) ++from;
  return from;
}

Status Allocator::free(Block* block) {
  if (block->state != BlockState::live) return Status::invalidHandle;
  Lane& home = *block->lane;
  if (block->noted) [[unlikely]] {
    if (const Status failed = recordNoted(*block); failed != Status::ok) return failed;
  }
  if (history_.on()) [[unlikely]]
    tell(Action::freeRequested, *block, home);
  // What it counted is noted before: a block that is nobody's any more may be somebody's at once, or merged
  // away.
  const std::uint8_t stripe = block->stripe;
  const int sizes = sizeOf(*block);
  const std::uint64_t size = block->size, requested = block->requested;
  bool pending = false, taken = false;
  {
    const BiasedLock::Hold hold(home.mutex);
    // Under the mutex: while a mark is being recorded, the present point is one that nothing may ever be
    // asked about.
    block->release = home.present();
    Uses& uses = block->uses;
    pending =
        !uses.empty() && (!options_.policy->order || uncovered(*block, home, uses.begin()) != uses.end());
    if (pending) {
      blocksOf(home).pending.push(block);
    } else {
      // What the home lane is after by order came to it by a wait, which may be later than the free.
      if (!uses.empty()) dropUses(*block);
      if (history_.on()) [[unlikely]]
        tell(Action::freeCompleted, *block, home);
      if (size <= options_.cacheUpTo && !block->heap->closed.load(std::memory_order_relaxed))
        taken = blocksOf(home).cache.give(block, block->heap->number);
    }
  }
  counters_.freed(stripe, sizes, size, requested, pending);
  if (pending || taken) return Status::ok;
  std::lock_guard lock(mutex_);
  giveBack(block);
  sweepPools();
  return Status::ok;
}

// A use that cannot be recorded is waited for; where that fails too, the block stays its owner's.
Status Allocator::recordNoted(Block& block) {
  for (Lane* lane : *block.noted)
    if (recordUse(&block, *lane) != Status::ok)
      if (const Status failed = lanes_.synchronizeStream(*lane); failed != Status::ok) return failed;
  block.noted.reset();
  return Status::ok;
}

Status Allocator::addUse(Block& block, Mark* held) {
  for (Mark*& use : block.uses) {
    if (use != held && (held->lane == nullptr || use->lane != held->lane)) continue;
    // Of one lane the later point says it all; an event of the caller's counts once.
    if (held->point > use->point) std::swap(use, held);
    held->release();
    return Status::ok;
  }
  block.uses.push(held);
  return Status::ok;
}

Status Allocator::recordUse(Block* block, Lane& lane) {
  if (block->state != BlockState::live) return Status::invalidHandle;
  if (block->lane == &lane) return Status::ok;
  Mark* mark = nullptr;
  if (const Status status = lanes_.mark(lane, &mark); status != Status::ok) return status;
  if (history_.on()) [[unlikely]]
    tell(Action::useRecorded, *block, lane);
  const BiasedLock::Hold hold(block->lane->mutex);
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

bool Allocator::covered(const Block& block, const Lane& lane) {
  return uncovered(block, lane, block.uses.begin()) == block.uses.end();
}

inline void Allocator::letGo(Uses& uses) {
  for (Mark* const use : uses) use->release();
  uses.clear();
}

void Allocator::dropUses(Block& block) {
  bool byOrder = false;
  for (const Mark* const use : block.uses) byOrder = byOrder || !Lanes::complete(*use);
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
    tell(Action::freeCompleted, block, *block.lane);
}

Record Allocator::recordOf(Action action, const Block& block, const Lane& lane) {
  return {.action = action,
          .lane = lane.id,
          .site = block.site,
          .address = block.address,
          .size = block.size,
          .pool = block.heap->config.pool,
          .id = block.id};
}

void Allocator::tell(Action action, const Block& block, const Lane& lane) {
  history_.add(recordOf(action, block, lane));
}

// What a lane does over and over: it takes the block of this size that it freed the longest ago. The caller
// holds the lane's mutex. What is found is counted as given out. Null where the rungs have to be climbed one
// by one.
Block* Allocator::resume(Lane& lane, const Heap& heap, std::uint64_t size, std::uint64_t bytes,
                         const Lane** refused) {
  constexpr int most = 8;
  Block* block = blocksOf(lane).pending.first();
  for (int looked = 0; block != nullptr && (block->size != size || block->heap != &heap); block = block->next)
    if (++looked == most) return nullptr;
  if (block == nullptr) return nullptr;
  Rung rung = Rung::order;
  for (Mark *const *use = block->uses.begin(), *const *end = block->uses.end(); use != end; ++use) {
    const Policy& policy = *options_.policy;
    Mark& mark = **use;
    if (policy.order ? lane.isAfter(mark) : Lanes::complete(mark)) continue;
    if (policy.poll) {
      rung = Rung::done;
      if (lanes_.query(mark, &lane) == Status::ok) continue;
      *refused = mark.lane;
      return nullptr;
    }
    // Nothing free can come before it.
    if (!policy.waitFirst || block->heap->freeBytes() >= block->size ||
        waitForUses(*block, lane, use) != Status::ok)
      return nullptr;
    rung = Rung::wait;
    break;
  }
  blocksOf(lane).pending.remove(block);
  // It is somebody's at once: nobody asks when it was released.
  letGo(block->uses);
  if (history_.on()) [[unlikely]]
    tell(Action::freeCompleted, *block, lane);
  block->stripe =
      counters_.resumed(block->stripe, sizeOf(*block), block->size, bytes, static_cast<std::uint8_t>(rung));
  return block;
}

Status Allocator::waitForUses(const Block& block, Lane& lane, Mark* const* from) {
  std::size_t waits = 0;
  for (; from != block.uses.end(); from = uncovered(block, lane, from + 1), ++waits) {
    if (const Status status = lanes_.issueWait(lane, **from); status != Status::ok) return status;
    if (history_.on()) [[unlikely]]
      tell(Action::waitIssued, block, lane);
  }
  Lanes::countElided(lane, block.uses.size() - waits);
  return Status::ok;
}

Status Allocator::waitForUses(const Block& block, Lane& lane) {
  return waitForUses(block, lane, uncovered(block, lane, block.uses.begin()));
}

}  // namespace braid::caching
