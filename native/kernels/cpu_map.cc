#include <algorithm>

#include "kernels/cpu.h"
#include "kernels/element.h"
#include "kernels/map_rows.h"
#include "kernels/map_steps.h"

// The interpreter of fused elementwise kernels. Each instruction runs over a block of elements before the
// next one does, so that dispatch costs once a block and the compiler vectorizes every loop.

namespace braid {
namespace {

using namespace steps;

constexpr std::int64_t kBlock = 512;

// An instruction whose arguments and target are blocks of scratch memory. A target is never also an argument.
struct Step {
  MapOp op = MapOp::constant;
  std::uint32_t to = 0, a = 0, b = 0, c = 0;
};

class CpuMap final : public CpuKernel {
 public:
  explicit CpuMap(const KernelSpec& spec) : computeInt_(spec.computeInt), results_(spec.results) {
    for (const std::int64_t size : spec.shape) count_ *= size;
    readCount = spec.operands.size();
    writeCount = spec.results.size();
    for (const MapOperand& operand : spec.operands) {
      const auto bytes = static_cast<std::uint32_t>(elementBytes(operand.dtype));
      const std::int64_t last = lastElement(spec, operand);
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
      forArguments(spec.code[j], [&](std::size_t argument) { lastUse[argument] = j; });
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
        forArguments(instruction, [&](std::size_t argument) { *places[position++] = block[argument]; });
        steps_.push_back(step);
      }
      // Only now: a target must not be one of its own arguments. An argument may be named twice.
      forArguments(instruction, [&](std::size_t value) {
        if (lastUse[value] == j && !fixed[value]) spare.push_back(block[value]), lastUse[value] = length + 1;
      });
      if (lastUse[j] == 0 && !fixed[j]) spare.push_back(block[j]);  // a value that is never read
    }
    for (MapResult& result : results_)
      result.value = static_cast<std::int32_t>(block[static_cast<std::size_t>(result.value)]);
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
    for (const Step& step : once_) readStrided(block(step.to), addresses, sources_[step.a], 0, widest);
    const PartRange elements(part, count_);
    for (std::int64_t first = elements.first; first < elements.last; first += kBlock) {
      const std::int64_t count = std::min(kBlock, elements.last - first);
      for (const Step& step : steps_) {
        if (step.op == MapOp::operand)
          readStrided(block(step.to), addresses, sources_[step.a], first, count);
        else if (step.op == MapOp::index)
          readIndex(block(step.to), shape_[step.a], inner_[step.a], first, count);
        else
          steps::run(step.op, block(step.to), block(step.a), block(step.b), block(step.c), count);
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

CpuKernelResult makeCpuMap(const KernelSpec& spec) {
  if (hasRows(spec)) return makeCpuMapRows(spec);
  return std::make_unique<CpuMap>(spec);
}

}  // namespace braid
