#include "cuda/sources/source.h"

namespace braid::cuda {
namespace {

MapOp rowOpOf(ReduceHow how) {
  return how == ReduceHow::max    ? MapOp::rowMax
         : how == ReduceHow::min  ? MapOp::rowMin
         : how == ReduceHow::mean ? MapOp::rowMean
                                  : MapOp::rowSum;
}

// The reduction as a map of rows.
KernelSpec asMap(const KernelSpec& spec) {
  KernelSpec rows;
  rows.kind = KernelSpec::Kind::map;
  rows.shape = {spec.outer, spec.length};
  rows.computeInt = spec.input == DType::i32 || spec.input == DType::u8;
  rows.operands = {{spec.input, 0, {spec.length * spec.inner, spec.inner}}};
  // Rows of nothing have no last dimension to be read in packs.
  if (spec.inner > 1 || spec.length == 0) {
    rows.axis = 1;
    rows.shape.push_back(spec.inner);
    rows.operands[0].strides.push_back(1);
  }
  rows.code = {{MapOp::operand, 0}, {rowOpOf(spec.how), 0}};
  rows.results = {{1, spec.output, true}};
  return rows;
}

}  // namespace

void reduceSource(const KernelSpec& spec, int multiprocessors, KernelSource* source) {
  mapSource(asMap(spec), multiprocessors, source);
}

}  // namespace braid::cuda
