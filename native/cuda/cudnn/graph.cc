#include "cuda/cudnn/graph.h"

#include <algorithm>
#include <array>
#include <bit>
#include <sstream>
#include <utility>

namespace braid::cuda {
namespace {

constexpr std::int64_t kMostNotes = 32, kMostKnobs = 64, kMostConfigs = 64;

CudnnGraph::Sizes denseStrides(const CudnnGraph::Sizes& sizes) {
  CudnnGraph::Sizes strides(sizes.size(), 1);
  for (std::size_t d = sizes.size(); d-- > 1;) strides[d - 1] = strides[d] * sizes[d];
  return strides;
}

// The descriptors of an attribute, which the caller makes and the library fills.
std::vector<CudnnDescriptor> partsOf(const CudnnGraph& graph, const CudnnDescriptor& whole, int attribute,
                                     int kind, std::int64_t most) {
  std::vector<CudnnDescriptor> parts;
  const std::int64_t there = whole.read(attribute, kCudnnOfDescriptor, 0, nullptr);
  std::vector<CudnnRaw> raw;
  for (std::int64_t i = 0; i < std::min(there, most); ++i) {
    parts.push_back(graph.made(kind));
    if (!parts.back().good()) return {};
    raw.push_back(parts.back().raw());
  }
  if (raw.empty()) return {};
  const auto wanted = static_cast<std::int64_t>(raw.size());
  const std::int64_t found = whole.read(attribute, kCudnnOfDescriptor, wanted, raw.data());
  while (static_cast<std::int64_t>(parts.size()) > std::max<std::int64_t>(found, 0)) parts.pop_back();
  return parts;
}

}  // namespace

std::string CudnnChosen::text() const {
  std::string text = "library " + std::to_string(taken ? 1 : 0) + "\n";
  if (!taken) return text;
  text += "engine " + std::to_string(engine.index);
  for (const auto& [knob, value] : engine.knobs)
    text += " " + std::to_string(knob) + "=" + std::to_string(value);
  return text + "\n";
}

bool CudnnChosen::parse(const std::string& text) {
  std::istringstream lines(text);
  std::string word;
  char equals = 0;
  if (!(lines >> word >> taken)) return false;
  if (!taken) return true;
  if (!(lines >> word >> engine.index)) return false;
  for (std::pair<std::int32_t, std::int64_t> knob; lines >> knob.first >> equals >> knob.second;)
    engine.knobs.push_back(knob);
  return true;
}

CudnnSession::~CudnnSession() {
  if (!handle) return;
  Current current(*context);
  library->call.cudnnDestroy(handle);
}

std::shared_ptr<CudnnSession> CudnnSession::open(std::shared_ptr<Context> context,
                                                 const std::vector<std::string>& paths) {
  std::string problem;
  auto session = std::make_shared<CudnnSession>();
  session->context = std::move(context);
  session->library = CudnnLibrary::open(paths, &problem);
  if (!session->library) return nullptr;
  if (session->library->call.cudnnCreate(&session->handle) != kCudnnSuccess) {
    session->handle = nullptr;
    return nullptr;
  }
  return session;
}

CudnnDescriptor::CudnnDescriptor(const CudnnFunctions& call, int kind) : call_(&call) {
  good_ = call_->cudnnBackendCreateDescriptor(kind, &raw_) == kCudnnSuccess;
  if (!good_) raw_ = nullptr;
}

CudnnDescriptor::CudnnDescriptor(CudnnDescriptor&& other) noexcept
    : call_(other.call_),
      raw_(std::exchange(other.raw_, nullptr)),
      good_(std::exchange(other.good_, false)) {}

CudnnDescriptor& CudnnDescriptor::operator=(CudnnDescriptor&& other) noexcept {
  std::swap(call_, other.call_);
  std::swap(raw_, other.raw_);
  std::swap(good_, other.good_);
  return *this;
}

CudnnDescriptor::~CudnnDescriptor() {
  if (raw_) call_->cudnnBackendDestroyDescriptor(raw_);
}

CudnnDescriptor& CudnnDescriptor::set(int attribute, int type, std::int64_t count, const void* values) {
  good_ = good_ && call_->cudnnBackendSetAttribute(raw_, attribute, type, count, values) == kCudnnSuccess;
  return *this;
}

CudnnDescriptor& CudnnDescriptor::number(int attribute, std::int64_t value) {
  return set(attribute, kCudnnOfInt64, 1, &value);
}

CudnnDescriptor& CudnnDescriptor::numbers(int attribute, std::span<const std::int64_t> values) {
  return set(attribute, kCudnnOfInt64, static_cast<std::int64_t>(values.size()), values.data());
}

CudnnDescriptor& CudnnDescriptor::chosen(int attribute, int type, std::int32_t value) {
  return set(attribute, type, 1, &value);
}

CudnnDescriptor& CudnnDescriptor::flag(int attribute) {
  const bool yes = true;
  return set(attribute, kCudnnOfBoolean, 1, &yes);
}

CudnnDescriptor& CudnnDescriptor::part(int attribute, const CudnnDescriptor& other) {
  good_ = good_ && other.good_;
  return set(attribute, kCudnnOfDescriptor, 1, &other.raw_);
}

CudnnDescriptor& CudnnDescriptor::finalize() {
  good_ = good_ && call_->cudnnBackendFinalize(raw_) == kCudnnSuccess;
  return *this;
}

std::int64_t CudnnDescriptor::read(int attribute, int type, std::int64_t most, void* values) const {
  std::int64_t count = 0;
  if (!good_ || call_->cudnnBackendGetAttribute(raw_, attribute, type, most, &count, values) != kCudnnSuccess)
    return -1;
  return count;
}

CudnnGraph::Tensor CudnnGraph::tensor(int type, const Sizes& sizes, const Sizes& strides,
                                      std::int64_t alignment, int flag) {
  CudnnDescriptor descriptor = made(kCudnnTensor);
  descriptor.chosen(cudnn::kTensorType, kCudnnOfDataType, type)
      .numbers(cudnn::kTensorSizes, sizes)
      .numbers(cudnn::kTensorStrides, strides)
      .number(cudnn::kTensorId, static_cast<std::int64_t>(tensors_.size()) + 1)
      .number(cudnn::kTensorAlignment, alignment);
  if (flag >= 0) descriptor.flag(flag);
  good_ = good_ && descriptor.finalize().good();
  tensors_.push_back({std::move(descriptor), sizes});
  return tensors_.size() - 1;
}

CudnnGraph::Tensor CudnnGraph::memory(int type, const Sizes& sizes, const Sizes& strides) {
  f32_ = f32_ || type == cudnn::kF32;
  operandIds_.push_back(static_cast<std::int64_t>(tensors_.size()) + 1);
  return tensor(type, sizes, strides, 16, -1);
}

CudnnGraph::Tensor CudnnGraph::sums(const Sizes& sizes) {
  operandIds_.push_back(static_cast<std::int64_t>(tensors_.size()) + 1);
  return tensor(cudnn::kF32, sizes, denseStrides(sizes), 16, -1);
}

CudnnGraph::Tensor CudnnGraph::memory(int type, const Sizes& sizes) {
  return memory(type, sizes, denseStrides(sizes));
}

CudnnGraph::Tensor CudnnGraph::between(int type, const Sizes& sizes) {
  return tensor(type, sizes, denseStrides(sizes), 16, cudnn::kTensorVirtual);
}

CudnnGraph::Tensor CudnnGraph::byValue(int type, std::uint32_t bits) {
  numbers_.push_back(bits);
  numberIds_.push_back(static_cast<std::int64_t>(tensors_.size()) + 1);
  return tensor(type, {1, 1, 1, 1}, {1, 1, 1, 1}, 4, cudnn::kTensorByValue);
}

CudnnGraph::Tensor CudnnGraph::number(float value) {
  return byValue(cudnn::kF32, std::bit_cast<std::uint32_t>(value));
}

CudnnGraph::Tensor CudnnGraph::number(std::int32_t value) {
  return byValue(cudnn::kI32, std::bit_cast<std::uint32_t>(value));
}

void CudnnGraph::operation(CudnnDescriptor operation) {
  good_ = good_ && operation.finalize().good();
  operations_.push_back(std::move(operation));
}

CudnnGraph::Tensor CudnnGraph::pointwise(const Pointwise& one) {
  CudnnDescriptor what = made(kCudnnPointwise);
  what.chosen(cudnn::kPointwiseMode, kCudnnOfPointwiseMode, one.mode)
      .chosen(cudnn::kPointwisePrecision, kCudnnOfDataType, one.precision);
  if (one.axis >= 0) what.number(cudnn::kPointwiseAxis, one.axis);
  what.finalize();
  const Tensor y = one.into != kNone ? one.into : between(one.type, Sizes(tensors_[one.a].sizes));
  CudnnDescriptor made_ = made(kCudnnPointwiseOperation);
  made_.part(cudnn::kOperationPointwise, what).part(cudnn::kPointwiseX, tensors_[one.a].descriptor);
  if (one.b != kNone) made_.part(cudnn::kPointwiseB, tensors_[one.b].descriptor);
  if (one.where != kNone) made_.part(cudnn::kPointwiseT, tensors_[one.where].descriptor);
  made_.part(cudnn::kPointwiseY, tensors_[y].descriptor);
  parts_.push_back(std::move(what));
  operation(std::move(made_));
  return y;
}

CudnnGraph::Tensor CudnnGraph::reduce(int how, Tensor x) {
  CudnnDescriptor what = made(kCudnnReduction);
  what.chosen(cudnn::kReductionOperator, kCudnnOfReduction, how)
      .chosen(cudnn::kReductionType, kCudnnOfDataType, cudnn::kF32)
      .finalize();
  Sizes sizes = tensors_[x].sizes;
  sizes.back() = 1;
  const Tensor y = between(cudnn::kF32, sizes);
  CudnnDescriptor reduction = made(kCudnnReductionOperation);
  reduction.part(cudnn::kOperationReduction, what)
      .part(cudnn::kReductionX, tensors_[x].descriptor)
      .part(cudnn::kReductionY, tensors_[y].descriptor);
  parts_.push_back(std::move(what));
  operation(std::move(reduction));
  return y;
}

void CudnnGraph::matmul(Tensor a, Tensor b, Tensor c) {
  CudnnDescriptor what = made(kCudnnMatmul);
  what.chosen(cudnn::kMatmulType, kCudnnOfDataType, cudnn::kF32).finalize();
  CudnnDescriptor product = made(kCudnnMatmulOperation);
  product.part(cudnn::kMatmulA, tensors_[a].descriptor)
      .part(cudnn::kMatmulB, tensors_[b].descriptor)
      .part(cudnn::kMatmulC, tensors_[c].descriptor)
      .part(cudnn::kOperationMatmul, what);
  parts_.push_back(std::move(what));
  operation(std::move(product));
}

void CudnnGraph::convolution(CudnnDescriptor convolution, Tensor x, Tensor w, Tensor y) {
  constexpr float kAlpha = 1, kBeta = 0;
  CudnnDescriptor forward = made(kCudnnConvolutionForward);
  forward.part(cudnn::kForwardConvolution, convolution)
      .part(cudnn::kForwardX, tensors_[x].descriptor)
      .part(cudnn::kForwardW, tensors_[w].descriptor)
      .part(cudnn::kForwardY, tensors_[y].descriptor)
      .set(cudnn::kForwardAlpha, kCudnnOfFloat, 1, &kAlpha)
      .set(cudnn::kForwardBeta, kCudnnOfFloat, 1, &kBeta);
  parts_.push_back(std::move(convolution));
  operation(std::move(forward));
}

bool CudnnGraph::finish() {
  std::vector<CudnnRaw> raw;
  for (const CudnnDescriptor& each : operations_) raw.push_back(each.raw());
  CudnnDescriptor whole = made(kCudnnOperationGraph);
  whole.set(cudnn::kGraphHandle, kCudnnOfHandle, 1, &session_->handle);
  if (good_)
    whole.set(cudnn::kGraphOperations, kCudnnOfDescriptor, static_cast<std::int64_t>(raw.size()), raw.data())
        .finalize();
  good_ = good_ && whole.good();
  graph_.push_back(std::move(whole));
  return good_;
}

bool CudnnGraph::isAllowed(const CudnnDescriptor& engine) const {
  std::array<std::int32_t, kMostNotes> notes{};
  const std::int64_t count =
      engine.read(cudnn::kEngineNotes, kCudnnOfNumericalNote, kMostNotes, notes.data());
  if (count < 0 || count > kMostNotes) return false;
  return std::none_of(notes.begin(), notes.begin() + count, [this](std::int32_t note) {
    return note == cudnn::kNoteDownConverts || note == cudnn::kNoteReducedPrecision ||
           note == cudnn::kNoteFft || note == cudnn::kNoteNondeterministic ||
           (note >= cudnn::kNoteWinograd && note <= cudnn::kNoteWinogradLast) ||
           (f32_ && note == cudnn::kNoteTensorCore);
  });
}

std::vector<CudnnOffer> CudnnGraph::offers(int most) const {
  std::vector<CudnnOffer> offered;
  const auto isNew = [&offered](const CudnnEngine& engine) {
    return std::none_of(offered.begin(), offered.end(),
                        [&engine](const CudnnOffer& other) { return other.engine == engine; });
  };
  for (const int mode : {cudnn::kModeA, cudnn::kModeFallback}) {
    CudnnDescriptor heuristics = made(kCudnnHeuristics);
    heuristics.part(cudnn::kHeuristicsGraph, graph_.back())
        .chosen(cudnn::kHeuristicsMode, kCudnnOfHeuristicsMode, mode)
        .finalize();
    for (CudnnDescriptor& config :
         partsOf(*this, heuristics, cudnn::kHeuristicsResults, kCudnnEngineConfig, kMostConfigs)) {
      if (offered.size() == static_cast<std::size_t>(most)) return offered;
      CudnnDescriptor engine = made(kCudnnEngine);
      CudnnRaw raw = engine.raw();
      CudnnEngine about;
      if (!engine.good() || config.read(cudnn::kConfigEngine, kCudnnOfDescriptor, 1, &raw) != 1 ||
          engine.read(cudnn::kEngineIndex, kCudnnOfInt64, 1, &about.index) != 1 || !isAllowed(engine))
        continue;
      for (const CudnnDescriptor& knob :
           partsOf(*this, config, cudnn::kConfigKnobs, kCudnnKnobChoice, kMostKnobs)) {
        auto& [type, value] = about.knobs.emplace_back();
        knob.read(cudnn::kKnobType, kCudnnOfKnobType, 1, &type);
        knob.read(cudnn::kKnobValue, kCudnnOfInt64, 1, &value);
      }
      if (isNew(about)) offered.push_back({std::move(about), std::move(config)});
    }
  }
  return offered;
}

std::optional<CudnnPlan> CudnnGraph::plan(CudnnOffer offer) const {
  CudnnDescriptor plan = made(kCudnnPlan);
  plan.set(cudnn::kPlanHandle, kCudnnOfHandle, 1, &session_->handle)
      .part(cudnn::kPlanConfig, offer.config)
      .finalize();
  std::int64_t workspace = 0;
  if (plan.read(cudnn::kPlanWorkspace, kCudnnOfInt64, 1, &workspace) != 1 || workspace < 0)
    return std::nullopt;
  return CudnnPlan{std::move(offer), std::move(plan), static_cast<std::size_t>(workspace)};
}

Status CudnnGraph::launch(const CudnnPlan& plan, std::span<const DeviceAddress> operands,
                          DeviceAddress workspace, CUstream stream) const {
  std::vector<std::int64_t> ids(operandIds_);
  ids.insert(ids.end(), numberIds_.begin(), numberIds_.end());
  std::vector<const void*> pointers;
  for (const DeviceAddress address : operands) pointers.push_back(reinterpret_cast<const void*>(address));
  for (const std::uint32_t& number : numbers_) pointers.push_back(&number);
  const auto* space = reinterpret_cast<const void*>(workspace);
  CudnnDescriptor pack = made(kCudnnVariantPack);
  pack.numbers(cudnn::kPackIds, ids)
      .set(cudnn::kPackPointers, kCudnnOfPointer, static_cast<std::int64_t>(pointers.size()), pointers.data())
      .set(cudnn::kPackWorkspace, kCudnnOfPointer, 1, &space)
      .finalize();
  if (!pack.good()) return fail(Status::unknown, "cuDNN takes no pack of arguments");
  const CudnnFunctions& call = session_->library->call;
  const std::lock_guard lock(session_->mutex);
  if (const cudnnStatus code = call.cudnnSetStream(session_->handle, stream))
    return check(code, "cudnnSetStream", stream);
  return check(call.cudnnBackendExecute(session_->handle, plan.plan.raw(), pack.raw()), "cudnnBackendExecute",
               stream);
}

Status CudnnGraph::check(cudnnStatus code, const char* name, CUstream stream) const {
  if (code == kCudnnSuccess) return Status::ok;
  // The library hides the driver's code: if the context is broken, a query of the stream returns it.
  const CUresult driver = session_->context->call().cuStreamQuery(stream);
  if (driver != kSuccess && driver != kNotReady) return session_->context->check(driver, name);
  const CudnnFunctions& call = session_->library->call;
  char words[512] = "";
  call.cudnnGetLastErrorString(words, sizeof(words));
  return fail(Status::unknown, std::string(name) + ": cuDNN reports " + call.cudnnGetErrorString(code) +
                                   (words[0] ? std::string(": ") + words : ""));
}

int cudnnType(DType type) {
  switch (type) {
    case DType::f16: return cudnn::kF16;
    case DType::bf16: return cudnn::kBf16;
    default: return cudnn::kF32;
  }
}

}  // namespace braid::cuda
