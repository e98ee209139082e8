#include "executor/session_memory.h"

#include "memory/range_pool.h"

namespace braid {
namespace {

bool handedOver(Life life) { return life == Life::input || life == Life::output; }

// How often a buffer outside the arenas is there.
std::uint64_t copiesOf(const ProgramSpec& spec, const BufferSpec& buffer) {
  if (handedOver(buffer.life)) return spec.inFlight;
  return buffer.life == Life::tick ? spec.arenas : 1;
}

std::string item(const char* list, std::size_t index) {
  return std::string(list) + "[" + std::to_string(index) + "]";
}

Failure tooSmall(std::size_t device, std::uint64_t wanted, std::uint64_t given) {
  return invalidProgram(item("bound.device", device), "the program needs " + std::to_string(wanted) +
                                                          " bytes before its first tick, and is promised " +
                                                          std::to_string(given));
}

bool pooled(const ProgramSpec& spec, const BufferSpec& buffer) {
  return buffer.life == Life::tick && !spec.planned;
}

// What a root is, for the names of blocks.
std::string purposeOf(const BufferSpec& buffer) {
  switch (buffer.life) {
    case Life::input: return "input slot " + buffer.name;
    case Life::output: return "output slot " + buffer.name;
    case Life::param: return "param " + buffer.name;
    default: return buffer.name;
  }
}

}  // namespace

MaybeFailure SessionMemory::layOut(const ProgramSpec& spec) {
  constexpr std::uint64_t most = std::uint64_t{1} << 60;
  bool pinnedPool = false;
  for (std::size_t i = 0; i < spec.buffers.size(); ++i) {
    const BufferSpec& buffer = spec.buffers[i];
    if (buffer.root != i || buffer.arenaOffset >= 0) continue;
    if (pooled(spec, buffer)) {
      pinnedPool |= buffer.space == Space::pinned;
      continue;
    }
    Range& range = ranges_[of(buffer)];
    const std::uint64_t bytes = RangePool::rounded(buffer.bytes) * copiesOf(spec, buffer);
    range.fixed += bytes;
    if (buffer.life == Life::state || buffer.life == Life::tick) range.state += bytes;
    if (sources_.shared.contains(static_cast<std::uint32_t>(i))) range.shared += bytes;
    if (range.fixed > most) return invalidProgram(item("buffers", i), "more than 2^60 bytes in all");
  }
  findOwnBytes(spec);
  for (std::size_t device = 0; device < devices_.size(); ++device) {
    if (MaybeFailure failure = sizeDevice(spec, device)) return failure;
  }
  Range& own = ranges_[pinned()];
  own.total = pinnedPool ? std::max(own.fixed, spec.boundPinned) : own.fixed;
  return std::nullopt;
}

void SessionMemory::findOwnBytes(const ProgramSpec& spec) {
  if (spec.arenas == 1) return;
  for (std::size_t device = 0; device < devices_.size(); ++device) {
    const std::uint64_t end = spec.devices[device].arenaBytes;
    std::uint64_t from = end;
    for (const BufferSpec& buffer : spec.buffers)
      if (buffer.life == Life::tick && buffer.arenaOffset >= 0 && buffer.bytes > 0 && buffer.device == device)
        from = std::min(from, static_cast<std::uint64_t>(buffer.arenaOffset));
    if (end > from) ranges_[device].own = RangePool::rounded(end - from);
  }
}

MaybeFailure SessionMemory::sizeDevice(const ProgramSpec& spec, std::size_t device) {
  const auto& [boundBytes, arenaBytes] = spec.devices[device];
  Range& range = ranges_[device];
  range.total = spec.planned ? range.fixed + RangePool::rounded(arenaBytes) + (spec.arenas - 1) * range.own
                             : RangePool::rounded(boundBytes);
  if (spec.planned && arenaBytes == 0) range.total = range.fixed;
  if (!spec.planned && boundBytes == 0) range.total = 0;
  const std::uint64_t promised = RangePool::rounded(boundBytes);
  if (range.fixed > range.total) return tooSmall(device, range.fixed, boundBytes);
  if (spec.planned && range.total > 0 && range.total > promised)
    return tooSmall(device, range.total, boundBytes);
  return std::nullopt;
}

// The device's memory first comes from the allocator's heaps, which other lanes' blocks share. Peers of a
// session on several devices are given access to it, now and later mapped pages alike (Driver::reachPeer).
MaybeFailure SessionMemory::block(std::size_t memory, std::uint64_t bytes, const std::string& purpose,
                                  caching::Block** taken) {
  DeviceMemory& device = deviceOf(memory);
  const bool host = memory == pinned();
  Driver& driver = device.driver();
  Status status = driver.bind();
  Lane* const home = status == Status::ok ? device.hostLane(&status) : nullptr;
  if (status != Status::ok) return failureOf(driver, status, "streamCreate");
  caching::Allocator& allocator = host ? device.pinned() : device.device();
  const std::uint32_t site = device.site("session `" + name_ + "`: " + purpose);
  caching::Shortage shortage;
  caching::MemPool* pool = host || memory != 0 ? nullptr : sources_.pool;
  status = allocator.malloc(bytes, *home, taken, &shortage, pool, site);
  // A small device may have room for these bytes and not for whole pages.
  if (status == Status::outOfMemory && !host && pool == nullptr)
    status = allocator.malloc(bytes, *home, taken, &shortage, device.wholePool(), site);
  if (status == Status::ok) return std::nullopt;
  if (status == Status::outOfMemory) return shortOf(memory, shortage, bytes);
  return failureOf(driver, status, host ? "pinnedAllocate" : "memAllocate");
}

// All blocks of the session go back first, so that the free bytes are those that the whole session could
// have.
Failure SessionMemory::shortOf(std::size_t memory, const caching::Shortage& shortage, std::uint64_t wanted) {
  DeviceMemory& device = deviceOf(memory);
  const bool host = memory == pinned();
  Failure failure = failureOf(device.driver(), Status::outOfMemory, host ? "pinnedAllocate" : "memAllocate");
  const std::uint64_t total = host ? ranges_[memory].total : totalBytes(memory);
  release();
  caching::Allocator& allocator = host ? device.pinned() : device.device();
  const caching::Stats stats = allocator.stats();
  std::size_t free = 0, all = 0;
  if (device.driver().bind() == Status::ok && device.driver().memInfo(&free, &all) == Status::ok) {
    failure.memory = true;
    failure.wantedBytes = std::max(total, wanted);
    const auto active = static_cast<std::uint64_t>(stats.all.activeBytes.current);
    const std::uint64_t cached = allocator.reserved() - std::min(allocator.reserved(), active);
    failure.freeBytes = free + cached;
    const std::uint64_t limit = allocator.options().limit;
    if (limit != caching::unlimited)
      failure.freeBytes = std::min(failure.freeBytes, limit - std::min(limit, active));
  }
  std::string holders;
  const std::string own = "session `" + name_ + "`: ";
  for (const auto& holder : shortage.holders) {
    const std::string words = device.siteWords(holder.site);
    const std::string label = words.substr(0, words.find('\0'));
    if (label.empty() || label.starts_with(own)) continue;
    holders += (holders.empty() ? "held by " : ", ") + label + ": " + std::to_string(holder.bytes) + " bytes";
  }
  failure.holders = holders;
  return failure;
}

MaybeFailure SessionMemory::takeRoots(const ProgramSpec& spec) {
  std::vector<std::uint64_t> stateEnd(ranges_.size());
  std::vector<DeviceAddress> state(ranges_.size());
  for (std::size_t memory = 0; memory < ranges_.size(); ++memory) {
    if (ranges_[memory].state == 0) continue;
    caching::Block* taken = nullptr;
    if (MaybeFailure failure = block(memory, ranges_[memory].state, "state", &taken)) return failure;
    state[memory] = taken->address;
    if (memory == pinned())
      pinnedRange_.push_back(std::make_shared<const PinnedBlock>(devices_[0], taken));
    else
      blocks_.emplace_back(memory, taken);
  }
  for (std::uint32_t i = 0; i < spec.buffers.size(); ++i) {
    const BufferSpec& buffer = spec.buffers[i];
    if (buffer.root != i || buffer.arenaOffset >= 0 || pooled(spec, buffer)) continue;
    const std::size_t memory = of(buffer);
    const std::uint64_t bytes = RangePool::rounded(buffer.bytes);
    Place& place = places_[i];
    if (buffer.life == Life::state || buffer.life == Life::tick) {
      place.address = state[memory] + stateEnd[memory];
      if (buffer.life == Life::tick && spec.arenas > 1) place.own = bytes;
      stateEnd[memory] += bytes * copiesOf(spec, buffer);
      continue;
    }
    if (sources_.shared.contains(i)) continue;
    place.slots = static_cast<std::uint32_t>(slots_.size());
    const std::uint32_t slots = handedOver(buffer.life) ? spec.inFlight : 1;
    for (std::uint32_t slot = 0; slot < slots; ++slot) {
      caching::Block* taken = nullptr;
      if (MaybeFailure failure = block(memory, bytes, purposeOf(buffer), &taken)) return failure;
      Slot& made = slots_.emplace_back();
      made.address = taken->address;
      if (memory == pinned())
        made.pinned = std::make_shared<const PinnedBlock>(devices_[0], taken);
      else
        blocks_.emplace_back(memory, made.block = taken);
    }
    place.address = slots_[place.slots].address;
  }
  return std::nullopt;
}

// Parameters that are shared lie outside the arena: the ends that only they would take are left out.
void SessionMemory::trimArena(const ProgramSpec& spec, std::size_t memory) {
  const std::uint64_t further = (spec.arenas - 1) * ranges_[memory].own;
  const std::uint64_t one = poolBytes(memory) - further;
  std::uint64_t low = one, high = 0;
  for (std::uint32_t i = 0; i < spec.buffers.size(); ++i) {
    const BufferSpec& buffer = spec.buffers[i];
    if (buffer.root != i || buffer.arenaOffset < 0 || of(buffer) != memory) continue;
    if (sources_.shared.contains(i)) continue;
    const auto offset = static_cast<std::uint64_t>(buffer.arenaOffset);
    low = std::min(low, offset / RangePool::granule * RangePool::granule);
    high = std::max(high, offset + buffer.bytes);
  }
  high = std::min(high == 0 ? 0 : RangePool::rounded(high), one);
  ranges_[memory].low = std::min(low, high);
  ranges_[memory].total = ranges_[memory].fixed + high - ranges_[memory].low + further;
}

// The ranges of pools and the arenas, and the places of the buffers in an arena.
MaybeFailure SessionMemory::takeRanges(const ProgramSpec& spec) {
  for (std::size_t memory = 0; memory < ranges_.size(); ++memory) {
    if (spec.planned && !sources_.shared.empty()) trimArena(spec, memory);
    if (poolBytes(memory) == 0) continue;
    caching::Block* taken = nullptr;
    if (MaybeFailure failure = block(memory, poolBytes(memory), spec.planned ? "arena" : "pool", &taken))
      return failure;
    ranges_[memory].base = taken->address - ranges_[memory].low;
    if (memory == pinned())
      pinnedRange_.push_back(std::make_shared<const PinnedBlock>(devices_[0], taken));
    else
      blocks_.emplace_back(memory, taken);
  }
  for (std::size_t i = 0; i < spec.buffers.size(); ++i) {
    const BufferSpec& buffer = spec.buffers[i];
    if (buffer.root != i || buffer.arenaOffset < 0) continue;
    places_[i].address = ranges_[of(buffer)].base + static_cast<std::uint64_t>(buffer.arenaOffset);
    if (buffer.life == Life::tick) places_[i].own = ranges_[of(buffer)].own;
  }
  for (const auto& [root, block] : sources_.shared) places_[root].address = block->address;
  return std::nullopt;
}

// The home lane may come after the previous uses of its blocks by order alone: they have not completed then,
// and the session's streams have to come after them too.
MaybeFailure SessionMemory::markHome(DeviceMemory& device) {
  Status status = device.driver().bind();
  Lane* const home = status == Status::ok ? device.hostLane(&status) : nullptr;
  if (status != Status::ok) return failureOf(device.driver(), status, "streamCreate");
  status = device.lanes().pollLane(*home);
  if (status == Status::ok) return std::nullopt;
  Mark* mark = nullptr;
  if (status == Status::notReady) status = device.lanes().mark(*home, &mark);
  if (status != Status::ok) return failureOf(device.driver(), status, "eventRecord");
  previous_.emplace_back(&device, mark);
  return std::nullopt;
}

Status SessionMemory::orderAfterPreviousUses(Driver& driver, Stream stream) {
  for (const auto& [device, mark] : previous_)
    if (const Status status = driver.streamWait(stream, mark->event); status != Status::ok) return status;
  return Status::ok;
}

MaybeFailure SessionMemory::take(const ProgramSpec& spec, const MemorySources& sources) {
  name_ = spec.name;
  sources_ = {sources.pool, {}};
  for (const auto& [root, block] : sources.shared) {
    if (root >= spec.buffers.size() || spec.buffers[root].root != root ||
        spec.buffers[root].life != Life::param || spec.buffers[root].space != Space::device ||
        RangePool::rounded(spec.buffers[root].bytes) > block->size)
      return invalidProgram(item("buffers", root), "is no parameter that the shared block holds");
    devices_[spec.buffers[root].device]->hold(block);
    sources_.shared[root] = block;
    shared_.emplace_back(spec.buffers[root].device, block);
  }
  places_.assign(spec.buffers.size(), {});
  if (MaybeFailure failure = layOut(spec)) return failure;
  if (MaybeFailure failure = takeRanges(spec)) return failure;
  if (MaybeFailure failure = takeRoots(spec)) return failure;
  for (const auto& device : devices_)
    if (MaybeFailure failure = markHome(*device)) return failure;
  return std::nullopt;
}

void SessionMemory::release() {
  for (const auto& [device, mark] : previous_) mark->release();
  for (const auto& [memory, block] : blocks_) {
    devices_[memory]->driver().bind();
    devices_[memory]->free(block);  // where a graph still uses it, when the graph has gone
  }
  for (const auto& [memory, block] : shared_) devices_[memory]->letGo(block);
  previous_.clear();
  blocks_.clear();
  shared_.clear();
  slots_.clear();
  pinnedRange_.clear();
  for (const auto& device : devices_) {
    // The home lane has nothing left to do, so every lane may take the blocks at once.
    Status status = device->driver().bind();
    Lane* const home = status == Status::ok ? device->hostLane(&status) : nullptr;
    if (home != nullptr) device->lanes().pollLane(*home);
  }
}

DeviceAddress SessionMemory::address(const ProgramSpec& spec, std::uint32_t buffer,
                                     std::uint32_t slot) const {
  const BufferSpec& view = spec.buffers[buffer];
  const Place& place = places_[view.root];
  if (handedOver(spec.buffers[view.root].life)) return slots_[place.slots + slot].address + view.rootOffset;
  return place.address + slot * place.own + view.rootOffset;
}

caching::Block* SessionMemory::slotBlock(std::uint32_t root, std::uint32_t slot) const {
  return slots_[places_[root].slots + slot].block;
}

void SessionMemory::takeUses(const ProgramSpec& spec, std::uint32_t root, std::uint32_t slot,
                             std::vector<Mark*>* marks) {
  devices_[spec.buffers[root].device]->device().takeUses(slotBlock(root, slot), marks);
}

std::shared_ptr<const PinnedBlock> SessionMemory::pinnedBlock(std::uint32_t root, std::uint32_t slot) const {
  return slots_[places_[root].slots + slot].pinned;
}

}  // namespace braid
