#pragma once

#include <napi.h>

#include <memory>

#include "bindings/device.h"
#include "bindings/environment.h"
#include "executor/sequence.h"

namespace braid::bindings {

// Behind a NativeSequence of runtime/addon.ts.
struct OpenSequence final : Awaited {
  static constexpr napi_type_tag typeTag{0x6272616964736571u, 0x4be27a90c51f36d8u};
  static constexpr const char* typeName = "NativeSequence";

  explicit OpenSequence(std::shared_ptr<DeviceMemory> device)
      : lanes(device->lanes()), sequence(std::make_shared<Sequence>(std::move(device))) {}

  // Nothing is submitted any more.
  void shut() override { sequence->end(); }

  Lanes& lanes;  // of the memory, which the sequence holds
  const std::shared_ptr<Sequence> sequence;
};

Napi::Object sequenceObject(Napi::Env env, const Device& device);

}  // namespace braid::bindings
