#include "cuda/trial.h"

#include <limits>

namespace braid::cuda {
namespace {

constexpr const char* kFill = R"cuda(
extern "C" __global__ void braid_fill(unsigned* words, long long count, unsigned one, unsigned mask) {
  for (long long i = (long long)blockIdx.x * 256 + threadIdx.x; i < count; i += (long long)gridDim.x * 256) {
    unsigned x = (unsigned)i * 0x9e3779b1u;
    x ^= x >> 16; x *= 0x85ebca6bu; x ^= x >> 13; x *= 0xc2b2ae35u; x ^= x >> 16;
    words[i] = one | (x & mask);
  }
}
)cuda";

constexpr int kTurns = 3;

}  // namespace

void fillRandom(const Context& context, Compiler& compiler, DType type, CUdeviceptr to, std::size_t bytes,
                CUstream stream) {
  unsigned one = type == DType::f32 ? 0x3f800000u : type == DType::bf16 ? 0x3f803f80u : 0x3c003c00u;
  unsigned mask = type == DType::f32 ? 0x807fffffu : type == DType::bf16 ? 0x807f807fu : 0x83ff83ffu;
  long long words = static_cast<long long>(bytes / 4);
  std::shared_ptr<Module> module;
  CUfunction function = nullptr;
  if (compiler.compile(kFill, "braid_fill.cu", Compiler::Flavor::generated, &module) != Status::ok ||
      module->function("braid_fill", &function) != Status::ok) {
    context.call().cuMemsetD32Async(to, one, static_cast<std::size_t>(words), stream);
    return;
  }
  void* arguments[] = {&to, &words, &one, &mask};
  context.call().cuLaunchKernel(function, 2048, 1, 1, 256, 1, 1, 0, stream, arguments, nullptr);
}

std::vector<float> contest(const TrialScratch& scratch, const Contest& about,
                           const std::function<Status(std::size_t contender, std::size_t run)>& launch,
                           bool* certain) {
  const DriverFunctions& call = scratch.call;
  std::vector<float> best(about.contenders, std::numeric_limits<float>::max());
  for (int turn = 0; turn < kTurns; ++turn)
    for (std::size_t which = 0; which < about.contenders; ++which) {
      float milliseconds = 0;
      bool works = true;
      for (int each = 0; works && each < about.ahead; ++each)
        works = call.cuMemsetD32Async(about.busy, 0, about.busyBytes / 4, scratch.stream) == kSuccess;
      works = works && call.cuEventRecord(scratch.from, scratch.stream) == kSuccess;
      for (int each = 0; works && each < about.runs; ++each)
        works = launch(which, static_cast<std::size_t>(each)) == Status::ok;
      works = works && call.cuEventRecord(scratch.to, scratch.stream) == kSuccess &&
              call.cuEventSynchronize(scratch.to) == kSuccess &&
              call.cuEventElapsedTime(&milliseconds, scratch.from, scratch.to) == kSuccess;
      if (works) best[which] = std::min(best[which], milliseconds);
      if (!works) *certain = false;
    }
  return best;
}

}  // namespace braid::cuda
