#include "cuda/sources/prelude.h"
#include "cuda/sources/source.h"

namespace braid::cuda {
namespace {

// A thread the four words of one counter.
constexpr const char* kRandom = R"cuda(
extern "C" __global__ void __launch_bounds__(256)
braid_random(const void* any, const unsigned* turn, T* y, Index count) {
  gridDependencySync();
  const Index blocks = (count + 3) / 4;
  for (Index block = (Index)blockIdx.x * 256 + threadIdx.x; block < blocks; block += (Index)gridDim.x * 256) {
    unsigned c[4] = {(unsigned)block, (unsigned)((unsigned long long)block >> 32), *turn, STREAM};
    unsigned key0 = KEY0, key1 = KEY1;
    #pragma unroll
    for (int round = 0; round < 10; ++round) {
      const unsigned low0 = 0xd2511f53u * c[0], high0 = __umulhi(0xd2511f53u, c[0]);
      const unsigned low1 = 0xcd9e8d57u * c[2], high1 = __umulhi(0xcd9e8d57u, c[2]);
      c[0] = high1 ^ c[1] ^ key0, c[1] = low1, c[2] = high0 ^ c[3] ^ key1, c[3] = low0;
      key0 += 0x9e3779b9u, key1 += 0xbb67ae85u;
    }
    #pragma unroll
    for (int j = 0; j < 4; ++j)
      if (4 * block + j < count) store(NUMBER(c[j]), y[4 * block + j]);
  }
}
)cuda";

// As many bits as the type holds exactly, so that none rounds to 1.
const char* numberOf(DType type) {
  switch (type) {
    case DType::f16: return "((float)((w) >> 21) * 4.8828125e-4f)";
    case DType::bf16: return "((float)((w) >> 24) * 3.90625e-3f)";
    case DType::f32: return "((float)((w) >> 8) * 5.9604644775390625e-8f)";
    default: return "((int)(w))";
  }
}

}  // namespace

void randomSource(const KernelSpec& spec, KernelSource* source) {
  const auto word = [](std::uint64_t value) { return std::to_string(value & 0xffffffffu) + "u"; };
  std::string text = kPrelude;
  text += "typedef long long Index;\n";
  text += "typedef " + std::string(cudaTypeName(spec.output)) + " T;\n";
  text += "constexpr unsigned KEY0 = " + word(spec.seed) + ", KEY1 = " + word(spec.seed >> 32) +
          ", STREAM = " + word(spec.stream) + ";\n";
  text += std::string("#define NUMBER(w) ") + numberOf(spec.output) + "\n";
  source->text = text + kRandom;
  source->count = spec.count;
  source->plain = {"braid_random", (spec.count + 3) / 4, 256, true};
  source->alignments = {1, 1, 1};
  source->byteOffsets = {0, 0, 0};
  source->wide = true;
}

}  // namespace braid::cuda
