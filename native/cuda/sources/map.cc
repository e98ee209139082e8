#include "cuda/sources/source.h"

#include <algorithm>

#include "cuda/sources/map_code.h"
#include "cuda/sources/map_loops.h"
#include "cuda/sources/prelude.h"
#include "kernels/map_rows.h"

namespace braid::cuda {
namespace {

// Writes the two kernels of one map. `lanes` is 1 in the plain one; in the other each turn of the loop does
// that many elements.
class MapWriter {
 public:
  MapWriter(const KernelSpec& spec, const MapLoops& loops) : spec_(spec), loops_(loops), code_(spec) {}

  bool pairs() const { return code_.pairs(); }

  std::string kernel(const char* entry, int lanes) {
    lanes_ = lanes;
    std::string text = "extern \"C\" __global__ void __launch_bounds__(256) " + std::string(entry) + "(";
    for (std::size_t o = 0; o < spec_.operands.size(); ++o) {
      text += "const " + std::string(cudaTypeName(spec_.operands[o].dtype)) + "* p" + number(o) + ", ";
    }
    for (std::size_t r = 0; r < spec_.results.size(); ++r) {
      text += std::string(cudaTypeName(spec_.results[r].dtype)) + "* q" + number(r) + ", ";
    }
    text += "Index count) {\n  gridDependencySync();\n";
    for (const std::size_t o : inOrder())
      if (walkOf(loops_, o) == Walk::scalar)
        text += "  const auto s" + number(o) + " = " + read(o, "0", false) + ";\n";
    text += "  const Index step = (Index)gridDim.x * 256;\n";
    text += "  const Index first = (Index)blockIdx.x * 256 + threadIdx.x;\n";
    if (lanes == 1) {
      text += "  for (Index i = first; i < count; i += step) {\n" + turn("i", "    ") + "  }\n";
    } else {
      const std::string width = number(lanes);
      text += "  for (Index turn = first; turn < count / " + width + "; turn += step) {\n";
      text += "    const Index i = turn * " + width + ";\n" + turn("i", "    ") + "  }\n";
      if (loops_.shape.size() == 1 && loops_.count % lanes != 0) {
        lanes_ = 1;
        text += "  const Index i = count / " + width + " * " + width + " + first;\n";
        text += "  if (i < count) {\n" + turn("i", "    ") + "  }\n";
      }
    }
    return text + "}\n";
  }

 private:
  // The operands, those that are indexed after what they are indexed by.
  std::vector<std::size_t> inOrder() const {
    std::vector<std::size_t> order;
    for (const bool indexed : {false, true})
      for (std::size_t o = 0; o < spec_.operands.size(); ++o)
        if (spec_.operands[o].indexed.has_value() == indexed) order.push_back(o);
    return order;
  }

  // What operand o has at an offset: an element, or a pack of them; zeros where an index is outside of its
  // table.
  std::string read(std::size_t o, const std::string& at, bool packed) const {
    const std::string type = packed ? pack(spec_.operands[o].dtype) : cudaTypeName(spec_.operands[o].dtype);
    const auto from = [&](const std::string& place) {
      const std::string name = "p" + number(o);
      return packed ? "*(const " + type + "*)(" + name + " + " + place + ")" : name + "[" + place + "]";
    };
    const auto& index = spec_.operands[o].indexed;
    if (!index) return from(at);
    const std::string name = (walkOf(loops_, index->by) == Walk::scalar ? "s" : "l") + number(index->by);
    return insideText(*index, name) + " ? " + from(at + " + " + stepText(*index, name)) + " : " + type + "{}";
  }

  // Offsets of the strided operands at Index i, digit by digit from the last dimension.
  std::string offsets(const std::string& i, const std::string& indent) const {
    bool wanted = false;
    for (std::size_t o = 0; o < spec_.operands.size(); ++o)
      wanted = wanted || walkOf(loops_, o) == Walk::strided;
    if (!wanted) return "";
    std::string text;
    const std::size_t rank = loops_.shape.size();
    const auto walked = [&](std::size_t d) {
      bool any = false;
      for (std::size_t o = 0; o < spec_.operands.size(); ++o)
        any = any || (walkOf(loops_, o) == Walk::strided && loops_.strides[o][d] != 0);
      return any;
    };
    for (std::size_t d = rank; d-- > 0;) {
      const std::string rest = d + 1 == rank ? i : "r" + number(d + 1);
      const std::string size = number(loops_.shape[d]);
      if (walked(d))
        text += indent + "const Index x" + number(d) + " = " + rest + (d == 0 ? "" : " % " + size) + ";\n";
      if (d > 0) text += indent + "const Index r" + number(d) + " = " + rest + " / " + size + ";\n";
    }
    for (std::size_t o = 0; o < spec_.operands.size(); ++o) {
      if (walkOf(loops_, o) != Walk::strided) continue;
      std::string sum;
      for (std::size_t d = 0; d < rank; ++d) {
        const std::int64_t stride = loops_.strides[o][d];
        if (stride != 0) sum += (sum.empty() ? "" : " + ") + ("x" + number(d)) + " * " + number(stride);
      }
      text += indent + "const Index o" + number(o) + " = " + (sum.empty() ? "0" : sum) + ";\n";
    }
    return text;
  }

  // Everything is read before anything is written: a donated result lies where its operand does.
  std::string turn(const std::string& i, const std::string& indent) const {
    std::string text = offsets(i, indent);
    for (const std::size_t o : inOrder()) {
      const Walk walk = walkOf(loops_, o);
      if (walk == Walk::scalar) continue;
      const std::string at = walk == Walk::dense ? i : "o" + number(o);
      const bool packed = lanes_ > 1 && loops_.strides[o].back() == 1;
      text += indent + "const auto l" + number(o) + " = " + read(o, at, packed) + ";\n";
    }
    if (lanes_ == 1) return text + values(indent, "", i) + stores(indent, i);
    for (std::size_t r = 0; r < spec_.results.size(); ++r)
      text += indent + pack(spec_.results[r].dtype) + " m" + number(r) + ";\n";
    const std::string turns = number(code_.pairs() ? lanes_ / 2 : lanes_);
    text += indent + "#pragma unroll\n" + indent + "for (int j = 0; j < " + turns + "; ++j) {\n";
    text += code_.pairs() ? pairs(indent + "  ", i) : values(indent + "  ", ".v[j]", "(" + i + " + j)");
    for (std::size_t r = 0; r < spec_.results.size(); ++r) {
      const std::string value = "v" + number(spec_.results[r].value);
      const std::string to = "m" + number(r);
      text += indent + "  " +
              (code_.pairs() ? "storePair(" + value + ", " + to + ", j)"
                             : "store(" + value + ", " + to + ".v[j])") +
              ";\n";
    }
    text += indent + "}\n";
    for (std::size_t r = 0; r < spec_.results.size(); ++r) {
      text += indent + "*(" + pack(spec_.results[r].dtype) + "*)(q" + number(r) + " + " + i + ") = m" +
              number(r) + ";\n";
    }
    return text;
  }

  // The index along a dimension of the element at Index i.
  std::string index(std::size_t dimension, const std::string& i) const {
    std::int64_t inner = 1;
    for (std::size_t d = dimension + 1; d < spec_.shape.size(); ++d) inner *= spec_.shape[d];
    return std::string(spec_.computeInt ? "(int)" : "(float)") + "(" + i + " / " + number(inner) + " % " +
           number(spec_.shape[dimension]) + ")";
  }

  std::string values(const std::string& indent, const std::string& lane, const std::string& i) const {
    std::string text;
    for (std::size_t j = 0; j < spec_.code.size(); ++j) {
      const MapInstruction& instruction = spec_.code[j];
      std::string value;
      if (instruction.op == MapOp::index) {
        value = index(static_cast<std::size_t>(instruction.a), i);
      } else if (instruction.op == MapOp::operand) {
        const std::size_t o = static_cast<std::size_t>(instruction.a);
        const bool scalar = walkOf(loops_, o) == Walk::scalar;
        const bool packed = lanes_ > 1 && !scalar && loops_.strides[o].back() == 1;
        value = std::string(spec_.computeInt ? "loadI(" : "loadF(") + (scalar ? "s" : "l") +
                number(instruction.a) + (packed ? lane : "") + ")";
      } else {
        value = code_.element(j, valueName);
      }
      text +=
          indent + (spec_.computeInt ? "const int v" : "const float v") + number(j) + " = " + value + ";\n";
    }
    return text;
  }

  // Elements 2j and 2j + 1 of the packs that begin at Index i.
  std::string pairs(const std::string& indent, const std::string& i) const {
    std::string text;
    for (std::size_t j = 0; j < spec_.code.size(); ++j) {
      const MapInstruction& instruction = spec_.code[j];
      std::string type = code_.pairType(j), value;
      if (instruction.op == MapOp::index) {
        const auto dimension = static_cast<std::size_t>(instruction.a);
        value = type + "(" + index(dimension, "(" + i + " + 2 * j)") + ", " +
                index(dimension, "(" + i + " + 2 * j + 1)") + ")";
      } else if (instruction.op == MapOp::operand) {
        const auto o = static_cast<std::size_t>(instruction.a);
        const bool scalar = walkOf(loops_, o) == Walk::scalar;
        const bool packed = !scalar && loops_.strides[o].back() == 1;
        value = "pairOf(" + std::string(scalar ? "s" : "l") + number(instruction.a) + (packed ? ", j)" : ")");
      } else if (instruction.op == MapOp::constant) {
        type = "float";
        value = code_.element(j, valueName);
      } else {
        value = code_.pair(j, valueName);
      }
      text += indent + "const " + type + " v" + number(j) + " = " + value + ";\n";
    }
    return text;
  }

  static std::string valueName(std::int32_t value) { return "v" + number(value); }

  std::string stores(const std::string& indent, const std::string& i) const {
    std::string text;
    for (std::size_t r = 0; r < spec_.results.size(); ++r) {
      text += indent + "store(v" + number(spec_.results[r].value) + ", q" + number(r) + "[" + i + "]);\n";
    }
    return text;
  }

  std::string pack(DType type) const {
    return "Pack<" + std::string(cudaTypeName(type)) + ", " + number(lanes_) + ">";
  }

  const KernelSpec& spec_;
  const MapLoops& loops_;
  const MapCode code_;
  int lanes_ = 1;
};

}  // namespace

const char* cudaTypeName(DType type) {
  switch (type) {
    case DType::u8: return "u8";
    case DType::i32: return "int";
    case DType::f16: return "f16";
    case DType::bf16: return "bf16";
    case DType::f32: return "float";
  }
  return "";
}

void mapSource(const KernelSpec& spec, Multiprocessors multiprocessors, KernelSource* source) {
  if (hasRows(spec) && hasColumns(spec)) return columnSource(spec, multiprocessors.count, source);
  if (hasRows(spec)) return rowSource(spec, multiprocessors, source);
  const MapLoops loops = mapLoops(spec);
  MapWriter writer(spec, loops);
  source->text = std::string(kPrelude) + (writer.pairs() ? kPairs : "") + "typedef " +
                 (loops.wide ? "long long" : "int") + " Index;\n\n" + writer.kernel("braid_map", 1);
  source->plain = {"braid_map", loops.count, 256, true};
  if (loops.lanes > 1) {
    source->text += "\n" + writer.kernel("braid_map_vector", loops.lanes);
    source->vector = {"braid_map_vector", loops.count / loops.lanes, 256, true};
  }
  for (std::size_t o = 0; o < spec.operands.size(); ++o) {
    const MapOperand& operand = spec.operands[o];
    const std::size_t bytes = elementBytes(operand.dtype);
    source->byteOffsets.push_back(operand.offset * static_cast<std::int64_t>(bytes));
    const bool packed = loops.lanes > 1 && loops.strides[o].back() == 1;
    source->alignments.push_back(
        packed ? std::min<std::size_t>(16, bytes * static_cast<std::size_t>(loops.lanes)) : 1);
  }
  for (const MapResult& result : spec.results) {
    source->byteOffsets.push_back(0);
    source->alignments.push_back(
        std::min<std::size_t>(16, elementBytes(result.dtype) * static_cast<std::size_t>(loops.lanes)));
  }
  source->count = loops.count;
  source->wide = loops.wide;
}

}  // namespace braid::cuda
