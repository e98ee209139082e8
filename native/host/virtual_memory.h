#pragma once

#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "host/handle_table.h"
#include "host/memory.h"

namespace braid::host {

constexpr std::size_t kPageBytes = std::size_t{2} << 20;

// Address ranges that are separate from memory. The memory is one anonymous file, handed out in pages of 2
// MiB, so that the same pages can be mapped at another address with their content, or at two addresses at
// once.
class VirtualMemory {
 public:
  VirtualMemory(Budget* budget, LiveRanges* live, bool poison, std::uint16_t handleTag);
  ~VirtualMemory();

  bool supported() const { return file_ >= 0; }
  Status reserve(DeviceAddress* address, std::size_t bytes, std::string* detail);
  Status unreserve(DeviceAddress address, std::size_t bytes, std::string* detail);
  Status create(Pages* pages, std::size_t bytes, std::string* detail);
  Status release(Pages pages, std::string* detail);
  Status map(DeviceAddress address, std::size_t bytes, Pages pages, std::string* detail);
  Status unmap(DeviceAddress address, std::size_t bytes, std::string* detail);

 private:
  // Memory is freed once its handle is released and it is mapped nowhere.
  struct Physical {
    std::vector<std::uint32_t> pages;  // places in the file
    std::uint32_t mappings = 0;
    bool held = false;   // its handle is alive
    bool fresh = false;  // never mapped
  };
  struct Mapping {
    std::size_t bytes = 0;
    Physical* physical = nullptr;
  };

  bool reserved(DeviceAddress address, std::size_t bytes) const;
  bool place(DeviceAddress address, const Physical& physical);
  void giveBack(Physical& physical);

  Budget* budget_;
  LiveRanges* live_;
  bool poison_;
  int file_ = -1;
  std::mutex mutex_;
  std::uint32_t filePages_ = 0;
  std::set<std::uint32_t>
      freePages_;  // lowest first, so that pages made together lie together and map in one piece
  std::map<DeviceAddress, std::size_t> reservations_;
  std::map<DeviceAddress, Mapping> mappings_;
  HandleTable<Physical> handles_;
};

}  // namespace braid::host
