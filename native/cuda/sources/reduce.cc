#include "cuda/sources/source.h"

#include "cuda/sources/map_code.h"

namespace braid::cuda {

std::string neutralText(ReduceHow how, bool whole) {
  switch (how) {
    case ReduceHow::sum:
    case ReduceHow::mean: return whole ? "0" : "0.0f";
    case ReduceHow::max: return whole ? "(-2147483647 - 1)" : "__uint_as_float(0xff800000u)";
    case ReduceHow::min: return whole ? "2147483647" : "__uint_as_float(0x7f800000u)";
    case ReduceHow::argmax:
    case ReduceHow::argmin: break;  // chooseSource
  }
  return "";
}

std::string combineText(ReduceHow how, bool whole) {
  switch (how) {
    case ReduceHow::sum:
    case ReduceHow::mean: return whole ? "addI(a, b)" : "a + b";
    case ReduceHow::max: return whole ? "maxI(a, b)" : "maxF(a, b)";
    case ReduceHow::min: return whole ? "minI(a, b)" : "minF(a, b)";
    case ReduceHow::argmax:
    case ReduceHow::argmin: break;
  }
  return "";
}

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
