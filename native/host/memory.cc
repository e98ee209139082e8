#include "host/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "host/touching.h"

namespace braid::host {

void poison(void* memory, std::size_t bytes) {
  auto* at = static_cast<unsigned char*>(memory);
  std::uint16_t pattern[2048];
  for (auto& word : pattern) word = kPoison;
  for (std::size_t done = 0; done < bytes; done += sizeof(pattern))
    std::memcpy(at + done, pattern, std::min(sizeof(pattern), bytes - done));
}

bool Budget::take(std::size_t bytes) {
  std::size_t used = used_.load();
  do {
    if (bytes > limit_ - used) return false;
  } while (!used_.compare_exchange_weak(used, used + bytes));
  return true;
}

Memory::~Memory() {
  for (const auto& [address, block] : blocks_) munmap(reinterpret_cast<void*>(address), block.bytes);
}

Status Memory::allocate(DeviceAddress* address, std::size_t bytes, bool pinned, std::string* detail) {
  if (bytes == 0) {
    *detail = "0 bytes wanted";
    return Status::invalidValue;
  }
  if (!pinned && !budget_->take(bytes)) {
    *detail = std::to_string(bytes) + " bytes wanted, " + std::to_string(budget_->free()) + " of " +
              std::to_string(budget_->limit()) + " free";
    return Status::outOfMemory;
  }
  void* memory = bytes > SIZE_MAX / 2
                     ? MAP_FAILED
                     : mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    if (!pinned) budget_->give(bytes);
    *detail = "the system has no " + std::to_string(bytes) + " bytes of memory to give";
    return Status::outOfMemory;
  }
  if (poison_) poison(memory, bytes);
  *address = reinterpret_cast<DeviceAddress>(memory);
  {
    std::lock_guard lock(mutex_);
    blocks_[*address] = Block{bytes, pinned};
  }
  (pinned ? livePinned_ : live_)->add(*address, bytes);
  return Status::ok;
}

Status Memory::release(DeviceAddress address, bool pinned, std::string* detail) {
  Block block;
  {
    std::lock_guard lock(mutex_);
    const auto found = blocks_.find(address);
    if (found == blocks_.end() || found->second.pinned != pinned) {
      *detail = pinned ? "not the address of pinned memory" : "not the address of an allocation";
      return Status::invalidValue;
    }
    block = found->second;
    blocks_.erase(found);
  }
  (pinned ? livePinned_ : live_)->remove(address);
  Touching::all().settle();
  if (poison_) poison(reinterpret_cast<void*>(address), block.bytes);
  munmap(reinterpret_cast<void*>(address), block.bytes);
  if (!pinned) budget_->give(block.bytes);
  return Status::ok;
}

}  // namespace braid::host
