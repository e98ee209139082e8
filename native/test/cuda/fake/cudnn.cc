// cuDNN in the same library as the other fakes: descriptors hold what is set, heuristics offer some engines
// with a knob each, and an execution counts, takes a time, and may write.
#include "cuda/cudnn/api.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "test/cuda/fake/state.h"

using namespace braid::cuda;
using namespace fake;

namespace {

struct FakeDescriptor {
  int kind;
  std::int64_t engine = -1;  // of an engine, its configuration, its plan and its knob
  bool final = false;
  std::map<int, std::vector<std::uint64_t>> values{};
};
FakeDescriptor& of(CudnnRaw raw) { return *static_cast<FakeDescriptor*>(raw); }

struct FakeHandle {
  CUstream stream = nullptr;
};

std::size_t bytesOf(int type) {
  switch (type) {
    case kCudnnOfBoolean: return 1;
    case kCudnnOfHandle:
    case kCudnnOfInt64:
    case kCudnnOfPointer:
    case kCudnnOfDescriptor: return 8;
    default: return 4;
  }
}

constexpr int kBad = 2000, kNotSupported = 3000;

}  // namespace

EXPORT void fake_cudnn(int version, int offered, float milliseconds, int writes) {
  state().cudnn = {version, offered, milliseconds, writes != 0};
}
EXPORT void fake_cudnn_workspace(int bytes) { state().cudnn.workspace = bytes; }

EXPORT cudnnStatus cudnnCreate(CudnnHandle* handle) {
  if (const int code = gate("cudnnCreate")) return code;
  *handle = reinterpret_cast<CudnnHandle>(new FakeHandle);
  born("cudnn");
  return 0;
}
EXPORT cudnnStatus cudnnDestroy(CudnnHandle handle) {
  delete reinterpret_cast<FakeHandle*>(handle);
  gone("cudnn");
  return 0;
}
EXPORT cudnnStatus cudnnSetStream(CudnnHandle handle, CUstream stream) {
  if (const int code = gate("cudnnSetStream")) return code;
  reinterpret_cast<FakeHandle*>(handle)->stream = stream;
  return 0;
}
EXPORT std::size_t cudnnGetVersion() { return static_cast<std::size_t>(state().cudnn.version); }
EXPORT const char* cudnnGetErrorString(cudnnStatus) { return "fake status"; }
EXPORT void cudnnGetLastErrorString(char* text, std::size_t bytes) {
  std::strncpy(text, "a made failure", bytes - 1);
}

EXPORT cudnnStatus cudnnBackendCreateDescriptor(int kind, CudnnRaw* descriptor) {
  if (const int code = gate("cudnnBackendCreateDescriptor")) return code;
  *descriptor = new FakeDescriptor{kind};
  born("cudnn");
  return 0;
}
EXPORT cudnnStatus cudnnBackendDestroyDescriptor(CudnnRaw descriptor) {
  delete &of(descriptor);
  gone("cudnn");
  return 0;
}

EXPORT cudnnStatus cudnnBackendSetAttribute(CudnnRaw descriptor, int attribute, int type, std::int64_t count,
                                            const void* values) {
  if (const int code = gate("cudnnBackendSetAttribute")) return code;
  FakeDescriptor& to = of(descriptor);
  if (to.final) return kBad;
  std::vector<std::uint64_t>& kept = to.values[attribute];
  kept.assign(static_cast<std::size_t>(count), 0);
  const std::size_t bytes = bytesOf(type);
  for (std::size_t i = 0; i < kept.size(); ++i)
    std::memcpy(&kept[i], static_cast<const char*>(values) + i * bytes, bytes);
  if (type != kCudnnOfDescriptor) return 0;
  for (const std::uint64_t part : kept) {
    const FakeDescriptor& other = of(reinterpret_cast<CudnnRaw>(part));
    if (!other.final) return kBad;
    if (attribute == cudnn::kPlanConfig) to.engine = other.engine;
  }
  return 0;
}

EXPORT cudnnStatus cudnnBackendGetAttribute(CudnnRaw descriptor, int attribute, int type, std::int64_t most,
                                            std::int64_t* count, void* values) {
  if (const int code = gate("cudnnBackendGetAttribute")) return code;
  const FakeDescriptor& from = of(descriptor);
  if (!from.final) return kBad;
  const auto parts = [&](std::int64_t there, const auto& fill) {
    *count = most == 0 ? there : std::min(there, most);
    for (std::int64_t i = 0; i < std::min(there, most); ++i) {
      FakeDescriptor& part = of(static_cast<CudnnRaw*>(values)[i]);
      part.final = true;
      part.engine = fill(i);
    }
    return 0;
  };
  const auto number = [&](std::int64_t value) {
    *count = 1;
    if (most > 0) std::memcpy(values, &value, bytesOf(type));
    return 0;
  };
  switch (attribute) {
    case cudnn::kHeuristicsResults:
      return parts(state().cudnn.offered, [](std::int64_t i) { return state().offered + i; });
    case cudnn::kConfigEngine:
    case cudnn::kConfigKnobs: return parts(1, [&](std::int64_t) { return from.engine; });
    case cudnn::kEngineNotes: return *count = 0, 0;
    case cudnn::kEngineIndex:
    case cudnn::kKnobValue: return number(from.engine);
    case cudnn::kKnobType: return number(14);
    case cudnn::kPlanWorkspace: return number(state().cudnn.workspace);
    default: return kBad;
  }
}

EXPORT cudnnStatus cudnnBackendFinalize(CudnnRaw descriptor) {
  if (const int code = gate("cudnnBackendFinalize")) return code;
  FakeDescriptor& made = of(descriptor);
  if (made.final) return kBad;
  if (made.kind == kCudnnPlan)
    if (const int code = gate("cudnnBackendFinalize(plan)")) return code;
  if (made.kind == kCudnnHeuristics && state().cudnn.offered == 0) return kNotSupported;
  return made.final = true, 0;
}

// The operands are q, k, v and y of attention, and x, w and y of a convolution, which has no numbers.
EXPORT cudnnStatus cudnnBackendExecute(CudnnHandle handle, CudnnRaw plan, CudnnRaw pack) {
  if (const int code = gate("cudnnBackendExecute")) return code;
  if (state().sticky || !of(plan).final || !of(pack).final) return kBad;
  const CUstream stream = reinterpret_cast<FakeHandle*>(handle)->stream;
  CUgraphNodeParams node;
  node.type = 3;
  node.host = {[](void*) {}, nullptr};
  if (CUresult result = 0; captured(stream, node, &result)) return result;
  const std::vector<std::uint64_t>& at = of(pack).values[cudnn::kPackPointers];
  if (of(pack).values[cudnn::kPackIds].size() != at.size() || at.size() < 3) return kBad;
  const std::size_t operands = std::min<std::size_t>(at.size(), 4);
  for (std::size_t i = 0; i < operands; ++i)
    if (at[i] % 16 != 0) return kBad;
  if ((of(pack).values[cudnn::kPackWorkspace].at(0) != 0) != (state().cudnn.workspace > 0)) return kBad;
  if (state().cudnn.writes) *reinterpret_cast<std::uint32_t*>(at[operands - 1]) = 0;
  state().launched.push_back("cudnn " + std::to_string(of(plan).engine));
  state().time += state().cudnn.milliseconds;
  return 0;
}
