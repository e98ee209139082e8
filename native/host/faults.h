#pragma once

#include <array>
#include <atomic>
#include <string>
#include <vector>

#include "driver/driver.h"

namespace braid::host {

// The calls that can be made to fail, by their names in Driver; `run` is a piece of work on a stream.
enum class Call : unsigned char {
  bind,
  memAllocate,
  memFree,
  memInfo,
  pinnedAllocate,
  pinnedFree,
  addressReserve,
  addressRelease,
  pagesCreate,
  pagesRelease,
  pagesMap,
  pagesUnmap,
  streamCreate,
  streamDestroy,
  streamSynchronize,
  streamQuery,
  streamWait,
  eventCreate,
  eventDestroy,
  eventRecord,
  eventQuery,
  eventSynchronize,
  eventElapsed,
  copy,
  fill32,
  prepare,
  launch,
  hostFunction,
  run,
  count
};
const char* callName(Call call);

// Counts the uses of each call that has a fault, and says when one must fail.
class Faults {
 public:
  // False if a fault names no call, or is to happen on use 0.
  bool load(const std::vector<HostOptions::Fault>& faults, std::string* detail);

  // Where this use of `call` must fail: true, and the status to fail with. Cheap where no fault is asked for.
  bool strikes(Call call, Status* status) {
    Site& site = sites_[static_cast<std::size_t>(call)];
    return !site.faults.empty() && count(site, status);
  }

 private:
  struct Site {
    std::vector<HostOptions::Fault> faults;
    std::atomic<std::uint64_t> uses{0};
  };
  static bool count(Site& site, Status* status);

  std::array<Site, static_cast<std::size_t>(Call::count)> sites_;
};

}  // namespace braid::host
