#include "host/faults.h"

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
    if (index == std::size(kNames) || fault.nth == 0 || fault.status == Status::ok) {
      *detail = index == std::size(kNames)
                    ? "faults: no call is named " + fault.call + "; wanted a method of Driver, or run"
                : fault.nth == 0 ? "faults: uses are counted from 1"
                                 : "faults: a fault's status cannot be 0, which is success";
      return false;
    }
    sites_[index].faults.push_back(fault);
  }
  return true;
}

bool Faults::count(Site& site, Status* status) {
  const std::uint64_t use = ++site.uses;
  for (const HostOptions::Fault& fault : site.faults) {
    if (fault.nth != use) continue;
    *status = fault.status;
    return true;
  }
  return false;
}

}  // namespace braid::host
