#include "bindings/kernel_spec.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "bindings/convert.h"

namespace braid::bindings {
namespace {

constexpr std::int64_t most = std::int64_t{1} << 53;

// In the order of the enumerations.
constexpr std::array<std::string_view, 5> dtypes{"u8", "i32", "f16", "bf16", "f32"};
constexpr std::array<std::string_view, 5> attentionResults{"attended", "logSumExp", "byQueries", "byKeys",
                                                           "byValues"};
constexpr std::array<std::string_view, 6> reductions{"sum", "mean", "max", "min", "argmax", "argmin"};
constexpr std::array<std::string_view, 3> activations{"none", "relu", "gelu"};
constexpr std::array<std::string_view, 38> mapOps{
    "operand", "const", "index",   "select", "neg",    "abs",     "exp",    "log",   "sqrt", "rsqrt",
    "tanh",    "erf",   "sigmoid", "sin",    "cos",    "floor",   "ceil",   "round", "f16",  "bf16",
    "i32",     "u8",    "add",     "sub",    "mul",    "div",     "min",    "max",   "pow",  "floorDiv",
    "mod",     "lt",    "le",      "eq",     "rowSum", "rowMean", "rowMax", "rowMin"};
static_assert(static_cast<std::size_t>(MapOp::rowMin) + 1 == mapOps.size());

template <class Enum, std::size_t N>
Enum oneOf(Napi::Value value, const std::string& field, const std::array<std::string_view, N>& names) {
  const std::string name = textAt(value, field);
  for (std::size_t i = 0; i < N; ++i) {
    if (names[i] == name) return static_cast<Enum>(i);
  }
  std::string wanted;
  for (const std::string_view one : names) wanted += (wanted.empty() ? "" : ", ") + std::string(one);
  throw Napi::TypeError::New(value.Env(),
                             field + " must be one of " + wanted + ", not " + name.substr(0, 40));
}

DType dtype(Napi::Value value, const std::string& field) { return oneOf<DType>(value, field, dtypes); }

std::vector<std::int64_t> integers(Napi::Value value, const std::string& field, std::int64_t least) {
  const Napi::Array array = arrayAt(value, field);
  std::vector<std::int64_t> result;
  for (std::uint32_t i = 0; i < array.Length(); ++i)
    result.push_back(integerAt(array.Get(i), item(field, i), least, most));
  return result;
}

MapInstruction instruction(Napi::Value value, const std::string& field) {
  const Napi::Array array = arrayAt(value, field);
  MapInstruction result;
  result.op = oneOf<MapOp>(array.Get(0u), item(field, 0), mapOps);
  // An operand, a constant and an index are named by one number too.
  const auto arguments = static_cast<std::uint32_t>(std::max(1, arityOf(result.op)));
  if (array.Length() != arguments + 1)
    throw Napi::TypeError::New(value.Env(), field + " must have " + std::to_string(arguments) + " arguments");
  if (result.op == MapOp::constant) {
    result.constant = numberAt(array.Get(1u), item(field, 1));
    return result;
  }
  std::int32_t* const targets[] = {&result.a, &result.b, &result.c};
  for (std::uint32_t i = 0; i < arguments; ++i)
    *targets[i] = static_cast<std::int32_t>(integerAt(array.Get(i + 1), item(field, i + 1), 0, INT32_MAX));
  return result;
}

std::optional<MapIndex> index(Napi::Value value, const std::string& field) {
  if (absent(value)) return std::nullopt;
  const Napi::Object given = objectAt(value, field);
  return MapIndex{static_cast<std::size_t>(integerAt(given.Get("by"), field + ".by", 0, INT32_MAX)),
                  integerAt(given.Get("length"), field + ".length", 1, most),
                  integerAt(given.Get("step"), field + ".step", -most, most)};
}

void readMap(KernelSpec& spec, const Napi::Object& object, const std::string& field) {
  spec.shape = integers(object.Get("shape"), field + ".shape", 1);
  if (!absent(object.Get("axis")))
    spec.axis = static_cast<std::int32_t>(integerAt(object.Get("axis"), field + ".axis", 0, INT32_MAX));
  const std::string compute = textAt(object.Get("compute"), field + ".compute");
  if (compute != "f32" && compute != "i32")
    throw Napi::TypeError::New(object.Env(), field + ".compute must be f32 or i32");
  spec.computeInt = compute == "i32";
  const Napi::Array operands = arrayAt(object.Get("operands"), field + ".operands");
  for (std::uint32_t i = 0; i < operands.Length(); ++i) {
    const std::string where = item(field + ".operands", i);
    const Napi::Object operand = objectAt(operands.Get(i), where);
    spec.operands.push_back({dtype(operand.Get("dtype"), where + ".dtype"),
                             integerAt(operand.Get("offset"), where + ".offset", 0, most),
                             integers(operand.Get("strides"), where + ".strides", -most),
                             index(operand.Get("indexed"), where + ".indexed")});
  }
  const Napi::Array code = arrayAt(object.Get("code"), field + ".code");
  for (std::uint32_t i = 0; i < code.Length(); ++i)
    spec.code.push_back(instruction(code.Get(i), item(field + ".code", i)));
  const Napi::Array results = arrayAt(object.Get("results"), field + ".results");
  for (std::uint32_t i = 0; i < results.Length(); ++i) {
    const std::string where = item(field + ".results", i);
    const Napi::Object result = objectAt(results.Get(i), where);
    spec.results.push_back(
        {static_cast<std::int32_t>(integerAt(result.Get("value"), where + ".value", 0, INT32_MAX)),
         dtype(result.Get("dtype"), where + ".dtype"), flagOr(result.Get("row"), where + ".row", false)});
  }
}

MatmulOperand matmulOperand(Napi::Value value, const std::string& field) {
  const Napi::Object object = objectAt(value, field);
  const auto integerOr0 = [&](const char* key) {
    return absent(object.Get(key)) ? 0 : integerAt(object.Get(key), field + "." + key, 0, most);
  };
  return {dtype(object.Get("dtype"), field + ".dtype"),
          integerAt(object.Get("batchStride"), field + ".batchStride", 0, most), integerOr0("rowStride"),
          integerOr0("offset")};
}

void readMatmul(KernelSpec& spec, const Napi::Object& object, const std::string& field) {
  spec.m = integerAt(object.Get("m"), field + ".m", 1, most);
  spec.n = integerAt(object.Get("n"), field + ".n", 1, most);
  spec.k = integerAt(object.Get("k"), field + ".k", 1, most);
  spec.batch = integerAt(object.Get("batch"), field + ".batch", 1, most);
  spec.transposeA = flagOr(object.Get("transposeA"), field + ".transposeA", false);
  spec.transposeB = flagOr(object.Get("transposeB"), field + ".transposeB", false);
  spec.a = matmulOperand(object.Get("a"), field + ".a");
  spec.b = matmulOperand(object.Get("b"), field + ".b");
  spec.c = matmulOperand(object.Get("c"), field + ".c");
  spec.workspace = sizeAt(object.Get("workspace"), field + ".workspace");
  if (absent(object.Get("epilogue"))) return;
  const std::string where = field + ".epilogue";
  const Napi::Object given = objectAt(object.Get("epilogue"), where);
  MatmulEpilogue& made = spec.epilogue;
  if (!absent(given.Get("scale"))) made.scale = numberAt(given.Get("scale"), where + ".scale");
  made.bias = flagOr(given.Get("bias"), where + ".bias", false);
  made.residual = flagOr(given.Get("residual"), where + ".residual", false);
  made.auxiliary = flagOr(given.Get("auxiliary"), where + ".auxiliary", false);
  if (!absent(given.Get("activation")))
    made.activation = oneOf<Activation>(given.Get("activation"), where + ".activation", activations);
}

template <std::size_t N>
std::array<std::int64_t, N> strides(Napi::Value value, const std::string& field) {
  const std::vector<std::int64_t> given = integers(value, field, 0);
  if (given.size() != N)
    throw Napi::TypeError::New(value.Env(), field + " must have " + std::to_string(N) + " strides");
  std::array<std::int64_t, N> result{};
  for (std::size_t d = 0; d < N; ++d) result[d] = given[d];
  return result;
}

void readAttention(KernelSpec& spec, const Napi::Object& object, const std::string& field) {
  AttentionSpec& made = spec.attention;
  const auto size = [&](const char* key) { return integerAt(object.Get(key), field + "." + key, 1, most); };
  const auto operand = [&](const char* key) {
    const std::string where = field + "." + key;
    const Napi::Object given = objectAt(object.Get(key), where);
    return AttentionOperand{integerAt(given.Get("offset"), where + ".offset", 0, most),
                            strides<3>(given.Get("strides"), where + ".strides")};
  };
  spec.batch = size("batch");
  spec.input = dtype(object.Get("dtype"), field + ".dtype");
  made.heads = size("heads"), made.groups = size("groups");
  made.queries = size("queries"), made.keys = size("keys");
  made.size = size("size"), made.valueSize = size("valueSize");
  made.causal = flagOr(object.Get("causal"), field + ".causal", false);
  made.scale = numberAt(object.Get("scale"), field + ".scale");
  made.q = operand("q"), made.k = operand("k"), made.v = operand("v"), made.y = operand("y");
  if (!absent(object.Get("result")))
    made.result = oneOf<AttentionResult>(object.Get("result"), field + ".result", attentionResults);
  if (made.isGradient()) made.dy = operand("dy");
  made.logs = flagOr(object.Get("logs"), field + ".logs", false);
  made.withValues = !absent(object.Get("dv"));
  if (made.withValues) made.dv = operand("dv");
  made.masked = !absent(object.Get("mask"));
  if (made.masked) {
    const Napi::Object mask = objectAt(object.Get("mask"), field + ".mask");
    made.maskType = dtype(mask.Get("dtype"), field + ".mask.dtype");
    made.maskStrides = strides<4>(mask.Get("strides"), field + ".mask.strides");
  }
  made.counted = flagOr(object.Get("length"), field + ".length", false);
  if (!absent(object.Get("appended"))) made.appended = size("appended");
  if (!absent(object.Get("workspace")))
    spec.workspace = sizeAt(object.Get("workspace"), field + ".workspace");
}

void readConv(KernelSpec& spec, const Napi::Object& object, const std::string& field) {
  const auto size = [&](const char* key) { return integerAt(object.Get(key), field + "." + key, 1, most); };
  spec.batch = size("batch");
  spec.input = dtype(object.Get("dtype"), field + ".dtype");
  spec.conv.groups = size("groups"), spec.conv.channels = size("channels");
  spec.conv.filters = size("filters");
  const Napi::Array spatial = arrayAt(object.Get("spatial"), field + ".spatial");
  for (std::uint32_t d = 0; d < spatial.Length(); ++d) {
    const std::string where = item(field + ".spatial", d);
    const Napi::Object dim = objectAt(spatial.Get(d), where);
    const auto integer = [&](const char* key, std::int64_t least) {
      return integerAt(dim.Get(key), where + "." + key, least, most);
    };
    spec.conv.spatial.push_back({integer("input", 1), integer("kernel", 1), integer("stride", 1),
                                 integer("dilation", 1), integer("before", 0), integer("after", 0)});
  }
  spec.conv.channelsLast = flagOr(object.Get("channelsLast"), field + ".channelsLast", false);
  if (!absent(object.Get("workspace")))
    spec.workspace = sizeAt(object.Get("workspace"), field + ".workspace");
}

void readReduce(KernelSpec& spec, const Napi::Object& object, const std::string& field) {
  spec.how = oneOf<ReduceHow>(object.Get("how"), field + ".how", reductions);
  spec.outer = integerAt(object.Get("outer"), field + ".outer", 1, most);
  spec.length = integerAt(object.Get("length"), field + ".length", 1, most);
  spec.inner = integerAt(object.Get("inner"), field + ".inner", 1, most);
  spec.input = dtype(object.Get("input"), field + ".input");
  spec.output = dtype(object.Get("output"), field + ".output");
  if (!absent(object.Get("count"))) spec.count = integerAt(object.Get("count"), field + ".count", 1, most);
}

void readScan(KernelSpec& spec, const Napi::Object& object, const std::string& field) {
  spec.outer = integerAt(object.Get("outer"), field + ".outer", 1, most);
  spec.length = integerAt(object.Get("length"), field + ".length", 1, most);
  spec.inner = integerAt(object.Get("inner"), field + ".inner", 1, most);
  spec.input = dtype(object.Get("input"), field + ".input");
  spec.output = dtype(object.Get("output"), field + ".output");
}

void readJoin(KernelSpec& spec, const Napi::Object& object, const std::string& field) {
  spec.outer = integerAt(object.Get("outer"), field + ".outer", 1, most);
  spec.inner = integerAt(object.Get("inner"), field + ".inner", 1, most);
  spec.input = dtype(object.Get("dtype"), field + ".dtype");
  const Napi::Array pieces = arrayAt(object.Get("pieces"), field + ".pieces");
  for (std::uint32_t i = 0; i < pieces.Length(); ++i) {
    const std::string where = item(field + ".pieces", i);
    const Napi::Object piece = objectAt(pieces.Get(i), where);
    const Napi::Value fill = piece.Get("fill");
    spec.pieces.push_back({integerAt(piece.Get("length"), where + ".length", 1, most), !absent(fill),
                           absent(fill) ? 0 : numberAt(fill, where + ".fill")});
  }
}

void readRandom(KernelSpec& spec, const Napi::Object& object, const std::string& field) {
  spec.count = integerAt(object.Get("count"), field + ".count", 1, most);
  spec.seed = static_cast<std::uint64_t>(integerAt(object.Get("seed"), field + ".seed", 0, most));
  spec.stream = static_cast<std::uint32_t>(integerAt(object.Get("stream"), field + ".stream", 0, 255));
  spec.output = dtype(object.Get("dtype"), field + ".dtype");
}

void readGather(KernelSpec& spec, const Napi::Object& object, const std::string& field) {
  spec.outer = integerAt(object.Get("outer"), field + ".outer", 1, most);
  spec.length = integerAt(object.Get("length"), field + ".length", 1, most);
  spec.inner = integerAt(object.Get("inner"), field + ".inner", 1, most);
  spec.count = integerAt(object.Get("count"), field + ".count", 1, most);
  spec.input = dtype(object.Get("dtype"), field + ".dtype");
  spec.along = flagOr(object.Get("along"), field + ".along", false);
}

void readAppend(KernelSpec& spec, const Napi::Object& object, const std::string& field) {
  spec.outer = integerAt(object.Get("outer"), field + ".outer", 1, most);
  spec.length = integerAt(object.Get("length"), field + ".length", 1, most);
  spec.inner = integerAt(object.Get("inner"), field + ".inner", 1, most);
  spec.count = integerAt(object.Get("count"), field + ".count", 1, most);
  spec.input = dtype(object.Get("dtype"), field + ".dtype");
}

std::array<std::uint32_t, 3> extent(Napi::Value value, const std::string& field) {
  const Napi::Array array = arrayAt(value, field);
  if (array.Length() != 3) throw Napi::TypeError::New(value.Env(), field + " must have three sizes");
  std::array<std::uint32_t, 3> result{};
  for (std::uint32_t i = 0; i < 3; ++i)
    result[i] = static_cast<std::uint32_t>(integerAt(array.Get(i), item(field, i), 1, INT32_MAX));
  return result;
}

void readCuda(KernelSpec& spec, const Napi::Object& object, const std::string& field) {
  spec.name = textAt(object.Get("name"), field + ".name");
  spec.source = textAt(object.Get("source"), field + ".source");
  spec.grid = extent(object.Get("grid"), field + ".grid");
  spec.block = extent(object.Get("block"), field + ".block");
  spec.sharedBytes =
      static_cast<std::uint32_t>(integerAt(object.Get("sharedBytes"), field + ".sharedBytes", 0, INT32_MAX));
  const Napi::Array scalars = arrayAt(object.Get("scalars"), field + ".scalars");
  for (std::uint32_t i = 0; i < scalars.Length(); ++i) {
    const std::string where = item(field + ".scalars", i);
    const Napi::Object scalar = objectAt(scalars.Get(i), where);
    CudaScalar result;
    result.isFloat = scalar.Has("f32");
    if (result.isFloat)
      result.f32 = static_cast<float>(numberAt(scalar.Get("f32"), where + ".f32"));
    else
      result.i32 =
          static_cast<std::int32_t>(integerAt(scalar.Get("i32"), where + ".i32", INT32_MIN, INT32_MAX));
    spec.scalars.push_back(result);
  }
}

}  // namespace

KernelSpec kernelSpec(Napi::Value value, const std::string& field) {
  const Napi::Object object = objectAt(value, field);
  const std::string kind = textAt(object.Get("kind"), field + ".kind");
  KernelSpec spec;
  if (kind == "copy") {
    spec.kind = KernelSpec::Kind::copy;
    spec.bytes = sizeAt(object.Get("bytes"), field + ".bytes");
    if (object.Has("parts")) spec.parts = sizeAt(object.Get("parts"), field + ".parts");
  } else if (kind == "map") {
    spec.kind = KernelSpec::Kind::map;
    readMap(spec, object, field);
  } else if (kind == "matmul") {
    spec.kind = KernelSpec::Kind::matmul;
    readMatmul(spec, object, field);
  } else if (kind == "attention") {
    spec.kind = KernelSpec::Kind::attention;
    readAttention(spec, object, field);
  } else if (kind == "conv") {
    spec.kind = KernelSpec::Kind::conv;
    readConv(spec, object, field);
  } else if (kind == "reduce") {
    spec.kind = KernelSpec::Kind::reduce;
    readReduce(spec, object, field);
  } else if (kind == "scan") {
    spec.kind = KernelSpec::Kind::scan;
    readScan(spec, object, field);
  } else if (kind == "join") {
    spec.kind = KernelSpec::Kind::join;
    readJoin(spec, object, field);
  } else if (kind == "random") {
    spec.kind = KernelSpec::Kind::random;
    readRandom(spec, object, field);
  } else if (kind == "gather") {
    spec.kind = KernelSpec::Kind::gather;
    readGather(spec, object, field);
  } else if (kind == "scatterAdd") {
    spec.kind = KernelSpec::Kind::scatterAdd;
    readScan(spec, object, field);
    spec.count = integerAt(object.Get("count"), field + ".count", 1, most);
  } else if (kind == "append") {
    spec.kind = KernelSpec::Kind::append;
    readAppend(spec, object, field);
  } else if (kind == "cuda") {
    spec.kind = KernelSpec::Kind::cuda;
    readCuda(spec, object, field);
  } else {
    const std::string kinds =
        "copy, map, matmul, attention, conv, reduce, scan, gather, scatterAdd, append, join, random or cuda";
    throw Napi::TypeError::New(value.Env(), field + ".kind must be " + kinds + ", not " + kind.substr(0, 40));
  }
  return spec;
}

}  // namespace braid::bindings
