#pragma once

#include <vector>

#include "cuda/cudnn/problem.h"
#include "cuda/kernel.h"
#include "cuda/trial.h"

namespace braid::cuda {

// Runs plans of a problem on scratch memory, which loads their code onto the device before the first launch.
class CudnnTrial {
 public:
  CudnnTrial(const Context& context, Compiler& compiler, const CudnnProblem& problem);

  // Takes the memory. `timed`: so much that the operands of one run are in no cache when they are read again.
  bool prepare(bool timed);
  // Whether the plan runs, also where a stream is captured into a graph, whose nodes are its pieces. False
  // for one that takes more scratch than the problem has. *certain becomes false where a call failed.
  bool runs(CudnnPlan* plan, bool* certain);
  // Whether the plan's answers are those of Braid's own kernel: but for rounding, and NaN where that is.
  // *certain becomes false where a call failed.
  bool agrees(const CudnnPlan& plan, const CudaKernel& own, bool* certain);
  // The plan that takes less time than Braid's own kernel, by more than the noise of the clock; none: -1.
  int fastest(const std::vector<CudnnPlan>& plans, const CudaKernel& own, double flops, bool* certain);

 private:
  struct Answer {
    DType type = DType::f32;
    std::vector<std::uint8_t> first, last;
  };
  using Answers = std::vector<Answer>;  // of each write
  using Launch = std::function<Status(std::size_t set)>;
  bool answer(const Launch& launch, Answers* answers);
  bool alike(const Answer& own, const Answer& other) const;
  // Operand i of a set, from its offset on.
  DeviceAddress operand(std::size_t i, std::size_t set) const;
  Status byLibrary(const CudnnPlan& plan, std::size_t set) const;
  Status byOwn(const CudaKernel& own, std::size_t set) const;
  void fill();
  bool poison();

  const Context& context_;
  Compiler& compiler_;
  const CudnnProblem& problem_;
  TrialScratch scratch_;
  std::vector<std::size_t> starts_;  // of the reads in a set, then of the writes
  std::size_t setBytes_ = 0, writesBytes_ = 0, sets_ = 1;
};

}  // namespace braid::cuda
