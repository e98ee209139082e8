#pragma once

#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cuda/api.h"

// What the fake libraries' functions share.
namespace fake {

using namespace braid::cuda;

struct Failure {
  std::string call;
  int nth = 0, code = 0;
};

struct State {
  std::mutex mutex;
  Failure failure;
  int sticky = 0;
  std::map<std::string, int> calls;
  std::map<std::string, int> live;
  std::vector<std::string> launched;
  std::map<CUdeviceptr, CUcontext> owners;
  std::set<std::pair<CUcontext, CUcontext>> peers;
  bool reachable = true;
  // What relu of the library makes of a NaN, and of -0.
  bool keepsNaN = true, dropsSign = true;
  // The first of the algorithms that a library offers.
  int offered = 0;
  // What cuDNN says that it is, how many engines it offers, what a launch of it adds to the time, whether it
  // writes, and the bytes of scratch that it wants.
  struct {
    int version = 91900, offered = 2;
    float milliseconds = 0;
    bool writes = false;
    std::int64_t workspace = 0;
  } cudnn;
  float time = 0;
};

inline State& state() {
  static State* all = new State;  // outlives every static destructor
  return *all;
}

inline int gate(const char* call) {
  State& all = state();
  const std::lock_guard lock(all.mutex);
  const int count = ++all.calls[call];
  if (all.failure.call == call && --all.failure.nth == 0) return all.failure.code;
  (void)count;
  return 0;
}

// The context that memory was allocated in; null where that is not known, as of host memory.
inline CUcontext ownerOf(CUdeviceptr address) {
  const std::lock_guard lock(state().mutex);
  const auto after = state().owners.upper_bound(address);
  return after == state().owners.begin() ? nullptr : std::prev(after)->second;
}
CUcontext currentContext();
// Whether the stream is of the context that is current: work goes on no other.
bool mayQueue(CUstream stream);

inline void born(const char* kind) {
  const std::lock_guard lock(state().mutex);
  ++state().live[kind];
}
inline void gone(const char* kind) {
  const std::lock_guard lock(state().mutex);
  --state().live[kind];
}

struct FakeEvent {
  unsigned flags;
  bool recorded;
  CUcontext context;
  float time = 0;
};
struct FakeGraph;
struct FakeNode;
struct FakeStream {
  int priority;
  CUcontext context;
  FakeGraph* capture = nullptr;  // what the stream captures into
  FakeNode* last = nullptr;
  bool invalid = false;
};
// Work queued on a capturing stream is a node instead. False where the stream does not capture.
bool captured(CUstream stream, const CUgraphNodeParams& params, CUresult* result, bool early = false);
CUgraphNodeParams copyOf(CUdeviceptr to, CUdeviceptr from, std::size_t bytes);
CUresult launchKernel(CUfunction function);

}  // namespace fake

#define EXPORT extern "C" __attribute__((visibility("default")))
#define CALL(name, arguments)                      \
  EXPORT CUresult name arguments {                 \
    if (const int code = gate(#name)) return code; \
    if (state().sticky) return state().sticky;
#define END \
  return 0; \
  }
