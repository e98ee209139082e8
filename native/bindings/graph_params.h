#pragma once

#include <napi.h>

#include <memory>

#include "bindings/graph_state.h"
#include "graphs/definition.h"
#include "memory/capture_memory.h"

namespace braid::bindings {

// An event of the driver's that graphs and lanes record again and again.
struct GraphEvent {
  static constexpr napi_type_tag typeTag{0x6272616964677665u, 0x8c0f2b71d64e93a5u};
  static constexpr const char* typeName = "NativeGraphEvent";

  ~GraphEvent() {
    if (event && driver->bind() == Status::ok) driver->eventDestroy(event);
  }
  std::shared_ptr<Driver> driver;
  Event event = nullptr;
};

// What a node does, and the owners of what it refers to, from a JavaScript object:
//   { kind: 'copy', copyKind, to, from, bytes, owners }
//   { kind: 'fill', to, value, elementBytes, width, height, pitch, owners }
//   { kind: 'kernel', kernel, words, owners }: `words` as for a launch
//   { kind: 'condition', condition, from, owner }: sets a condition to a word of memory
//   { kind: 'callback', function, ordered } or { kind: 'callback', library, symbol, data }
//   { kind: 'record', event }, { kind: 'wait', event } or { kind: 'wait', mark }
//   { kind: 'free', address }: what `malloc` of the same graph gave
//   { kind: 'empty' }
// `owners` are up to two: { space, block }, or { value } with any object.
struct NodeSpec {
  NodeParams params;
  graphs::OwnerPair owners;
  std::vector<caching::Block*> blocks;  // those of the capture's own pools, which need no owner
};
// `capture`: the memory of the capture that the node is part of, if it is of one.
NodeSpec nodeSpec(const std::shared_ptr<AllocatorDevice>& device, Napi::Object given,
                  const CaptureMemory* capture = nullptr);

// The allocation of { space, block }, not its JavaScript object: its memory gets no new owner while this
// lives. Where the device has gone, its memory has too.
graphs::Owner blockOwner(const std::shared_ptr<AllocatorDevice>& device, caching::Block* block, bool pinned);
// The block of { space, block }. Throws where it is not alive.
caching::Block* blockOf(Napi::Object given, bool* pinned);

// Queues on a stream what the node would do.
Status queueWork(Driver& driver, const NodeParams& params, Stream stream);

}  // namespace braid::bindings
