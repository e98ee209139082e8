#include "host/user_objects.h"

#include "host/stream.h"

namespace braid::host {

UserObjects::~UserObjects() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  work_.notify_one();
  if (thread_.joinable()) thread_.join();
}

std::uint64_t UserObjects::create(void (*destroy)(void*), void* data, std::uint64_t count) {
  std::lock_guard lock(mutex_);
  const std::uint64_t handle = tag_ | ++made_;
  objects_[handle] = {destroy, data, count};
  return handle;
}

bool UserObjects::has(std::uint64_t object) {
  std::lock_guard lock(mutex_);
  return objects_.contains(object);
}

bool UserObjects::retain(std::uint64_t object, std::uint64_t count) {
  std::lock_guard lock(mutex_);
  const auto found = objects_.find(object);
  if (found == objects_.end()) return false;
  found->second.count += count;
  return true;
}

bool UserObjects::release(std::uint64_t object, std::uint64_t count) {
  std::lock_guard lock(mutex_);
  const auto found = objects_.find(object);
  if (found == objects_.end() || found->second.count < count) return false;
  if ((found->second.count -= count) > 0) return true;
  dead_.push_back(found->second);
  objects_.erase(found);
  if (!thread_.joinable()) thread_ = std::thread([this] { serve(); });
  work_.notify_one();
  return true;
}

// Destructors run on a thread that belongs to no caller, as on CUDA, so that code which relies on more fails
// here too.
void UserObjects::serve() {
  const CallbackScope scope;
  std::unique_lock lock(mutex_);
  for (;;) {
    while (dead_.empty() && !stopping_) work_.wait(lock);
    if (dead_.empty()) return;
    const Object object = dead_.front();
    dead_.pop_front();
    lock.unlock();
    object.destroy(object.data);
    lock.lock();
  }
}

}  // namespace braid::host
