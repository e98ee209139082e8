#include "cuda/products/matmul.h"

#include <algorithm>
#include <array>

#include "cuda/digest.h"
#include "cuda/products/problem.h"
#include "cuda/products/relu.h"
#include "cuda/products/tune.h"
#include "cuda/sources/source.h"

namespace braid::cuda {
namespace {

// From this much work on, candidates are timed: below it the library's estimate is as good, and opening stays
// quick.
constexpr double kTunedFrom = 8589934592.0;  // 2^33 floating-point operations
constexpr int kCandidates = 8;

// Increase it with every change in this folder that may choose differently: kept choices are then measured
// anew.
constexpr int kChoiceFormat = 3;

DeviceAddress first(DeviceAddress address, const MatmulOperand& operand) {
  return address + static_cast<std::uint64_t>(operand.offset) * elementBytes(operand.dtype);
}

// Whether the kernel for few rows may read these operands.
bool isAligned(const DeviceAddress* reads, const KernelSpec& spec) {
  return ((first(reads[0], spec.a) | first(reads[1], spec.b)) & 15) == 0;
}

class MatmulKernel : public CudaKernel {
 public:
  MatmulKernel(std::unique_ptr<MatmulProblem> problem, std::vector<MatmulChoice> choices,
               const KernelSpec& spec, std::unique_ptr<Kernel> few, std::unique_ptr<Kernel> apart)
      : few_(std::move(few)),
        apart_(std::move(apart)),
        problem_(std::move(problem)),
        choices_(std::move(choices)),
        spec_(spec) {}

  // One that splits its sum over blocks clears scratch first, and adds up last.
  std::size_t pieces() const override { return apart_ ? 4 : 3; }
  Form form(const DeviceAddress* reads, const DeviceAddress*) const override {
    return isFew(reads) ? Form::node : Form::captured;
  }
  bool waitsForNodes() const override { return few_ && few_->waitsForNodes(); }
  Status node(const DeviceAddress* reads, const DeviceAddress* writes, KernelNode* node) const override {
    return isFew(reads) ? static_cast<const CudaKernel&>(*few_).node(reads, writes, node)
                        : CudaKernel::node(reads, writes, node);
  }
  Status launch(const DeviceAddress* reads, const DeviceAddress* writes, CUstream stream) const override {
    const MatmulEpilogue& epilogue = spec_.epilogue;
    MatmulAddresses at{first(reads[0], spec_.a), first(reads[1], spec_.b), writes[0]};
    if (epilogue.bias) at.bias = reads[2];
    if (epilogue.residual) at.residual = reads[epilogue.bias ? 3 : 2];
    if (epilogue.auxiliary) at.auxiliary = writes[1];
    if (spec_.workspace > 0) at.workspace = writes[epilogue.writes()];
    if (at.auxiliary % kAuxiliaryAlignment != 0)
      return fail(Status::misalignedAddress, "a matmul's auxiliary output is not aligned to 16 bytes");
    const std::uint64_t bits = at.a | at.b | at.c | at.bias | at.residual | at.auxiliary;
    if (isFew(reads)) return static_cast<const CudaKernel&>(*few_).launch(reads, writes, stream);
    const DeviceAddress product[] = {apart_ && at.auxiliary && !isBiasApart(spec_) ? at.auxiliary : at.c,
                                     at.bias};
    if (apart_) at.c = product[0];
    for (const MatmulChoice& choice : choices_) {
      if ((bits & (choice.alignment - 1)) != 0) continue;
      const Status status = problem_->run(choice, at, stream);
      if (!apart_ || status != Status::ok) return status;
      return static_cast<const CudaKernel&>(*apart_).launch(product, writes, stream);
    }
    return fail(Status::misalignedAddress, "a matmul's operand is not aligned to its elements");
  }

 private:
  bool isFew(const DeviceAddress* reads) const { return few_ && isAligned(reads, spec_); }

  std::unique_ptr<Kernel> few_;    // instead of the library, where it was faster
  std::unique_ptr<Kernel> apart_;  // after the library, the steps that it does not do
  std::unique_ptr<MatmulProblem> problem_;
  std::vector<MatmulChoice> choices_;  // stricter alignments first
  KernelSpec spec_;
};

// Without the library: the kernel for few rows, or the tiled one where that may not read the operands.
class OwnMatmul : public CudaKernel {
 public:
  OwnMatmul(std::unique_ptr<Kernel> few, std::unique_ptr<Kernel> tiled, const KernelSpec& spec)
      : few_(std::move(few)), tiled_(std::move(tiled)), spec_(spec) {}
  bool waitsForNodes() const override { return few_->waitsForNodes() && tiled_->waitsForNodes(); }
  Status node(const DeviceAddress* reads, const DeviceAddress* writes, KernelNode* node) const override {
    return taken(reads).node(reads, writes, node);
  }
  Status launch(const DeviceAddress* reads, const DeviceAddress* writes, CUstream stream) const override {
    return taken(reads).launch(reads, writes, stream);
  }

 private:
  const CudaKernel& taken(const DeviceAddress* reads) const {
    return static_cast<const CudaKernel&>(isAligned(reads, spec_) ? *few_ : *tiled_);
  }

  std::unique_ptr<Kernel> few_, tiled_;
  KernelSpec spec_;
};

std::string problemKey(const KernelSpec& spec) {
  std::string key;
  for (std::int64_t value : {spec.m,
                             spec.n,
                             spec.k,
                             spec.batch,
                             std::int64_t{spec.transposeA},
                             std::int64_t{spec.transposeB},
                             std::int64_t(spec.a.dtype),
                             spec.a.batchStride,
                             spec.a.rowStride,
                             std::int64_t(spec.b.dtype),
                             spec.b.batchStride,
                             spec.b.rowStride,
                             std::int64_t(spec.c.dtype),
                             spec.c.batchStride,
                             static_cast<std::int64_t>(spec.workspace),
                             std::int64_t{spec.epilogue.bias},
                             std::int64_t{spec.epilogue.residual},
                             std::int64_t{spec.epilogue.auxiliary},
                             std::int64_t{spec.epilogue.scale > 0},
                             std::int64_t(spec.epilogue.activation)}) {
    key += std::to_string(value) + " ";
  }
  return key;
}

bool isTimed(const KernelSpec& spec) {
  return 2.0 * double(spec.batch) * double(spec.m) * double(spec.n) * double(spec.k) >= kTunedFrom;
}

// Pool blocks are aligned to 512 bytes; views into them to their elements at least, mostly to 16.
std::array<std::size_t, 3> alignmentsOf(const KernelSpec& spec) {
  return {256, 16, elementBytes(spec.a.dtype)};
}

int candidatesOf(const KernelSpec& spec, std::size_t alignment) {
  return isTimed(spec) && alignment == 256 ? kCandidates : 1;
}

}  // namespace

BlasSession::~BlasSession() {
  if (!handle) return;
  Current current(*context);
  library->call.cublasLtDestroy(handle);
}

Blas::Blas(std::shared_ptr<Context> context, std::shared_ptr<Compiler> compiler, const LibraryPaths& paths)
    : context_(std::move(context)),
      compiler_(std::move(compiler)),
      paths_(paths.cublasLt),
      isLibraryUsed_(paths.useCublasLt),
      files_(paths.choices) {}

Status Blas::ready() {
  if (session_ || !isLibraryUsed_) return Status::ok;
  std::string problem;
  auto session = std::make_shared<BlasSession>();
  session->context = context_;
  session->library = CublasLtLibrary::open(paths_, context_->library().version, &problem);
  if (!session->library) {
    isLibraryUsed_ = false;
    return Status::ok;
  }
  if (const cublasStatus code = session->library->call.cublasLtCreate(&session->handle)) {
    session->handle = nullptr;
    return fail(code == kCublasAllocFailed ? Status::outOfMemory : Status::notInitialized,
                std::string("cublasLtCreate: cuBLASLt reports ") +
                    session->library->call.cublasLtGetStatusString(code));
  }
  session_ = std::move(session);
  return Status::ok;
}

Status Blas::generate(const KernelSource& source, std::size_t readCount, const char* call,
                      std::unique_ptr<Kernel>* kernel) {
  std::shared_ptr<Module> module;
  const Status status = compiler_->compile(source.text, "matmul.cu", Compiler::Flavor::generated, &module);
  if (status != Status::ok) return status;
  return GeneratedKernel::make(std::move(module), source, readCount, call, kernel);
}

bool Blas::fewRows(const KernelSpec& spec, KernelSource* source) const {
  const int architecture = context_->attribute(kComputeMajor) * 10 + context_->attribute(kComputeMinor);
  return fewRowsSource(spec, architecture, context_->attribute(kMultiprocessors), source);
}

std::unique_ptr<Kernel> Blas::fewRows(const KernelSpec& spec) {
  KernelSource source;
  std::unique_ptr<Kernel> kernel;
  if (!fewRows(spec, &source) ||
      generate(source, 2 + spec.epilogue.reads(), "cuLaunchKernel(matmul)", &kernel) != Status::ok)
    return nullptr;
  return kernel;
}

std::string Blas::nameOf(const KernelSpec& spec, bool few) const {
  KernelSpec alike = spec;  // problems that differ in their scale are one
  alike.epilogue.scale = spec.epilogue.scale > 0 ? 1 : -1;
  KernelSource source;
  return "braid choice " + std::to_string(kChoiceFormat) + "\n" + deviceText(*context_) + "cublasLt " +
         std::to_string(session_->library->version) + "\nproblem " + problemKey(spec) +
         "\nfew rows' kernel " + (few && fewRows(alike, &source) ? digestOf(source.text) : "none") + "\n";
}

Status Blas::describe(const KernelSpec& spec, const MatmulChosen& chosen,
                      std::unique_ptr<MatmulProblem>* problem) {
  *problem = std::make_unique<MatmulProblem>(session_);
  return (*problem)->describe(chosen.apart ? withoutApart(spec) : spec);
}

Status Blas::algorithms(const KernelSpec& spec, MatmulChosen* chosen, bool* certain) {
  const bool relu = spec.epilogue.activation == Activation::relu, auxiliary = spec.epilogue.auxiliary;
  for (const bool apart : {false, true}) {
    if (apart && ((spec.epilogue.activation == Activation::none && !isBiasApart(spec)) || !isDense(spec)))
      break;
    if (!apart && auxiliary && !MatmulProblem::writesAuxiliary(spec)) continue;
    chosen->apart = apart;
    std::vector<MatmulChoice>& choices = chosen->choices;
    choices.clear();
    std::unique_ptr<MatmulProblem> problem;
    if (const Status status = describe(spec, *chosen, &problem); status != Status::ok) return status;
    for (const std::size_t alignment : alignmentsOf(spec)) {
      const int most = candidatesOf(spec, alignment);
      const Status status = problem->algorithms(alignment, spec.workspace, most, &choices);
      if (status != Status::ok) return status;
    }
    bool ran = true;
    if (!choices.empty()) tune(*problem, spec, *compiler_, isTimed(spec), &choices, &ran);
    if (!ran && auxiliary && !apart) continue;
    *certain = *certain && ran;
    // The last of them takes any operand; without it some view would find no algorithm.
    const bool whole = !choices.empty() && choices.back().alignment == elementBytes(spec.a.dtype);
    if (whole && (apart || !relu || isReluExact(*problem, spec, choices, certain))) return Status::ok;
  }
  chosen->choices.clear();
  return Status::ok;
}

bool Blas::isStillOffered(const KernelSpec& spec, MatmulChosen* kept) {
  std::unique_ptr<MatmulProblem> problem;
  if (describe(spec, *kept, &problem) != Status::ok) return false;
  std::vector<MatmulChoice> found;
  for (const std::size_t alignment : alignmentsOf(spec)) {
    std::vector<MatmulChoice> offered;
    if (problem->algorithms(alignment, spec.workspace, candidatesOf(spec, alignment), &offered) != Status::ok)
      return false;
    for (const MatmulChoice& choice : kept->choices)
      if (const auto same = std::find(offered.begin(), offered.end(), choice); same != offered.end())
        found.push_back(*same);
  }
  bool works =
      found == kept->choices && !found.empty() && found.back().alignment == elementBytes(spec.a.dtype);
  if (works) tune(*problem, spec, *compiler_, false, &found, &works);
  if (works) kept->choices = std::move(found);
  return works;
}

Status Blas::choose(const KernelSpec& spec, MatmulChosen* chosen) {
  KernelSource source;
  const bool few = fewRows(spec, &source);
  const bool measures = few || isTimed(spec) || spec.epilogue.activation == Activation::relu;
  const std::string name = measures ? nameOf(spec, few) : "";
  if (measures && files_.read(name, chosen) && isStillOffered(spec, chosen)) return Status::ok;
  *chosen = {};
  bool certain = true;
  const Status status = algorithms(spec, chosen, &certain);
  if (status != Status::ok || chosen->choices.empty() || !measures) return status;
  countMeasured();
  if (few) {
    std::unique_ptr<MatmulProblem> problem;
    // What is measured begins where memory does: that kernel may not read operands that are not aligned.
    KernelSpec aligned = spec;
    aligned.a.offset = aligned.b.offset = 0;
    const std::unique_ptr<Kernel> kernel = fewRows(aligned);
    if (const Status made = describe(spec, *chosen, &problem); made != Status::ok) return made;
    certain = certain && kernel;
    chosen->few = kernel && isFewTaken(static_cast<const CudaKernel&>(*kernel), *problem,
                                       chosen->choices.front(), spec, &certain);
  }
  if (certain) files_.write(name, *chosen);
  return Status::ok;
}

Status Blas::prepareOwn(const KernelSpec& spec, std::unique_ptr<Kernel>* kernel) {
  KernelSource source;
  matmulSource(spec, &source);
  std::unique_ptr<Kernel> tiled;
  const Status status = generate(source, 2 + spec.epilogue.reads(), "cuLaunchKernel(matmul)", &tiled);
  if (status != Status::ok) return status;
  std::unique_ptr<Kernel> few = MatmulProblem::supported(spec) ? fewRows(spec) : nullptr;
  if (few) tiled = std::make_unique<OwnMatmul>(std::move(few), std::move(tiled), spec);
  *kernel = std::move(tiled);
  return Status::ok;
}

Status Blas::prepare(const KernelSpec& spec, std::unique_ptr<Kernel>* kernel) {
  const std::lock_guard lock(mutex_);
  if (MatmulProblem::supported(spec)) {
    if (const Status status = ready(); status != Status::ok) return status;
    if (!isLibraryUsed_) return prepareOwn(spec, kernel);
    const auto [entry, fresh] = chosen_.try_emplace(problemKey(spec));
    MatmulChosen& chosen = entry->second;
    Status status = fresh ? choose(spec, &chosen) : Status::ok;
    std::unique_ptr<MatmulProblem> problem;
    if (status == Status::ok) status = describe(spec, chosen, &problem);
    if (status != Status::ok) {
      if (fresh) chosen_.erase(entry);
      return status;
    }
    if (!chosen.choices.empty()) {
      std::unique_ptr<Kernel> few = chosen.few ? fewRows(spec) : nullptr, apart;
      if (chosen.apart) {
        KernelSource source;
        apartSource(spec, &source);
        status = generate(source, isBiasApart(spec) ? 2 : 1, "cuLaunchKernel(epilogue)", &apart);
        if (status != Status::ok) return status;
      }
      *kernel = std::make_unique<MatmulKernel>(std::move(problem), chosen.choices, spec, std::move(few),
                                               std::move(apart));
      return Status::ok;
    }
  }
  return prepareOwn(spec, kernel);
}

}  // namespace braid::cuda
