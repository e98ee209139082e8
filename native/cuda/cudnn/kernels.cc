#include "cuda/cudnn/kernels.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <utility>

#include "cuda/cudnn/trial.h"
#include "cuda/digest.h"

namespace braid::cuda {
namespace {

// Increase it with every change in this folder that may choose differently: kept choices are then measured
// anew.
constexpr int kCudnnFormat = 1;

std::atomic<std::uint64_t> prepared{0};

class CudnnKernel : public CudaKernel {
 public:
  CudnnKernel(std::shared_ptr<const CudnnPlanned> planned, std::unique_ptr<Kernel> own)
      : planned_(std::move(planned)), own_(std::move(own)) {}

  std::size_t pieces() const override { return std::max(planned_->plan->pieces, own_->pieces()); }
  Form form(const DeviceAddress* reads, const DeviceAddress* writes) const override {
    return isAligned(reads, writes) ? Form::captured : own_->form(reads, writes);
  }
  bool waitsForNodes() const override { return own_->waitsForNodes(); }
  Status node(const DeviceAddress* reads, const DeviceAddress* writes, KernelNode* node) const override {
    return isAligned(reads, writes) ? CudaKernel::node(reads, writes, node) : own().node(reads, writes, node);
  }
  Status launch(const DeviceAddress* reads, const DeviceAddress* writes, CUstream stream) const override {
    if (!isAligned(reads, writes)) return own().launch(reads, writes, stream);
    const CudnnProblem& problem = planned_->problem;
    const std::size_t count = problem.offsets.size();
    std::vector<DeviceAddress> operands(count);
    for (std::size_t i = 0; i < count; ++i) operands[i] = operand(i, reads, writes);
    const DeviceAddress workspace = planned_->plan->workspace > 0 ? writes[count - problem.reads] : 0;
    return problem.graph->launch(*planned_->plan, operands, workspace, stream);
  }

 private:
  const CudaKernel& own() const { return static_cast<const CudaKernel&>(*own_); }
  DeviceAddress operand(std::size_t i, const DeviceAddress* reads, const DeviceAddress* writes) const {
    const CudnnProblem& problem = planned_->problem;
    return (i < problem.reads ? reads[i] : writes[i - problem.reads]) + problem.offsets[i];
  }
  // As the operands of a plan are.
  bool isAligned(const DeviceAddress* reads, const DeviceAddress* writes) const {
    DeviceAddress bits = 0;
    for (std::size_t i = 0; i < planned_->problem.offsets.size(); ++i) bits |= operand(i, reads, writes);
    return (bits & 15) == 0;
  }

  std::shared_ptr<const CudnnPlanned> planned_;
  std::unique_ptr<Kernel> own_;  // for operands that are not aligned
};

}  // namespace

std::uint64_t preparedByCudnn() { return prepared; }

CudnnPlanned::~CudnnPlanned() {
  if (!problem.graph) return;
  const std::shared_ptr<Context> context = problem.graph->session().context;
  Current current(*context);
  plan.reset();
  problem.graph.reset();
}

CudnnKernels::CudnnKernels(std::shared_ptr<Context> context, std::shared_ptr<Compiler> compiler,
                           const LibraryPaths& paths)
    : context_(std::move(context)),
      compiler_(std::move(compiler)),
      paths_(paths.cudnn),
      use_(paths.useCudnn),
      files_(paths.choices) {}

bool CudnnKernels::isOpen() {
  if (!std::exchange(opened_, true)) session_ = CudnnSession::open(context_, paths_);
  return session_ != nullptr;
}

std::string CudnnKernels::nameOf(const CudnnKind& kind, const KernelSpec& spec,
                                 const std::string& source) const {
  return "braid cudnn choice " + std::to_string(kCudnnFormat) + "\n" + deviceText(*context_) + "cudnn " +
         std::to_string(session_->library->version) + "\nproblem " + kind.key(spec) + "\nworkspace " +
         std::to_string(spec.workspace) + "\nown kernel " + digestOf(source) + "\n";
}

std::shared_ptr<const CudnnPlanned> CudnnKernels::choose(const CudnnKind& kind, const KernelSpec& spec,
                                                         const std::string& source, const CudaKernel& own) {
  auto planned = std::make_shared<CudnnPlanned>();
  CudnnProblem& problem = planned->problem;
  const std::string name = nameOf(kind, spec, source);
  const bool measures = use_ == UseCudnn::measured;
  CudnnChosen kept;
  const bool isKept = measures && files_.read(name, &kept);
  if (isKept && !kept.taken) return nullptr;
  if (!kind.describe(session_, spec, &problem)) return nullptr;
  std::vector<CudnnOffer> offers = problem.graph->offers(kind.mostPlans);
  if (!measures || isKept) {
    bool certain = true;
    CudnnTrial trial(*context_, *compiler_, problem);
    if (trial.prepare(false))
      for (CudnnOffer& offer : offers) {
        if (isKept && offer.engine != kept.engine) continue;
        planned->plan = problem.graph->plan(std::move(offer));
        if (planned->plan && trial.runs(&*planned->plan, &certain)) return planned;
        planned->plan.reset();
      }
    if (!isKept) return nullptr;
    offers = problem.graph->offers(kind.mostPlans);
  }
  bool certain = true;
  int taken = -1;
  std::vector<CudnnPlan> plans;
  CudnnTrial trial(*context_, *compiler_, problem);
  if (!trial.prepare(true)) return nullptr;
  for (CudnnOffer& offer : offers) {
    std::optional<CudnnPlan> plan = problem.graph->plan(std::move(offer));
    if (plan && trial.runs(&*plan, &certain) && trial.agrees(*plan, own, &certain))
      plans.push_back(std::move(*plan));
  }
  if (!plans.empty()) taken = trial.fastest(plans, own, kind.flops(spec), &certain);
  countMeasured();
  CudnnChosen chosen{taken >= 0, taken >= 0 ? plans[std::size_t(taken)].offer.engine : CudnnEngine{}};
  if (certain) files_.write(name, chosen);
  if (taken < 0) return nullptr;
  planned->plan.emplace(std::move(plans[std::size_t(taken)]));
  return planned;
}

void CudnnKernels::improve(const CudnnKind& kind, const KernelSpec& spec, const std::string& source,
                           std::unique_ptr<Kernel>* kernel) {
  const int architecture = context_->attribute(kComputeMajor) * 10 + context_->attribute(kComputeMinor);
  if (use_ == UseCudnn::never || architecture < kLeastArchitecture || !kind.isFor(spec) ||
      (use_ == UseCudnn::measured && kind.flops(spec) < kAskedFrom))
    return;
  const std::lock_guard lock(mutex_);
  if (!isOpen()) return;
  // The scale of attention is a number of the plan's graph, of which no bit may differ.
  const auto scale = std::bit_cast<std::uint32_t>(static_cast<float>(spec.attention.scale));
  const auto [entry, fresh] = chosen_.try_emplace(kind.key(spec) + " " + std::to_string(scale) + " " +
                                                  std::to_string(spec.workspace));
  if (fresh) entry->second = choose(kind, spec, source, static_cast<const CudaKernel&>(**kernel));
  if (!entry->second) return;
  ++prepared;
  *kernel = std::make_unique<CudnnKernel>(entry->second, std::move(*kernel));
}

}  // namespace braid::cuda
