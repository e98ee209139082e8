#include <algorithm>
#include <utility>
#include <vector>

#include "cuda/sources/map_code.h"
#include "cuda/sources/map_loops.h"
#include "cuda/sources/prelude.h"
#include "cuda/sources/source.h"
#include "kernels/map_rows.h"

// A map that reduces rows which lie side by side: columns. A block has `across` packs of `width` columns of
// one outer index, and its threads share them: each takes every `down`-th element of its columns. Where the
// columns fit the registers, what several passes read stays there; else each pass reads it again, some
// accesses at a time.

namespace braid::cuda {
namespace {

// Accesses of a thread that are on their way at a time.
constexpr std::int64_t kTogether = 4;
// Registers of a multiprocessor, those of a thread at most, and those that are neither accesses nor totals.
constexpr std::int64_t kRegisters = 65536, kMostRegisters = 255, kOwnRegisters = 32;
// Packs of a thread that stay in registers, at most.
constexpr std::int64_t kMostHeld = 32;
// The narrowest strip of columns, in packs: a line of the cache.
constexpr std::int64_t kLeastAcross = 8;

// The dimensions before the axis and those behind it, each merged where all operands allow it.
struct ColumnLoops {
  explicit ColumnLoops(const KernelSpec& spec) : rows(spec), all(mapLoops(spec)) {
    const std::size_t axis = rowAxis(spec);
    KernelSpec part = spec;
    const auto keep = [&](std::size_t from, std::size_t to) {
      const auto cut = [&](const std::vector<std::int64_t>& of) {
        return std::vector<std::int64_t>(of.begin() + static_cast<std::ptrdiff_t>(from),
                                         of.begin() + static_cast<std::ptrdiff_t>(to));
      };
      part.shape = cut(spec.shape);
      for (std::size_t o = 0; o < spec.operands.size(); ++o)
        part.operands[o].strides = cut(spec.operands[o].strides);
      return mapLoops(part);
    };
    outer = keep(0, axis);
    inner = keep(axis + 1, spec.shape.size());
    for (const MapOperand& operand : spec.operands) along.push_back(operand.strides[axis]);
  }

  const MapRows rows;
  MapLoops all, outer, inner;
  std::vector<std::int64_t> along;  // by operand: from one element of a row to the next
};

class ColumnWriter {
 public:
  ColumnWriter(const KernelSpec& spec, const ColumnLoops& loops, int multiprocessors)
      : spec_(spec),
        loops_(loops),
        rows_(loops.rows),
        code_(spec, loops.rows.isRow),
        computed_(rows_.computedIn(spec, std::vector<bool>(spec.code.size(), false))),
        multiprocessors_(multiprocessors) {}

  // Columns of an access of 16 bytes; 1 where some operand's do not lie so.
  std::int64_t lanes() const {
    std::int64_t narrowest = 4;
    for (const MapOperand& operand : spec_.operands)
      narrowest = std::min(narrowest, static_cast<std::int64_t>(elementBytes(operand.dtype)));
    for (const MapResult& result : spec_.results)
      if (!result.row) narrowest = std::min(narrowest, static_cast<std::int64_t>(elementBytes(result.dtype)));
    const std::int64_t lanes = narrowest == 4 ? 4 : 8;
    bool vector = loops_.inner.shape.back() % lanes == 0;
    for (std::size_t o = 0; o < spec_.operands.size(); ++o) {
      if (spec_.operands[o].indexed) return 1;
      const auto& inner = loops_.inner.strides[o];
      vector = vector && (inner.back() == 0 || inner.back() == 1);
      if (inner.back() == 0) continue;
      // Each line must start at a multiple of the access: only the alignment of the first one is checked.
      vector = vector && (isRowOperand(spec_, o) || loops_.along[o] % lanes == 0);
      for (std::size_t d = 0; d + 1 < inner.size(); ++d) vector = vector && inner[d] % lanes == 0;
      for (const std::int64_t stride : loops_.outer.strides[o]) vector = vector && stride % lanes == 0;
    }
    return vector ? lanes : 1;
  }

  // Whether operand o is read in packs, in a kernel of these.
  static bool isPacked(const ColumnLoops& loops, std::size_t o, std::int64_t width) {
    return width > 1 && loops.inner.strides[o].back() == 1;
  }

  KernelSource::Variant kernel(const char* entry, std::int64_t width, std::string* text) {
    width_ = width;
    divide();
    std::string own = "extern \"C\" __global__ void __launch_bounds__(" + number(block_) + ") " + entry + "(";
    for (std::size_t o = 0; o < spec_.operands.size(); ++o)
      own += "const " + typeOf(o) + "* p" + number(o) + ", ";
    for (std::size_t r = 0; r < spec_.results.size(); ++r)
      own += std::string(cudaTypeName(spec_.results[r].dtype)) + "* q" + number(r) + ", ";
    own += "Index count) {\n  gridDependencySync();\n" + places() + holders();
    for (int pass = 0; pass <= rows_.passes; ++pass) {
      own += rowValues(pass);
      if (pass < rows_.passes) own += passText(pass);
    }
    *text += own + rowResults() + "}\n";
    return {entry, blocks() * block_, static_cast<unsigned>(block_), false};
  }

 private:
  const char* type() const { return spec_.computeInt ? "int" : "float"; }
  std::string typeOf(std::size_t o) const { return cudaTypeName(spec_.operands[o].dtype); }
  static std::string eachColumn(const std::string& indent, std::int64_t width) {
    return indent + "#pragma unroll\n" + indent + "for (int j = 0; j < " + number(width) + "; ++j) ";
  }
  std::string value(std::int32_t j) const {
    return "v" + number(j) + (rows_.isRow[static_cast<std::size_t>(j)] ? "[j]" : "");
  }

  // How the columns are divided among blocks and threads.
  void divide() {
    across_ = std::min<std::int64_t>(32, powerOfTwoAtLeast((rows_.inner + width_ - 1) / width_));
    // Numbers a column of which elements are computed, and what is reduced.
    std::vector<bool> counts(spec_.code.size(), false);
    std::int64_t words = 0, stays = 0;
    for (std::size_t j = 0; j < spec_.code.size(); ++j) {
      counts[j] = counts[j] || (isRowReduction(spec_.code[j].op) && rows_.isRead[j]);
      if (rows_.isRow[j]) continue;
      forArguments(spec_.code[j], [&](std::size_t argument) {
        counts[argument] =
            counts[argument] || (rows_.isRow[argument] && spec_.code[argument].op != MapOp::constant);
      });
      if (spec_.code[j].op != MapOp::operand) continue;
      const auto o = static_cast<std::size_t>(spec_.code[j].a);
      const auto bytes = static_cast<std::int64_t>(elementBytes(spec_.operands[o].dtype));
      const std::int64_t own =
          isPacked(loops_, o, width_) ? std::max<std::int64_t>(1, width_ * bytes / 4) : 1;
      words += own;
      if (isReadAgain(j)) stays += own;
    }
    const std::int64_t totals = width_ * std::count(counts.begin(), counts.end(), true);
    held_ = 0;
    if (stays > 0) hold(stays, kOwnRegisters + totals);
    if (held_ == 0) {
      together_ = std::clamp<std::int64_t>(kTogether * 4 / std::max<std::int64_t>(1, words), 1, kTogether);
      const std::int64_t wanted = std::min(kMostRegisters, kOwnRegisters + together_ * words + totals);
      const bool isFew = rows_.length >= 64 && blocks() < std::int64_t{4} * multiprocessors_;
      block_ = isFew ? 1024 : rows_.length >= 8 ? 256 : 32;
      while (block_ > 256 && wanted > kRegisters / block_) block_ /= 2;
    }
  }
  std::int64_t strips() const { return (rows_.inner + across_ * width_ - 1) / (across_ * width_); }
  std::int64_t blocks() const { return rows_.rows / rows_.inner * strips(); }

  // The smallest block, and its widest strip of columns, whose threads can keep all that they read.
  void hold(std::int64_t words, std::int64_t others) {
    const std::int64_t least = width_ > 1 ? std::min(across_, kLeastAcross) : across_;
    for (const std::int64_t block : {256, 512, 1024}) {
      const std::int64_t room = std::min<std::int64_t>(128, kRegisters / block) - others;
      for (std::int64_t across = across_; across >= least; across /= 2) {
        const std::int64_t down = block / across, packs = (rows_.length + down - 1) / down;
        if (packs > kMostHeld || packs * words > room) continue;
        block_ = block, across_ = across, held_ = packs;
        return;
      }
    }
  }

  // Whether several passes read the operand of instruction j.
  bool isReadAgain(std::size_t j) const {
    return std::count_if(computed_.begin(), computed_.end(), [&](const auto& own) { return own[j]; }) > 1;
  }
  bool isHeld(std::size_t j) const {
    return held_ > 0 && spec_.code[j].op == MapOp::operand && !rows_.isRow[j] && isReadAgain(j);
  }
  std::int64_t widthOf(std::size_t o) const { return isPacked(loops_, o, width_) ? width_ : 1; }

  // What stays in registers, read before anything is computed, so that all is on its way at once.
  std::string holders() const {
    std::string text, reads;
    for (std::size_t j = 0; j < spec_.code.size(); ++j) {
      if (!isHeld(j)) continue;
      const auto o = static_cast<std::size_t>(spec_.code[j].a);
      const std::string name = "h" + number(static_cast<std::int64_t>(j));
      text += "  Raw<" + typeOf(o) + ", " + number(widthOf(o)) + "> " + name + "[" + number(held_) + "];\n";
      reads += "    " + load(name + "[k].pack", o);
    }
    if (text.empty()) return text;
    return text + "  #pragma unroll\n  for (int k = 0; k < " + number(held_) + "; ++k) {\n" + line("k") +
           reads + "  }\n";
  }

  // The place of a thread's element `k` in its columns; those past the end are left out.
  std::string line(const std::string& k) const {
    return "    const Index l = down + " + k + " * " + number(block_ / across_) +
           ";\n    if (l >= " + number(rows_.length) + " || !live) continue;\n";
  }
  std::string load(const std::string& to, std::size_t o) const {
    if (!isPacked(loops_, o, width_)) return to + ".v[0] = " + element(o, "l") + ";\n";
    return to + " = *(const " + packOf(o) + "*)(a" + number(o) + " + l * " + number(loops_.along[o]) + ");\n";
  }
  std::string packOf(std::size_t o) const { return "Pack<" + typeOf(o) + ", " + number(widthOf(o)) + ">"; }

  // Where the thread's first column and its first element are, and where its operands begin.
  std::string places() const {
    std::string text = "  __shared__ " + std::string(type()) + " partial[" + number(block_ * width_) + "];\n";
    text += "  const int across = threadIdx.x % " + number(across_) + ", down = threadIdx.x / " +
            number(across_) + ";\n  const Index outer = blockIdx.x / " + number(strips()) +
            ";\n  const Index column = ((Index)blockIdx.x % " + number(strips()) + " * " + number(across_) +
            " + across) * " + number(width_) + ";\n  const bool live = column < " + number(rows_.inner) +
            ";\n  const Index at = live ? column : 0;\n";
    text += digits("x", "outer", loops_.outer) + digits("y", "at", loops_.inner);
    for (std::size_t o = 0; o < spec_.operands.size(); ++o) {
      text += "  const " + typeOf(o) + "* const a" + number(o) + " = p" + number(o);
      text += offset("x", loops_.outer, o) + offset("y", loops_.inner, o) + ";\n";
    }
    return text;
  }
  static std::string digits(const std::string& name, const std::string& of, const MapLoops& loops) {
    std::string text;
    for (std::size_t d = loops.shape.size(); d-- > 0;) {
      const std::string rest = d + 1 == loops.shape.size() ? of : name + "r" + number(d + 1);
      if (std::any_of(loops.strides.begin(), loops.strides.end(),
                      [&](const auto& own) { return own[d] != 0; }))
        text += "  const Index " + name + number(d) + " = " + rest +
                (d == 0 ? "" : " % " + number(loops.shape[d])) + ";\n";
      if (d > 0)
        text +=
            "  const Index " + name + "r" + number(d) + " = " + rest + " / " + number(loops.shape[d]) + ";\n";
    }
    return text;
  }
  static std::string offset(const std::string& name, const MapLoops& loops, std::size_t o) {
    std::string text;
    for (std::size_t d = 0; d < loops.shape.size(); ++d)
      if (loops.strides[o][d] != 0) text += " + " + name + number(d) + " * " + number(loops.strides[o][d]);
    return text;
  }

  // An element of an operand; zero where an index is outside of its table.
  std::string element(std::size_t o, const std::string& l) const {
    const auto place = [&](std::size_t of) {
      return loops_.along[of] == 0 ? std::string("0") : l + " * " + number(loops_.along[of]);
    };
    const auto& index = spec_.operands[o].indexed;
    if (!index) return "a" + number(o) + "[" + place(o) + "]";
    const std::string by = "a" + number(index->by) + "[" + place(index->by) + "]";
    return "[&] { const int i = " + by + "; return " + insideText(*index, "i") + " ? a" + number(o) + "[" +
           place(o) + " + " + stepText(*index, "i") + "] : " + typeOf(o) + "{}; }()";
  }
  std::string loaded(const std::string& read) const {
    return std::string(spec_.computeInt ? "loadI(" : "loadF(") + read + ")";
  }
  // The index along a dimension, of element l of column j.
  std::string index(std::int32_t dimension) const {
    const auto at = static_cast<std::size_t>(dimension), axis = rowAxis(spec_);
    if (at == axis) return "(" + std::string(type()) + ")l";
    std::int64_t inner = 1;
    for (std::size_t d = at + 1; d < (at < axis ? axis : spec_.shape.size()); ++d) inner *= spec_.shape[d];
    return "(" + std::string(type()) + ")(" + (at < axis ? "outer" : "(at + j)") + " / " + number(inner) +
           " % " + number(spec_.shape[at]) + ")";
  }

  // Numbers a column that are known before a pass.
  std::string rowValues(int pass) const {
    std::string text;
    for (std::size_t j = 0; j < spec_.code.size(); ++j) {
      const MapInstruction& instruction = spec_.code[j];
      if (!rows_.isRow[j] || !rows_.isRead[j] || rows_.depth[j] != pass) continue;
      if (isRowReduction(instruction.op)) continue;
      const std::string name = "v" + number(static_cast<std::int64_t>(j));
      text += "  " + std::string(type()) + " " + name + "[" + number(width_) + "];\n";
      std::string made;
      if (instruction.op == MapOp::operand) {
        const auto o = static_cast<std::size_t>(instruction.a);
        made = loaded(isPacked(loops_, o, width_) ? "a" + number(instruction.a) + "[j]" : element(o, "0"));
      } else if (instruction.op == MapOp::index) {
        made = index(instruction.a);
      } else {
        made = code_.element(j, [&](std::int32_t argument) { return value(argument); });
      }
      text += eachColumn("  ", width_) + name + "[j] = " + made + ";\n";
    }
    return text;
  }

  std::string passText(int pass) const {
    const std::vector<bool>& own = computed_[static_cast<std::size_t>(pass)];
    std::vector<std::size_t> reductions;
    for (std::size_t j = 0; j < spec_.code.size(); ++j)
      if (rows_.endsPass(spec_, j, pass)) reductions.push_back(j);
    std::string text;
    for (const std::size_t j : reductions)
      text += "  " + std::string(type()) + " v" + number(static_cast<std::int64_t>(j)) + "[" +
              number(width_) + "];\n" + eachColumn("  ", width_) + value(static_cast<std::int32_t>(j)) +
              " = " + neutralText(spec_.code[j].op, spec_.computeInt) + ";\n";
    std::string arrays, reads;
    for (std::size_t j = 0; j < spec_.code.size(); ++j) {
      if (!own[j] || spec_.code[j].op != MapOp::operand || isHeld(j)) continue;
      const auto o = static_cast<std::size_t>(spec_.code[j].a);
      const std::string name = "l" + number(static_cast<std::int64_t>(j));
      arrays += "    " + packOf(o) + " " + name + "[" + number(held_ > 0 ? 1 : together_) + "];\n";
      reads += "    " + load(name + (held_ > 0 ? "[0]" : "[n]"), o);
    }
    if (held_ > 0) {
      for (std::size_t j = 0; pass > 0 && j < spec_.code.size(); ++j)
        if (isHeld(j) && own[j])
          text += "  #pragma unroll\n  for (int k = 0; k < " + number(held_) + "; ++k) renew(h" +
                  number(static_cast<std::int64_t>(j)) + "[k]);\n";
      text += "  #pragma unroll\n  for (int k = 0; k < " + number(held_) + "; ++k) {\n" + line("k") + arrays +
              reads + computed(own, reductions, pass) + "  }\n";
    } else {
      const std::string head = "    #pragma unroll\n    for (int n = 0; n < " + number(together_) +
                               "; ++n) {\n" + line("(from + n)");
      text += "  for (Index from = 0; from * " + number(block_ / across_) + " < " + number(rows_.length) +
              "; from += " + number(together_) + ") {\n" + arrays + head + reads + "    }\n" + head +
              computed(own, reductions, pass) + "    }\n  }\n";
    }
    return text + joined(reductions);
  }

  // What a pass computes of element `l` of the thread's columns.
  std::string computed(const std::vector<bool>& own, const std::vector<std::size_t>& reductions,
                       int pass) const {
    std::string text;
    const auto results = [&](auto write) {
      for (std::size_t r = 0; pass + 1 == rows_.passes && r < spec_.results.size(); ++r)
        if (!spec_.results[r].row) text += write(r, number(static_cast<std::int64_t>(r)));
    };
    const auto packOfResult = [&](std::size_t r) {
      return "Pack<" + std::string(cudaTypeName(spec_.results[r].dtype)) + ", " + number(width_) + ">";
    };
    results([&](std::size_t r, const std::string& name) {
      return "    " + packOfResult(r) + " m" + name + ";\n";
    });
    text += eachColumn("    ", width_) + "{\n";
    for (std::size_t j = 0; j < spec_.code.size(); ++j)
      if (own[j]) text += "      " + computed(j);
    for (const std::size_t j : reductions) {
      const std::string total = value(static_cast<std::int32_t>(j));
      text += "      " + total + " = " + combined(j, total, value(spec_.code[j].a)) + ";\n";
    }
    results([&](std::size_t r, const std::string& name) {
      return "      store(" + value(spec_.results[r].value) + ", m" + name + ".v[j]);\n";
    });
    text += "    }\n";
    results([&](std::size_t r, const std::string& name) {
      return "    *(" + packOfResult(r) + "*)(q" + name + " + (outer * " + number(rows_.length) + " + l) * " +
             number(rows_.inner) + " + column) = m" + name + ";\n";
    });
    return text;
  }

  // An instruction for one element.
  std::string computed(std::size_t j) const {
    const MapInstruction& instruction = spec_.code[j];
    std::string made;
    if (instruction.op == MapOp::operand) {
      const std::string name = number(static_cast<std::int64_t>(j));
      const std::string pack = isHeld(j)   ? "h" + name + "[k].pack"
                               : held_ > 0 ? "l" + name + "[0]"
                                           : "l" + name + "[n]";
      made = loaded(pack + (widthOf(static_cast<std::size_t>(instruction.a)) > 1 ? ".v[j]" : ".v[0]"));
    } else if (instruction.op == MapOp::index) {
      made = index(instruction.a);
    } else {
      made = code_.element(j, [&](std::int32_t argument) { return value(argument); });
    }
    return "const " + std::string(type()) + " " + value(static_cast<std::int32_t>(j)) + " = " + made + ";\n";
  }

  std::string combined(std::size_t j, const std::string& a, const std::string& b) const {
    return "[](" + std::string(type()) + " a, " + type() + " b) { return " +
           combineText(spec_.code[j].op, spec_.computeInt) + "; }(" + a + ", " + b + ")";
  }

  // The totals of all threads of a column, the same in each of them.
  std::string joined(const std::vector<std::size_t>& reductions) const {
    std::string text;
    for (const std::size_t j : reductions) {
      const std::string total = value(static_cast<std::int32_t>(j)), each = eachColumn("    ", width_);
      const std::string place = "partial[j * " + number(block_) + " + ", mine = place + "threadIdx.x";
      text += "  __syncthreads();\n" + eachColumn("  ", width_) + mine + "] = " + total +
              ";\n  __syncthreads();\n";
      for (std::int64_t half = block_ / across_ / 2; half > 0; half /= 2)
        text += "  if (down < " + number(half) + ") {\n" + each + mine +
                "] = " + combined(j, mine + "]", mine + " + " + number(half * across_) + "]") +
                ";\n  }\n  __syncthreads();\n";
      text += eachColumn("  ", width_) + total + " = ";
      const std::string found = place + "across]";
      text += (spec_.code[j].op == MapOp::rowMean ? mean(found) : found) + ";\n";
    }
    return text;
  }
  std::string mean(const std::string& total) const {
    const std::string length = number(rows_.length);
    if (rows_.length == 0) return spec_.computeInt ? "0" : "__uint_as_float(0x7fc00000u)";
    if (spec_.computeInt) return "(int)(" + total + " / " + length + "LL)";
    return "(float)((double)" + total + " / " + length + ".0)";
  }

  std::string rowResults() const {
    std::string text;
    for (std::size_t r = 0; r < spec_.results.size(); ++r)
      if (spec_.results[r].row)
        text += eachColumn("    ", width_) + "store(" + value(spec_.results[r].value) + ", q" + number(r) +
                "[outer * " + number(rows_.inner) + " + column + j]);\n";
    return text.empty() ? text : "  if (live && down == 0) {\n" + text + "  }\n";
  }

  const KernelSpec& spec_;
  const ColumnLoops& loops_;
  const MapRows& rows_;
  const MapCode code_;
  const std::vector<std::vector<bool>> computed_;  // by pass and value of each element
  const int multiprocessors_;
  std::int64_t width_ = 1, across_ = 1, block_ = 256;
  std::int64_t together_ = 1, held_ = 0;  // accesses at a time; packs of a thread that stay
};

}  // namespace

void columnSource(const KernelSpec& spec, int multiprocessors, KernelSource* source) {
  const ColumnLoops loops(spec);
  ColumnWriter writer(spec, loops, multiprocessors);
  source->text =
      std::string(kPrelude) + kHeld + "typedef " + (loops.all.wide ? "long long" : "int") + " Index;\n\n";
  source->plain = writer.kernel("braid_columns", 1, &source->text);
  const std::int64_t lanes = writer.lanes();
  if (lanes > 1) {
    source->text += "\n";
    source->vector = writer.kernel("braid_columns_vector", lanes, &source->text);
  }
  const auto aligned = [&](DType type, bool packed) {
    const std::size_t bytes = elementBytes(type) * static_cast<std::size_t>(lanes);
    source->alignments.push_back(packed ? std::min<std::size_t>(16, bytes) : 1);
  };
  for (std::size_t o = 0; o < spec.operands.size(); ++o) {
    const auto bytes = static_cast<std::int64_t>(elementBytes(spec.operands[o].dtype));
    source->byteOffsets.push_back(spec.operands[o].offset * bytes);
    aligned(spec.operands[o].dtype, ColumnWriter::isPacked(loops, o, lanes) && !isRowOperand(spec, o));
  }
  for (const MapResult& result : spec.results) {
    source->byteOffsets.push_back(0);
    aligned(result.dtype, lanes > 1 && !result.row);
  }
  source->count = loops.rows.rows;
  source->wide = loops.all.wide;
}

}  // namespace braid::cuda
