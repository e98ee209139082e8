#include "cuda/cudnn/trial.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/half.h"

namespace braid::cuda {
namespace {

// What is read back of an answer, from each end: of a tile inside, and of the last ones, which may be cut
// off.
constexpr std::size_t kEnd = 32768;
constexpr std::size_t kMostRuns = 20;
constexpr double kFlopsOfATurn = 68719476736.0;  // 2^36: a turn takes no longer than that is worth
// Fills before a turn: the library's calls take longer than Braid's own.
constexpr int kAheadOfLibrary = 16;

float elementOf(DType type, const std::uint8_t* at) {
  if (type == DType::f32) {
    float value = 0;
    std::memcpy(&value, at, 4);
    return value;
  }
  std::uint16_t bits = 0;
  std::memcpy(&bits, at, 2);
  return type == DType::f16 ? floatFromF16(bits) : floatFromBf16(bits);
}

// Relative to the largest answer: a few roundings of the type, and less than TF32 is off.
float toleranceOf(DType type) {
  return std::ldexp(1.0f, type == DType::bf16 ? -6 : type == DType::f16 ? -9 : -16);
}

}  // namespace

CudnnTrial::CudnnTrial(const Context& context, Compiler& compiler, const CudnnProblem& problem)
    : context_(context), compiler_(compiler), problem_(problem), scratch_(context.call()) {
  for (std::size_t i = 0; i < problem.reads; ++i) {
    starts_.push_back(setBytes_);
    setBytes_ += (problem.bytes[i] + 511) / 512 * 512;
  }
  for (std::size_t i = problem.reads; i < problem.bytes.size(); ++i) {
    starts_.push_back(writesBytes_);
    writesBytes_ += (problem.bytes[i] + 511) / 512 * 512;
  }
}

bool CudnnTrial::prepare(bool timed) {
  if (timed) sets_ = std::clamp<std::size_t>(kCold / setBytes_ + 1, 2, kMostRuns);
  return scratch_.take(sets_ * setBytes_) && scratch_.take(writesBytes_) &&
         scratch_.take(problem_.workspace) && (!timed || scratch_.take(kCold)) && scratch_.start();
}

DeviceAddress CudnnTrial::operand(std::size_t i, std::size_t set) const {
  return starts_[i] + (i < problem_.reads ? scratch_.blocks[0] + set * setBytes_ : scratch_.blocks[1]);
}

Status CudnnTrial::byLibrary(const CudnnPlan& plan, std::size_t set) const {
  std::vector<DeviceAddress> operands;
  for (std::size_t i = 0; i < problem_.bytes.size(); ++i) operands.push_back(operand(i, set));
  return problem_.graph->launch(plan, operands, plan.workspace > 0 ? scratch_.blocks[2] : 0, scratch_.stream);
}

// It adds the offsets, before which nothing is read.
Status CudnnTrial::byOwn(const CudaKernel& own, std::size_t set) const {
  std::vector<DeviceAddress> operands;
  for (std::size_t i = 0; i < problem_.bytes.size(); ++i)
    operands.push_back(operand(i, set) - problem_.offsets[i]);
  return own.launch(operands.data(), operands.data() + problem_.reads, scratch_.stream);
}

bool CudnnTrial::runs(CudnnPlan* plan, bool* certain) {
  const DriverFunctions& call = context_.call();
  const GraphFunctions& graphs = context_.library().graph;
  if (plan->workspace > problem_.workspace || !graphs.missing.empty()) return false;
  constexpr int kThreadLocal = 1;
  CUgraph graph = nullptr;
  std::size_t count = 0;
  bool works = byLibrary(*plan, 0) == Status::ok && call.cuStreamSynchronize(scratch_.stream) == kSuccess &&
               graphs.captureBegin(scratch_.stream, kThreadLocal) == kSuccess;
  if (!works) return *certain = false;
  works = byLibrary(*plan, 0) == Status::ok;
  works = graphs.captureEnd(scratch_.stream, &graph) == kSuccess && works && graph;
  works = works && graphs.nodes(graph, nullptr, &count) == kSuccess && count > 0;
  if (graph) graphs.destroy(graph);
  plan->pieces = count;
  if (!works) *certain = false;
  return works;
}

void CudnnTrial::fill() {
  fillRandom(context_, compiler_, problem_.type, scratch_.blocks[0], sets_ * setBytes_, scratch_.stream);
}

// The first element of the first operand and the last one of the second become NaN.
bool CudnnTrial::poison() {
  const DriverFunctions& call = context_.call();
  const std::size_t size = elementBytes(problem_.type);
  for (const DeviceAddress at : {operand(0, 0), operand(1, 0) + problem_.bytes[1] - size})
    if ((size == 4 ? call.cuMemsetD32Async(at, 0x7fc00000u, 1, scratch_.stream)
                   : call.cuMemsetD2D16Async(at, 2, problem_.type == DType::f16 ? 0x7e00 : 0x7fc0, 1, 1,
                                             scratch_.stream)) != kSuccess)
      return false;
  return true;
}

// What a launch leaves unwritten stays NaN.
bool CudnnTrial::answer(const Launch& launch, Answers* answers) {
  const DriverFunctions& call = context_.call();
  bool works =
      call.cuMemsetD32Async(scratch_.blocks[1], 0xffffffffu, writesBytes_ / 4, scratch_.stream) == kSuccess &&
      launch(0) == Status::ok;
  for (std::size_t i = problem_.reads; works && i < problem_.bytes.size(); ++i) {
    Answer& one = answers->emplace_back();
    const std::size_t bytes = problem_.bytes[i], count = std::min(bytes, kEnd);
    const CUdeviceptr y = operand(i, 0);
    one.type = i == problem_.reads ? problem_.type : DType::f32;
    one.first.resize(count);
    one.last.resize(count);
    works = call.cuMemcpyDtoHAsync(one.first.data(), y, count, scratch_.stream) == kSuccess &&
            call.cuMemcpyDtoHAsync(one.last.data(), y + (bytes - count), count, scratch_.stream) == kSuccess;
  }
  return works && call.cuStreamSynchronize(scratch_.stream) == kSuccess;
}

bool CudnnTrial::alike(const Answer& own, const Answer& other) const {
  const DType type = own.type;
  const std::size_t size = elementBytes(type);
  for (const auto& [mine, theirs] :
       {std::pair{&own.first, &other.first}, std::pair{&own.last, &other.last}}) {
    float largest = 0;
    for (std::size_t i = 0; i + size <= mine->size(); i += size) {
      const float value = std::abs(elementOf(type, mine->data() + i));
      if (value > largest) largest = value;
    }
    for (std::size_t i = 0; i + size <= mine->size(); i += size) {
      const float a = elementOf(type, mine->data() + i), b = elementOf(type, theirs->data() + i);
      if (std::isnan(a) != std::isnan(b)) return false;
      if (std::abs(a - b) > toleranceOf(problem_.type) * largest) return false;
    }
  }
  return true;
}

bool CudnnTrial::agrees(const CudnnPlan& plan, const CudaKernel& own, bool* certain) {
  bool same = true;
  fill();
  for (const bool poisoned : {false, true}) {
    Answers mine, theirs;
    if ((poisoned && !poison()) || !answer([&](std::size_t set) { return byOwn(own, set); }, &mine) ||
        !answer([&](std::size_t set) { return byLibrary(plan, set); }, &theirs)) {
      *certain = false;
      return false;
    }
    for (std::size_t i = 0; i < mine.size(); ++i) same = same && alike(mine[i], theirs[i]);
  }
  return same;
}

int CudnnTrial::fastest(const std::vector<CudnnPlan>& plans, const CudaKernel& own, double flops,
                        bool* certain) {
  fill();
  Contest about;
  about.contenders = 1 + plans.size();
  about.runs =
      std::clamp(static_cast<int>(kFlopsOfATurn / std::max(flops, 1.0)), 2, static_cast<int>(kMostRuns));
  about.busy = scratch_.blocks[3];
  about.busyBytes = kCold;
  about.ahead = kAheadOfLibrary;
  const std::vector<float> best = contest(
      scratch_, about,
      [&](std::size_t which, std::size_t run) {
        return which == 0 ? byOwn(own, run % sets_) : byLibrary(plans[which - 1], run % sets_);
      },
      certain);
  const auto least = std::min_element(best.begin(), best.end());
  if (!*certain || *least >= 0.98f * best[0]) return -1;
  // Within the noise the library's first stays first, so that two processes mostly choose alike.
  const auto taken =
      std::find_if(best.begin() + 1, best.end(), [&](float one) { return one <= 1.01f * *least; });
  return static_cast<int>(taken - best.begin()) - 1;
}

}  // namespace braid::cuda
