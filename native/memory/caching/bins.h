#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "memory/caching/block.h"

namespace braid::caching {

// Free blocks by size, found in constant time: 32 bins to each power of two of granules, and a bit for each
// bin that is not empty. Sizes are multiples of the granule.
class Bins {
 public:
  static constexpr std::uint64_t granule = 512;

  void add(Block* block) {
    const std::size_t bin = binOf(block->size);
    block->previous = nullptr;
    block->next = bins_[bin];
    if (block->next) block->next->previous = block;
    bins_[bin] = block;
    words_[bin / 64] |= std::uint64_t{1} << (bin % 64);
    summary_ |= std::uint32_t{1} << (bin / 64);
  }
  void remove(Block* block) {
    const std::size_t bin = binOf(block->size);
    if (block->next) block->next->previous = block->previous;
    if (block->previous) {
      block->previous->next = block->next;
      return;
    }
    bins_[bin] = block->next;
    if (block->next) return;
    words_[bin / 64] &= ~(std::uint64_t{1} << (bin % 64));
    if (words_[bin / 64] == 0) summary_ &= ~(std::uint32_t{1} << (bin / 64));
  }
  // The shortest block of at least `size`, lowest address first, among those of the first bin that has one
  // that `fits` accepts; bins longer than `most` are looked at in part. Null where there is none.
  template <class Fits>
  Block* find(std::uint64_t size, Fits fits) const {
    for (std::size_t bin = nextBin(binOf(size)); bin < count; bin = nextBin(bin + 1)) {
      Block* best = nullptr;
      int looked = 0;
      for (Block* block = bins_[bin]; block != nullptr && looked < most; block = block->next, ++looked) {
        if (block->size < size || !fits(*block)) continue;
        if (best == nullptr || block->size < best->size ||
            (block->size == best->size && block->address < best->address))
          best = block;
      }
      if (best) return best;
    }
    return nullptr;
  }
  template <class Visit>
  void each(Visit visit) const {
    for (std::size_t bin = nextBin(0); bin < count; bin = nextBin(bin + 1)) {
      for (Block *block = bins_[bin], *next; block != nullptr; block = next) {
        next = block->next;
        visit(*block);
      }
    }
  }
  bool empty() const { return summary_ == 0; }

 private:
  static constexpr std::size_t count = 1024;
  static constexpr int most = 64;
  static std::size_t binOf(std::uint64_t size) {
    const std::uint64_t granules = size / granule;
    if (granules < 64) return granules;
    const int power = std::bit_width(granules) - 1;  // 6 on
    const std::size_t bin = 64 + static_cast<std::size_t>(power - 6) * 32 + ((granules >> (power - 5)) & 31);
    return bin < count ? bin : count - 1;
  }
  std::size_t nextBin(std::size_t bin) const {
    if (bin >= count) return count;
    std::size_t word = bin / 64;
    const std::uint64_t rest = words_[word] & (~std::uint64_t{0} << (bin % 64));
    if (rest != 0) return word * 64 + static_cast<std::size_t>(std::countr_zero(rest));
    if (word + 1 >= words_.size()) return count;
    const std::uint32_t more = summary_ & (~std::uint32_t{0} << (word + 1));
    if (more == 0) return count;
    word = static_cast<std::size_t>(std::countr_zero(more));
    return word * 64 + static_cast<std::size_t>(std::countr_zero(words_[word]));
  }

  std::array<Block*, count> bins_{};
  std::array<std::uint64_t, count / 64> words_{};
  std::uint32_t summary_ = 0;
};

}  // namespace braid::caching
