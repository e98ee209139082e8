#include "executor/session_memory.h"

#include "allocator/session/range_pool.h"

namespace braid {
namespace {

bool handedOver(Life life) { return life == Life::input || life == Life::output; }

Failure tooSmall(const char* bound, std::uint64_t wanted, std::uint64_t given) {
  return invalidProgram(bound, "the program needs " + std::to_string(wanted) +
                                   " bytes before its first tick, and is promised " + std::to_string(given));
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
    std::uint64_t& end = fixed_[index(buffer.space)];
    places_[i] = end;
    end += RangePool::rounded(buffer.bytes) * (handedOver(buffer.life) ? spec.inFlight : 1);
    if (end > most) return invalidProgram("buffers[" + std::to_string(i) + "]", "more than 2^60 bytes in all");
  }
  for (std::size_t i = 0; i < spec.buffers.size(); ++i) {
    const BufferSpec& buffer = spec.buffers[i];
    if (buffer.root == i && buffer.arenaOffset >= 0)
      places_[i] = fixed_[0] + static_cast<std::uint64_t>(buffer.arenaOffset);
  }
  total_[0] = spec.planned ? fixed_[0] + RangePool::rounded(spec.arenaBytes) : RangePool::rounded(spec.boundDevice);
  if (spec.planned && spec.arenaBytes == 0) total_[0] = fixed_[0];
  if (!spec.planned && spec.boundDevice == 0) total_[0] = 0;
  const std::uint64_t promised = RangePool::rounded(spec.boundDevice);
  if (fixed_[0] > total_[0]) return tooSmall("bound.device", fixed_[0], spec.boundDevice);
  if (spec.planned && total_[0] > 0 && total_[0] > promised)
    return tooSmall("bound.device", total_[0], spec.boundDevice);
  total_[1] = pinnedPool ? std::max(fixed_[1], spec.boundPinned) : fixed_[1];
  return std::nullopt;
}

MaybeFailure SessionMemory::take(const ProgramSpec& spec) {
  if (MaybeFailure failure = layOut(spec)) return failure;
  const auto failed = [&](Status status, const char* op, std::uint64_t wanted) {
    Failure failure = failureOf(*driver_, status, op);
    std::size_t free = 0, total = 0;
    if (driver_->memInfo(&free, &total) == Status::ok) {
      failure.memory = true;
      failure.wantedBytes = wanted;
      failure.freeBytes = free;
    }
    return failure;
  };
  if (total_[0] > 0) {
    if (const Status status = driver_->memAllocate(&device_, total_[0]); status != Status::ok)
      return failed(status, "memAllocate", total_[0]);
  }
  if (total_[1] > 0) {
    void* memory = nullptr;
    if (const Status status = driver_->pinnedAllocate(&memory, total_[1]); status != Status::ok)
      return failed(status, "pinnedAllocate", total_[1]);
    pinned_ = std::make_shared<const PinnedRange>(driver_, memory);
  }
  return std::nullopt;
}

void SessionMemory::release() {
  if (device_ != 0) driver_->memFree(device_);
  device_ = 0;
  pinned_.reset();
  total_[0] = total_[1] = fixed_[0] = fixed_[1] = 0;
}

DeviceAddress SessionMemory::address(const ProgramSpec& spec, std::uint32_t buffer, std::uint32_t slot) const {
  const BufferSpec& view = spec.buffers[buffer];
  const BufferSpec& root = spec.buffers[view.root];
  const std::uint64_t slotOffset = handedOver(root.life) ? RangePool::rounded(root.bytes) * slot : 0;
  return base(root.space) + places_[view.root] + slotOffset + view.rootOffset;
}

}  // namespace braid
