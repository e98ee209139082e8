#include <algorithm>
#include <array>

#include "kernels/cpu.h"
#include "kernels/element.h"

namespace braid {
namespace {

using Words = std::array<std::uint32_t, 4>;

// Ten rounds of Philox4x32 (Salmon, Moraes, Dror and Shaw, SC 2011).
Words philox(Words counter, std::uint32_t key0, std::uint32_t key1) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xd2511f53u} * counter[0];
    const std::uint64_t b = std::uint64_t{0xcd9e8d57u} * counter[2];
    counter = {static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ key0, static_cast<std::uint32_t>(b),
               static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ key1, static_cast<std::uint32_t>(a)};
    key0 += 0x9e3779b9u;
    key1 += 0xbb67ae85u;
  }
  return counter;
}

class CpuRandom final : public CpuKernel {
 public:
  explicit CpuRandom(const KernelSpec& spec)
      : count_(spec.count), seed_(spec.seed), stream_(spec.stream), output_(spec.output) {
    readCount = 2;
    writeCount = 1;
    const auto size = static_cast<std::uint32_t>(elementBytes(output_));
    extents = {Extent{0, 1}, Extent{4, 4}, Extent{static_cast<std::uint64_t>(count_) * size, size}};
    movedBytes = static_cast<double>(extents[2].bytes);
  }

  bool run(const DeviceAddress* addresses, Scratch&, Part part) const override {
    const std::uint32_t turn = *reinterpret_cast<const std::uint32_t*>(addresses[1]);
    const PartRange blocks(part, (count_ + 3) / 4);
    for (std::int64_t block = blocks.first; block < blocks.last; ++block) {
      const auto at = static_cast<std::uint64_t>(block);
      const Words words =
          philox({static_cast<std::uint32_t>(at), static_cast<std::uint32_t>(at >> 32), turn, stream_},
                 static_cast<std::uint32_t>(seed_), static_cast<std::uint32_t>(seed_ >> 32));
      store(addresses[2], 4 * block, words, std::min<std::int64_t>(4, count_ - 4 * block));
    }
    return true;
  }

 private:
  void store(DeviceAddress to, std::int64_t start, const Words& words, std::int64_t count) const {
    std::int32_t whole[4];
    float real[4];
    for (std::size_t j = 0; j < 4; ++j) {
      whole[j] = static_cast<std::int32_t>(words[j]);
      // As many bits as the type holds exactly, so that none rounds to 1.
      real[j] = output_ == DType::f32   ? static_cast<float>(words[j] >> 8) * 0x1p-24f
                : output_ == DType::f16 ? static_cast<float>(words[j] >> 21) * 0x1p-11f
                                        : static_cast<float>(words[j] >> 24) * 0x1p-8f;
    }
    if (output_ == DType::i32)
      element::store(to, output_, start, whole, count);
    else
      element::store(to, output_, start, real, count);
  }

  std::int64_t count_;
  std::uint64_t seed_;
  std::uint32_t stream_;
  DType output_;
};

}  // namespace

CpuKernelResult makeCpuRandom(const KernelSpec& spec) { return std::make_unique<CpuRandom>(spec); }

}  // namespace braid
