#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "driver/kernel_spec.h"

namespace braid::cuda {

// The generated text of one kernel and its launch. Pure data, made without a device. Every function takes its
// pointers (reads, then writes, without those that `operands` leaves out), then `count` in the index type.
struct KernelSource {
  struct Variant {
    const char* entry = "";
    // All threads of the kernel. The grid covers them, or strides over them where it would be too large.
    std::int64_t threads = 0;
    unsigned block = 256;
    bool strided = true;       // a grid smaller than `threads` still does all the work
    unsigned sharedBytes = 0;  // of a block, beside what the text declares
  };
  std::string text;
  Variant plain;
  // With 16-byte accesses, for pointers that are multiples of `alignments`. Its entry is "" where there is
  // none.
  Variant vector;
  std::vector<std::size_t> alignments;    // bytes, for each pointer; 1: any
  std::vector<std::int64_t> byteOffsets;  // added to each pointer before it is passed
  std::int64_t count = 0;
  bool wide = false;  // the index type is 64 bits
};

const char* cudaTypeName(DType type);  // as in the prelude

// What the source of a map depends on of a device.
struct Multiprocessors {
  // Implicit: shared memory and instructions as every device has them.
  Multiprocessors(int count, std::size_t sharedBytes = 48 << 10, int architecture = 0)
      : count(count), sharedBytes(sharedBytes), architecture(architecture) {}
  int count;
  std::size_t sharedBytes;  // that one block may have
  int architecture;         // the compute capability, 90 for 9.0
};

// One fused kernel: elementwise, or one of those below. These trust the spec, which checkKernel has checked.
void mapSource(const KernelSpec& spec, Multiprocessors multiprocessors, KernelSource* source);
// A map that reduces rows whose elements follow one another: a row is read once where it fits the registers
// of its threads and the shared memory.
void rowSource(const KernelSpec& spec, Multiprocessors multiprocessors, KernelSource* source);
// A map that reduces rows which lie side by side. The order of additions depends on the sizes and the device
// alone.
void columnSource(const KernelSpec& spec, int multiprocessors, KernelSource* source);
// softmax(q · kᵀ · scale) · v without the scores in memory, for a device of this compute capability (90
// for 9.0): on tensor cores, with the keys split over threads and blocks where queries are few, or by plain
// arithmetic.
void attentionSource(const KernelSpec& spec, int architecture, int multiprocessors, KernelSource* source);
// Whether the queries that share keys are so few that reading these takes the time.
bool isFewQueries(const KernelSpec& spec);
// A convolution, for a device of this compute capability: on tensor cores, by plain arithmetic, or an element
// a thread where a group has few filters. Sums in f32, in an order that depends on the sizes and the device
// alone.
void convSource(const KernelSpec& spec, int architecture, int multiprocessors, KernelSource* source);
// The positions of the largest or smallest elements along the middle of outer × length × inner, best first.
void chooseSource(const KernelSpec& spec, std::size_t sharedBytes, KernelSource* source);
// Sums of the elements up to each place along the middle of outer × length × inner. The order of additions
// depends on the sizes alone.
void scanSource(const KernelSpec& spec, KernelSource* source);
// Rows of a table by their indices, or elements by an index each; zeros for an index outside of it.
void gatherSource(const KernelSpec& spec, KernelSource* source);
// The sums of the rows of each index, from their places in the order of the indices. Sums in f64, in an order
// that depends on the indices and sizes alone.
void scatterAddSource(const KernelSpec& spec, int multiprocessors, KernelSource* source);
// Rows written at a position along the middle of outer × length × inner, in the memory of the first pointer,
// which the last one is too.
void appendSource(const KernelSpec& spec, KernelSource* source);
// Sources and numbers one after the other along the middle of outer × length × inner.
void joinSource(const KernelSpec& spec, KernelSource* source);
// Random numbers by Philox4x32-10; the second pointer is that of the counter.
void randomSource(const KernelSpec& spec, KernelSource* source);
// A tiled product: for the operand types that cuBLASLt does not multiply, for k = 0, and where there is no
// cuBLASLt. Sums in f32, in order of k.
void matmulSource(const KernelSpec& spec, KernelSource* source);
// A product of few rows, where a and b are aligned to 16 bytes; false where there is none of this shape. Sums
// in f32, in an order that depends on the sizes and the device alone.
bool fewRowsSource(const KernelSpec& spec, int architecture, int multiprocessors, KernelSource* source);

}  // namespace braid::cuda
