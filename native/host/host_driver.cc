#include "host/host_driver.h"

#include "host/touching.h"

#include <unistd.h>

#include <cmath>
#include <cstring>
#include <system_error>
#include <thread>

namespace braid::host {
namespace {

thread_local std::string lastFailure;

// A handle's tag: which of the process's host devices, and which kind of object.
std::uint16_t tag(std::uint16_t device, std::uint16_t kind) {
  return static_cast<std::uint16_t>(device << 4 | kind);
}

Status nullResult() { return Status::invalidValue; }

}  // namespace

constinit thread_local WorkLabel HostDriver::label_;

HostDriver::HostDriver(const HostOptions& options)
    : number_(Neighbours::all().enter()),
      context_(options),
      slowed_(context_.slowed()),
      budget_(options.memoryBytes),
      memory_(&budget_, &context_.live(), &context_.pinned(), options.poison),
      virtual_(&budget_, &context_.live(), options.poison, tag(number_, 1)),
      graphMemory_(&budget_, &context_.live(), options.poison),
      events_(tag(number_, 2)),
      graphs_(tag(number_, 4), tag(number_, 5), tag(number_, 6), tag(number_, 7)),
      marks_(std::make_shared<Marks>(tag(number_, 3))),
      engine_(&context_, &marks_->points) {
  const unsigned cores = std::max(1u, std::thread::hardware_concurrency());
  info_.kind = "host";
  info_.ordinal = options.ordinal;
  info_.name = "host (" + std::to_string(cores) + (cores == 1 ? " core)" : " cores)");
  info_.totalBytes = options.memoryBytes;
  info_.multiprocessors = static_cast<int>(cores);
  info_.pageBytes = virtual_.supported() ? kPageBytes : 0;
  Neighbours::all().show(number_, this);
}

// Every queue drains before any is destroyed, since one may wait for another. Afterwards no other device
// finds this one; a device that still has to wait for one of its queues shares the ownership of that queue.
HostDriver::~HostDriver() {
  marks_->streams.forEach([](StreamQueue& queue) { queue.stop(); });
  marks_->streams.forEach([](StreamQueue& queue) { queue.join(); });
  Neighbours::all().leave(number_, this);
  Touching::all().settle();  // of other devices, which may reach this one's memory
}

bool HostDriver::findMark(std::uint64_t event, Mark* mark, std::shared_ptr<const void>* keep) const {
  EventState* state = events_.find(event);
  if (state == nullptr) return false;
  *mark = state->current();
  *keep = marks_;
  return true;
}

Status HostDriver::fail(Status status, std::string detail) {
  lastFailure = std::move(detail);
  return status;
}

Status HostDriver::sticky() { return fail(context_.failure(), context_.failureDetail()); }

Status HostDriver::enter(Call call) {
  const Status status = enterRelease(call);
  return status != Status::ok ? status : leave();
}

Status HostDriver::enterRelease(Call call) {
  if (const HostOptions::Fault* fault = faults_.next(call))
    return fail(fault->status, std::string(callName(call)) + " was made to fail");
  if (insideCallback())
    return fail(Status::notPermitted,
                std::string(callName(call)) + " inside a host function or a destructor");
  return Status::ok;
}

Status HostDriver::enterUnsafe(Call call) {
  std::string detail;
  const Status status = graphs_.unsafe(callName(call), &detail);
  return status == Status::ok ? status : fail(status, std::move(detail));
}

Status HostDriver::bind() { return enterRelease(Call::bind); }

std::string HostDriver::lastDetail() { return lastFailure; }

// Memory.

Status HostDriver::memAllocate(DeviceAddress* address, std::size_t bytes) {
  if (const Status status = enter(Call::memAllocate); status != Status::ok) return status;
  if (const Status status = enterUnsafe(Call::memAllocate); status != Status::ok) return status;
  if (!address) return fail(nullResult(), "no place for the address");
  std::string detail;
  const Status status = memory_.allocate(address, bytes, false, &detail);
  return status == Status::ok ? status : fail(status, detail);
}

Status HostDriver::memFree(DeviceAddress address) {
  if (const Status status = enterRelease(Call::memFree); status != Status::ok) return status;
  if (const Status status = enterUnsafe(Call::memFree); status != Status::ok) return status;
  std::string detail;
  const Status status = memory_.release(address, false, &detail);
  return status == Status::ok ? leave() : fail(status, detail);
}

Status HostDriver::memInfo(std::size_t* freeBytes, std::size_t* totalBytes) {
  if (const Status status = enter(Call::memInfo); status != Status::ok) return status;
  if (freeBytes) *freeBytes = budget_.free();
  if (totalBytes) *totalBytes = budget_.limit();
  return Status::ok;
}

Status HostDriver::pinnedAllocate(void** pointer, std::size_t bytes) {
  if (const Status status = enter(Call::pinnedAllocate); status != Status::ok) return status;
  if (const Status status = enterUnsafe(Call::pinnedAllocate); status != Status::ok) return status;
  if (!pointer) return fail(nullResult(), "no place for the pointer");
  std::string detail;
  DeviceAddress address = 0;
  const Status status = memory_.allocate(&address, bytes, true, &detail);
  if (status != Status::ok) return fail(status, detail);
  *pointer = reinterpret_cast<void*>(address);
  return Status::ok;
}

Status HostDriver::pinnedFree(void* pointer) {
  if (const Status status = enterRelease(Call::pinnedFree); status != Status::ok) return status;
  if (const Status status = enterUnsafe(Call::pinnedFree); status != Status::ok) return status;
  std::string detail;
  const Status status = memory_.release(reinterpret_cast<DeviceAddress>(pointer), true, &detail);
  return status == Status::ok ? leave() : fail(status, detail);
}

// Virtual memory.

Status HostDriver::addressReserve(DeviceAddress* address, std::size_t bytes) {
  if (const Status status = enter(Call::addressReserve); status != Status::ok) return status;
  if (!virtual_.supported()) return fail(Status::notSupported, "no virtual memory on this system");
  if (!address) return fail(nullResult(), "no place for the address");
  std::string detail;
  const Status status = virtual_.reserve(address, bytes, &detail);
  return status == Status::ok ? status : fail(status, detail);
}

Status HostDriver::addressRelease(DeviceAddress address, std::size_t bytes) {
  if (const Status status = enterRelease(Call::addressRelease); status != Status::ok) return status;
  if (!virtual_.supported()) return fail(Status::notSupported, "no virtual memory on this system");
  std::string detail;
  const Status status = virtual_.unreserve(address, bytes, &detail);
  return status == Status::ok ? leave() : fail(status, detail);
}

Status HostDriver::pagesCreate(Pages* pages, std::size_t bytes) {
  if (const Status status = enter(Call::pagesCreate); status != Status::ok) return status;
  if (!virtual_.supported()) return fail(Status::notSupported, "no virtual memory on this system");
  if (!pages) return fail(nullResult(), "no place for the pages");
  std::string detail;
  const Status status = virtual_.create(pages, bytes, &detail);
  return status == Status::ok ? status : fail(status, detail);
}

Status HostDriver::pagesRelease(Pages pages) {
  if (const Status status = enterRelease(Call::pagesRelease); status != Status::ok) return status;
  if (!virtual_.supported()) return fail(Status::notSupported, "no virtual memory on this system");
  std::string detail;
  const Status status = virtual_.release(pages, &detail);
  return status == Status::ok ? leave() : fail(status, detail);
}

Status HostDriver::pagesMap(DeviceAddress address, std::size_t bytes, Pages pages) {
  if (const Status status = enter(Call::pagesMap); status != Status::ok) return status;
  if (!virtual_.supported()) return fail(Status::notSupported, "no virtual memory on this system");
  std::string detail;
  const Status status = virtual_.map(address, bytes, pages, &detail);
  return status == Status::ok ? status : fail(status, detail);
}

Status HostDriver::pagesUnmap(DeviceAddress address, std::size_t bytes) {
  if (const Status status = enterRelease(Call::pagesUnmap); status != Status::ok) return status;
  if (!virtual_.supported()) return fail(Status::notSupported, "no virtual memory on this system");
  std::string detail;
  const Status status = virtual_.unmap(address, bytes, &detail);
  return status == Status::ok ? leave() : fail(status, detail);
}

}  // namespace braid::host

namespace braid {

Status openHost(std::unique_ptr<Driver>* driver, const HostOptions& options, std::string* detail) {
  std::string ignored;
  std::string& words = detail ? *detail : ignored;
  words.clear();
  const auto badRate = [](double rate) { return !std::isfinite(rate) || rate < 0; };
  if (!driver) return Status::invalidValue;
  if (options.memoryBytes == 0) words = "memoryBytes: a device needs some memory";
  if (badRate(options.copyBytesPerSecond) || badRate(options.flopsPerSecond) ||
      badRate(options.deviceBytesPerSecond))
    words = "rates are numbers of 0 (no limit) or more";
  if (badRate(options.jitterMicroseconds)) words = "jitterMicroseconds is a number of 0 or more";
  if (options.ordinal < 0) words = "ordinal is a number of 0 or more";
  if (!words.empty()) return Status::invalidValue;
  auto host = std::make_unique<host::HostDriver>(options);
  if (!host->loadFaults(&words)) return Status::invalidValue;
  *driver = std::move(host);
  return Status::ok;
}

}  // namespace braid
