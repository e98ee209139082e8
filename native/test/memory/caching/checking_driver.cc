// Checks call by call that memory is used by its owner alone.
#include "test/memory/caching/checking_driver.h"

#include <algorithm>

namespace braid::test {
namespace {

thread_local Access lastPiece;

std::string words(DeviceAddress address, std::uint64_t bytes) {
  char text[64];
  std::snprintf(text, sizeof(text), "0x%llx + %llu", static_cast<unsigned long long>(address),
                static_cast<unsigned long long>(bytes));
  return text;
}

}  // namespace

void CheckingDriver::fail(std::string call, std::uint64_t nth, Status status) {
  std::lock_guard lock(mutex_);
  call_ = std::move(call);
  nth_ = nth;
  status_ = status;
  struck_ = false;
  armed_ = !call_.empty();
}

bool CheckingDriver::strikes(const char* call, Status* status) {
  if (!armed_.load(std::memory_order_relaxed) || call_ != call || --nth_ != 0) return false;
  armed_ = false;
  struck_ = true;
  *status = status_;
  return true;
}

void CheckingDriver::wrong(std::string words) {
  if (problem_.empty()) problem_ = std::move(words);
}

void CheckingDriver::complain(const std::string& words) {
  std::lock_guard lock(mutex_);
  wrong(words);
}

std::string CheckingDriver::problem() {
  std::lock_guard lock(mutex_);
  return problem_;
}

CheckingDriver::Out CheckingDriver::out() {
  std::lock_guard lock(mutex_);
  return out_;
}

void CheckingDriver::join(Clock& into, const Clock& other) {
  if (into.size() < other.size()) into.resize(other.size());
  for (std::size_t i = 0; i < other.size(); ++i) into[i] = std::max(into[i], other[i]);
}

std::uint32_t CheckingDriver::indexOf(Stream stream) const {
  const auto found = streams_.find(stream);
  return found == streams_.end() ? ~std::uint32_t{0} : found->second;
}

Access CheckingDriver::reached(Stream stream) {
  std::lock_guard lock(mutex_);
  const std::uint32_t index = indexOf(stream);
  return index == ~std::uint32_t{0} ? Access{} : Access{index, clocks_[index][index]};
}

Access CheckingDriver::last() { return lastPiece; }

std::size_t CheckingDriver::live() {
  std::lock_guard lock(mutex_);
  return static_cast<std::size_t>(
      std::count_if(owners_.begin(), owners_.end(), [](const auto& each) { return each.second.live; }));
}

void CheckingDriver::cut(DeviceAddress address) {
  auto next = owners_.upper_bound(address);
  if (next == owners_.begin()) return;
  auto& [start, range] = *--next;
  if (start == address || start + range.bytes <= address) return;
  Range high = range;
  high.bytes = start + range.bytes - address;
  range.bytes = address - start;
  owners_.emplace_hint(++next, address, std::move(high));
}

bool CheckingDriver::backed(DeviceAddress address, std::uint64_t bytes) const {
  const auto inside = [&](const std::map<DeviceAddress, std::uint64_t>& all) {
    auto found = all.upper_bound(address);
    if (found == all.begin()) return false;
    --found;
    return address + bytes <= found->first + found->second;
  };
  if (inside(plain_) || inside(pinned_)) return true;
  const std::uint64_t page = inner_.info().pageBytes;
  if (page == 0) return false;
  for (DeviceAddress at = address / page * page; at < address + bytes; at += page)
    if (mapped_.count(at) == 0) return false;
  return true;
}

void CheckingDriver::owned(DeviceAddress address, std::uint64_t bytes, Stream stream) {
  std::lock_guard lock(mutex_);
  const std::uint32_t lane = indexOf(stream);
  if (!backed(address, bytes)) wrong("handed out without memory beneath it: " + words(address, bytes));
  cut(address);
  cut(address + bytes);
  for (auto at = owners_.lower_bound(address); at != owners_.end() && at->first < address + bytes;
       at = owners_.erase(at)) {
    const auto& [start, range] = *at;
    if (range.live) wrong("two owners of " + words(start, range.bytes));
    for (const Access& use : range.uses) {
      if (known(use) || this->at(clocks_[lane], use.stream) >= use.count) continue;
      wrong("handed out on stream " + std::to_string(lane) + " while stream " + std::to_string(use.stream) +
            " may still be at piece " + std::to_string(use.count) + ": " + words(start, range.bytes));
    }
  }
  owners_[address] = {bytes, true, {}};
}

void CheckingDriver::released(DeviceAddress address, std::uint64_t bytes, const std::vector<Access>& uses) {
  std::lock_guard lock(mutex_);
  const auto found = owners_.find(address);
  if (found == owners_.end() || !found->second.live || found->second.bytes != bytes)
    return wrong("the test itself lost a block: " + words(address, bytes));
  found->second.live = false;
  found->second.uses = uses;
}

// Memory is about to lose its address, or to go: nothing may own it, and all that used it is known to be
// complete.
void CheckingDriver::goes(DeviceAddress address, std::uint64_t bytes, const char* call) {
  cut(address);
  cut(address + bytes);
  for (auto at = owners_.lower_bound(address); at != owners_.end() && at->first < address + bytes;
       at = owners_.erase(at)) {
    const auto& [start, range] = *at;
    if (range.live) wrong(std::string(call) + " of memory that has an owner: " + words(start, range.bytes));
    for (const Access& use : range.uses)
      if (!known(use))
        wrong(std::string(call) + " of memory that stream " + std::to_string(use.stream) +
              " may still use: " + words(start, range.bytes));
  }
}

#define BRAID_ENTER(name)        \
  std::unique_lock lock(mutex_); \
  Status status = Status::ok;    \
  if (strikes(name, &status)) return status;

Status CheckingDriver::memAllocate(DeviceAddress* address, std::size_t bytes) {
  BRAID_ENTER("memAllocate")
  status = inner_.memAllocate(address, bytes);
  if (status != Status::ok) return status;
  plain_[*address] = bytes;
  out_.plain += bytes;
  return status;
}

Status CheckingDriver::memFree(DeviceAddress address) {
  BRAID_ENTER("memFree")
  const auto found = plain_.find(address);
  if (found == plain_.end()) {
    wrong("memFree of what is no allocation");
    return Status::invalidValue;
  }
  goes(address, found->second, "memFree");
  out_.plain -= found->second;
  plain_.erase(found);
  return inner_.memFree(address);
}

Status CheckingDriver::memInfo(std::size_t* freeBytes, std::size_t* totalBytes) {
  BRAID_ENTER("memInfo")
  return inner_.memInfo(freeBytes, totalBytes);
}

Status CheckingDriver::pinnedAllocate(void** pointer, std::size_t bytes) {
  BRAID_ENTER("pinnedAllocate")
  status = inner_.pinnedAllocate(pointer, bytes);
  if (status != Status::ok) return status;
  pinned_[reinterpret_cast<DeviceAddress>(*pointer)] = bytes;
  out_.pinned += bytes;
  return status;
}

Status CheckingDriver::pinnedFree(void* pointer) {
  BRAID_ENTER("pinnedFree")
  const auto found = pinned_.find(reinterpret_cast<DeviceAddress>(pointer));
  if (found == pinned_.end()) {
    wrong("pinnedFree of what is no allocation");
    return Status::invalidValue;
  }
  goes(found->first, found->second, "pinnedFree");
  out_.pinned -= found->second;
  pinned_.erase(found);
  return inner_.pinnedFree(pointer);
}

Status CheckingDriver::addressReserve(DeviceAddress* address, std::size_t bytes) {
  BRAID_ENTER("addressReserve")
  status = inner_.addressReserve(address, bytes);
  if (status != Status::ok) return status;
  ranges_[*address] = bytes;
  ++out_.ranges;
  return status;
}

Status CheckingDriver::addressRelease(DeviceAddress address, std::size_t bytes) {
  BRAID_ENTER("addressRelease")
  status = inner_.addressRelease(address, bytes);
  if (status != Status::ok) {
    wrong("addressRelease of a range that is not, or not empty");
    return status;
  }
  ranges_.erase(address);
  --out_.ranges;
  return status;
}

Status CheckingDriver::pagesCreate(Pages* pages, std::size_t bytes) {
  BRAID_ENTER("pagesCreate")
  status = inner_.pagesCreate(pages, bytes);
  if (status != Status::ok) return status;
  pages_[*pages] = bytes;
  out_.pages += bytes;
  return status;
}

Status CheckingDriver::pagesRelease(Pages pages) {
  BRAID_ENTER("pagesRelease")
  const auto found = pages_.find(pages);
  if (found == pages_.end()) {
    wrong("pagesRelease of what are no pages");
    return Status::invalidHandle;
  }
  out_.pages -= found->second;
  pages_.erase(found);
  status = inner_.pagesRelease(pages);
  if (status != Status::ok) wrong("pagesRelease was refused");
  return status;
}

Status CheckingDriver::pagesMap(DeviceAddress address, std::size_t bytes, Pages pages) {
  BRAID_ENTER("pagesMap")
  status = inner_.pagesMap(address, bytes, pages);
  if (status != Status::ok) {
    if (status != Status::outOfMemory) wrong("pagesMap was refused");
    return status;
  }
  const std::uint64_t page = inner_.info().pageBytes;
  for (std::size_t done = 0; done < bytes; done += page) mapped_[address + done] = page;
  out_.mapped += bytes;
  return status;
}

Status CheckingDriver::pagesUnmap(DeviceAddress address, std::size_t bytes) {
  BRAID_ENTER("pagesUnmap")
  goes(address, bytes, "pagesUnmap");
  status = inner_.pagesUnmap(address, bytes);
  if (status != Status::ok) {
    wrong("pagesUnmap was refused: " + words(address, bytes));
    return status;
  }
  const std::uint64_t page = inner_.info().pageBytes;
  for (std::size_t done = 0; done < bytes; done += page) mapped_.erase(address + done);
  out_.mapped -= bytes;
  return status;
}

Status CheckingDriver::streamCreate(Stream* stream, int priority) {
  BRAID_ENTER("streamCreate")
  status = inner_.streamCreate(stream, priority);
  if (status != Status::ok) return status;
  const auto index = static_cast<std::uint32_t>(clocks_.size());
  streams_[*stream] = index;
  clocks_.emplace_back(index + 1);
  ++out_.streams;
  return status;
}

Status CheckingDriver::streamDestroy(Stream stream) {
  BRAID_ENTER("streamDestroy")
  --out_.streams;  // what was queued on it still counts, until the handle serves again
  return inner_.streamDestroy(stream);
}

// Those that block let go of the lock, and what they prove is what was so when they began.
Status CheckingDriver::streamSynchronize(Stream stream) {
  BRAID_ENTER("streamSynchronize")
  const std::uint32_t index = indexOf(stream);
  const Clock then = index < clocks_.size() ? clocks_[index] : Clock{};
  lock.unlock();
  status = inner_.streamSynchronize(stream);
  lock.lock();
  if (status == Status::ok) join(complete_, then);
  return status;
}

Status CheckingDriver::streamQuery(Stream stream) {
  BRAID_ENTER("streamQuery")
  status = inner_.streamQuery(stream);
  if (status == Status::ok) join(complete_, clocks_[indexOf(stream)]);
  return status;
}

Status CheckingDriver::streamWait(Stream stream, Event event) {
  BRAID_ENTER("streamWait")
  status = inner_.streamWait(stream, event);
  if (status != Status::ok) return status;
  const std::uint32_t index = indexOf(stream);
  Clock& clock = clocks_[index];
  if (const auto found = events_.find(event); found != events_.end()) join(clock, found->second.second);
  ++clock[index];
  return status;
}

Status CheckingDriver::eventCreate(Event* event, EventKind kind) {
  BRAID_ENTER("eventCreate")
  status = inner_.eventCreate(event, kind);
  if (status == Status::ok) ++out_.events;
  return status;
}

Status CheckingDriver::eventDestroy(Event event) {
  BRAID_ENTER("eventDestroy")
  events_.erase(event);
  --out_.events;
  return inner_.eventDestroy(event);
}

Status CheckingDriver::eventRecord(Event event, Stream stream) {
  BRAID_ENTER("eventRecord")
  status = inner_.eventRecord(event, stream);
  if (status != Status::ok) return status;
  const std::uint32_t index = indexOf(stream);
  events_[event] = {Access{index, clocks_[index][index]}, clocks_[index]};
  return status;
}

Status CheckingDriver::eventQuery(Event event) {
  BRAID_ENTER("eventQuery")
  status = inner_.eventQuery(event);
  if (status != Status::ok) return status;
  if (const auto found = events_.find(event); found != events_.end()) join(complete_, found->second.second);
  return status;
}

Status CheckingDriver::eventSynchronize(Event event) {
  BRAID_ENTER("eventSynchronize")
  const auto found = events_.find(event);
  const Clock then = found == events_.end() ? Clock{} : found->second.second;
  lock.unlock();
  status = inner_.eventSynchronize(event);
  lock.lock();
  if (status == Status::ok) join(complete_, then);
  return status;
}

Status CheckingDriver::copy(CopyKind kind, DeviceAddress to, DeviceAddress from, std::size_t bytes,
                            Stream stream) {
  BRAID_ENTER("copy")
  status = inner_.copy(kind, to, from, bytes, stream);
  if (status != Status::ok) return status;
  const std::uint32_t index = indexOf(stream);
  lastPiece = {index, ++clocks_[index][index]};
  return status;
}

Status CheckingDriver::fill32(DeviceAddress to, std::uint32_t value, std::size_t count, Stream stream) {
  BRAID_ENTER("fill32")
  status = inner_.fill32(to, value, count, stream);
  if (status != Status::ok) return status;
  const std::uint32_t index = indexOf(stream);
  lastPiece = {index, ++clocks_[index][index]};
  return status;
}

#undef BRAID_ENTER

}  // namespace braid::test
