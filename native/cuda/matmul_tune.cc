#include "cuda/matmul_tune.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "cuda/matmul_scratch.h"

namespace braid::cuda {
namespace {

// Random signs and fractions around 1: zeros would let the chip run faster than any real product does.
constexpr const char* kFill = R"cuda(
extern "C" __global__ void braid_fill(unsigned* words, long long count, unsigned one, unsigned mask) {
  for (long long i = (long long)blockIdx.x * 256 + threadIdx.x; i < count; i += (long long)gridDim.x * 256) {
    unsigned x = (unsigned)i * 0x9e3779b1u;
    x ^= x >> 16; x *= 0x85ebca6bu; x ^= x >> 13; x *= 0xc2b2ae35u; x ^= x >> 16;
    words[i] = one | (x & mask);
  }
}
)cuda";

void fill(const Context& context, Compiler& compiler, DType type, CUdeviceptr to, std::size_t bytes,
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

constexpr int kRounds = 3, kRunsARound = 2;

}  // namespace

void tune(const MatmulProblem& problem, const KernelSpec& spec, Compiler& compiler, bool timed,
          std::vector<MatmulChoice>* choices, bool* certain) {
  const Context& context = *problem.session().context;
  const DriverFunctions& call = context.call();
  std::size_t workspace = 0;
  for (const MatmulChoice& choice : *choices) workspace = std::max(workspace, choice.workspaceBytes);
  constexpr std::size_t kShift = 256;  // room to move an operand off its alignment
  const OperandBytes bytes(spec);
  const MatmulEpilogue& epilogue = spec.epilogue;
  TrialScratch scratch(call);
  if (!scratch.take(bytes.a + kShift) || !scratch.take(bytes.b + kShift) || !scratch.take(bytes.c + kShift) ||
      !scratch.take(workspace) || (epilogue.bias && !scratch.take(bytes.c + kShift)) ||
      ((epilogue.residual || epilogue.auxiliary) && !scratch.take(bytes.c + kShift)) ||
      call.cuStreamCreateWithPriority(&scratch.stream, kStreamNonBlocking, 0) != kSuccess ||
      call.cuEventCreate(&scratch.from, 0) != kSuccess || call.cuEventCreate(&scratch.to, 0) != kSuccess) {
    *certain = false;
    return;
  }
  if (timed) {
    fill(context, compiler, spec.a.dtype, scratch.blocks[0], bytes.a + kShift, scratch.stream);
    fill(context, compiler, spec.b.dtype, scratch.blocks[1], bytes.b + kShift, scratch.stream);
  }
  const auto run = [&](const MatmulChoice& choice) {
    const std::size_t shift = choice.alignment % kShift;
    MatmulAddresses at{scratch.blocks[0] + shift, scratch.blocks[1] + shift, scratch.blocks[2] + shift};
    at.workspace = scratch.blocks[3];
    if (epilogue.bias) at.bias = scratch.blocks[4] + shift;
    if (epilogue.residual) at.residual = scratch.blocks.back() + shift;
    if (epilogue.auxiliary) at.auxiliary = scratch.blocks.back();
    return problem.run(choice, at, scratch.stream);
  };

  // An algorithm that the library offers and then refuses is dropped, as long as another of its alignment is
  // left.
  for (std::size_t i = choices->size(); i-- > 0;) {
    const std::size_t alignment = (*choices)[i].alignment;
    const Status ran = run((*choices)[i]);
    const auto alike = std::count_if(choices->begin(), choices->end(),
                                     [&](const MatmulChoice& other) { return other.alignment == alignment; });
    if (ran != Status::ok && alike > 1) choices->erase(choices->begin() + static_cast<std::ptrdiff_t>(i));
    if (ran != Status::ok && (alike == 1 || ran != Status::notSupported)) *certain = false;
  }
  const std::size_t full = choices->front().alignment;
  std::size_t candidates = 0;
  while (candidates < choices->size() && (*choices)[candidates].alignment == full) ++candidates;
  const bool done = call.cuStreamSynchronize(scratch.stream) == kSuccess;
  if (!done) *certain = false;
  if (!timed || candidates < 2 || !done) return;

  std::vector<float> best(candidates, std::numeric_limits<float>::max());
  for (int round = 0; round < kRounds; ++round) {
    for (std::size_t i = 0; i < candidates; ++i) {
      float milliseconds = 0;
      bool works = call.cuEventRecord(scratch.from, scratch.stream) == kSuccess;
      for (int each = 0; works && each < kRunsARound; ++each) works = run((*choices)[i]) == Status::ok;
      works = works && call.cuEventRecord(scratch.to, scratch.stream) == kSuccess &&
              call.cuEventSynchronize(scratch.to) == kSuccess &&
              call.cuEventElapsedTime(&milliseconds, scratch.from, scratch.to) == kSuccess;
      if (!works) *certain = false;
      if (works) best[i] = std::min(best[i], milliseconds);
    }
  }
  // Within the noise of the clock the library's first stays first, so that two processes mostly choose alike.
  std::size_t chosen = static_cast<std::size_t>(std::min_element(best.begin(), best.end()) - best.begin());
  if (best[0] <= 1.01f * best[chosen]) chosen = 0;
  const MatmulChoice fastest = (*choices)[chosen];
  choices->erase(choices->begin(), choices->begin() + static_cast<std::ptrdiff_t>(candidates));
  choices->insert(choices->begin(), fastest);
}

bool isFewTaken(const CudaKernel& few, const MatmulProblem& problem, const MatmulChoice& choice,
                const KernelSpec& spec, bool* certain) {
  // In a program, other weights are read between two uses of these, so the second-level cache has forgotten
  // them.
  constexpr std::size_t kCold = 96 << 20;
  constexpr int kFewRuns = 20, kAhead = 4;
  const Context& context = *problem.session().context;
  const DriverFunctions& call = context.call();
  const MatmulEpilogue& epilogue = spec.epilogue;
  const OperandBytes bytes(spec);
  const std::size_t step = (bytes.b + 255) / 256 * 256;
  const std::size_t copies = std::clamp<std::size_t>(kCold / step, 1, kFewRuns);
  const std::size_t weights = std::max(copies * step, kCold);
  TrialScratch scratch(call);
  const bool sure = std::exchange(*certain, false);
  for (const std::size_t each : {bytes.a, weights, bytes.c, choice.workspaceBytes, bytes.c, bytes.c})
    if (!scratch.take(each)) return false;
  if (call.cuStreamCreateWithPriority(&scratch.stream, kStreamNonBlocking, 0) != kSuccess ||
      call.cuEventCreate(&scratch.from, 0) != kSuccess || call.cuEventCreate(&scratch.to, 0) != kSuccess)
    return false;
  *certain = sure;
  MatmulAddresses at{scratch.blocks[0], scratch.blocks[1], scratch.blocks[2]};
  at.workspace = scratch.blocks[3];
  if (epilogue.bias) at.bias = scratch.blocks[4];
  if (epilogue.residual) at.residual = scratch.blocks[5];
  if (epilogue.auxiliary) at.auxiliary = scratch.blocks[5];
  const auto run = [&](bool library, std::size_t copy) {
    MatmulAddresses here = at;
    here.b += copy * step;
    if (library) return problem.run(choice, here, scratch.stream);
    std::vector<DeviceAddress> reads{here.a, here.b};
    if (epilogue.bias) reads.push_back(here.bias);
    if (epilogue.residual) reads.push_back(here.residual);
    const DeviceAddress writes[] = {here.c, here.auxiliary};
    return few.launch(reads.data(), writes, scratch.stream);
  };
  float best[2] = {std::numeric_limits<float>::max(), std::numeric_limits<float>::max()};
  for (int round = 0; round < kRounds; ++round)
    for (int which = 0; which < 2; ++which) {
      float milliseconds = 0;
      bool works = true;
      // The device is kept busy until all launches are in its queue: they are timed there, not on the host.
      for (int each = 0; works && each < kAhead; ++each)
        works = call.cuMemsetD32Async(at.b, 0, weights / 4, scratch.stream) == kSuccess;
      works = works && call.cuEventRecord(scratch.from, scratch.stream) == kSuccess;
      for (std::size_t each = 0; works && each < kFewRuns; ++each)
        works = run(which == 0, each % copies) == Status::ok;
      works = works && call.cuEventRecord(scratch.to, scratch.stream) == kSuccess &&
              call.cuEventSynchronize(scratch.to) == kSuccess &&
              call.cuEventElapsedTime(&milliseconds, scratch.from, scratch.to) == kSuccess;
      if (works) best[which] = std::min(best[which], milliseconds);
      if (!works) *certain = false;
    }
  // Within the noise of the clock it is taken, so that two processes mostly choose alike.
  return best[1] < std::numeric_limits<float>::max() && best[1] <= 1.02f * best[0];
}

}  // namespace braid::cuda
