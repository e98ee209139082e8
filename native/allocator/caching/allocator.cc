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
  if (bytes == 0 || lane.retired) return Status::invalidValue;
  if (bytes > exbibyte) {
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
    // No wait for the mutex while the lane's own is held: they are taken in the other order.
    if (found == nullptr && evicted == nullptr && !shelf(lane).pending.empty() && mutex_.try_lock()) {
      found = quickPending(lane, heap, size, &rung, &refused);
      mutex_.unlock();
    }
  }
  std::uint8_t quick = static_cast<std::uint8_t>(rung);
  if (found == nullptr) {
    quick = StatsCounters::slow;
    const Status status = slow({bytes, size, lane, pool, heap, refused}, evicted, &found, shortage);
    if (status != Status::ok) return status;
  }
  found->state = BlockState::live;
  found->requested = bytes;
  found->site = site;
  found->stripe = counters_.allocated(static_cast<int>(heap.config.sizes), found->size, bytes, quick);
  if (history_.on()) {
    found->id = ids_.fetch_add(1, std::memory_order_relaxed) + 1;
    history_.add(Action::alloc, found->address, found->size, lane.id, heap.config.pool, site, found->id);
  }
  *block = found;
  return Status::ok;
}

Status Allocator::free(Block* block) {
  if (block->state != BlockState::live) return Status::invalidHandle;
  Lane& home = *block->lane;
  if (block->noted) {
    // A use that cannot be recorded is waited for; where that fails too, the block stays its owner's.
    for (Lane* lane : *block->noted)
      if (recordUse(block, *lane) != Status::ok)
        if (const Status failed = lanes_.drain(*lane); failed != Status::ok) return failed;
    block->noted.reset();
  }
  // Once it is in the cache, another thread may merge it away: what is told of it is noted before.
  const bool told = history_.on();
  Record record{};
  if (told) {
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
  counters_.freed(block->stripe, sizeOf(*block), block->size, block->requested);
  block->release = home.present();
  bool taken = false;
  {
    std::lock_guard guard(home.mutex);
    if (!block->uses.empty() && (options_.policy->order ? !covered(*block, home) : true)) {
      counters_.pending(block->stripe, sizeOf(*block), static_cast<std::int64_t>(block->size));
      shelf(home).pending.push(block);
      return Status::ok;
    }
    // What the home lane is after by order came to it by a wait, which may be later than the free.
    if (!block->uses.empty()) dropUses(*block);
    if (block->size <= options_.cacheUpTo && !block->heap->closed.load(std::memory_order_relaxed))
      taken = shelf(home).cache.give(block, block->heap->number());
  }
  if (told)
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
  if (history_.on())
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

bool Allocator::covered(const Block& block, const Lane& lane) const {
  for (std::size_t i = 0; i < block.uses.size(); ++i) {
    const Mark& mark = *block.uses[i];
    if (mark.lane == nullptr || !lanes_.before(lane, mark.lane->id, mark.point)) return false;
  }
  return true;
}

void Allocator::dropUses(Block& block) {
  bool byOrder = false;
  while (!block.uses.empty()) {
    Mark* mark = block.uses[block.uses.size() - 1];
    byOrder = byOrder || !lanes_.complete(*mark);
    mark->drop();
    block.uses.popBack();
  }
  if (byOrder) block.release = std::max<Count>(block.release, block.lane->present());
}

// Into its heap; what is too long to keep goes on to its source where nothing can still touch it.
void Allocator::giveBack(Block* block) {
  const bool goes = block->size > options_.cacheUpTo;
  Block* whole = block->heap->give(block);
  if (!goes || whole->segment->expandable || whole->size != whole->segment->size) return;
  if (!Heap::complete(*whole)) lanes_.pollLane(*whole->lane);
  if (Heap::complete(*whole)) releaseWhole(whole);
}

void Allocator::flush(Block* list) {
  while (list != nullptr) {
    Block* block = list;
    list = block->next;
    giveBack(block);
  }
}

void Allocator::flushCache(Lane& lane) {
  Block* all = nullptr;
  {
    std::lock_guard guard(lane.mutex);
    all = shelf(lane).cache.flush();
  }
  flush(all);
}

void Allocator::flushCaches() {
  for (LaneId id = 0; id < lanes_.count(); ++id) flushCache(lanes_.at(id));
}

// Pending blocks of one home lane that it is after by now, into their heaps. With `ask`, the driver is asked once for
// each lane whose uses are still outstanding, and not again after it has said no. Returns whether there were any.
bool Allocator::settlePending(Lane& lane, bool ask, const Lane* refusedAlready) {
  if (shelf(lane).pending.empty()) return false;
  Block* settled = nullptr;
  {
    std::lock_guard guard(lane.mutex);
    bool refused[Lanes::most] = {};
    if (refusedAlready != nullptr) refused[refusedAlready->id] = true;
    for (Block *block = shelf(lane).pending.first(), *next; block != nullptr; block = next) {
      next = block->next;
      bool ready = true;
      for (std::size_t i = 0; i < block->uses.size() && ready; ++i) {
        Mark& mark = *block->uses[i];
        ready = options_.policy->order ? mark.lane != nullptr && lanes_.before(lane, mark.lane->id, mark.point)
                                       : lanes_.complete(mark);
        if (ready || !ask || (mark.lane != nullptr && refused[mark.lane->id])) continue;
        ready = lanes_.poll(mark) == Status::ok;
        if (!ready && mark.lane != nullptr) refused[mark.lane->id] = true;
      }
      if (!ready) continue;
      shelf(lane).pending.remove(block);
      block->next = settled;
      settled = block;
    }
    for (Block* block = settled; block != nullptr; block = block->next) settle(*block);
  }
  flush(settled);
  return settled != nullptr;
}

// One question to each lane that has freed what this one is not after.
void Allocator::pollHomes(const Heap& heap, const Lane& lane) {
  if (heap.ownOnly(lane)) return;
  bool asked[Lanes::most] = {};
  heap.eachFree([&](const Block& block) {
    if (block.lane == &lane || Heap::complete(block) || asked[block.lane->id]) return;
    asked[block.lane->id] = true;
    lanes_.pollLane(*block.lane);
  });
}

void Allocator::settle(Block& block) {
  dropUses(block);
  counters_.pending(block.stripe, sizeOf(block), -static_cast<std::int64_t>(block.size));
  if (history_.on())
    history_.add(Action::freeCompleted, block.address, block.size, block.lane->id, block.heap->config.pool, block.site,
                 block.id);
}

// What a lane does over and over: it takes the block of this size that it freed the longest ago. The caller holds both
// mutexes. Null where the rungs have to be climbed one by one.
Block* Allocator::quickPending(Lane& lane, const Heap& heap, std::uint64_t size, Rung* rung, const Lane** refused) {
  constexpr int most = 8;
  const Policy& policy = *options_.policy;
  Block* block = shelf(lane).pending.first();
  for (int looked = 0; block != nullptr && (block->size != size || block->heap != &heap); block = block->next)
    if (++looked == most) return nullptr;
  if (block == nullptr) return nullptr;
  if (policy.order && covered(*block, lane)) {
    *rung = Rung::order;
  } else if (policy.poll) {
    *rung = Rung::done;
    for (std::size_t i = 0; i < block->uses.size(); ++i) {
      Mark& mark = *block->uses[i];
      if (policy.order && mark.lane != nullptr && lanes_.before(lane, mark.lane->id, mark.point)) continue;
      if (lanes_.poll(mark) == Status::ok) continue;
      *refused = mark.lane;
      return nullptr;
    }
  } else if (policy.waitFirst && heap.freeBytes() < size) {
    // Nothing free can come before it.
    *rung = Rung::wait;
    if (waitForUses(*block, lane) != Status::ok) return nullptr;
  } else {
    return nullptr;
  }
  shelf(lane).pending.remove(block);
  settle(*block);
  block->settled = false;
  block->next = block->previous = nullptr;
  return block;
}

Status Allocator::waitForUses(Block& block, Lane& lane) {
  for (std::size_t i = 0; i < block.uses.size(); ++i) {
    bool issued = false;
    if (const Status status = lanes_.wait(lane, *block.uses[i], &issued); status != Status::ok) return status;
    if (issued && history_.on())
      history_.add(Action::waitIssued, block.address, block.size, lane.id, block.heap->config.pool, block.site,
                   block.id);
  }
  return Status::ok;
}

// The lane's own pending block of exactly this size that it is after, else one that it may be made to wait for, oldest
// first; where `longer` is set, the shortest that is long enough.
Block* Allocator::fromPending(const Request& request, bool mayWait, bool longer, Status* status) {
  constexpr int most = 256;
  Lane& lane = request.lane;
  Block* best = nullptr;
  {
    std::lock_guard guard(lane.mutex);
    bool bestCovered = false;
    int looked = 0;
    for (Block* block = shelf(lane).pending.first(); block != nullptr && looked < most; block = block->next, ++looked) {
      if (block->heap != &request.heap || block->size < request.size || (!longer && block->size != request.size))
        continue;
      if (best != nullptr && block->size > best->size) continue;
      const bool after = covered(*block, lane);
      if (!after && !mayWait) continue;
      if (best != nullptr && block->size == best->size && (bestCovered || !after)) continue;
      best = block;
      bestCovered = after;
    }
    if (best == nullptr) return nullptr;
    if (!bestCovered) {
      *status = waitForUses(*best, lane);
      if (*status != Status::ok) return nullptr;
    }
    shelf(lane).pending.remove(best);
    settle(*best);
  }
  return request.heap.carve(best, request.size, lane);
}

// The shortest run of neighbours that are free or the lane's own pending ones: the lane waits for the uses of those.
Block* Allocator::fromPendingRun(const Request& request, Status* status) {
  Lane& lane = request.lane;
  Heap& heap = request.heap;
  if (shelf(lane).pending.empty()) return nullptr;
  std::lock_guard guard(lane.mutex);
  const auto usable = [&](const Block& block) {
    return (block.state == BlockState::pending && block.lane == &lane) ||
           (block.state == BlockState::free && heap.before(block, lane));
  };
  Block* best = nullptr;
  std::uint64_t shortest = unlimited;
  for (const auto& segment : heap.segments()) {
    for (Block* block = segment->first; block != nullptr;) {
      std::uint64_t length = 0;
      bool pending = false;
      Block* const first = block;
      for (; block != nullptr && usable(*block); block = block->nextInSegment) {
        length += block->size;
        pending = pending || block->state == BlockState::pending;
      }
      if (pending && length >= request.size && length < shortest) {
        best = first;
        shortest = length;
      }
      if (block == first) block = block->nextInSegment;
    }
  }
  if (best == nullptr) return nullptr;
  std::uint64_t length = 0;
  std::vector<Block*> parts;
  for (Block* block = best; length < request.size; block = block->nextInSegment) {
    parts.push_back(block);
    length += block->size;
    if (block->state != BlockState::pending) continue;
    *status = waitForUses(*block, lane);
    if (*status != Status::ok) return nullptr;
  }
  for (Block* part : parts) {
    if (part->state == BlockState::pending) {
      shelf(lane).pending.remove(part);
      settle(*part);
    } else {
      heap.extract(part);
    }
  }
  for (std::size_t i = 1; i < parts.size(); ++i) heap.join(best, parts[i]);
  best->lane = &lane;
  best->settled = false;
  best->release = lane.present();
  best->state = BlockState::free;
  return heap.carve(best, request.size, lane);
}

Status Allocator::slow(const Request& request, Block* evicted, Block** block, Shortage* shortage) {
  std::unique_lock lock(mutex_);
  Heap& heap = request.heap;
  const Policy& policy = *options_.policy;
  ++heap.clock;
  ++climbs_;
  flush(evicted);
  sweepPools();
  Status status = Status::ok;
  Rung rung = Rung::order;
  Block* found = nullptr;
  const auto try_ = [&](Rung next, auto&& step) {
    if (found != nullptr || status != Status::ok) return;
    rung = next;
    found = step();
  };
  if (policy.poll && !shelf(request.lane).pending.empty()) settlePending(request.lane, true, request.refused);
  try_(Rung::order, [&] { return heap.take(request.size, request.lane, policy.order); });
  if (!shelf(request.lane).pending.empty() && policy.order) {
    try_(Rung::order, [&] { return fromPending(request, false, false, &status); });
    if (policy.waitFirst) try_(Rung::wait, [&] { return fromPending(request, true, false, &status); });
  }
  // Other threads keep what their lanes have at hand until memory would grow. Where all lanes are one thread's, what
  // fits best is looked for in all of them at once, which holds less.
  if (counters_.several()) {
    try_(Rung::gather, [&] {
      flushCache(request.lane);
      return heap.take(request.size, request.lane, policy.order);
    });
  }
  try_(Rung::gather, [&] {
    flushCaches();
    if (policy.order) {
      for (LaneId id = 0; id < lanes_.count(); ++id) {
        settlePending(lanes_.at(id), policy.poll);
        // What another lane freed, and this one is after all uses of, though its home is not.
        if (id != request.lane.id) adoptPending(lanes_.at(id), request.lane);
      }
      // A policy that asks nothing lets no clock decide which block this is.
      if (policy.poll) pollHomes(heap, request.lane);
      heap.gather(request.lane);
    }
    return heap.take(request.size, request.lane, policy.order);
  });
  if (policy.waitFirst) {
    try_(Rung::wait, [&] { return fromPending(request, true, true, &status); });
    try_(Rung::wait, [&] { return fromPendingRun(request, &status); });
  }
  try_(Rung::grow, [&] { return grow(request, &status, &rung); });
  // A driver that has no more memory is the ladder's to deal with; any other failure is the caller's.
  if (status == Status::outOfMemory) status = Status::ok;
  try_(Rung::last, [&] { return lastResort(request, &status); });
  if (found == nullptr && status == Status::ok) {
    // Out of memory: what the observers give back is looked for once more, by all rungs.
    for (std::size_t i = 0; i < observers_.size() && found == nullptr; ++i) {
      const auto [observer, data] = observers_[i];
      *shortage = shortageOf(request, Status::outOfMemory);
      lock.unlock();
      const bool again = observer(data, *shortage);
      lock.lock();
      if (!again) continue;
      flushCaches();
      rung = Rung::last;
      found = heap.take(request.size, request.lane, policy.order);
      if (found == nullptr) found = grow(request, &status, &rung);
      if (status == Status::outOfMemory) status = Status::ok;
      if (found == nullptr) found = lastResort(request, &status);
    }
  }
  if (found == nullptr) {
    if (status == Status::ok) status = Status::outOfMemory;
    *shortage = shortageOf(request, status);
    if (status == Status::outOfMemory) ++counters_.outOfMemory;
    if (history_.on())
      history_.add(Action::outOfMemory, shortage->deviceFree, request.size, request.lane.id, heap.config.pool, 0, 0);
    return status;
  }
  ++counters_.served[static_cast<std::size_t>(rung)];
  *block = found;
  return Status::ok;
}

}  // namespace braid::caching
