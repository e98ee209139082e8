#include <algorithm>
#include <limits>

#include "cuda/cudnn/problem.h"
#include "cuda/sources/source.h"

namespace braid::cuda {
namespace cudnnAttention {
namespace {

constexpr std::int64_t kMostSize = 256;

// What the library's kernels read whole tiles of: rows of 16-byte accesses, and steps that go forward.
bool isTiled(const KernelSpec& spec) {
  const AttentionSpec& one = spec.attention;
  const auto fits = [&one, &spec](const AttentionOperand& operand, std::int64_t heads, std::int64_t rows) {
    const std::int64_t sizes[] = {spec.batch, heads, rows};
    for (std::size_t d = 0; d < 3; ++d)
      if (operand.strides[d] % 8 != 0 || (sizes[d] > 1 && operand.strides[d] <= 0)) return false;
    return operand.offset % 8 == 0;
  };
  return one.size % 8 == 0 && one.valueSize % 8 == 0 && std::max(one.size, one.valueSize) <= kMostSize &&
         fits(one.q, one.heads, one.queries) && fits(one.k, one.groups, one.keys) &&
         fits(one.v, one.groups, one.keys) && fits(one.y, one.heads, one.queries);
}

bool isFor(const KernelSpec& spec) {
  const AttentionSpec& one = spec.attention;
  return one.result == AttentionResult::attended && spec.input != DType::f32 && !one.masked && !one.counted &&
         one.appended == 0 && !isFewQueries(spec) && isTiled(spec) && one.scale > 1e-30 && one.scale < 1e30 &&
         // Where queries come before the first key they see none, which is NaN here and not there.
         (!one.causal || one.queries <= one.keys) && one.keys <= std::numeric_limits<std::int32_t>::max();
}

double flops(const KernelSpec& spec) {
  const AttentionSpec& one = spec.attention;
  const double queries = double(one.queries), keys = double(one.keys);
  const double seen = one.causal ? std::max(1.0, keys - queries / 2) : keys;
  return 2.0 * double(spec.batch) * double(one.heads) * queries * seen * double(one.size + one.valueSize);
}

// The library knows this shape of a graph as attention: a product, a scale, the mask by places, a softmax of
// five operations, the logarithms of its sums, and a product. Without the logarithms, also where nothing
// reads them, it has no engine for some graphs, and engines that write out of bounds for others.
bool describe(std::shared_ptr<CudnnSession> session, const KernelSpec& spec, CudnnProblem* problem) {
  const AttentionSpec& one = spec.attention;
  problem->graph = std::make_unique<CudnnGraph>(std::move(session));
  problem->type = spec.input;
  problem->reads = 3;
  problem->workspace = spec.workspace;
  CudnnGraph& graph = *problem->graph;
  using namespace cudnn;
  const int type = cudnnType(spec.input);
  const auto operand = [&](const AttentionOperand& place, std::int64_t heads, std::int64_t rows,
                           std::int64_t row, bool turned) {
    const std::size_t bytes = elementBytes(spec.input);
    const auto all = place.end(spec.batch, heads, rows, row);
    problem->offsets.push_back(static_cast<std::size_t>(place.offset) * bytes);
    problem->bytes.push_back(static_cast<std::size_t>(all - place.offset) * bytes);
    const auto& [batch, head, next] = place.strides;
    return turned ? graph.memory(type, {spec.batch, heads, row, rows}, {batch, head, 1, next})
                  : graph.memory(type, {spec.batch, heads, rows, row}, {batch, head, next, 1});
  };
  const CudnnGraph::Tensor q = operand(one.q, one.heads, one.queries, one.size, false);
  const CudnnGraph::Tensor k = operand(one.k, one.groups, one.keys, one.size, true);
  const CudnnGraph::Tensor v = operand(one.v, one.groups, one.keys, one.valueSize, false);
  const CudnnGraph::Tensor y = operand(one.y, one.heads, one.queries, one.valueSize, false);

  CudnnGraph::Tensor scores = graph.between(kF32, {spec.batch, one.heads, one.queries, one.keys});
  graph.matmul(q, k, scores);
  const CudnnGraph::Tensor scale = graph.number(static_cast<float>(one.scale));
  scores = graph.pointwise({.mode = kMultiply, .precision = kF32, .type = kF32, .a = scores, .b = scale});
  if (one.causal) {
    CudnnGraph::Tensor row =
        graph.pointwise({.mode = kIndex, .precision = kF32, .type = kI32, .a = scores, .axis = 2});
    const CudnnGraph::Tensor column =
        graph.pointwise({.mode = kIndex, .precision = kF32, .type = kI32, .a = scores, .axis = 3});
    if (one.queries != one.keys) {
      const CudnnGraph::Tensor keys = graph.number(static_cast<std::int32_t>(one.keys));
      row = graph.pointwise({.mode = kAdd, .precision = kI32, .type = kI32, .a = row, .b = keys});
      const CudnnGraph::Tensor queries = graph.number(static_cast<std::int32_t>(one.queries));
      row = graph.pointwise({.mode = kSubtract, .precision = kI32, .type = kI32, .a = row, .b = queries});
    }
    const CudnnGraph::Tensor seen = graph.pointwise(
        {.mode = kGreaterOrEqual, .precision = kBoolean, .type = kBoolean, .a = row, .b = column});
    const CudnnGraph::Tensor unseen = graph.number(-std::numeric_limits<float>::infinity());
    scores = graph.pointwise(
        {.mode = kSelect, .precision = kF32, .type = kF32, .a = scores, .b = unseen, .where = seen});
  }
  const CudnnGraph::Tensor most = graph.reduce(kLargest, scores);
  scores = graph.pointwise({.mode = kSubtract, .precision = kF32, .type = kF32, .a = scores, .b = most});
  const CudnnGraph::Tensor weights =
      graph.pointwise({.mode = kExp, .precision = kF32, .type = kF32, .a = scores});
  const CudnnGraph::Tensor sum = graph.reduce(kSum, weights);
  const CudnnGraph::Tensor logs = graph.pointwise({.mode = kLog, .precision = kF32, .type = kF32, .a = sum});
  CudnnGraph::Pointwise add{.mode = kAdd, .precision = kF32, .type = kF32, .a = most, .b = logs};
  if (one.logs) {
    problem->offsets.push_back(0);
    problem->bytes.push_back(static_cast<std::size_t>(spec.batch * one.heads * one.queries) * 4);
    add.into = graph.sums({spec.batch, one.heads, one.queries, 1});
  }
  graph.pointwise(add);
  // Operands of a product are of the type of its operands in memory.
  const CudnnGraph::Tensor shares =
      graph.pointwise({.mode = kDivide, .precision = kF32, .type = type, .a = weights, .b = sum});
  graph.matmul(shares, v, y);
  return graph.finish();
}

std::string key(const KernelSpec& spec) {
  const AttentionSpec& one = spec.attention;
  std::string key = "attention " + std::to_string(static_cast<int>(spec.input)) + " " +
                    std::to_string(one.causal ? 1 : 0) + (one.logs ? " logs" : "");
  for (const std::int64_t value :
       {spec.batch, one.heads, one.groups, one.queries, one.keys, one.size, one.valueSize})
    key += " " + std::to_string(value);
  for (const AttentionOperand* operand : {&one.q, &one.k, &one.v, &one.y}) {
    key += " " + std::to_string(operand->offset);
    for (const std::int64_t stride : operand->strides) key += " " + std::to_string(stride);
  }
  return key;
}

}  // namespace
}  // namespace cudnnAttention

// Each plan is compiled by the library, for half a second.
const CudnnKind kCudnnAttention{cudnnAttention::isFor, cudnnAttention::describe, cudnnAttention::flops,
                                cudnnAttention::key, 2};

}  // namespace braid::cuda
