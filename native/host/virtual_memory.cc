#include "host/virtual_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "host/touching.h"

namespace braid::host {
namespace {

void* pointer(DeviceAddress address) { return reinterpret_cast<void*>(address); }

bool wholePages(std::size_t value) { return value % kPageBytes == 0; }

// Makes the address range inaccessible and drops its old mappings.
bool hollow(DeviceAddress address, std::size_t bytes) {
  return mmap(pointer(address), bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
              0) != MAP_FAILED;
}

Status wrong(std::string* detail, const char* words) {
  *detail = words;
  return Status::invalidValue;
}

}  // namespace

VirtualMemory::VirtualMemory(Budget* budget, LiveRanges* live, bool poison, std::uint16_t handleTag)
    : budget_(budget), live_(live), poison_(poison), handles_(handleTag) {
#if defined(__linux__)
  file_ = memfd_create("braid-device-memory", MFD_CLOEXEC);
#endif
}

VirtualMemory::~VirtualMemory() {
  for (const auto& [address, bytes] : reservations_) munmap(pointer(address), bytes);
  if (file_ >= 0) close(file_);
}

Status VirtualMemory::reserve(DeviceAddress* address, std::size_t bytes, std::string* detail) {
  if (bytes == 0 || !wholePages(bytes) || bytes > SIZE_MAX / 4)
    return wrong(detail, "a reservation is some whole pages of 2 MiB");
  // Reserves more than needed, so that it contains an aligned range; then releases both ends.
  const std::size_t wide = bytes + kPageBytes;
  void* memory = mmap(nullptr, wide, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    *detail = "no address range of " + std::to_string(bytes) + " bytes is free";
    return Status::outOfMemory;
  }
  const auto start = reinterpret_cast<DeviceAddress>(memory);
  const DeviceAddress aligned = (start + kPageBytes - 1) / kPageBytes * kPageBytes;
  if (aligned > start) munmap(pointer(start), aligned - start);
  if (start + wide > aligned + bytes) munmap(pointer(aligned + bytes), start + wide - aligned - bytes);
  std::lock_guard lock(mutex_);
  reservations_[aligned] = bytes;
  *address = aligned;
  return Status::ok;
}

Status VirtualMemory::unreserve(DeviceAddress address, std::size_t bytes, std::string* detail) {
  std::lock_guard lock(mutex_);
  const auto found = reservations_.find(address);
  if (found == reservations_.end() || found->second != bytes) return wrong(detail, "not a reserved range");
  const auto mapping = mappings_.lower_bound(address);
  if (mapping != mappings_.end() && mapping->first < address + bytes)
    return wrong(detail, "pages are still mapped in this range");
  munmap(pointer(address), bytes);
  reservations_.erase(found);
  return Status::ok;
}

Status VirtualMemory::create(Pages* pages, std::size_t bytes, std::string* detail) {
  if (bytes == 0 || !wholePages(bytes)) return wrong(detail, "memory is made in whole pages of 2 MiB");
  if (!budget_->take(bytes)) {
    *detail = std::to_string(bytes) + " bytes wanted, " + std::to_string(budget_->free()) + " of " +
              std::to_string(budget_->limit()) + " free";
    return Status::outOfMemory;
  }
  std::lock_guard lock(mutex_);
  const std::size_t count = bytes / kPageBytes;
  if (count > freePages_.size()) {
    const std::uint32_t more = static_cast<std::uint32_t>(count - freePages_.size());
    if (ftruncate(file_, static_cast<off_t>(filePages_ + more) * static_cast<off_t>(kPageBytes)) != 0) {
      budget_->give(bytes);
      *detail = "the system has no " + std::to_string(bytes) + " bytes of memory to give";
      return Status::outOfMemory;
    }
    for (std::uint32_t i = 0; i < more; ++i) freePages_.insert(freePages_.end(), filePages_++);
  }
  Physical* physical = nullptr;
  const std::uint64_t handle = handles_.create(
      &physical, [](const Physical& retired) { return retired.pages.empty(); },
      [] { return std::make_unique<Physical>(); });
  if (handle == 0) {
    budget_->give(bytes);
    *detail = "too many allocations";
    return Status::outOfMemory;
  }
  for (std::size_t i = 0; i < count; ++i)
    physical->pages.push_back(freePages_.extract(freePages_.begin()).value());
  physical->held = physical->fresh = true;
  *pages = reinterpret_cast<Pages>(handle);
  return Status::ok;
}

Status VirtualMemory::release(Pages pages, std::string* detail) {
  std::lock_guard lock(mutex_);
  const bool known = handles_.retire(reinterpret_cast<std::uint64_t>(pages), [this](Physical& physical) {
    physical.held = false;
    if (physical.mappings == 0) giveBack(physical);
  });
  if (known) return Status::ok;
  *detail = "not pages of this device";
  return Status::invalidHandle;
}

Status VirtualMemory::map(DeviceAddress address, std::size_t bytes, Pages pages, std::string* detail) {
  std::lock_guard lock(mutex_);
  Physical* physical = handles_.find(reinterpret_cast<std::uint64_t>(pages));
  if (!physical) {
    *detail = "not pages of this device";
    return Status::invalidHandle;
  }
  if (!wholePages(address) || bytes != physical->pages.size() * kPageBytes)
    return wrong(detail, "pages are mapped whole, at a multiple of 2 MiB");
  if (!reserved(address, bytes)) return wrong(detail, "not inside a reserved range");
  auto next = mappings_.lower_bound(address + bytes);
  if (next != mappings_.begin() && (--next)->first + next->second.bytes > address)
    return wrong(detail, "pages are mapped there already");
  if (!place(address, *physical)) {
    hollow(address, bytes);
    *detail = "the system refuses to map " + std::to_string(bytes) + " bytes";
    return Status::outOfMemory;
  }
  if (physical->fresh && poison_) poison(pointer(address), bytes);
  physical->fresh = false;
  ++physical->mappings;
  mappings_[address] = Mapping{bytes, physical};
  live_->add(address, bytes);
  return Status::ok;
}

Status VirtualMemory::unmap(DeviceAddress address, std::size_t bytes, std::string* detail) {
  std::lock_guard lock(mutex_);
  // Only whole adjacent mappings: nothing is unmapped unless all of the range can be.
  const auto first = mappings_.find(address);
  auto last = first;
  for (DeviceAddress at = address; at < address + bytes; ++last) {
    if (last == mappings_.end() || last->first != at || last->second.bytes > address + bytes - at)
      return wrong(detail, "not the range of whole mappings");
    at += last->second.bytes;
  }
  if (bytes == 0 || address + bytes < address) return wrong(detail, "not the range of whole mappings");
  for (auto mapping = first; mapping != last; ++mapping) live_->remove(mapping->first);
  Touching::all().settle();
  for (auto mapping = first; mapping != last;) {
    Physical& physical = *mapping->second.physical;
    const bool goes = --physical.mappings == 0 && !physical.held;
    if (goes && poison_) poison(pointer(mapping->first), mapping->second.bytes);
    hollow(mapping->first, mapping->second.bytes);
    if (goes) giveBack(physical);
    mapping = mappings_.erase(mapping);
  }
  return Status::ok;
}

bool VirtualMemory::reserved(DeviceAddress address, std::size_t bytes) const {
  auto range = reservations_.upper_bound(address);
  if (range == reservations_.begin() || address + bytes < address) return false;
  --range;
  return address + bytes <= range->first + range->second;
}

bool VirtualMemory::place(DeviceAddress address, const Physical& physical) {
  const auto& pages = physical.pages;
  for (std::size_t i = 0; i < pages.size();) {
    std::size_t run = 1;
    while (i + run < pages.size() && pages[i + run] == pages[i] + run) ++run;
    void* at =
        mmap(pointer(address + i * kPageBytes), run * kPageBytes, PROT_READ | PROT_WRITE,
             MAP_SHARED | MAP_FIXED, file_, static_cast<off_t>(pages[i]) * static_cast<off_t>(kPageBytes));
    if (at == MAP_FAILED) return false;
    i += run;
  }
  return true;
}

void VirtualMemory::giveBack(Physical& physical) {
  budget_->give(physical.pages.size() * kPageBytes);
  for (const std::uint32_t page : physical.pages) {
#if defined(__linux__)
    // Best effort: where the system cannot, the page stays in memory until it is used again.
    (void)fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                    static_cast<off_t>(page) * static_cast<off_t>(kPageBytes), kPageBytes);
#endif
    freePages_.insert(page);
  }
  physical.pages.clear();
}

}  // namespace braid::host
