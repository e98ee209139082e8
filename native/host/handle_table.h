#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace braid::host {

// Objects behind handles that may be wrong: null, of another device, of another kind, or destroyed. A handle
// is a number (kind, device, generation, index), never an address, so a wrong one is detected without
// touching memory. Objects are reused and never destroyed before the table, so an object stays valid even
// while another thread retires its handle.
template <class T>
class HandleTable {
 public:
  // `tag` distinguishes this table's handles from all others; 16 bits, not 0.
  explicit HandleTable(std::uint16_t tag) : tag_(std::uint64_t{tag} << 48) {}
  ~HandleTable() {
    for (auto& chunk : chunks_) delete chunk.load();
  }
  HandleTable(const HandleTable&) = delete;
  HandleTable& operator=(const HandleTable&) = delete;

  // Returns the handle of a retired object for which `usable(T&)` holds, else of a new one from `make()`,
  // which returns a unique_ptr (null to fail). 0 after a failure.
  template <class Usable, class Make>
  std::uint64_t create(T** object, Usable usable, Make make) {
    std::lock_guard lock(mutex_);
    for (std::size_t i = retired_.size(); i-- > 0;) {
      Slot& slot = at(retired_[i]);
      if (!usable(*slot.object)) continue;
      const std::uint32_t index = retired_[i];
      retired_[i] = retired_.back();
      retired_.pop_back();
      return publish(slot, index, object);
    }
    if (count_ == kChunks * kChunkSize) return 0;
    auto made = make();
    if (!made) return 0;
    if (count_ % kChunkSize == 0) chunks_[count_ / kChunkSize].store(new Chunk(), std::memory_order_release);
    retired_.reserve(count_ + 1);  // so that retiring never allocates
    const std::uint32_t index = count_++;
    at(index).object = std::move(made);
    return publish(at(index), index, object);
  }

  T* find(std::uint64_t handle) const {
    Slot* slot = slotOf(handle);
    return slot ? slot->object.get() : nullptr;
  }

  // Returns the object to exactly one of the callers that retire this handle. `retired(T&)` runs before the
  // object can be reused.
  template <class Retired>
  bool retire(std::uint64_t handle, Retired retired) {
    std::lock_guard lock(mutex_);
    Slot* slot = slotOf(handle);
    if (!slot) return false;
    slot->handle.store(0, std::memory_order_release);
    retired(*slot->object);
    retired_.push_back(static_cast<std::uint32_t>(handle & kIndexMask));
    return true;
  }

  // Visits every object ever made.
  template <class Visit>
  void forEach(Visit visit) {
    for (std::uint32_t index = 0; index < count_; ++index) visit(*at(index).object);
  }

 private:
  static constexpr std::uint32_t kChunkSize = 256, kChunks = 4096;
  static constexpr std::uint64_t kIndexBits = 20, kIndexMask = (std::uint64_t{1} << kIndexBits) - 1;
  static constexpr std::uint64_t kGenerationMask = (std::uint64_t{1} << (48 - kIndexBits)) - 1;
  static_assert(std::uint64_t{kChunkSize} * kChunks <= kIndexMask + 1);

  struct Slot {
    std::atomic<std::uint64_t> handle{0};
    std::uint64_t generation = 0;
    std::unique_ptr<T> object;
  };
  using Chunk = std::array<Slot, kChunkSize>;

  Slot& at(std::uint32_t index) const {
    return (*chunks_[index / kChunkSize].load(std::memory_order_acquire))[index % kChunkSize];
  }

  Slot* slotOf(std::uint64_t handle) const {
    if (handle == 0) return nullptr;
    const auto index = static_cast<std::uint32_t>(handle & kIndexMask);
    if (!chunks_[index / kChunkSize].load(std::memory_order_acquire)) return nullptr;
    Slot& slot = at(index);
    return slot.handle.load(std::memory_order_acquire) == handle ? &slot : nullptr;
  }

  std::uint64_t publish(Slot& slot, std::uint32_t index, T** object) {
    slot.generation = (slot.generation + 1) & kGenerationMask;
    const std::uint64_t handle = tag_ | slot.generation << kIndexBits | index;
    *object = slot.object.get();
    slot.handle.store(handle, std::memory_order_release);
    return handle;
  }

  const std::uint64_t tag_;
  std::mutex mutex_;
  std::array<std::atomic<Chunk*>, kChunks> chunks_{};
  std::uint32_t count_ = 0;
  std::vector<std::uint32_t> retired_;
};

}  // namespace braid::host
