#pragma once

#include <algorithm>
#include <functional>
#include <vector>

#include "cuda/nvrtc.h"
#include "driver/kernel_spec.h"

namespace braid::cuda {

// Device memory, a stream and two events for trying a kernel out; all gone at its end.
struct TrialScratch {
  const DriverFunctions& call;
  std::vector<CUdeviceptr> blocks;
  CUstream stream = nullptr;
  CUevent from = nullptr, to = nullptr;

  explicit TrialScratch(const DriverFunctions& functions) : call(functions) {}
  ~TrialScratch() {
    if (stream) call.cuStreamSynchronize(stream);
    for (CUdeviceptr block : blocks) call.cuMemFree(block);
    if (from) call.cuEventDestroy(from);
    if (to) call.cuEventDestroy(to);
    if (stream) call.cuStreamDestroy(stream);
  }
  TrialScratch(const TrialScratch&) = delete;
  TrialScratch& operator=(const TrialScratch&) = delete;

  bool take(std::size_t bytes) {
    CUdeviceptr block = 0;
    if (call.cuMemAlloc(&block, std::max<std::size_t>(bytes, 1)) != kSuccess) return false;
    blocks.push_back(block);
    return true;
  }
  bool start() {
    return call.cuStreamCreateWithPriority(&stream, kStreamNonBlocking, 0) == kSuccess &&
           call.cuEventCreate(&from, 0) == kSuccess && call.cuEventCreate(&to, 0) == kSuccess;
  }
};

// What the second-level cache of a device does not hold all of.
inline constexpr std::size_t kCold = 96 << 20;

// Random signs and fractions around 1: zeros would let the chip run faster than anything real does.
void fillRandom(const Context& context, Compiler& compiler, DType type, CUdeviceptr to, std::size_t bytes,
                CUstream stream);

// Kernels that are timed against each other, in turns.
struct Contest {
  std::size_t contenders = 2;
  int runs = 20;  // in one turn
  // The device is kept busy until all launches of a turn are in its queue, so that they are timed there and
  // not on the host: `ahead` fills of this block.
  CUdeviceptr busy = 0;
  std::size_t busyBytes = 0;
  int ahead = 4;
};

// The shortest time of a turn of each contender; the largest float where a call failed, and then *certain is
// false.
std::vector<float> contest(const TrialScratch& scratch, const Contest& about,
                           const std::function<Status(std::size_t contender, std::size_t run)>& launch,
                           bool* certain);

}  // namespace braid::cuda
