#include <algorithm>
#include <limits>

#include "cuda/cudnn/problem.h"
#include "cuda/sources/source.h"

namespace braid::cuda {
namespace cudnnConv {
namespace {

struct Sizes {
  std::int64_t x, w, y;  // elements
};

Sizes sizesOf(const KernelSpec& spec) {
  const ConvSpec& one = spec.conv;
  return {spec.batch * one.groups * one.channels * one.inputs(),
          one.groups * one.filters * one.channels * one.taps(),
          spec.batch * one.groups * one.filters * one.outputs()};
}

// Places within an operand are numbers of 32 bits in some of the library's kernels.
bool isFor(const KernelSpec& spec) {
  const Sizes sizes = sizesOf(spec);
  return std::max({sizes.x, sizes.w, sizes.y}) <= std::numeric_limits<std::int32_t>::max();
}

double flops(const KernelSpec& spec) {
  return 2.0 * double(sizesOf(spec).y) * double(spec.conv.channels) * double(spec.conv.taps());
}

std::vector<std::int64_t> stridesOfChannelsLast(const CudnnGraph::Sizes& sizes) {
  std::vector<std::int64_t> strides(sizes.size(), 1);
  std::int64_t step = sizes[1];
  for (std::size_t d = sizes.size() - 1; d >= 2; --d) strides[d] = step, step *= sizes[d];
  strides[0] = step;
  return strides;
}

// The library has no convolution of one dimension: such a one has a second, of size 1, before it.
bool describe(std::shared_ptr<CudnnSession> session, const KernelSpec& spec, CudnnProblem* problem) {
  const ConvSpec& one = spec.conv;
  std::vector<ConvDim> spatial = one.spatial;
  if (spatial.size() == 1) spatial.insert(spatial.begin(), ConvDim{});
  problem->graph = std::make_unique<CudnnGraph>(std::move(session));
  problem->type = spec.input;
  problem->reads = 2;
  problem->workspace = spec.workspace;
  const Sizes sizes = sizesOf(spec);
  for (const std::int64_t count : {sizes.x, sizes.w, sizes.y}) {
    problem->offsets.push_back(0);
    problem->bytes.push_back(static_cast<std::size_t>(count) * elementBytes(spec.input));
  }
  CudnnGraph::Sizes x{spec.batch, one.groups * one.channels}, w{one.groups * one.filters, one.channels},
      y{spec.batch, one.groups * one.filters}, before, after, strides, dilations;
  for (const ConvDim& dim : spatial) {
    x.push_back(dim.input), w.push_back(dim.kernel), y.push_back(dim.output());
    before.push_back(dim.before), after.push_back(dim.after);
    strides.push_back(dim.stride), dilations.push_back(dim.dilation);
  }
  CudnnGraph& graph = *problem->graph;
  CudnnDescriptor convolution = graph.made(kCudnnConvolution);
  convolution.number(cudnn::kConvolutionDims, static_cast<std::int64_t>(spatial.size()))
      .chosen(cudnn::kConvolutionType, kCudnnOfDataType, cudnn::kF32)
      .chosen(cudnn::kConvolutionMode, kCudnnOfConvolutionMode, cudnn::kCrossCorrelation)
      .numbers(cudnn::kConvolutionBefore, before)
      .numbers(cudnn::kConvolutionAfter, after)
      .numbers(cudnn::kConvolutionStrides, strides)
      .numbers(cudnn::kConvolutionDilations, dilations)
      .finalize();
  const int type = cudnnType(spec.input);
  // The library names the channels second wherever they lie.
  const auto operand = [&](const CudnnGraph::Sizes& sizes) {
    return one.channelsLast ? graph.memory(type, sizes, stridesOfChannelsLast(sizes))
                            : graph.memory(type, sizes);
  };
  const CudnnGraph::Tensor from = operand(x), by = operand(w), to = operand(y);
  graph.convolution(std::move(convolution), from, by, to);
  return graph.finish();
}

std::string key(const KernelSpec& spec) {
  const ConvSpec& one = spec.conv;
  std::string key = one.channelsLast ? "conv last " : "conv ";
  key += std::to_string(static_cast<int>(spec.input));
  for (const std::int64_t value : {spec.batch, one.groups, one.channels, one.filters})
    key += " " + std::to_string(value);
  for (const ConvDim& dim : one.spatial)
    for (const std::int64_t value : {dim.input, dim.kernel, dim.stride, dim.dilation, dim.before, dim.after})
      key += " " + std::to_string(value);
  return key;
}

}  // namespace
}  // namespace cudnnConv

const CudnnKind kCudnnConv{cudnnConv::isFor, cudnnConv::describe, cudnnConv::flops, cudnnConv::key, 6};

}  // namespace braid::cuda
