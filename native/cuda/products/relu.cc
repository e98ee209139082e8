#include "cuda/products/relu.h"

#include <array>
#include <cstdint>
#include <cstring>

#include "cuda/trial.h"

namespace braid::cuda {
namespace {

// Two elements of 16 bits, or one of 32, as a word of a fill.
struct Words {
  std::uint32_t nan, one, tiny, minus;  // tiny: its square is 0 in f32; minus: the sign, and so -0
};
Words wordsOf(DType type) {
  switch (type) {
    case DType::f16: return {0x7e007e00u, 0x3c003c00u, 0, 0x80008000u};
    case DType::bf16: return {0x7fc07fc0u, 0x3f803f80u, 0x0d800d80u, 0x80008000u};
    default: return {0x7fc00000u, 0x3f800000u, 0x0d800000u, 0x80000000u};
  }
}

bool isNaN(DType type, const std::uint8_t* element) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, element, elementBytes(type));
  const std::uint32_t infinite = type == DType::f16 ? 0x7c00u : type == DType::bf16 ? 0x7f80u : 0x7f800000u;
  const std::uint32_t sign = type == DType::f32 ? 0x80000000u : 0x8000u;
  return (bits & ~sign) > infinite;
}

// What is read back of c: of a tile inside, and of the last tiles, which may be cut off, of its rows and
// columns.
constexpr std::size_t kSample = 32768;
constexpr std::size_t kShift = 256;  // room to move an operand off its alignment

// A trial that did not fail says what the library computes.
class ReluTrial {
 public:
  ReluTrial(const MatmulProblem& problem, const KernelSpec& spec)
      : problem_(problem), spec_(spec), call_(problem.session().context->call()), scratch_(call_) {}

  bool prepare(std::size_t workspace) {
    const OperandBytes operands(spec_);
    sizes_ = {operands.a + kShift, operands.b + kShift, operands.c + kShift,
              static_cast<std::size_t>(spec_.n) * elementBytes(spec_.c.dtype) + kShift, workspace};
    for (const std::size_t bytes : sizes_)
      if (!scratch_.take(bytes)) return false;
    return call_.cuStreamCreateWithPriority(&scratch_.stream, kStreamNonBlocking, 0) == kSuccess;
  }

  bool failed() const { return failed_; }

  // Of operands that are NaN, c is NaN.
  bool keepsNaN(const MatmulChoice& choice) {
    const Words in = wordsOf(spec_.a.dtype), out = wordsOf(spec_.c.dtype);
    const std::size_t bytes = elementBytes(spec_.c.dtype);
    return runs(choice, in.nan, in.one, out.one) && all([&](const std::uint8_t* c, std::size_t count) {
             for (std::size_t i = 0; i < count; i += bytes)
               if (!isNaN(spec_.c.dtype, c + i)) return false;
             return true;
           });
  }

  // Of sums that are -0, c is +0.
  bool dropsSign(const MatmulChoice& choice) {
    const Words in = wordsOf(spec_.a.dtype);
    const std::uint32_t sign = spec_.epilogue.scale > 0 ? in.minus : 0;
    return runs(choice, in.tiny | sign, in.tiny, wordsOf(spec_.c.dtype).minus) &&
           all([](const std::uint8_t* c, std::size_t count) {
             for (std::size_t i = 0; i < count; ++i)
               if (c[i] != 0) return false;
             return true;
           });
  }

 private:
  bool noted(bool works) {
    failed_ = failed_ || !works;
    return works;
  }

  bool fill(std::size_t block, std::uint32_t word) {
    return call_.cuMemsetD32Async(scratch_.blocks[block], word, sizes_[block] / 4, scratch_.stream) ==
           kSuccess;
  }

  // c is filled with ones, which neither question takes for an answer.
  bool runs(const MatmulChoice& choice, std::uint32_t a, std::uint32_t b, std::uint32_t bias) {
    if (!noted(fill(0, a) && fill(1, b) && fill(2, wordsOf(spec_.c.dtype).one) && fill(3, bias)))
      return false;
    shift_ = choice.alignment % kShift;
    MatmulAddresses at{scratch_.blocks[0] + shift_, scratch_.blocks[1] + shift_, scratch_.blocks[2] + shift_};
    if (spec_.epilogue.bias) at.bias = scratch_.blocks[3] + shift_;
    at.workspace = scratch_.blocks[4];
    return noted(problem_.run(choice, at, scratch_.stream) == Status::ok);
  }

  template <class Test>
  bool all(const Test& test) {
    const std::size_t bytes = sizes_[2] - kShift, count = std::min(bytes, kSample);
    std::vector<std::uint8_t> first(count), last(count);
    const CUdeviceptr c = scratch_.blocks[2] + shift_;
    return noted(call_.cuMemcpyDtoHAsync(first.data(), c, count, scratch_.stream) == kSuccess &&
                 call_.cuMemcpyDtoHAsync(last.data(), c + (bytes - count), count, scratch_.stream) ==
                     kSuccess &&
                 call_.cuStreamSynchronize(scratch_.stream) == kSuccess) &&
           test(first.data(), count) && test(last.data(), count);
  }

  const MatmulProblem& problem_;
  const KernelSpec& spec_;
  const DriverFunctions& call_;
  TrialScratch scratch_;
  std::array<std::size_t, 5> sizes_{};  // of the blocks: a, b, c, the bias, the workspace
  std::size_t shift_ = 0;
  bool failed_ = false;
};

}  // namespace

bool isDense(const KernelSpec& spec) { return spec.batch == 1 || spec.c.batchStride == spec.m * spec.n; }

bool isReluExact(const MatmulProblem& problem, const KernelSpec& spec,
                 const std::vector<MatmulChoice>& choices, bool* certain) {
  if (choices.empty() || !isDense(spec)) return false;
  std::size_t workspace = 0;
  for (const MatmulChoice& choice : choices) workspace = std::max(workspace, choice.workspaceBytes);
  ReluTrial trial(problem, spec);
  bool exact = trial.prepare(workspace);
  if (!exact) *certain = false;
  for (std::size_t i = 0; exact && i < choices.size(); ++i)
    exact = trial.keepsNaN(choices[i]) && trial.dropsSign(choices[i]);
  if (trial.failed()) *certain = false;
  return exact;
}

bool isBiasApart(const KernelSpec& product) { return product.batch > 1 && product.epilogue.bias; }

KernelSpec withoutApart(const KernelSpec& product) {
  KernelSpec rest = product;
  rest.epilogue.activation = Activation::none;
  rest.epilogue.auxiliary = false;
  if (isBiasApart(product)) rest.epilogue.bias = false;
  return rest;
}

void apartSource(const KernelSpec& product, KernelSource* source) {
  const std::int64_t rows = product.batch * product.m, columns = product.n;
  const DType type = product.c.dtype;
  KernelSpec spec;
  spec.kind = KernelSpec::Kind::map;
  spec.shape = {rows, columns};
  spec.operands = {{type, 0, {columns, 1}}};
  const auto put = [&spec](MapOp op, std::int32_t a = 0, std::int32_t b = 0) {
    spec.code.push_back({op, a, b});
    return static_cast<std::int32_t>(spec.code.size()) - 1;
  };
  const auto constant = [&](double value) {
    spec.code.push_back({MapOp::constant, 0, 0, 0, value});
    return static_cast<std::int32_t>(spec.code.size()) - 1;
  };
  std::int32_t x = put(MapOp::operand);
  const bool biased = isBiasApart(product);
  if (biased) {
    spec.operands.push_back({type, 0, {0, 1}});
    x = put(MapOp::add, x, put(MapOp::operand, 1));
  }
  const std::int32_t before = x;
  if (product.epilogue.activation == Activation::relu) x = put(MapOp::max, x, constant(0));
  if (product.epilogue.activation == Activation::gelu) {
    // In the steps of the operator of that name.
    const std::int32_t cube = put(MapOp::mul, put(MapOp::mul, x, x), x);
    const std::int32_t inner = put(MapOp::add, x, put(MapOp::mul, cube, constant(0.044715)));
    const std::int32_t wave = put(MapOp::tanh, put(MapOp::mul, inner, constant(0.7978845608028654)));
    x = put(MapOp::mul, put(MapOp::mul, x, constant(0.5)), put(MapOp::add, wave, constant(1)));
  }
  spec.results = {{x, type}};
  if (biased && product.epilogue.auxiliary) spec.results.push_back({before, type});
  spec.readCount = spec.operands.size(), spec.writeCount = spec.results.size();
  // It has no rows to divide among multiprocessors.
  mapSource(spec, 1, source);
}

}  // namespace braid::cuda
