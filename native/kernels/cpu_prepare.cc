#include <cmath>
#include <cstring>

#include "kernels/cpu.h"

namespace braid {
namespace {

constexpr std::size_t kMaxRank = 8;
constexpr std::size_t kMaxInstructions = std::size_t{1} << 16;
constexpr std::int64_t kMaxBytes = std::int64_t{1} << 53;

std::string show(std::int64_t value) { return std::to_string(value); }

// Multiplies sizes; false when one is not positive or the product is more than memory can ever hold.
bool product(std::initializer_list<std::int64_t> sizes, std::int64_t* result) {
  std::int64_t total = 1;
  for (const std::int64_t size : sizes)
    if (size <= 0 || __builtin_mul_overflow(total, size, &total) || total > kMaxBytes) return false;
  *result = total;
  return true;
}

bool isFloat(DType type) { return type == DType::f32 || type == DType::f16 || type == DType::bf16; }

int arity(MapOp op) {
  if (op == MapOp::operand || op == MapOp::constant) return 0;
  if (op == MapOp::select) return 3;
  return op >= MapOp::add ? 2 : 1;
}

std::string checkMap(const KernelSpec& spec) {
  if (spec.shape.size() > kMaxRank) return "map: rank " + show(spec.shape.size()) + ", at most 8 is possible";
  std::int64_t count = 1;
  for (const std::int64_t size : spec.shape)
    if (!product({count, size}, &count)) return "map: shape has a size that is not positive, or too many elements";
  for (std::size_t i = 0; i < spec.operands.size(); ++i) {
    const MapOperand& operand = spec.operands[i];
    const std::string name = "map: operand " + show(static_cast<std::int64_t>(i));
    if (elementBytes(operand.dtype) == 0) return name + " has an unknown element type";
    if (operand.strides.size() != spec.shape.size())
      return name + " has another number of strides than the shape has sizes";
    std::int64_t least = operand.offset, most = operand.offset;
    for (std::size_t d = 0; d < spec.shape.size(); ++d) {
      std::int64_t reach = 0;
      if (__builtin_mul_overflow(operand.strides[d], spec.shape[d] - 1, &reach)) return name + ": strides overflow";
      std::int64_t& end = reach < 0 ? least : most;
      if (__builtin_add_overflow(end, reach, &end)) return name + ": strides overflow";
    }
    if (least < 0) return name + " reaches before its start";
    if (most > kMaxBytes) return name + " reaches too far";
  }
  if (spec.code.size() > kMaxInstructions) return "map: more than 65536 instructions";
  for (std::size_t j = 0; j < spec.code.size(); ++j) {
    const MapInstruction& instruction = spec.code[j];
    const std::string name = "map: instruction " + show(static_cast<std::int64_t>(j));
    if (instruction.op > MapOp::eq) return name + " has an unknown operation";
    if (instruction.op == MapOp::operand &&
        (instruction.a < 0 || static_cast<std::size_t>(instruction.a) >= spec.operands.size()))
      return name + " names operand " + show(instruction.a) + " of " + show(spec.operands.size());
    const std::int32_t arguments[] = {instruction.a, instruction.b, instruction.c};
    for (int argument = 0; argument < arity(instruction.op); ++argument)
      if (arguments[argument] < 0 || static_cast<std::size_t>(arguments[argument]) >= j)
        return name + " names value " + show(arguments[argument]) + ", which is not an earlier one";
  }
  if (spec.results.empty()) return "map: no results";
  for (const MapResult& result : spec.results) {
    if (result.value < 0 || static_cast<std::size_t>(result.value) >= spec.code.size())
      return "map: a result names value " + show(result.value) + " of " + show(spec.code.size());
    if (elementBytes(result.dtype) == 0) return "map: a result has an unknown element type";
  }
  return "";
}

std::string checkMatmul(const KernelSpec& spec) {
  std::int64_t ignored = 0;
  if (spec.m <= 0 || spec.n <= 0 || spec.k <= 0 || spec.batch <= 0) return "matmul: m, n, k and batch must be positive";
  struct Side {
    const char* name;
    const MatmulOperand& operand;
    std::int64_t rows, columns;
  };
  for (const Side& side :
       {Side{"a", spec.a, spec.m, spec.k}, Side{"b", spec.b, spec.k, spec.n}, Side{"c", spec.c, spec.m, spec.n}}) {
    const std::string name = std::string("matmul: ") + side.name;
    if (!isFloat(side.operand.dtype)) return name + " must be f32, f16 or bf16";
    if (!product({side.rows, side.columns}, &ignored)) return name + " has too many elements";
    if (side.operand.batchStride < 0) return name + " has a negative batch stride";
    if (side.operand.batchStride > 0 && !product({side.operand.batchStride, spec.batch}, &ignored))
      return name + " reaches too far";
  }
  if (spec.batch > 1 && spec.c.batchStride < spec.m * spec.n) return "matmul: the batches of c overlap";
  if (!product({spec.m, spec.n, spec.k}, &ignored) && 2.0 * spec.m * spec.n * spec.k > 9e18) return "matmul: too large";
  return "";
}

std::string checkReduce(const KernelSpec& spec) {
  std::int64_t ignored = 0;
  if (!product({spec.outer, spec.length, spec.inner}, &ignored))
    return "reduce: outer, length and inner must be positive, and not too many elements";
  if (elementBytes(spec.input) == 0 || elementBytes(spec.output) == 0) return "reduce: unknown element type";
  if (spec.how > ReduceHow::min) return "reduce: unknown kind";
  return "";
}

class CpuUserKernel final : public CpuKernel {
 public:
  CpuUserKernel(const KernelSpec& spec, HostCallback callback) : callback_(std::move(callback)) {
    readCount = spec.readCount;
    writeCount = spec.writeCount;
    extents.assign(readCount + writeCount, Extent{1, 1});
  }
  bool run(const DeviceAddress* addresses, Scratch&) const override {
    return callback_(addresses, readCount, addresses + readCount, writeCount);
  }

 private:
  HostCallback callback_;
};

class CpuCopy final : public CpuKernel {
 public:
  explicit CpuCopy(const KernelSpec& spec) : bytes_(spec.bytes) {
    readCount = writeCount = 1;
    extents.assign(2, Extent{spec.bytes, 1});
    movedBytes = static_cast<double>(spec.bytes) * 2;
  }
  bool run(const DeviceAddress* addresses, Scratch&) const override {
    std::memmove(reinterpret_cast<void*>(addresses[1]), reinterpret_cast<const void*>(addresses[0]), bytes_);
    return true;
  }

 private:
  std::size_t bytes_;
};

}  // namespace

bool cpuHasAvx2() {
#if defined(__x86_64__)
  static const bool has = __builtin_cpu_supports("avx2");
  return has;
#else
  return false;
#endif
}

CpuKernelResult makeCpuCopy(const KernelSpec& spec) { return std::make_unique<CpuCopy>(spec); }

Status prepareCpu(CpuKernelResult* kernel, const KernelSpec& spec, HostCallback callback, std::string* detail) {
  detail->clear();
  switch (spec.kind) {
    case KernelSpec::Kind::copy:
      if (spec.bytes > static_cast<std::uint64_t>(kMaxBytes)) *detail = "copy: too many bytes";
      if (spec.direction < 0 || spec.direction > 3) *detail = "copy: unknown direction " + show(spec.direction);
      if (detail->empty()) *kernel = makeCpuCopy(spec);
      break;
    case KernelSpec::Kind::map:
      *detail = checkMap(spec);
      if (detail->empty()) *kernel = makeCpuMap(spec);
      break;
    case KernelSpec::Kind::matmul:
      *detail = checkMatmul(spec);
      if (detail->empty()) *kernel = makeCpuMatmul(spec);
      break;
    case KernelSpec::Kind::reduce:
      *detail = checkReduce(spec);
      if (detail->empty()) *kernel = makeCpuReduce(spec);
      break;
    case KernelSpec::Kind::cuda:
      if (!callback) {
        *detail =
            "kernel " + spec.name + ": the host device computes a user's kernel by its reference, and none was given";
        return Status::notSupported;
      }
      *kernel = std::make_unique<CpuUserKernel>(spec, std::move(callback));
      break;
    default: *detail = "unknown kind of kernel";
  }
  if (!detail->empty()) return Status::invalidValue;
  // A spec made by hand may leave the run's counts at 0; where they are given they must be the kernel's own.
  const bool counted = spec.readCount != 0 || spec.writeCount != 0;
  if (counted && (spec.readCount != (*kernel)->readCount || spec.writeCount != (*kernel)->writeCount)) {
    *detail = "the run has " + show(spec.readCount) + " reads and " + show(spec.writeCount) +
              " writes, the kernel wants " + show((*kernel)->readCount) + " and " + show((*kernel)->writeCount);
    kernel->reset();
    return Status::invalidValue;
  }
  return Status::ok;
}

}  // namespace braid
