#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/attention_tile.h"
#include "kernels/cpu.h"
#include "kernels/element.h"

namespace braid::attention {

// What the kernels of attention and of its gradients have in common: where operands lie, and which keys a
// query sees.
class CpuAttentionKernel : public CpuKernel {
 protected:
  explicit CpuAttentionKernel(const KernelSpec& spec)
      : one_(spec.attention),
        type_(spec.input),
        batch_(spec.batch),
        scale_(static_cast<float>(one_.scale)),
        accumulate_(attentionTile()) {
    readCount = one_.reads();
    writeCount = one_.writes();
    add(one_.q.end(batch_, one_.heads, one_.queries, one_.size), type_);
    add(one_.k.end(batch_, one_.groups, one_.keys, one_.size), type_);
    add(one_.v.end(batch_, one_.groups, one_.keys, one_.valueSize), type_);
    if (one_.masked) add(one_.maskEnd(batch_), one_.maskType);
    if (one_.counted) add(1, DType::i32);
    if (one_.appended > 0) {
      for (const std::int64_t row : {one_.size, one_.valueSize})
        add(batch_ * one_.groups * one_.appended * row, type_);
      add(1, DType::i32);
    }
    if (one_.isGradient()) {
      add(one_.dy.end(batch_, one_.heads, one_.queries, one_.valueSize), type_);
      for (int sums = 0; sums < 2; ++sums) add(batch_ * one_.heads * one_.queries, DType::f32);
    }
    add(one_.resultEnd(batch_), one_.resultType(type_));
    if (one_.logs) add(batch_ * one_.heads * one_.queries, DType::f32);
    if (one_.withValues) add(one_.dv.end(batch_, one_.groups, one_.keys, one_.valueSize), type_);
    if (one_.appended > 0) extents.insert(extents.end(), {Extent(extents[1]), Extent(extents[2])});
  }

  static std::int64_t at(const AttentionOperand& operand, std::int64_t batch, std::int64_t head,
                         std::int64_t row) {
    return operand.offset + batch * operand.strides[0] + head * operand.strides[1] + row * operand.strides[2];
  }
  // How many keys are there.
  std::int64_t thereAt(const DeviceAddress* addresses) const {
    if (!one_.counted) return one_.keys;
    const auto given = *reinterpret_cast<const std::int32_t*>(addresses[one_.masked ? 4 : 3]);
    return std::clamp<std::int64_t>(given, 0, one_.keys);
  }
  // How many of them a query may see, by its place alone.
  std::int64_t limit(std::int64_t query, std::int64_t there) const {
    return one_.causal ? std::clamp<std::int64_t>(there - one_.queries + query + 1, 0, there) : there;
  }
  bool isSeen(const DeviceAddress* addresses, std::int64_t batch, std::int64_t head, std::int64_t query,
              std::int64_t key) const {
    if (!one_.masked) return true;
    const auto& steps = one_.maskStrides;
    const std::int64_t index = batch * steps[0] + head * steps[1] + query * steps[2] + key * steps[3];
    return one_.maskType == DType::u8 ? reinterpret_cast<const std::uint8_t*>(addresses[3])[index] != 0
                                      : reinterpret_cast<const std::int32_t*>(addresses[3])[index] != 0;
  }

  const AttentionSpec one_;
  const DType type_;
  const std::int64_t batch_;
  const float scale_;
  const AttentionTile accumulate_;

 private:
  void add(std::int64_t elements, DType type) {
    const auto bytes = static_cast<std::uint32_t>(elementBytes(type));
    extents.push_back(Extent{static_cast<std::uint64_t>(elements) * bytes, bytes});
  }
};

}  // namespace braid::attention
