#include "driver/graph.h"

#include <utility>

namespace braid {

const char* nodeKindName(NodeKind kind) {
  switch (kind) {
    case NodeKind::kernel: return "kernel";
    case NodeKind::copy: return "copy";
    case NodeKind::fill: return "fill";
    case NodeKind::hostFunction: return "host function";
    case NodeKind::child: return "child graph";
    case NodeKind::empty: return "empty";
    case NodeKind::eventWait: return "event wait";
    case NodeKind::eventRecord: return "event record";
    case NodeKind::memAllocate: return "memory allocation";
    case NodeKind::memFree: return "memory free";
    case NodeKind::conditional: return "conditional";
    case NodeKind::other: return "other";
  }
  return "other";
}

const char* instantiateResultName(InstantiateResult result) {
  switch (result) {
    case InstantiateResult::success: return "success";
    case InstantiateResult::error: return "error";
    case InstantiateResult::invalidStructure: return "invalid structure";
    case InstantiateResult::operationNotSupported: return "operation not supported";
    case InstantiateResult::severalContexts: return "several contexts";
    case InstantiateResult::conditionUnused: return "condition unused";
  }
  return "error";
}

const char* updateResultName(UpdateResult result) {
  switch (result) {
    case UpdateResult::success: return "success";
    case UpdateResult::error: return "error";
    case UpdateResult::topologyChanged: return "topology changed";
    case UpdateResult::nodeKindChanged: return "node kind changed";
    case UpdateResult::functionChanged: return "function changed";
    case UpdateResult::parametersChanged: return "parameters changed";
    case UpdateResult::notSupported: return "not supported";
    case UpdateResult::unsupportedFunctionChange: return "unsupported function change";
    case UpdateResult::attributesChanged: return "attributes changed";
  }
  return "error";
}

NodeParams NodeParams::launch(const Kernel& kernel, std::vector<DeviceAddress> reads,
                              std::vector<DeviceAddress> writes) {
  NodeParams made;
  made.kind = NodeKind::kernel;
  made.kernel = &kernel;
  made.reads = std::move(reads);
  made.writes = std::move(writes);
  return made;
}

NodeParams NodeParams::copy(CopyKind kind, DeviceAddress to, DeviceAddress from, std::size_t bytes) {
  NodeParams made;
  made.kind = NodeKind::copy;
  made.copyKind = kind;
  made.to = to;
  made.from = from;
  made.bytes = bytes;
  return made;
}

NodeParams NodeParams::fill(DeviceAddress to, std::uint32_t value, std::uint32_t elementBytes,
                            std::size_t width, std::size_t height, std::size_t pitch) {
  NodeParams made;
  made.kind = NodeKind::fill;
  made.to = to;
  made.value = value;
  made.elementBytes = elementBytes;
  made.width = width;
  made.height = height;
  made.pitch = pitch;
  return made;
}

NodeParams NodeParams::host(void (*function)(void*), void* data) {
  NodeParams made;
  made.kind = NodeKind::hostFunction;
  made.function = function;
  made.data = data;
  return made;
}

NodeParams NodeParams::embed(Graph child) {
  NodeParams made;
  made.kind = NodeKind::child;
  made.child = child;
  return made;
}

NodeParams NodeParams::wait(Event event) {
  NodeParams made;
  made.kind = NodeKind::eventWait;
  made.event = event;
  return made;
}

NodeParams NodeParams::record(Event event) {
  NodeParams made;
  made.kind = NodeKind::eventRecord;
  made.event = event;
  return made;
}

NodeParams NodeParams::memFree(DeviceAddress address) {
  NodeParams made;
  made.kind = NodeKind::memFree;
  made.to = address;
  return made;
}

}  // namespace braid
