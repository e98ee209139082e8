#include "host/faults.h"

#include <cmath>

namespace braid::host {
namespace {

constexpr const char* kNames[] = {"bind",
                                  "memAllocate",
                                  "memFree",
                                  "memInfo",
                                  "pinnedAllocate",
                                  "pinnedFree",
                                  "addressReserve",
                                  "addressRelease",
                                  "pagesCreate",
                                  "pagesRelease",
                                  "pagesMap",
                                  "pagesUnmap",
                                  "streamCreate",
                                  "streamDestroy",
                                  "streamSynchronize",
                                  "streamQuery",
                                  "streamWait",
                                  "eventCreate",
                                  "eventDestroy",
                                  "eventRecord",
                                  "eventQuery",
                                  "eventSynchronize",
                                  "eventElapsed",
                                  "copy",
                                  "fill32",
                                  "fill",
                                  "prepare",
                                  "launch",
                                  "hostFunction",
                                  "graphCreate",
                                  "graphDestroy",
                                  "graphClone",
                                  "graphFindInClone",
                                  "graphNodes",
                                  "graphEdges",
                                  "graphAddEdges",
                                  "graphRemoveEdges",
                                  "graphDot",
                                  "nodeAdd",
                                  "nodeDestroy",
                                  "nodeUpdate",
                                  "nodeKind",
                                  "nodeChild",
                                  "nodeAddAllocation",
                                  "graphMemory",
                                  "graphMemoryTrim",
                                  "conditionCreate",
                                  "nodeAddConditional",
                                  "prepareCondition",
                                  "captureBegin",
                                  "captureBeginOnto",
                                  "captureEnd",
                                  "captureInfo",
                                  "captureDependencies",
                                  "captureModeExchange",
                                  "graphInstantiate",
                                  "execDestroy",
                                  "execUpload",
                                  "execLaunch",
                                  "execUpdate",
                                  "execNodeUpdate",
                                  "execNodeEnable",
                                  "execNodeEnabled",
                                  "userObjectCreate",
                                  "userObjectRetain",
                                  "userObjectRelease",
                                  "graphRetain",
                                  "graphRelease",
                                  "run"};
static_assert(std::size(kNames) == static_cast<std::size_t>(Call::count));

}  // namespace

const char* callName(Call call) { return kNames[static_cast<std::size_t>(call)]; }

bool Faults::load(const std::vector<HostOptions::Fault>& faults, std::string* detail) {
  for (const HostOptions::Fault& fault : faults) {
    std::size_t index = 0;
    while (index < std::size(kNames) && fault.call != kNames[index]) ++index;
    const bool delays = fault.delayMicroseconds != 0;
    if (index == std::size(kNames))
      *detail = "faults: no call is named " + fault.call + "; wanted a method of Driver, or run";
    else if (fault.nth == 0)
      *detail = "faults: uses are counted from 1";
    else if (fault.status == Status::ok)
      *detail = "faults: a fault's status cannot be 0, which is success";
    else if (!std::isfinite(fault.delayMicroseconds) || fault.delayMicroseconds < 0)
      *detail = "faults: delayMicroseconds is a number of 0 or more";
    else if (delays && index != static_cast<std::size_t>(Call::run))
      *detail = "faults: " + fault.call + " cannot be delayed; only run can";
    else {
      sites_[index].faults.push_back(fault);
      continue;
    }
    return false;
  }
  return true;
}

const HostOptions::Fault* Faults::count(Site& site) {
  const std::uint64_t use = ++site.uses;
  for (const HostOptions::Fault& fault : site.faults)
    if (fault.nth == use) return &fault;
  return nullptr;
}

}  // namespace braid::host
