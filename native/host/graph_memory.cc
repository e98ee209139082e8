#include "host/graph_memory.h"

#include <sys/mman.h>

namespace braid::host {

void GraphRange::begin() const {
  if (memory_->poison_) poison(reinterpret_cast<void*>(address_), bytes_);
  memory_->live_->add(address_, bytes_);
}

void GraphRange::end() const {
  memory_->live_->remove(address_);
  if (memory_->poison_) poison(reinterpret_cast<void*>(address_), bytes_);
}

GraphMemory::~GraphMemory() {
  for (const auto& [bytes, address] : spare_) munmap(reinterpret_cast<void*>(address), bytes);
}

Status GraphMemory::make(std::size_t bytes, std::shared_ptr<GraphRange>* range, std::string* detail) {
  if (bytes == 0) {
    *detail = "0 bytes wanted";
    return Status::invalidValue;
  }
  std::lock_guard lock(mutex_);
  DeviceAddress address = 0;
  if (const auto spare = spare_.find(bytes); spare != spare_.end()) {
    address = spare->second;
    spare_.erase(spare);
  } else {
    void* mapped = bytes > SIZE_MAX / 2 ? MAP_FAILED
                                        : mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED) {
      *detail = "the system has no addresses for " + std::to_string(bytes) + " bytes";
      return Status::outOfMemory;
    }
    address = reinterpret_cast<DeviceAddress>(mapped);
  }
  auto* made = new GraphRange(this, address, bytes);
  ranges_.insert(made);
  *range = std::shared_ptr<GraphRange>(made, [this](GraphRange* ended) { gone(ended); });
  return Status::ok;
}

void GraphMemory::gone(GraphRange* range) {
  std::lock_guard lock(mutex_);
  live_->remove(range->address_);
  giveBack(*range);
  ranges_.erase(range);
  spare_.emplace(range->bytes_, range->address_);
  delete range;
}

void GraphMemory::giveBack(GraphRange& range) {
  if (!range.reserved_) return;
  range.reserved_ = false;
  reserved_ -= range.bytes_;
  madvise(reinterpret_cast<void*>(range.address_), range.bytes_, MADV_DONTNEED);
  budget_->give(range.bytes_);
}

Status GraphMemory::hold(GraphRanges ranges, std::shared_ptr<const void>* held, std::string* detail) {
  std::lock_guard lock(mutex_);
  std::size_t bytes = 0;
  for (const auto& range : ranges)
    if (!range->reserved_) bytes += range->bytes_;
  if (!budget_->take(bytes)) {
    *detail = std::to_string(bytes) + " bytes wanted for the graph, " + std::to_string(budget_->free()) +
              " of " + std::to_string(budget_->limit()) + " free";
    return Status::outOfMemory;
  }
  reserved_ += bytes;
  for (const auto& range : ranges) {
    range->reserved_ = true;
    ++range->launches_;
  }
  *held = std::shared_ptr<const void>(this, [this, ranges = std::move(ranges)](const void*) {
    std::lock_guard letGo(mutex_);
    for (const auto& range : ranges) --range->launches_;
  });
  return Status::ok;
}

std::size_t GraphMemory::reserved() {
  std::lock_guard lock(mutex_);
  return reserved_;
}

void GraphMemory::trim() {
  std::lock_guard lock(mutex_);
  for (GraphRange* range : ranges_)
    if (range->launches_ == 0) giveBack(*range);
}

}  // namespace braid::host
