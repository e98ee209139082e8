#include "memory/caching/history.h"

#include <chrono>

namespace braid::caching {

void History::start(std::size_t capacity) {
  std::lock_guard lock(mutex_);
  ring_.clear();
  ring_.reserve(capacity);
  capacity_ = capacity;
  count_ = 0;
  on_.store(capacity > 0, std::memory_order_relaxed);
}

void History::stop() { on_.store(false, std::memory_order_relaxed); }

void History::add(Record record) {
  const auto since = std::chrono::system_clock::now().time_since_epoch();
  record.microseconds = std::chrono::duration_cast<std::chrono::microseconds>(since).count();
  std::lock_guard lock(mutex_);
  if (!on() || capacity_ == 0) return;
  if (ring_.size() < capacity_)
    ring_.push_back(record);
  else
    ring_[count_ % capacity_] = record;
  ++count_;
}

std::vector<Record> History::read(std::uint64_t* dropped) const {
  std::lock_guard lock(mutex_);
  std::vector<Record> records;
  records.reserve(ring_.size());
  const std::size_t first = ring_.size() < capacity_ || capacity_ == 0 ? 0 : count_ % capacity_;
  for (std::size_t i = 0; i < ring_.size(); ++i) records.push_back(ring_[(first + i) % ring_.size()]);
  if (dropped) *dropped = count_ - ring_.size();
  return records;
}

}  // namespace braid::caching
