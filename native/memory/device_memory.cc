#include "memory/device_memory.h"

namespace braid {
namespace {

caching::Options pinnedDefaults() {
  caching::Options options;
  options.policy = &caching::pollOnly;
  options.expandable = false;
  return options;
}

struct Registry {
  std::mutex mutex;
  struct Entry {
    std::string name;
    std::weak_ptr<DeviceMemory> memory;
  };
  std::vector<Entry> devices;  // the oldest first
};

// Never destroyed: devices may be let go while the process ends.
Registry& registry() {
  static auto* const all = new Registry;
  return *all;
}

}  // namespace

DeviceMemory::DeviceMemory(std::shared_ptr<Driver> driver, const caching::Options& device,
                           const caching::Options& pinned)
    : driver_(std::move(driver)),
      lanes_(*driver_),
      device_(lanes_, std::make_unique<caching::DeviceSource>(*driver_), device),
      pinned_(lanes_, std::make_unique<caching::PinnedSource>(*driver_), pinned) {}

std::shared_ptr<DeviceMemory> DeviceMemory::alone(std::shared_ptr<Driver> driver) {
  return std::make_shared<DeviceMemory>(std::move(driver), caching::Options{}, pinnedDefaults());
}

DeviceMemory::~DeviceMemory() {
  driver_->bind();
  if (host_ != nullptr) driver_->streamDestroy(host_->stream);
  if (host_ != nullptr) host_->stream = nullptr;
}

std::shared_ptr<DeviceMemory> DeviceMemory::shared(const std::string& name, const std::string& options,
                                                   bool any, const Make& make) {
  Registry& all = registry();
  std::lock_guard lock(all.mutex);
  std::erase_if(all.devices, [](const auto& entry) { return entry.memory.expired(); });
  for (const auto& entry : all.devices) {
    const std::shared_ptr<DeviceMemory> found = entry.memory.lock();
    if (!found || entry.name != name || !(any || found->options_ == options)) continue;
    std::size_t free = 0, total = 0;
    if (found->driver().bind() == Status::ok && found->driver().memInfo(&free, &total) == Status::ok)
      return found;
  }
  std::shared_ptr<DeviceMemory> made = make();
  made->options_ = options;
  all.devices.push_back({name, made});
  return made;
}

Lane* DeviceMemory::hostLane(Status* status) {
  std::lock_guard lock(mutex_);
  *status = Status::ok;
  if (host_ != nullptr) return host_;
  Stream stream = nullptr;
  *status = driver_->streamCreate(&stream, driver_->info().leastPriority);
  if (*status != Status::ok) return nullptr;
  *status = lanes_.add(stream, true, "host", &host_);
  if (*status != Status::ok) driver_->streamDestroy(stream);
  return host_;
}

caching::MemPool* DeviceMemory::wholePool() {
  std::lock_guard lock(mutex_);
  if (whole_ == nullptr) whole_ = device_.makePool(false, true, nullptr, caching::SegmentSize::exact);
  return whole_;
}

std::uint32_t DeviceMemory::site(const std::string& words) {
  std::lock_guard lock(sitesMutex_);
  if (const auto found = siteNumbers_.find(words); found != siteNumbers_.end()) return found->second;
  if (sites_.size() >= mostSites) return 0;
  sites_.push_back(words);
  return siteNumbers_[words] = static_cast<std::uint32_t>(sites_.size() - 1);
}

std::string DeviceMemory::siteWords(std::uint32_t site) const {
  std::lock_guard lock(sitesMutex_);
  return site < sites_.size() ? sites_[site] : std::string();
}

std::vector<std::string> DeviceMemory::allSites() const {
  std::lock_guard lock(sitesMutex_);
  return sites_;
}

void DeviceMemory::hold(caching::Block* block, bool pinned) {
  std::lock_guard lock(mutex_);
  Held& held = held_[block];
  held.allocator = pinned ? &pinned_ : &device_;
  ++held.holders;
  block->held = true;
}

void DeviceMemory::letGo(caching::Block* block) {
  caching::Allocator* allocator = nullptr;
  {
    std::lock_guard lock(mutex_);
    const auto found = held_.find(block);
    if (--found->second.holders > 0) return;
    if (found->second.freed) allocator = found->second.allocator;
    held_.erase(found);
    block->held = false;
  }
  if (allocator == nullptr) return;
  driver_->bind();
  allocator->free(block);
}

Status DeviceMemory::free(caching::Block* block, bool pinned) {
  if (block->held) {
    std::lock_guard lock(mutex_);
    if (const auto found = held_.find(block); found != held_.end()) {
      found->second.freed = true;
      return Status::ok;
    }
  }
  return (pinned ? pinned_ : device_).free(block);
}

void DeviceMemory::hold(caching::MemPool* pool) {
  std::lock_guard lock(mutex_);
  if (++heldPools_[pool].holders == 1) device_.keepPool(pool, true);
}

void DeviceMemory::letGo(caching::MemPool* pool) {
  bool closed = false;
  {
    std::lock_guard lock(mutex_);
    const auto found = heldPools_.find(pool);
    if (--found->second.holders > 0) return;
    closed = found->second.closed;
    heldPools_.erase(found);
    device_.keepPool(pool, false);
  }
  if (!closed) return;
  driver_->bind();
  device_.closePool(pool);
}

void DeviceMemory::close(caching::MemPool* pool) {
  {
    std::lock_guard lock(mutex_);
    if (const auto found = heldPools_.find(pool); found != heldPools_.end()) {
      found->second.closed = true;
      return;
    }
  }
  device_.closePool(pool);
}

}  // namespace braid
