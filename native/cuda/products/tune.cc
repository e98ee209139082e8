#include "cuda/products/tune.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "cuda/trial.h"

namespace braid::cuda {
namespace {

constexpr int kRunsATurn = 2;

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
      ((epilogue.residual || epilogue.auxiliary) && !scratch.take(bytes.c + kShift)) || !scratch.start()) {
    *certain = false;
    return;
  }
  if (timed) {
    fillRandom(context, compiler, spec.a.dtype, scratch.blocks[0], bytes.a + kShift, scratch.stream);
    fillRandom(context, compiler, spec.b.dtype, scratch.blocks[1], bytes.b + kShift, scratch.stream);
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

  // Nothing keeps the device busy: these products take longer than their calls.
  const std::vector<float> best = contest(
      scratch, {.contenders = candidates, .runs = kRunsATurn, .ahead = 0},
      [&](std::size_t which, std::size_t) { return run((*choices)[which]); }, certain);
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
  constexpr int kFewRuns = 20;
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
  if (!scratch.start()) return false;
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
  const std::vector<float> best = contest(
      scratch, {.runs = kFewRuns, .busy = at.b, .busyBytes = weights},
      [&](std::size_t which, std::size_t each) { return run(which == 0, each % copies); }, certain);
  // Within the noise of the clock it is taken, so that two processes mostly choose alike.
  return best[1] < std::numeric_limits<float>::max() && best[1] <= 1.02f * best[0];
}

}  // namespace braid::cuda
