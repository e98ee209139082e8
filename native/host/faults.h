#pragma once

#include <array>
#include <atomic>
#include <string>
#include <vector>

#include "driver/driver.h"

namespace braid::host {

// The calls that can be made to fail, named as in Driver; `run` is a piece of work on a stream, or a node of
// a graph that does work.
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
  fill,
  prepare,
  launch,
  hostFunction,
  graphCreate,
  graphDestroy,
  graphClone,
  graphFindInClone,
  graphNodes,
  graphEdges,
  graphAddEdges,
  graphRemoveEdges,
  graphDot,
  nodeAdd,
  nodeDestroy,
  nodeUpdate,
  nodeKind,
  nodeChild,
  nodeAddAllocation,
  graphMemory,
  graphMemoryTrim,
  conditionCreate,
  nodeAddConditional,
  prepareCondition,
  captureBegin,
  captureBeginOnto,
  captureEnd,
  captureInfo,
  captureDependencies,
  captureModeExchange,
  graphInstantiate,
  execDestroy,
  execUpload,
  execLaunch,
  execUpdate,
  execNodeUpdate,
  execNodeEnable,
  execNodeEnabled,
  userObjectCreate,
  userObjectRetain,
  userObjectRelease,
  graphRetain,
  graphRelease,
  run,
  count
};
const char* callName(Call call);

// Counts the uses of each call that has a fault, and makes the n-th one fail, or take longer.
class Faults {
 public:
  // False if a fault names no call, is to happen on use 0, or delays anything but a piece of work.
  bool load(const std::vector<HostOptions::Fault>& faults, std::string* detail);

  // The fault of this use of `call`, or null. It lives as long as this. Cheap where there are no faults.
  const HostOptions::Fault* next(Call call) {
    Site& site = sites_[static_cast<std::size_t>(call)];
    return site.faults.empty() ? nullptr : count(site);
  }
  bool any(Call call) const { return !sites_[static_cast<std::size_t>(call)].faults.empty(); }

 private:
  struct Site {
    std::vector<HostOptions::Fault> faults;
    std::atomic<std::uint64_t> uses{0};
  };
  static const HostOptions::Fault* count(Site& site);

  std::array<Site, static_cast<std::size_t>(Call::count)> sites_;
};

}  // namespace braid::host
