// The path of every allocation, free and use; slow_path.cc is for requests that the cache cannot serve.
#include "memory/caching/allocator.h"

#include <algorithm>
#include <bit>

namespace braid::caching {
namespace {

constexpr std::uint64_t smallest = 512, smallAtMost = std::uint64_t{1} << 20,
                        exbibyte = std::uint64_t{1} << 60;

int sizesOf(const Heap& heap) { return static_cast<int>(heap.config.sizes); }

}  // namespace

Allocator::Allocator(Lanes& lanes, std::unique_ptr<Source> source, const Options& options)
    : lanes_(lanes),
      source_(std::move(source)),
      options_(options),
      coarse_(options.roundToPowerOfTwoUpTo > 0 ||
              std::any_of(options.divisions.begin(), options.divisions.end(),
                          [](auto steps) { return steps > 1; })),
      pages_(lanes.driver()) {
  makeDefaultHeaps();
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

Heap& Allocator::heapFor(std::uint64_t size, MemPool* pool) {
  if (pool != nullptr) return size <= smallAtMost ? *pool->small : *pool->large;
  // A segment that was reserved beforehand serves all sizes.
  return size <= smallAtMost && options_.reserveFirst == 0 ? *small_ : *large_;
}

Status Allocator::malloc(std::uint64_t bytes, Lane& lane, Block** block, Shortage* shortage, MemPool* pool,
                         std::uint32_t site, const void* owner) {
  if (bytes - 1 >= exbibyte || lane.retired || (pool != nullptr && pool->kept() && !lane.inGraph))
      [[unlikely]]
    return refuse(bytes, lane, pool, shortage);
  const std::uint64_t size = rounded(bytes);
  Heap& heap = heapFor(size, pool);
  Block* found = nullptr;
  Block* evicted = nullptr;
  const Lane* refused = nullptr;
  Fallback fallback = Fallback::cache;
  {
    const BiasedLock::Hold hold(lane.mutex);
    LaneBlocks& own = blocksOf(lane);
    found = own.cache.take(&heap, heap.number, size, &evicted);
    if (found == nullptr && evicted == nullptr && !own.pending.empty())
      found = reusePending(lane, own.pending, heap, size, &fallback, &refused);
  }
  auto served = static_cast<std::uint8_t>(fallback);
  if (found == nullptr) [[unlikely]] {
    Block* slowly = nullptr;  // a pointer whose address is taken would not be kept in a register
    const Status status = slow({bytes, size, lane, pool, heap, refused}, evicted, &slowly, shortage);
    if (status != Status::ok || slowly == nullptr) return status;
    found = slowly;
    served = StatsCounters::slow;
  }
  found->counters = counters_.allocated(sizesOf(heap), found->size, bytes, served);
  if (found->size >= options_.maxSplit) [[unlikely]]
    counters_.oversize(1);
  found->owner = owner;
  found->state = BlockState::live;
  found->requested = bytes;
  found->site = site;
  if (history_.on()) [[unlikely]] {
    found->id = ids_.fetch_add(1, std::memory_order_relaxed) + 1;
    remember(Action::alloc, *found, lane);
  }
  *block = found;
  return Status::ok;
}

Status Allocator::refuse(std::uint64_t bytes, const Lane& lane, const MemPool* pool, Shortage* shortage) {
  if (bytes == 0 || lane.retired) return Status::invalidValue;
  if (pool != nullptr && pool->kept() && !lane.inGraph) return Status::illegalState;
  *shortage = {};
  shortage->status = Status::outOfMemory;
  shortage->wanted = shortage->size = bytes;
  return Status::outOfMemory;
}

bool Allocator::isAfterUses(const Lane& lane, const Block& block) {
  for (const Mark* const use : block.uses)
    if (!lane.isAfter(*use)) return false;
  return true;
}

Status Allocator::free(Block* block) {
  if (block->state != BlockState::live) return Status::invalidHandle;
  Lane& home = *block->lane;
  if (block->noted) [[unlikely]] {
    if (const Status failed = recordNotedLanes(*block); failed != Status::ok) return failed;
  }
  if (history_.on()) [[unlikely]]
    remember(Action::freeRequested, *block, home);
  // Read before the block is given away: from then on another thread may allocate it or merge it.
  const std::uint8_t counters = block->counters;
  const int sizes = sizesOf(*block->heap);
  const std::uint64_t size = block->size, requested = block->requested;
  bool pending = false, cached = false;
  {
    const BiasedLock::Hold hold(home.mutex);
    // Read under the lock: while another thread records a mark, `present` is a point that no event marks yet.
    block->release = home.present();
    Uses& uses = block->uses;
    pending = !uses.empty() && (!options_.policy->order || !isAfterUses(home, *block));
    if (pending) {
      blocksOf(home).pending.push(block);
    } else {
      // The wait that ordered the uses may be later than the free: `dropUses` moves the release point.
      if (!uses.empty()) dropUses(*block);
      if (history_.on()) [[unlikely]]
        remember(Action::freeCompleted, *block, home);
      if (size <= options_.cacheUpTo && !block->heap->closed.load(std::memory_order_relaxed))
        cached = blocksOf(home).cache.give(block, block->heap->number);
    }
  }
  counters_.freed(counters, sizes, size, requested, pending);
  if (size >= options_.maxSplit) [[unlikely]]
    counters_.oversize(-1);
  if (pending || cached) return Status::ok;
  std::lock_guard lock(mutex_);
  returnToHeap(block);
  sweepPools();
  return Status::ok;
}

// If a lane's use cannot be recorded, its stream is waited for; if that fails too, the block stays live.
Status Allocator::recordNotedLanes(Block& block) {
  for (Lane* lane : *block.noted)
    if (recordUse(&block, *lane) != Status::ok)
      if (const Status failed = lanes_.synchronizeStream(*lane); failed != Status::ok) return failed;
  block.noted.reset();
  return Status::ok;
}

// Takes over the caller's hold on the mark. Of two marks of one lane the later one is kept.
void Allocator::addUse(Block& block, Mark* held) {
  for (Mark*& use : block.uses) {
    if (use->lane != held->lane) continue;
    if (held->point > use->point) std::swap(use, held);
    held->release();
    return;
  }
  block.uses.push(held);
}

Status Allocator::recordUse(Block* block, Lane& lane) {
  if (block->state != BlockState::live) return Status::invalidHandle;
  if (block->lane == &lane) return Status::ok;
  Mark* mark = nullptr;
  if (const Status status = lanes_.mark(lane, &mark); status != Status::ok) return status;
  if (history_.on()) [[unlikely]]
    remember(Action::useRecorded, *block, lane);
  const BiasedLock::Hold hold(block->lane->mutex);
  addUse(*block, mark);
  return Status::ok;
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
  addUse(*block, &mark);
  return Status::ok;
}

Status Allocator::endLoan(Block* block) {
  if (block->state != BlockState::live) return Status::invalidHandle;
  return block->noted ? recordNotedLanes(*block) : Status::ok;
}

void Allocator::takeUses(Block* block, std::vector<Mark*>* marks) {
  const BiasedLock::Hold hold(block->lane->mutex);
  marks->insert(marks->end(), block->uses.begin(), block->uses.end());
  block->uses.clear();
}

inline void Allocator::releaseUses(Uses& uses) {
  for (Mark* const use : uses) use->release();
  uses.clear();
}

void Allocator::dropUses(Block& block) {
  bool byOrder = false;
  for (const Mark* const use : block.uses) byOrder = byOrder || !Lanes::complete(*use);
  releaseUses(block.uses);
  if (byOrder) block.release = std::max<Count>(block.release, block.lane->present());
}

void Allocator::retirePending(Block& block) {
  counters_.finished(block.counters, sizesOf(*block.heap), block.size);
  dropUses(block);
  if (history_.on()) [[unlikely]]
    remember(Action::freeCompleted, block, *block.lane);
}

void Allocator::remember(Action action, const Block& block, const Lane& lane) {
  history_.add({.action = action,
                .lane = lane.id,
                .site = block.site,
                .address = block.address,
                .size = block.size,
                .pool = block.heap->config.pool,
                .id = block.id});
}

// The fast form of `fromPending`, for the common case that a lane allocates and frees the same sizes over and
// over: takes the oldest pending block of exactly this size. The caller holds the lane's lock. Null where the
// slow path has to search.
Block* Allocator::reusePending(Lane& lane, PendingList& pending, const Heap& heap, std::uint64_t size,
                               Fallback* fallback, const Lane** refused) {
  constexpr int most = 8;
  const Policy& policy = *options_.policy;
  Block* block = pending.first();
  for (int looked = 0; block != nullptr && (block->size != size || block->heap != &heap); block = block->next)
    if (++looked == most) return nullptr;
  if (block == nullptr) return nullptr;
  Fallback found = Fallback::order;
  for (Mark* const use : block->uses) {
    if (policy.order ? lane.isAfter(*use) : Lanes::complete(*use)) continue;
    if (policy.poll) {
      found = Fallback::completed;
      if (lanes_.query(*use, &lane) == Status::ok) continue;
      *refused = use->lane;
      return nullptr;
    }
    // Under `waitFirst` the slow path looks at free blocks first: there must be none that could serve.
    if (!policy.waitFirst || lane.inGraph || block->heap->freeBytes() >= block->size ||
        waitForUses(*block, lane) != Status::ok)
      return nullptr;
    found = Fallback::wait;
    break;
  }
  pending.remove(block);
  counters_.finished(block->counters, sizesOf(heap), block->size);
  releaseUses(block->uses);
  if (history_.on()) [[unlikely]]
    remember(Action::freeCompleted, *block, lane);
  *fallback = found;
  return block;
}

Status Allocator::waitForUses(const Block& block, Lane& lane) {
  std::size_t waits = 0;
  for (Mark* const use : block.uses) {
    if (lane.isAfter(*use)) continue;
    if (const Status status = lanes_.issueWait(lane, *use); status != Status::ok) return status;
    ++waits;
    if (history_.on()) [[unlikely]]
      remember(Action::waitIssued, block, lane);
  }
  Lanes::countElided(lane, block.uses.size() - waits);
  return Status::ok;
}

}  // namespace braid::caching
