#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "driver/driver.h"
#include "memory/caching/allocator.h"
#include "order/lanes.h"

namespace braid {

// A device and all memory that this process holds on it: its driver, its lanes, and its two caching
// allocators, which alone ask the driver for memory. Devices of JavaScript (of any thread) and sessions share
// it; the last of them to let go destroys it, when all work of the others has completed.
class DeviceMemory {
 public:
  DeviceMemory(std::shared_ptr<Driver> driver, const caching::Options& device,
               const caching::Options& pinned);
  // With the default options: for tests and tools, which share it with nobody.
  static std::shared_ptr<DeviceMemory> alone(std::shared_ptr<Driver> driver);
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;

  // The oldest of this process that is open under this name, with these options or, where `any` is set, with
  // whatever options; else a new one by `make`. One whose device has failed is not shared any more.
  using Make = std::function<std::shared_ptr<DeviceMemory>()>;
  static std::shared_ptr<DeviceMemory> shared(const std::string& name, const std::string& options, bool any,
                                              const Make& make);
  // The options that it was opened with, as `shared` was given them.
  const std::string& options() const { return options_; }

  Driver& driver() const { return *driver_; }
  const std::shared_ptr<Driver>& sharedDriver() const { return driver_; }
  Lanes& lanes() { return lanes_; }
  caching::Allocator& device() { return device_; }
  caching::Allocator& pinned() { return pinned_; }

  // The home of pinned memory and of the sessions' blocks. It is given no work but waits: the host itself
  // uses pinned memory, and a session has seen its own work complete when it gives its blocks back. Null,
  // with the reason in *status, where the lane cannot be made.
  Lane* hostLane(Status* status);
  // A pool whose segments are as long as the request, from the driver's plain memory: where memory in pages
  // does not fit.
  caching::MemPool* wholePool();

  // What memory is for, in words, by number: 0 is unknown. The same words have one number. Numbers beyond
  // `mostSites` are not given: further words are unknown.
  std::uint32_t site(const std::string& words);
  std::string siteWords(std::uint32_t site) const;
  std::vector<std::string> allSites() const;

  // A block that sessions or nodes of graphs use lives until its owner has freed it and nobody holds it.
  void hold(caching::Block* block, bool pinned = false);
  void letGo(caching::Block* block);
  // The owner's free, of any block.
  Status free(caching::Block* block, bool pinned = false);
  // A pool that graphs hold keeps all its memory, and serves captures alone, until nobody holds it. Where its
  // owner has closed it, it goes then.
  void hold(caching::MemPool* pool);
  void letGo(caching::MemPool* pool);
  // The owner's end of any pool.
  void close(caching::MemPool* pool);

 private:
  static constexpr std::size_t mostSites = 65'536;
  struct Held {
    caching::Allocator* allocator = nullptr;
    std::size_t holders = 0;
    bool freed = false;
  };

  std::string options_;
  const std::shared_ptr<Driver> driver_;
  Lanes lanes_;
  caching::Allocator device_, pinned_;
  std::mutex mutex_;  // guards what follows
  Lane* host_ = nullptr;
  caching::MemPool* whole_ = nullptr;
  std::map<caching::Block*, Held> held_;
  struct HeldPool {
    std::size_t holders = 0;
    bool closed = false;
  };
  std::map<caching::MemPool*, HeldPool> heldPools_;
  mutable std::mutex sitesMutex_;
  std::map<std::string, std::uint32_t> siteNumbers_;
  std::vector<std::string> sites_{""};
};

}  // namespace braid
