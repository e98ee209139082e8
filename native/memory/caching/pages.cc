#include "memory/caching/pages.h"

#include <algorithm>

namespace braid::caching {

Status PagePool::make(std::size_t count) {
  while (spare_.size() < count) {
    Pages page = nullptr;
    if (const Status status = driver_.pagesCreate(&page, pageBytes_); status != Status::ok) return status;
    reserved_.fetch_add(pageBytes_, std::memory_order_relaxed);
    spare_.push_back(page);
  }
  return Status::ok;
}

Status PagePool::map(DeviceAddress address, std::size_t count, Pages* pages) {
  std::copy_n(spare_.end() - static_cast<std::ptrdiff_t>(count), count, pages);
  const Status status = driver_.pagesMapEach(address, pageBytes_, pages, count);
  if (status == Status::ok)
    spare_.resize(spare_.size() - count);
  else
    std::fill_n(pages, count, nullptr);
  return status;
}

Status PagePool::unmap(DeviceAddress address, std::size_t count, Pages* pages) {
  if (const Status status = driver_.pagesUnmap(address, count * pageBytes_); status != Status::ok)
    return status;
  spare_.insert(spare_.end(), pages, pages + count);
  std::fill_n(pages, count, nullptr);
  return Status::ok;
}

std::uint64_t PagePool::trim() {
  const std::size_t before = spare_.size();
  std::erase_if(spare_, [this](Pages page) { return driver_.pagesRelease(page) == Status::ok; });
  const std::uint64_t bytes = (before - spare_.size()) * pageBytes_;
  reserved_.fetch_sub(bytes, std::memory_order_relaxed);
  return bytes;
}

}  // namespace braid::caching
