#include "executor/session_memory.h"

#include "memory/range_pool.h"

namespace braid {
namespace {

bool handedOver(Life life) { return life == Life::input || life == Life::output; }

std::string item(const char* list, std::size_t index) {
  return std::string(list) + "[" + std::to_string(index) + "]";
}

Failure tooSmall(std::size_t device, std::uint64_t wanted, std::uint64_t given) {
  return invalidProgram(item("bound.device", device), "the program needs " + std::to_string(wanted) +
                                                          " bytes before its first tick, and is promised " +
                                                          std::to_string(given));
}

}  // namespace

MaybeFailure SessionMemory::layOut(const ProgramSpec& spec) {
  constexpr std::uint64_t most = std::uint64_t{1} << 60;
  places_.assign(spec.buffers.size(), nowhere);
  bool pinnedPool = false;
  for (std::size_t i = 0; i < spec.buffers.size(); ++i) {
    const BufferSpec& buffer = spec.buffers[i];
    if (buffer.root != i) continue;
    if (buffer.arenaOffset >= 0) continue;
    const bool pooled = buffer.life == Life::tick && !spec.planned;
    if (pooled) {
      pinnedPool |= buffer.space == Space::pinned;
      continue;
    }
    std::uint64_t& end = ranges_[of(buffer)].fixed;
    places_[i] = end;
    end += RangePool::rounded(buffer.bytes) * (handedOver(buffer.life) ? spec.inFlight : 1);
    if (end > most) return invalidProgram(item("buffers", i), "more than 2^60 bytes in all");
  }
  for (std::size_t i = 0; i < spec.buffers.size(); ++i) {
    const BufferSpec& buffer = spec.buffers[i];
    if (buffer.root == i && buffer.arenaOffset >= 0)
      places_[i] = ranges_[of(buffer)].fixed + static_cast<std::uint64_t>(buffer.arenaOffset);
  }
  for (std::size_t device = 0; device < drivers_.size(); ++device) {
    if (MaybeFailure failure = sizeDevice(spec, device)) return failure;
  }
  Range& own = ranges_[pinned()];
  own.total = pinnedPool ? std::max(own.fixed, spec.boundPinned) : own.fixed;
  return std::nullopt;
}

MaybeFailure SessionMemory::sizeDevice(const ProgramSpec& spec, std::size_t device) {
  const auto& [boundBytes, arenaBytes] = spec.devices[device];
  Range& range = ranges_[device];
  range.total = spec.planned ? range.fixed + RangePool::rounded(arenaBytes) : RangePool::rounded(boundBytes);
  if (spec.planned && arenaBytes == 0) range.total = range.fixed;
  if (!spec.planned && boundBytes == 0) range.total = 0;
  const std::uint64_t promised = RangePool::rounded(boundBytes);
  if (range.fixed > range.total) return tooSmall(device, range.fixed, boundBytes);
  if (spec.planned && range.total > 0 && range.total > promised)
    return tooSmall(device, range.total, boundBytes);
  return std::nullopt;
}

MaybeFailure SessionMemory::take(const ProgramSpec& spec) {
  if (MaybeFailure failure = layOut(spec)) return failure;
  const auto failed = [&](Driver& driver, Status status, const char* op, std::uint64_t wanted) {
    Failure failure = failureOf(driver, status, op);
    std::size_t free = 0, total = 0;
    if (driver.memInfo(&free, &total) == Status::ok) {
      failure.memory = true;
      failure.wantedBytes = wanted;
      failure.freeBytes = free;
    }
    return failure;
  };
  for (std::size_t device = 0; device < drivers_.size(); ++device) {
    Range& range = ranges_[device];
    if (range.total == 0) continue;
    Driver& driver = *drivers_[device];
    Status status = driver.bind();
    if (status == Status::ok) status = driver.memAllocate(&range.base, range.total);
    if (status != Status::ok) return failed(driver, status, "memAllocate", range.total);
  }
  Range& own = ranges_[pinned()];
  if (own.total == 0) return std::nullopt;
  Driver& driver = *drivers_[0];
  driver.bind();
  void* memory = nullptr;
  if (const Status status = driver.pinnedAllocate(&memory, own.total); status != Status::ok)
    return failed(driver, status, "pinnedAllocate", own.total);
  pinned_ = std::make_shared<const PinnedRange>(drivers_[0], memory);
  own.base = reinterpret_cast<DeviceAddress>(memory);
  return std::nullopt;
}

void SessionMemory::release() {
  for (std::size_t device = 0; device < drivers_.size(); ++device) {
    if (ranges_[device].base == 0) continue;
    drivers_[device]->bind();
    drivers_[device]->memFree(ranges_[device].base);
  }
  pinned_.reset();
  for (Range& range : ranges_) range = {};
}

DeviceAddress SessionMemory::address(const ProgramSpec& spec, std::uint32_t buffer,
                                     std::uint32_t slot) const {
  const BufferSpec& view = spec.buffers[buffer];
  const BufferSpec& root = spec.buffers[view.root];
  const std::uint64_t slotOffset = handedOver(root.life) ? RangePool::rounded(root.bytes) * slot : 0;
  return ranges_[of(root)].base + places_[view.root] + slotOffset + view.rootOffset;
}

}  // namespace braid
