#include <cstddef>
#include <cstring>

#include "kernels/check.h"
#include "kernels/cpu.h"
#include "kernels/map_rows.h"

namespace braid {
namespace {

class CpuUserKernel final : public CpuKernel {
 public:
  CpuUserKernel(const KernelSpec& spec, HostCallback callback) : callback_(std::move(callback)) {
    readCount = spec.readCount;
    writeCount = spec.writeCount;
    callsUser = true;
    movedBytes = static_cast<double>(spec.bytes);
    extents.assign(readCount + writeCount, Extent{1, 1});
  }
  bool run(const DeviceAddress* addresses, Scratch&, Part part) const override {
    return part == Part::first || callback_(addresses, readCount, addresses + readCount, writeCount);
  }

 private:
  HostCallback callback_;
};

class CpuCopy final : public CpuKernel {
 public:
  explicit CpuCopy(const KernelSpec& spec) {
    readCount = spec.parts;
    writeCount = 1;
    part_ = spec.bytes / readCount;
    extents.assign(readCount, Extent{part_, 1});
    extents.push_back(Extent{spec.bytes, 1});
    movedBytes = static_cast<double>(spec.bytes) * 2;
  }
  bool run(const DeviceAddress* addresses, Scratch&, Part part) const override {
    auto* to = reinterpret_cast<std::byte*>(addresses[readCount]);
    const PartRange bytes(part, static_cast<std::int64_t>(part_));
    const auto first = static_cast<std::size_t>(bytes.first), last = static_cast<std::size_t>(bytes.last);
    for (std::size_t i = 0; i < readCount; ++i)
      std::memmove(to + i * part_ + first, reinterpret_cast<const std::byte*>(addresses[i]) + first,
                   last - first);
    return true;
  }

 private:
  std::size_t part_;
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

Status prepareCpu(CpuKernelResult* kernel, const KernelSpec& spec, HostCallback callback,
                  std::string* detail) {
  detail->clear();
  if (auto problem = checkKernel(spec)) {
    *detail = std::move(*problem);
    return Status::invalidValue;
  }
  switch (spec.kind) {
    case KernelSpec::Kind::copy: *kernel = makeCpuCopy(spec); break;
    case KernelSpec::Kind::map: *kernel = makeCpuMap(spec); break;
    case KernelSpec::Kind::matmul: *kernel = makeCpuMatmul(spec); break;
    case KernelSpec::Kind::attention:
      *kernel = spec.attention.result == AttentionResult::attended ? makeCpuAttention(spec)
                                                                   : makeCpuAttentionGradient(spec);
      break;
    case KernelSpec::Kind::conv: *kernel = makeCpuConv(spec); break;
    case KernelSpec::Kind::reduce:
      *kernel = spec.how >= ReduceHow::argmax ? makeCpuChoose(spec) : makeCpuMapRows(reductionAsMap(spec));
      break;
    case KernelSpec::Kind::scan: *kernel = makeCpuScan(spec); break;
    case KernelSpec::Kind::gather: *kernel = makeCpuGather(spec); break;
    case KernelSpec::Kind::scatterAdd: *kernel = makeCpuScatterAdd(spec); break;
    case KernelSpec::Kind::append: *kernel = makeCpuAppend(spec); break;
    case KernelSpec::Kind::join: *kernel = makeCpuJoin(spec); break;
    case KernelSpec::Kind::random: *kernel = makeCpuRandom(spec); break;
    case KernelSpec::Kind::cuda:
      if (!callback) {
        *detail = "kernel " + spec.name +
                  ": the host device computes a user's kernel by its reference, and none was given";
        return Status::notSupported;
      }
      *kernel = std::make_unique<CpuUserKernel>(spec, std::move(callback));
      break;
  }
  if (spec.workspace > 0) {
    ++(*kernel)->writeCount;
    (*kernel)->extents.push_back(Extent{spec.workspace, 1});
  }
  return Status::ok;
}

}  // namespace braid
