#include "test/memory/caching/simulated_device.h"

#include <algorithm>

namespace braid::test {
namespace {

template <class Handle>
Handle handle(std::size_t index) {
  return reinterpret_cast<Handle>(index + 1);
}

}  // namespace

SimulatedDevice::SimulatedDevice(const Config& config) : random_(config.seed) {
  info_.kind = info_.name = "simulated";
  info_.totalBytes = config.totalBytes;
  info_.pageBytes = config.pageBytes;
}

// Chooses at random among the streams that can go on. A held stream goes on only for a blocked caller.
bool SimulatedDevice::step(bool heldToo) {
  const std::size_t count = queues_.size();
  if (count == 0) return false;
  random_ = random_ * 6364136223846793005u + 1442695040888963407u;
  const std::size_t from = (random_ >> 33) % count;
  for (std::size_t i = 0; i < count; ++i) {
    Queue& queue = queues_[(from + i) % count];
    if (queue.pieces.empty() || (queue.held && !heldToo) || !reached(queue.pieces.front())) continue;
    queue.pieces.pop_front();
    ++queue.done;
    return true;
  }
  return false;
}

void SimulatedDevice::advance(std::uint64_t pieces) {
  std::lock_guard lock(mutex_);
  while (pieces-- > 0 && step(false)) {
  }
}

void SimulatedDevice::advance(Stream stream, std::uint64_t pieces) {
  std::lock_guard lock(mutex_);
  Queue& queue = *find(stream);
  for (; pieces > 0 && !queue.pieces.empty() && reached(queue.pieces.front()); --pieces) {
    queue.pieces.pop_front();
    ++queue.done;
  }
}

void SimulatedDevice::until(const Point& point) {
  while (!reached(point) && (step(false) || step(true))) {
  }
}

void SimulatedDevice::hold(Stream stream, bool held) {
  std::lock_guard lock(mutex_);
  find(stream)->held = held;
}

bool SimulatedDevice::idle(Stream stream) {
  std::lock_guard lock(mutex_);
  return find(stream)->pieces.empty();
}

SimulatedDevice::Queue* SimulatedDevice::find(Stream stream) {
  const auto index = reinterpret_cast<std::size_t>(stream);
  return index == 0 || index > queues_.size() || !queues_[index - 1].alive ? nullptr : &queues_[index - 1];
}

SimulatedDevice::Marked* SimulatedDevice::find(Event event) {
  const auto index = reinterpret_cast<std::size_t>(event);
  return index == 0 || index > events_.size() || !events_[index - 1].alive ? nullptr : &events_[index - 1];
}

Status SimulatedDevice::take(std::size_t bytes) {
  if (bytes > info_.totalBytes - used_) return Status::outOfMemory;
  used_ += bytes;
  return Status::ok;
}

Status SimulatedDevice::memAllocate(DeviceAddress* address, std::size_t bytes) {
  std::lock_guard lock(mutex_);
  if (const Status status = take(bytes); status != Status::ok) return status;
  *address = next_;
  plain_[next_] = bytes;
  next_ += (bytes + 4096) / 4096 * 4096;  // a gap: nothing lies side by side by chance
  return Status::ok;
}

Status SimulatedDevice::memFree(DeviceAddress address) {
  std::lock_guard lock(mutex_);
  const auto found = plain_.find(address);
  if (found == plain_.end()) return Status::invalidValue;
  used_ -= found->second;
  plain_.erase(found);
  return Status::ok;
}

Status SimulatedDevice::memInfo(std::size_t* freeBytes, std::size_t* totalBytes) {
  std::lock_guard lock(mutex_);
  *freeBytes = info_.totalBytes - used_;
  *totalBytes = info_.totalBytes;
  return Status::ok;
}

Status SimulatedDevice::pinnedAllocate(void** pointer, std::size_t bytes) {
  std::lock_guard lock(mutex_);
  *pointer = reinterpret_cast<void*>(next_);
  pinned_[next_] = bytes;
  next_ += (bytes + 4096) / 4096 * 4096;
  return Status::ok;
}

Status SimulatedDevice::pinnedFree(void* pointer) {
  std::lock_guard lock(mutex_);
  return pinned_.erase(reinterpret_cast<DeviceAddress>(pointer)) == 1 ? Status::ok : Status::invalidValue;
}

Status SimulatedDevice::addressReserve(DeviceAddress* address, std::size_t bytes) {
  std::lock_guard lock(mutex_);
  if (info_.pageBytes == 0) return Status::notSupported;
  if (bytes == 0 || bytes % info_.pageBytes != 0) return Status::invalidValue;
  next_ = (next_ + info_.pageBytes) / info_.pageBytes * info_.pageBytes;
  *address = next_;
  ranges_[next_] = bytes;
  next_ += bytes;
  return Status::ok;
}

Status SimulatedDevice::addressRelease(DeviceAddress address, std::size_t bytes) {
  std::lock_guard lock(mutex_);
  const auto found = ranges_.find(address);
  if (found == ranges_.end() || found->second != bytes) return Status::invalidValue;
  const auto page = mapped_.lower_bound(address);
  if (page != mapped_.end() && page->first < address + bytes) return Status::invalidValue;
  ranges_.erase(found);
  return Status::ok;
}

Status SimulatedDevice::pagesCreate(Pages* pages, std::size_t bytes) {
  std::lock_guard lock(mutex_);
  if (info_.pageBytes == 0) return Status::notSupported;
  if (bytes == 0 || bytes % info_.pageBytes != 0) return Status::invalidValue;
  if (const Status status = take(bytes); status != Status::ok) return status;
  pages_.push_back(bytes);
  *pages = handle<Pages>(pages_.size() - 1);
  return Status::ok;
}

// Stricter than a driver: pages go only where no address shows them, so that none is lost.
Status SimulatedDevice::pagesRelease(Pages pages) {
  std::lock_guard lock(mutex_);
  const auto index = reinterpret_cast<std::size_t>(pages);
  if (index == 0 || index > pages_.size() || pages_[index - 1] == 0) return Status::invalidHandle;
  for (const auto& [address, shown] : mapped_)
    if (shown == index) return Status::invalidValue;
  used_ -= pages_[index - 1];
  pages_[index - 1] = 0;
  return Status::ok;
}

Status SimulatedDevice::pagesMap(DeviceAddress address, std::size_t bytes, Pages pages) {
  std::lock_guard lock(mutex_);
  const auto index = reinterpret_cast<std::size_t>(pages);
  if (index == 0 || index > pages_.size() || pages_[index - 1] != bytes) return Status::invalidHandle;
  auto range = ranges_.upper_bound(address);
  if (address % info_.pageBytes != 0 || range == ranges_.begin()) return Status::invalidValue;
  --range;
  if (address + bytes > range->first + range->second) return Status::invalidValue;
  for (std::size_t at = 0; at < bytes; at += info_.pageBytes)
    if (mapped_.count(address + at) != 0) return Status::invalidValue;
  for (const auto& [shownAt, shown] : mapped_)
    if (shown == index) return Status::invalidValue;
  for (std::size_t at = 0; at < bytes; at += info_.pageBytes) mapped_[address + at] = index;
  return Status::ok;
}

Status SimulatedDevice::pagesUnmap(DeviceAddress address, std::size_t bytes) {
  std::lock_guard lock(mutex_);
  if (bytes == 0 || address % info_.pageBytes != 0 || bytes % info_.pageBytes != 0)
    return Status::invalidValue;
  for (std::size_t at = 0; at < bytes; at += info_.pageBytes)
    if (mapped_.count(address + at) == 0) return Status::invalidValue;
  for (std::size_t at = 0; at < bytes; at += info_.pageBytes) mapped_.erase(address + at);
  return Status::ok;
}

Status SimulatedDevice::streamCreate(Stream* stream, int) {
  std::lock_guard lock(mutex_);
  queues_.emplace_back();
  *stream = handle<Stream>(queues_.size() - 1);
  return Status::ok;
}

Status SimulatedDevice::streamDestroy(Stream stream) {
  std::lock_guard lock(mutex_);
  Queue* queue = find(stream);
  if (!queue) return Status::invalidHandle;
  queue->alive = queue->held = false;
  return Status::ok;
}

Status SimulatedDevice::streamSynchronize(Stream stream) {
  std::lock_guard lock(mutex_);
  const Queue* queue = find(stream);
  if (!queue) return Status::invalidHandle;
  until({reinterpret_cast<std::size_t>(stream) - 1, queue->issued});
  return Status::ok;
}

Status SimulatedDevice::streamQuery(Stream stream) {
  std::lock_guard lock(mutex_);
  const Queue* queue = find(stream);
  if (!queue) return Status::invalidHandle;
  return queue->pieces.empty() ? Status::ok : Status::notReady;
}

Status SimulatedDevice::streamWait(Stream stream, Event event) {
  std::lock_guard lock(mutex_);
  Queue* queue = find(stream);
  const Marked* marked = find(event);
  if (!queue || !marked) return Status::invalidHandle;
  queue->pieces.push_back(marked->at);
  ++queue->issued;
  return Status::ok;
}

Status SimulatedDevice::eventCreate(Event* event, EventKind) {
  std::lock_guard lock(mutex_);
  events_.emplace_back();
  *event = handle<Event>(events_.size() - 1);
  return Status::ok;
}

Status SimulatedDevice::eventDestroy(Event event) {
  std::lock_guard lock(mutex_);
  Marked* marked = find(event);
  if (!marked) return Status::invalidHandle;
  marked->alive = false;
  return Status::ok;
}

Status SimulatedDevice::eventRecord(Event event, Stream stream) {
  std::lock_guard lock(mutex_);
  const Queue* queue = find(stream);
  Marked* marked = find(event);
  if (!queue || !marked) return Status::invalidHandle;
  marked->at = {reinterpret_cast<std::size_t>(stream) - 1, queue->issued};
  return Status::ok;
}

Status SimulatedDevice::eventQuery(Event event) {
  std::lock_guard lock(mutex_);
  const Marked* marked = find(event);
  if (!marked) return Status::invalidHandle;
  return marked->at.pieces == 0 || reached(marked->at) ? Status::ok : Status::notReady;
}

Status SimulatedDevice::eventSynchronize(Event event) {
  std::lock_guard lock(mutex_);
  const Marked* marked = find(event);
  if (!marked) return Status::invalidHandle;
  if (marked->at.pieces != 0) until(marked->at);
  return Status::ok;
}

Status SimulatedDevice::work(Stream stream) {
  std::lock_guard lock(mutex_);
  Queue* queue = find(stream);
  if (!queue) return Status::invalidHandle;
  queue->pieces.push_back({});
  ++queue->issued;
  return Status::ok;
}

}  // namespace braid::test
