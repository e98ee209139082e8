#include <algorithm>

#include "cuda/sources/prelude.h"
#include "cuda/sources/source.h"
#include "kernels/element.h"

namespace braid::cuda {
namespace {

std::string digits(std::int64_t value) { return std::to_string(value); }

// The stored bits of a number.
std::uint32_t bitsOf(double fill, DType type) {
  std::uint32_t bits = 0;
  const auto address = reinterpret_cast<DeviceAddress>(&bits);
  if (type == DType::i32 || type == DType::u8) {
    const std::int32_t value = element::toInt32(fill);
    element::store(address, type, 0, &value, 1);
  } else {
    const auto value = static_cast<float>(fill);
    element::store(address, type, 0, &value, 1);
  }
  return bits;
}

// A thread an access of `width` elements, which lie in one piece, since each piece's rows are multiples of
// them.
std::string entry(const KernelSpec& spec, const std::string& name, std::int64_t width) {
  std::string reads, body;
  std::int64_t row = 0;
  int source = 0;
  for (const JoinPiece& piece : spec.pieces) {
    const std::int64_t length = piece.length * spec.inner / width;
    const std::string inside =
        (row == 0 ? "    if (at < " : "    else if (at < ") + digits(row + length) + ") ";
    if (piece.filled) {
      body += inside + "value = filled<" + digits(width) + ">(" + digits(bitsOf(piece.fill, spec.input)) +
              "u);\n";
    } else {
      const std::string from = "x" + std::to_string(source++);
      reads += "const Pack<T, " + digits(width) + ">* " + from + ", ";
      body += inside + "value = " + from + "[row * " + digits(length) + " + at - " + digits(row) + "];\n";
    }
    row += length;
  }
  const std::string pack = "Pack<T, " + digits(width) + ">";
  return "extern \"C\" __global__ void __launch_bounds__(256) " + name + "(" + reads + pack +
         "* y, Index) {\n  gridDependencySync();\n  const Index all = " + digits(spec.outer * row) +
         ";\n  for (Index i = (Index)blockIdx.x * 256 + threadIdx.x; i < all; i += (Index)gridDim.x * 256) "
         "{\n"
         "    const Index row = i / " +
         digits(row) + ", at = i % " + digits(row) + ";\n    " + pack + " value = {};\n" + body +
         "    y[i] = value;\n  }\n}\n";
}

}  // namespace

void joinSource(const KernelSpec& spec, KernelSource* source) {
  const auto bytes = static_cast<std::int64_t>(elementBytes(spec.input));
  std::int64_t width = 16 / bytes, row = 0;
  std::size_t pointers = 1;
  for (const JoinPiece& piece : spec.pieces) {
    while (piece.length * spec.inner % width != 0) width /= 2;
    row += piece.length * spec.inner;
    pointers += piece.filled ? 0 : 1;
  }
  const char* const bits = bytes == 1 ? "u8" : bytes == 2 ? "u16" : "unsigned";
  std::string text = kPrelude;
  text += "typedef long long Index;\n";
  text += "typedef " + std::string(bits) + " T;\n";
  text +=
      "template <int N> FN Pack<T, N> filled(unsigned bits) {\n  Pack<T, N> pack;\n"
      "  for (int j = 0; j < N; ++j) pack.v[j] = (T)bits;\n  return pack;\n}\n";
  text += entry(spec, "braid_join", 1);
  if (width > 1) text += entry(spec, "braid_join_vector", width);
  source->text = text;
  source->count = spec.outer * row;
  source->plain = {"braid_join", source->count, 256, true};
  if (width > 1) source->vector = {"braid_join_vector", source->count / width, 256, true};
  source->alignments.assign(pointers, static_cast<std::size_t>(width * bytes));
  source->byteOffsets.assign(pointers, 0);
  source->wide = true;
}

}  // namespace braid::cuda
