#include <cstdio>

#include "cuda/source.h"

#include "cuda/prelude.h"

namespace braid::cuda {
namespace {

// A block makes one 16 × 16 tile of c, walking along k in steps of 16. Past the edges the tiles hold zeros.
// Which index of an operand runs fastest across threads depends on its layout, so that its reads stay side
// by side.
constexpr const char* kBody = R"cuda(
FN float gelu(float x) {
  return x * 0.5f * (tanhf((x + x * x * x * 0.044715f) * 0.7978845608028654f) + 1.0f);
}
extern "C" __global__ void __launch_bounds__(256)
braid_matmul(const A* a, const B* b, PARAMETERS C* c, Index count) {
  __shared__ float left[16][17], right[16][17];
  const Index tilesN = (N + 15) / 16, tilesM = (M + 15) / 16;
  const Index tile = blockIdx.x, layer = tile / (tilesM * tilesN);
  const Index row0 = tile / tilesN % tilesM * 16, column0 = tile % tilesN * 16;
  const int x = threadIdx.x % 16, y = threadIdx.x / 16;
  a += layer * STRIDE_A;
  b += layer * STRIDE_B;
  c += layer * STRIDE_C;
  float sum = 0.0f;
  for (Index k0 = 0; k0 < K; k0 += 16) {
    if (TRANSPOSE_A) left[x][y] = row0 + x < M && k0 + y < K ? loadF(a[(k0 + y) * M + row0 + x]) : 0.0f;
    else left[y][x] = row0 + y < M && k0 + x < K ? loadF(a[(row0 + y) * K + k0 + x]) : 0.0f;
    if (TRANSPOSE_B) right[x][y] = column0 + y < N && k0 + x < K ? loadF(b[(column0 + y) * K + k0 + x]) : 0.0f;
    else right[y][x] = column0 + x < N && k0 + y < K ? loadF(b[(k0 + y) * N + column0 + x]) : 0.0f;
    __syncthreads();
    #pragma unroll
    for (int k = 0; k < 16; ++k) sum += left[y][k] * right[k][x];
    __syncthreads();
  }
  if (row0 + y >= M || column0 + x >= N) return;
  const Index at = (row0 + y) * N + column0 + x;
  sum *= SCALE;
  if (BIAS) sum += loadF(bias[column0 + x]);
  sum = RELU ? maxF(sum, 0.0f) : GELU ? gelu(sum) : sum;
  if (RESIDUAL) sum += loadF(residual[layer * STRIDE_C + at]);
  store(sum, c[at]);
}
)cuda";

}  // namespace

void matmulSource(const KernelSpec& spec, KernelSource* source) {
  std::string text = kPrelude;
  text += "typedef long long Index;\n";
  text += "typedef " + std::string(cudaTypeName(spec.a.dtype)) + " A;\n";
  text += "typedef " + std::string(cudaTypeName(spec.b.dtype)) + " B;\n";
  text += "typedef " + std::string(cudaTypeName(spec.c.dtype)) + " C;\n";
  const auto constant = [&](const char* name, std::int64_t value) {
    text += "constexpr Index " + std::string(name) + " = " + std::to_string(value) + ";\n";
  };
  constant("M", spec.m);
  constant("N", spec.n);
  constant("K", spec.k);
  constant("STRIDE_A", spec.a.batchStride);
  constant("STRIDE_B", spec.b.batchStride);
  constant("STRIDE_C", spec.c.batchStride);
  text += "constexpr bool TRANSPOSE_A = " + std::string(spec.transposeA ? "true" : "false") + ";\n";
  text += "constexpr bool TRANSPOSE_B = " + std::string(spec.transposeB ? "true" : "false") + ";\n";
  const MatmulEpilogue& epilogue = spec.epilogue;
  const auto flag = [&](const char* name, bool value) {
    text += "constexpr bool " + std::string(name) + " = " + (value ? "true" : "false") + ";\n";
  };
  flag("BIAS", epilogue.bias), flag("RESIDUAL", epilogue.residual);
  flag("RELU", epilogue.activation == Activation::relu);
  flag("GELU", epilogue.activation == Activation::gelu);
  char scale[64];
  std::snprintf(scale, sizeof scale, "%af", static_cast<double>(static_cast<float>(epilogue.scale)));
  text += "constexpr float SCALE = " + std::string(scale) + ";\n";
  if (!epilogue.bias) text += "constexpr const C* bias = nullptr;\n";
  if (!epilogue.residual) text += "constexpr const C* residual = nullptr;\n";
  text += std::string("#define PARAMETERS ") + (epilogue.bias ? "const C* bias, " : "") +
          (epilogue.residual ? "const C* residual, " : "") + "\n";
  source->text = text + kBody;
  const std::int64_t tiles = (spec.m + 15) / 16 * ((spec.n + 15) / 16) * spec.batch;
  source->plain = {"braid_matmul", tiles * 256, 256, false};
  source->alignments.assign(3 + epilogue.reads(), 1);
  source->byteOffsets.assign(3 + epilogue.reads(), 0);
  source->count = tiles;
  source->wide = true;
}

}  // namespace braid::cuda
