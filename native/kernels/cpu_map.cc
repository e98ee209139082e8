#include <algorithm>
#include <cmath>

#include "kernels/cpu.h"
#include "kernels/element.h"

// The interpreter of fused elementwise kernels. Each instruction runs over a block of elements before the
// next one does, so that dispatch costs once a block and the compiler vectorizes every loop.

namespace braid {
namespace {

constexpr std::int64_t kBlock = 512;

// An instruction whose arguments and target are blocks of scratch memory. A target is never also an argument.
struct Step {
  MapOp op = MapOp::constant;
  std::uint32_t to = 0, a = 0, b = 0, c = 0;
};

// An operand as it is read: sizes of 1 dropped, neighbouring dimensions merged where one stride covers both.
struct Source {
  std::size_t read = 0;
  DType dtype = DType::f32;
  std::int64_t offset = 0;
  std::vector<std::int64_t> sizes, strides;  // innermost last; empty: the same element everywhere
};

Source normalise(const KernelSpec& spec, std::size_t read) {
  const MapOperand& operand = spec.operands[read];
  Source source{read, operand.dtype, operand.offset, {}, {}};
  for (std::size_t d = 0; d < spec.shape.size(); ++d) {
    const std::int64_t size = spec.shape[d], stride = operand.strides[d];
    if (size == 1) continue;
    if (!source.sizes.empty() && source.strides.back() == stride * size) {
      source.sizes.back() *= size;
      source.strides.back() = stride;
    } else {
      source.sizes.push_back(size);
      source.strides.push_back(stride);
    }
  }
  if (source.sizes.size() == 1 && source.strides[0] == 0) source.sizes.clear(), source.strides.clear();
  return source;
}

// Elements `first` to `first + count` of the row-major order, read run by run along the innermost dimension.
template <class T>
void readStrided(T* to, DeviceAddress base, const Source& source, std::int64_t first, std::int64_t count) {
  if (source.sizes.empty()) return element::load(to, base, source.dtype, source.offset, count, 0);
  const std::size_t rank = source.sizes.size();
  std::int64_t index[8], at = source.offset;
  std::int64_t rest = first;
  for (std::size_t d = rank; d-- > 0;) {
    index[d] = rest % source.sizes[d];
    rest /= source.sizes[d];
    at += index[d] * source.strides[d];
  }
  const std::int64_t width = source.sizes[rank - 1], step = source.strides[rank - 1];
  while (count > 0) {
    const std::int64_t run = std::min(count, width - index[rank - 1]);
    element::load(to, base, source.dtype, at, run, step);
    to += run;
    count -= run;
    if (count == 0) return;
    at -= index[rank - 1] * step;  // back to the start of the innermost row
    index[rank - 1] = 0;
    for (std::size_t d = rank - 1; d-- > 0;) {
      at += source.strides[d];
      if (++index[d] < source.sizes[d]) break;
      at -= source.sizes[d] * source.strides[d];
      index[d] = 0;
    }
  }
}

// The indices along one dimension, whose elements are `inner` apart, from the element `first` on.
template <class T>
void readIndex(T* to, std::int64_t size, std::int64_t inner, std::int64_t first, std::int64_t count) {
  std::int64_t index = first / inner % size, within = first % inner;
  for (std::int64_t i = 0; i < count; ++i) {
    to[i] = static_cast<T>(index);
    if (++within < inner) continue;
    within = 0;
    if (++index == size) index = 0;
  }
}

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }
// JavaScript has NaN where C has 1: a base of 1 or -1 with an exponent that is no finite number.
double power(double a, double b) {
  return std::isnan(b) || (std::fabs(a) == 1.0 && std::isinf(b)) ? std::nan("") : std::pow(a, b);
}

template <class Operation, class T>
inline __attribute__((always_inline)) void each1(T* __restrict to, const T* a, std::int64_t count,
                                                 Operation operation) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = operation(a[i]);
}
template <class Operation, class T>
inline __attribute__((always_inline)) void each2(T* __restrict to, const T* a, const T* b, std::int64_t count,
                                                 Operation operation) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = operation(a[i], b[i]);
}

inline __attribute__((always_inline)) void stepFloat(MapOp op, float* to, const float* a, const float* b,
                                                     const float* c, std::int64_t count) {
  switch (op) {
    case MapOp::operand:
    case MapOp::constant:
    case MapOp::index: return;
    case MapOp::select:
      for (std::int64_t i = 0; i < count; ++i) to[i] = a[i] != 0.0f ? b[i] : c[i];
      return;
    case MapOp::neg: return each1(to, a, count, [](float x) { return -x; });
    case MapOp::abs: return each1(to, a, count, [](float x) { return std::fabs(x); });
    case MapOp::exp:
      return each1(to, a, count,
                   [](float x) { return static_cast<float>(std::exp(static_cast<double>(x))); });
    case MapOp::log:
      return each1(to, a, count,
                   [](float x) { return static_cast<float>(std::log(static_cast<double>(x))); });
    case MapOp::sqrt: return each1(to, a, count, [](float x) { return std::sqrt(x); });
    case MapOp::rsqrt:
      return each1(to, a, count,
                   [](float x) { return static_cast<float>(1.0 / std::sqrt(static_cast<double>(x))); });
    case MapOp::tanh:
      return each1(to, a, count,
                   [](float x) { return static_cast<float>(std::tanh(static_cast<double>(x))); });
    case MapOp::erf:
      return each1(to, a, count,
                   [](float x) { return static_cast<float>(std::erf(static_cast<double>(x))); });
    case MapOp::sigmoid: return each1(to, a, count, [](float x) { return static_cast<float>(sigmoid(x)); });
    case MapOp::sin:
      return each1(to, a, count,
                   [](float x) { return static_cast<float>(std::sin(static_cast<double>(x))); });
    case MapOp::cos:
      return each1(to, a, count,
                   [](float x) { return static_cast<float>(std::cos(static_cast<double>(x))); });
    case MapOp::floor: return each1(to, a, count, [](float x) { return std::floor(x); });
    case MapOp::ceil: return each1(to, a, count, [](float x) { return std::ceil(x); });
    case MapOp::round: return each1(to, a, count, [](float x) { return std::nearbyint(x); });
    case MapOp::toF16: return each1(to, a, count, [](float x) { return floatFromF16(f16FromFloat(x)); });
    case MapOp::toBf16: return each1(to, a, count, [](float x) { return floatFromBf16(bf16FromFloat(x)); });
    case MapOp::toI32:
      return each1(to, a, count, [](float x) { return static_cast<float>(i32FromFloat(x)); });
    case MapOp::toU8: return each1(to, a, count, [](float x) { return static_cast<float>(u8FromFloat(x)); });
    case MapOp::add: return each2(to, a, b, count, [](float x, float y) { return x + y; });
    case MapOp::sub: return each2(to, a, b, count, [](float x, float y) { return x - y; });
    case MapOp::mul: return each2(to, a, b, count, [](float x, float y) { return x * y; });
    case MapOp::div: return each2(to, a, b, count, [](float x, float y) { return x / y; });
    case MapOp::min: return each2(to, a, b, count, [](float x, float y) { return element::min(x, y); });
    case MapOp::max: return each2(to, a, b, count, [](float x, float y) { return element::max(x, y); });
    case MapOp::pow:
      return each2(to, a, b, count, [](float x, float y) { return static_cast<float>(power(x, y)); });
    case MapOp::lt: return each2(to, a, b, count, [](float x, float y) { return x < y ? 1.0f : 0.0f; });
    case MapOp::le: return each2(to, a, b, count, [](float x, float y) { return x <= y ? 1.0f : 0.0f; });
    case MapOp::eq: return each2(to, a, b, count, [](float x, float y) { return x == y ? 1.0f : 0.0f; });
  }
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) void stepFloatAvx2(MapOp op, float* to, const float* a, const float* b,
                                                   const float* c, std::int64_t count) {
  stepFloat(op, to, a, b, c, count);
}
#endif
void stepFloatPlain(MapOp op, float* to, const float* a, const float* b, const float* c, std::int64_t count) {
  stepFloat(op, to, a, b, c, count);
}

void runStep(MapOp op, float* to, const float* a, const float* b, const float* c, std::int64_t count) {
#if defined(__x86_64__)
  if (cpuHasAvx2()) return stepFloatAvx2(op, to, a, b, c, count);
#endif
  stepFloatPlain(op, to, a, b, c, count);
}

// Whole numbers wrap, as `| 0` has it; functions go through double precision and back by ToInt32.
void runStep(MapOp op, std::int32_t* to, const std::int32_t* a, const std::int32_t* b, const std::int32_t* c,
             std::int64_t count) {
  using I = std::int32_t;
  using U = std::uint32_t;
  const auto through = [&](double (*function)(double)) {
    for (std::int64_t i = 0; i < count; ++i) to[i] = element::toInt32(function(a[i]));
  };
  switch (op) {
    case MapOp::operand:
    case MapOp::constant:
    case MapOp::index: return;
    case MapOp::select:
      for (std::int64_t i = 0; i < count; ++i) to[i] = a[i] != 0 ? b[i] : c[i];
      return;
    case MapOp::neg: return each1(to, a, count, [](I x) { return element::wrap(0u - static_cast<U>(x)); });
    case MapOp::abs:
      return each1(to, a, count, [](I x) { return x < 0 ? element::wrap(0u - static_cast<U>(x)) : x; });
    case MapOp::exp: return through([](double x) { return std::exp(x); });
    case MapOp::log: return through([](double x) { return std::log(x); });
    case MapOp::sqrt: return through([](double x) { return std::sqrt(x); });
    case MapOp::rsqrt: return through([](double x) { return 1.0 / std::sqrt(x); });
    case MapOp::tanh: return through([](double x) { return std::tanh(x); });
    case MapOp::erf: return through([](double x) { return std::erf(x); });
    case MapOp::sigmoid: return through([](double x) { return sigmoid(x); });
    case MapOp::sin: return through([](double x) { return std::sin(x); });
    case MapOp::cos: return through([](double x) { return std::cos(x); });
    case MapOp::floor:
    case MapOp::ceil:
    case MapOp::round:
    case MapOp::toI32: return each1(to, a, count, [](I x) { return x; });
    case MapOp::toF16:
      return each1(to, a, count,
                   [](I x) { return i32FromFloat(floatFromF16(f16FromFloat(static_cast<float>(x)))); });
    case MapOp::toBf16:
      return each1(to, a, count,
                   [](I x) { return i32FromFloat(floatFromBf16(bf16FromFloat(static_cast<float>(x)))); });
    case MapOp::toU8: return each1(to, a, count, [](I x) -> I { return u8FromI32(x); });
    case MapOp::add:
      return each2(to, a, b, count,
                   [](I x, I y) { return element::wrap(static_cast<U>(x) + static_cast<U>(y)); });
    case MapOp::sub:
      return each2(to, a, b, count,
                   [](I x, I y) { return element::wrap(static_cast<U>(x) - static_cast<U>(y)); });
    case MapOp::mul:
      return each2(to, a, b, count,
                   [](I x, I y) { return element::wrap(static_cast<U>(x) * static_cast<U>(y)); });
    case MapOp::div:
      return each2(to, a, b, count, [](I x, I y) {
        return y == 0 ? 0 : y == -1 ? element::wrap(0u - static_cast<U>(x)) : x / y;
      });
    case MapOp::min: return each2(to, a, b, count, [](I x, I y) { return x < y ? x : y; });
    case MapOp::max: return each2(to, a, b, count, [](I x, I y) { return x > y ? x : y; });
    case MapOp::pow: return each2(to, a, b, count, [](I x, I y) { return element::toInt32(power(x, y)); });
    case MapOp::lt: return each2(to, a, b, count, [](I x, I y) -> I { return x < y; });
    case MapOp::le: return each2(to, a, b, count, [](I x, I y) -> I { return x <= y; });
    case MapOp::eq: return each2(to, a, b, count, [](I x, I y) -> I { return x == y; });
  }
}

class CpuMap final : public CpuKernel {
 public:
  explicit CpuMap(const KernelSpec& spec) : computeInt_(spec.computeInt), results_(spec.results) {
    for (const std::int64_t size : spec.shape) count_ *= size;
    readCount = spec.operands.size();
    writeCount = spec.results.size();
    for (const MapOperand& operand : spec.operands) {
      const auto bytes = static_cast<std::uint32_t>(elementBytes(operand.dtype));
      std::int64_t last = operand.offset;
      for (std::size_t d = 0; d < spec.shape.size(); ++d)
        last += std::max<std::int64_t>(0, operand.strides[d] * (spec.shape[d] - 1));
      extents.push_back(Extent{static_cast<std::uint64_t>(last + 1) * bytes, bytes});
      movedBytes += static_cast<double>(std::min(count_, last + 1 - operand.offset)) * bytes;
    }
    for (const MapResult& result : spec.results) {
      const auto bytes = static_cast<std::uint32_t>(elementBytes(result.dtype));
      extents.push_back(Extent{static_cast<std::uint64_t>(count_) * bytes, bytes});
      movedBytes += static_cast<double>(count_) * bytes;
    }
    inner_.assign(spec.shape.size(), 1);
    for (std::size_t d = spec.shape.size(); d-- > 1;) inner_[d - 1] = inner_[d] * spec.shape[d];
    shape_ = spec.shape;
    place(spec);
  }

  bool run(const DeviceAddress* addresses, Scratch& scratch, Part part) const override {
    static_assert(sizeof(float) == sizeof(std::int32_t));
    float* values = scratch.floats(static_cast<std::size_t>(blocks_) * kBlock);
    if (computeInt_)
      compute(addresses, reinterpret_cast<std::int32_t*>(values), part);
    else
      compute(addresses, values, part);
    return true;
  }

 private:
  // Gives every value a block: one of its own to a constant or to an operand that is the same everywhere, as
  // it is filled once; else any block whose value has been read for the last time before.
  void place(const KernelSpec& spec) {
    const std::size_t length = spec.code.size();
    std::vector<std::size_t> lastUse(length, 0);
    std::vector<std::uint32_t> block(length, 0), spare;
    for (std::size_t j = 0; j < length; ++j)
      forArguments(spec.code[j],
                   [&](std::int32_t argument) { lastUse[static_cast<std::size_t>(argument)] = j; });
    for (const MapResult& result : spec.results) lastUse[static_cast<std::size_t>(result.value)] = length;
    std::vector<bool> fixed(length, false);
    for (std::size_t j = 0; j < length; ++j) {
      const MapInstruction& instruction = spec.code[j];
      Source source;
      if (instruction.op == MapOp::operand) source = normalise(spec, static_cast<std::size_t>(instruction.a));
      fixed[j] =
          instruction.op == MapOp::constant || (instruction.op == MapOp::operand && source.sizes.empty());
      if (spare.empty() || fixed[j]) {
        block[j] = blocks_++;
      } else {
        block[j] = spare.back();
        spare.pop_back();
      }
      Step step{instruction.op, block[j], 0, 0, 0};
      if (instruction.op == MapOp::constant) {
        constants_.push_back({block[j], instruction.constant});
      } else if (instruction.op == MapOp::index) {
        step.a = static_cast<std::uint32_t>(instruction.a);
        steps_.push_back(step);
      } else if (instruction.op == MapOp::operand) {
        step.a = static_cast<std::uint32_t>(sources_.size());
        sources_.push_back(std::move(source));
        (fixed[j] ? once_ : steps_).push_back(step);
      } else {
        std::uint32_t* places[] = {&step.a, &step.b, &step.c};
        std::size_t position = 0;
        forArguments(instruction, [&](std::int32_t argument) {
          *places[position++] = block[static_cast<std::size_t>(argument)];
        });
        steps_.push_back(step);
      }
      // Only now: a target must not be one of its own arguments. An argument may be named twice.
      forArguments(instruction, [&](std::int32_t argument) {
        const auto value = static_cast<std::size_t>(argument);
        if (lastUse[value] == j && !fixed[value]) spare.push_back(block[value]), lastUse[value] = length + 1;
      });
      if (lastUse[j] == 0 && !fixed[j]) spare.push_back(block[j]);  // a value that is never read
    }
    for (MapResult& result : results_)
      result.value = static_cast<std::int32_t>(block[static_cast<std::size_t>(result.value)]);
  }

  template <class Visit>
  static void forArguments(const MapInstruction& instruction, Visit visit) {
    if (instruction.op <= MapOp::index) return;
    visit(instruction.a);
    if (instruction.op == MapOp::select || instruction.op >= MapOp::add) visit(instruction.b);
    if (instruction.op == MapOp::select) visit(instruction.c);
  }

  template <class T>
  void compute(const DeviceAddress* addresses, T* values, Part part) const {
    const auto block = [values](std::uint32_t index) {
      return values + static_cast<std::size_t>(index) * kBlock;
    };
    const std::int64_t widest = std::min(count_, kBlock);
    for (const auto& [to, value] : constants_) {
      T constant;
      if constexpr (std::is_same_v<T, float>)
        constant = static_cast<float>(value);
      else
        constant = element::toInt32(value);
      std::fill_n(block(to), widest, constant);
    }
    for (const Step& step : once_)
      readStrided(block(step.to), addresses[sources_[step.a].read], sources_[step.a], 0, widest);
    const PartRange elements(part, count_);
    for (std::int64_t first = elements.first; first < elements.last; first += kBlock) {
      const std::int64_t count = std::min(kBlock, elements.last - first);
      for (const Step& step : steps_) {
        if (step.op == MapOp::operand)
          readStrided(block(step.to), addresses[sources_[step.a].read], sources_[step.a], first, count);
        else if (step.op == MapOp::index)
          readIndex(block(step.to), shape_[step.a], inner_[step.a], first, count);
        else
          runStep(step.op, block(step.to), block(step.a), block(step.b), block(step.c), count);
      }
      for (std::size_t i = 0; i < results_.size(); ++i)
        element::store(addresses[readCount + i], results_[i].dtype, first,
                       block(static_cast<std::uint32_t>(results_[i].value)), count);
    }
  }

  bool computeInt_;
  std::int64_t count_ = 1;
  std::uint32_t blocks_ = 0;
  std::vector<std::int64_t> shape_, inner_;  // inner: how far neighbours along a dimension are apart
  std::vector<Source> sources_;
  std::vector<std::pair<std::uint32_t, double>> constants_;
  std::vector<Step> once_, steps_;
  std::vector<MapResult> results_;
};

}  // namespace

CpuKernelResult makeCpuMap(const KernelSpec& spec) { return std::make_unique<CpuMap>(spec); }

}  // namespace braid
