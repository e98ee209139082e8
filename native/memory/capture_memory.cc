#include "memory/capture_memory.h"

namespace braid {

Status CaptureMemory::join(Lane& lane) {
  if (captured(lane) != nullptr) return Status::ok;
  if (!memory_) return Status::illegalState;
  Lane* made = nullptr;
  if (const Status status = memory_->lanes().beginCapture(lane, &made); status != Status::ok) return status;
  lanes_.emplace_back(&lane, made);
  return Status::ok;
}

Lane* CaptureMemory::captured(const Lane& lane) const {
  for (const auto& [real, made] : lanes_)
    if (real == &lane) return made;
  return nullptr;
}

Status CaptureMemory::worked(const Lane& lane, const std::vector<caching::Block*>& blocks) {
  Lane* const at = captured(lane);
  if (at == nullptr) return Status::illegalState;
  at->queued();
  for (caching::Block* block : blocks)
    if (const Status status = memory_->device().recordUse(block, *at); status != Status::ok) return status;
  return Status::ok;
}

Status CaptureMemory::record(const Lane& lane, const void* key) {
  Lane* const at = captured(lane);
  if (at == nullptr) return Status::illegalState;
  Mark* mark = nullptr;
  if (const Status status = memory_->lanes().mark(*at, &mark); status != Status::ok) return status;
  Mark*& known = marks_[key];
  if (known != nullptr) known->release();
  known = mark;
  return Status::ok;
}

Status CaptureMemory::wait(const Lane& lane, const void* key) {
  Lane* const at = captured(lane);
  const auto found = marks_.find(key);
  if (at == nullptr || found == marks_.end()) return Status::illegalState;
  std::lock_guard guard(at->mutex);
  return memory_->lanes().wait(*at, *found->second, nullptr);
}

caching::MemPool* CaptureMemory::ownPool() {
  if (own_ == nullptr) own_ = memory_->device().makePool(false, false);
  return own_;
}

std::shared_ptr<const void> CaptureMemory::hold(caching::MemPool* pool) {
  if (!pools_.insert(pool->id).second) return nullptr;
  memory_->hold(pool);
  const auto letGo = [memory = std::weak_ptr<DeviceMemory>(memory_)](caching::MemPool* held) {
    if (const auto alive = memory.lock()) alive->letGo(held);
  };
  return std::shared_ptr<caching::MemPool>(pool, letGo);
}

void CaptureMemory::end() {
  if (!memory_) return;
  for (const auto& [key, mark] : std::exchange(marks_, {})) mark->release();
  for (const auto& [lane, made] : std::exchange(lanes_, {})) memory_->lanes().endCapture(*lane, *made);
  pools_.clear();
  kept_.clear();
  if (own_ != nullptr) memory_->close(std::exchange(own_, nullptr));
  memory_.reset();
}

}  // namespace braid
