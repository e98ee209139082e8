#pragma once

#include <cstdint>
#include <vector>

#include "cuda/sources/map_code.h"
#include "cuda/sources/map_loops.h"
#include "cuda/sources/source.h"
#include "kernels/map_rows.h"

namespace braid::cuda {

// How a row is divided among threads, and what they keep.
struct Division {
  std::int64_t width = 1, group = 1, block = 1, packs = 1;  // packs: of each thread, at most
  std::int64_t held = 0;                                    // of these, how many stay in registers
  std::int64_t shared = 0;                                  // and how many of the next ones in shared memory
  bool copied = false;                                      // whether they come through shared memory
  bool two = false;  // registers are few enough for two of the largest blocks on a multiprocessor
  std::vector<bool> kept;
  std::vector<std::vector<bool>> computed, read;  // by pass and value of each element

  std::int64_t rowsOfBlock() const { return block / group; }
};

// A map with reductions along its rows, and how these are divided among threads. A group of threads has a
// row: some lanes of a warp, or a block. Each thread takes every GROUP-th pack of WIDTH elements. The first
// HELD of its packs stay in registers from pass to pass. Where a block has the row, the next SHARED ones stay
// in shared memory, as they were read; the others are read again in each pass, mostly from the cache. Packs
// that are COPIED come to the registers by way of shared memory, by copies that are not loads.
class RowPlan {
 public:
  RowPlan(const KernelSpec& spec, Multiprocessors multiprocessors);

  // With accesses of so many elements.
  Division division(std::int64_t width) const;

  // The first pass that computes a value of each element, and the last one that reads it.
  int firstPass(const Division& made, std::size_t j) const;
  int lastRead(const Division& made, std::size_t j) const;
  // Of an operand whose packs stay in shared memory, the first pass that reads it. Negative of other
  // instructions, and of what is the same for all rows, since the other rows leave it in the cache.
  int sharedFrom(std::size_t j) const;
  // Bytes of shared memory that one pack of every thread takes, and that all take.
  std::int64_t sharedBytesOf(const Division& made, std::size_t j) const;
  std::int64_t sharedBytes(const Division& made) const;

  const KernelSpec& spec;
  const MapRows rows;
  const MapLoops outer, loops;  // of the rows, and of all elements
  const MapCode code;
  bool vector = false;  // whether accesses of `lanes` elements are possible
  int lanes = 1;

 private:
  void keep(Division* made, std::vector<bool> kept) const;
  void keepLess(Division* made) const;
  void hold(Division* made) const;
  void share(Division* made) const;
  bool isCopied(const Division& made) const;
  std::int64_t registersOf(const Division& made) const;
  std::int64_t registersAfter(const Division& made, int pass) const;
  std::int64_t wordsOf(const Division& made, std::size_t j) const;
  std::int64_t lateOf(const Division& made) const;

  std::int64_t smallest_ = 4;  // bytes of the narrowest element
  Multiprocessors multiprocessors_;
};

}  // namespace braid::cuda
