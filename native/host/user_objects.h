#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "driver/driver.h"

namespace braid::host {

// The user objects of one device, by handle, and the thread that runs their destructors.
class UserObjects {
 public:
  explicit UserObjects(std::uint16_t tag) : tag_(std::uint64_t{tag} << 48) {}
  ~UserObjects();  // runs the destructors of all that are left without references

  std::uint64_t create(void (*destroy)(void*), void* data, std::uint64_t count);
  bool retain(std::uint64_t object, std::uint64_t count);
  // False where there is no such object, or it has fewer references.
  bool release(std::uint64_t object, std::uint64_t count);
  bool has(std::uint64_t object);

 private:
  struct Object {
    void (*destroy)(void*) = nullptr;
    void* data = nullptr;
    std::uint64_t count = 0;
  };
  void serve();

  const std::uint64_t tag_;
  std::mutex mutex_;
  std::condition_variable work_;
  std::unordered_map<std::uint64_t, Object> objects_;
  std::uint64_t made_ = 0;
  std::deque<Object> dead_;
  bool stopping_ = false;
  std::thread thread_;
};

// References to user objects that a graph or an executable holds. A copy holds references of its own.
class UserReferences {
 public:
  explicit UserReferences(UserObjects* objects) : objects_(objects) {}
  UserReferences(const UserReferences& other) : objects_(other.objects_) { add(other); }
  UserReferences& operator=(const UserReferences&) = delete;
  ~UserReferences() {
    for (const auto& [object, count] : held_) objects_->release(object, count);
  }

  bool retain(std::uint64_t object, std::uint64_t count, bool move) {
    if (move ? !objects_->has(object) : !objects_->retain(object, count)) return false;
    held_[object] += count;
    return true;
  }
  bool release(std::uint64_t object, std::uint64_t count) {
    const auto found = held_.find(object);
    if (found == held_.end() || found->second < count) return false;
    if ((found->second -= count) == 0) held_.erase(found);
    return objects_->release(object, count);
  }
  void add(const UserReferences& other) {
    for (const auto& [object, count] : other.held_) {
      objects_->retain(object, count);
      held_[object] += count;
    }
  }

 private:
  UserObjects* objects_;
  std::map<std::uint64_t, std::uint64_t> held_;
};

}  // namespace braid::host
