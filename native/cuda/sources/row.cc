#include <algorithm>
#include <utility>
#include <vector>

#include "cuda/sources/async_copy.h"
#include "cuda/sources/map_code.h"
#include "cuda/sources/prelude.h"
#include "cuda/sources/row_operands.h"
#include "cuda/sources/row_plan.h"
#include "cuda/sources/row_totals.h"
#include "cuda/sources/source.h"

// The kernels of a map with reductions along its rows: pass after pass over the packs of a thread, as RowPlan
// divides them.

namespace braid::cuda {
namespace {

// Packs that are read at once where a row does not stay in registers.
constexpr std::int64_t kBatch = 4;

constexpr const char* kRowHelpers = R"cuda(
// Division by a number of the row: by its inverse and one correction, where it is plain, so that no step can
// overflow.
struct Divisor { float by, inverse; bool plain; };
FN Divisor divisor(float by) {
  return {by, 1.0f / by, fabsf(by) > 7.8886091e-31f && fabsf(by) < 1.2676506e30f};
}
FN float over(float a, Divisor d) {
  const float first = a * d.inverse;
  const float better = fmaf(fmaf(-d.by, first, a), d.inverse, first);
  return fabsf(first) <= 3.4028234e38f ? better : first;
}
// Of a number that is 1 at most.
FN float part(float a, Divisor d) {
  const float first = a * d.inverse;
  return fmaf(fmaf(-d.by, first, a), d.inverse, first);
}
// The same, of a number whose error is larger than a step of f32.
FN float partNear(float a, Divisor d) { return a * d.inverse; }
)cuda";

class RowWriter {
 public:
  RowWriter(const RowPlan& plan, Division division)
      : plan_(plan),
        spec_(plan.spec),
        rows_(plan.rows),
        own_(std::move(division)),
        code_(plan.code),
        two_(own_.width > 1 && code_.pairs()),
        operands_(plan, own_),
        totals_(plan, own_, two_) {}

  RowWriter(const RowWriter&) = delete;  // its parts refer to its division

  bool pairs() const { return two_; }

  std::string kernel(const char* entry) {
    std::string text = "extern \"C\" __global__ void __launch_bounds__(" + number(own_.block) +
                       (own_.two ? ", 2" : "") + ") " + entry + "(" + operands_.parameters() +
                       "Index count) {\n  gridDependencySync();\n";
    text += "  const int lane = threadIdx.x % " + number(own_.group) + ";\n";
    text += "  const Index mine = (Index)blockIdx.x * " + number(own_.rowsOfBlock()) + " + threadIdx.x / " +
            number(own_.group) + ";\n";
    // Past the end a group repeats the last row: a warp must stay whole for its shuffles.
    text += isFull() ? "  const Index row = mine;\n"
                     : "  const bool live = mine < count;\n  const Index row = live ? mine : count - 1;\n";
    text += operands_.starts() + holders() + sharedPacks();
    for (int pass = 0; pass <= rows_.passes; ++pass) {
      text += rowValues(pass);
      if (pass < rows_.passes) text += passText(pass);
    }
    for (std::size_t r = 0; r < spec_.results.size(); ++r)
      if (spec_.results[r].row)
        text += "  if (" + std::string(isFull() ? "" : "live && ") + "lane == 0) store(" +
                value(spec_.results[r].value) + ", q" + number(r) + "[row]);\n";
    return text + "}\n";
  }

 private:
  const char* type() const { return spec_.computeInt ? "int" : "float"; }
  // Whether each group of threads has a row.
  bool isFull() const { return rows_.rows % own_.rowsOfBlock() == 0; }
  // Elements that a turn of the loop over a pack does, and such turns.
  std::int64_t each() const { return two_ ? 2 : 1; }
  std::int64_t turns() const { return own_.width / each(); }
  std::string typeOfValue(std::size_t j) const { return two_ ? code_.pairType(j) : type(); }
  std::string value(std::int32_t j) const {
    const auto at = static_cast<std::size_t>(j);
    const bool stays = !rows_.isRow[at] && inRegisters_ && own_.kept[at];
    return "v" + number(j) + (stays ? "[k * " + number(turns()) + " + j]" : "");
  }

  // Whether the operand of instruction j is read once, for several passes.
  bool isHeld(std::size_t j) const {
    return own_.held > 0 && !rows_.isRow[j] && spec_.code[j].op == MapOp::operand &&
           plan_.lastRead(own_, j) > plan_.firstPass(own_, j);
  }

  std::string holders() const {
    std::string text;
    for (std::size_t j = 0; j < spec_.code.size(); ++j) {
      if (isHeld(j))
        text += "  Raw<" + operands_.typeOf(static_cast<std::size_t>(spec_.code[j].a)) + ", " +
                number(own_.width) + "> h" + number(j) + "[" + number(own_.held) + "];\n";
      else if (own_.held > 0 && !rows_.isRow[j] && own_.kept[j] && plan_.firstPass(own_, j) < rows_.passes)
        text += "  " + typeOfValue(j) + " v" + number(j) + "[" + number(own_.held * turns()) + "];\n";
    }
    return text;
  }

  // Whether packs of the operand of instruction j lie in shared memory.
  bool isShared(std::size_t j) const { return (own_.shared > 0 || own_.copied) && plan_.sharedFrom(j) >= 0; }

  // Where each thread has its packs in shared memory.
  std::string sharedPacks() const {
    if (plan_.sharedBytes(own_) == 0) return "";
    std::string text = "  LAUNCHED_SHARED(rest);\n";
    std::int64_t from = 0;
    for (std::size_t j = 0; j < spec_.code.size(); ++j) {
      if (!isShared(j)) continue;
      const std::string pack = operands_.packOfOperand(static_cast<std::size_t>(spec_.code[j].a));
      text += "  " + pack + "* const r" + number(static_cast<std::int64_t>(j)) + " = (" + pack +
              "*)(rest + " + number(from) + ") + lane;\n";
      from += plan_.sharedBytesOf(own_, j) * own_.shared;
    }
    return text;
  }

  std::string sharedPack(std::size_t j) const {
    const std::string from = own_.copied ? "k" : "(k - " + number(own_.held) + ")";
    return "r" + number(static_cast<std::int64_t>(j)) + "[" + from + " * " + number(own_.group) + "]";
  }

  // Numbers a row that are known before a pass.
  std::string rowValues(int pass) {
    std::string text;
    for (std::size_t j = 0; j < spec_.code.size(); ++j) {
      const MapInstruction& instruction = spec_.code[j];
      if (!rows_.isRow[j] || !rows_.isRead[j] || rows_.depth[j] != pass) continue;
      if (isRowReduction(instruction.op)) continue;
      text += "  const " + std::string(type()) + " v" + number(j) + " = ";
      if (instruction.op == MapOp::operand)
        text +=
            std::string(spec_.computeInt ? "loadI(" : "loadF(") + operands_.rowElement(instruction.a) + ")";
      else if (instruction.op == MapOp::index)
        text += index(instruction.a, "row", 1);
      else
        text += code_.element(j, [](std::int32_t argument) { return "v" + number(argument); });
      text += ";\n";
    }
    for (std::size_t j = 0; j < spec_.code.size(); ++j)
      if (isDivisor(j) && rows_.depth[j] == pass)
        text += "  const Divisor d" + number(static_cast<std::int64_t>(j)) + " = divisor(v" +
                number(static_cast<std::int64_t>(j)) + ");\n";
    return text;
  }

  // A number a row by which elements are divided.
  bool isDivisor(std::size_t j) const {
    if (spec_.computeInt || !rows_.isRow[j] || !rows_.isRead[j]) return false;
    for (std::size_t i = j + 1; i < spec_.code.size(); ++i)
      if (spec_.code[i].op == MapOp::div && !rows_.isRow[i] && static_cast<std::size_t>(spec_.code[i].b) == j)
        return true;
    return false;
  }

  // The function that divides in instruction j, by a plain divisor.
  const char* quotient(std::size_t j) const {
    const auto of = static_cast<std::size_t>(spec_.code[j].a);
    if (!code_.isBelowOne(of)) return "over";
    return code_.isCoarse(of) ? "partNear" : "part";
  }

  // The index along a dimension; `from` counts elements, or rows.
  std::string index(std::int32_t dimension, const std::string& from, std::int64_t inner) const {
    const auto at = static_cast<std::size_t>(dimension);
    for (std::size_t d = at + 1; d + 1 < spec_.shape.size(); ++d) inner *= spec_.shape[d];
    return "(" + std::string(type()) + ")(" + from + " / " + number(inner) + " % " + number(spec_.shape[at]) +
           ")";
  }

  std::string passText(int pass) {
    std::vector<std::size_t> reductions;
    for (std::size_t j = 0; j < spec_.code.size(); ++j)
      if (rows_.endsPass(spec_, j, pass)) reductions.push_back(j);
    std::string text = totals_.started(reductions);
    inRegisters_ = true;
    if (own_.held > 0) text += loads(pass);
    const std::string plain = isPlain(pass);
    if (plain.empty()) return text + loops(pass, reductions) + totals_.joined(reductions);
    // One test a pass: in each division it would be as long as the division.
    text += "  if (" + plain + ") {\n" + loops(pass, reductions) + "  } else {\n";
    plain_ = false;
    text += loops(pass, reductions) + "  }\n";
    plain_ = true;
    return text + totals_.joined(reductions);
  }

  // The loops over the packs that stay in registers, over those in shared memory, and over the others.
  std::string loops(int pass, const std::vector<std::size_t>& reductions) {
    std::string text;
    inRegisters_ = true;
    if (own_.held > 0) text += loop(pass, 0, own_.held, reductions);
    inRegisters_ = false;
    const std::int64_t near = own_.held + own_.shared;
    inShared_ = true;
    if (own_.shared > 0) text += loop(pass, own_.held, near, reductions);
    inShared_ = false;
    if (near < own_.packs) text += loop(pass, near, own_.packs, reductions);
    return text;
  }

  // Whether all divisors of a pass are plain.
  std::string isPlain(int pass) const {
    std::vector<bool> divides(spec_.code.size(), false);
    const auto look = [&](const std::vector<bool>& computed) {
      for (std::size_t j = 0; j < spec_.code.size(); ++j)
        if (computed[j] && spec_.code[j].op == MapOp::div &&
            isDivisor(static_cast<std::size_t>(spec_.code[j].b)))
          divides[static_cast<std::size_t>(spec_.code[j].b)] = true;
    };
    if (own_.held > 0) look(own_.computed[static_cast<std::size_t>(pass)]);
    if (own_.held < own_.packs) look(rows_.computedIn(spec_, noneKept())[static_cast<std::size_t>(pass)]);
    std::string text;
    for (std::size_t j = 0; j < spec_.code.size(); ++j)
      if (divides[j])
        text += (text.empty() ? "d" : " && d") + number(static_cast<std::int64_t>(j)) + ".plain";
    return text;
  }

  // Whether a pack lies within the row; of packs in registers the compiler knows it of all but the last.
  std::string inside() const {
    if (rows_.length % (own_.group * own_.width) == 0) return "true";
    const std::string full =
        "(k + 1) * (Index)" + number(own_.group * own_.width) + " <= " + number(rows_.length);
    return (inRegisters_ ? full + " || " : "") + operands_.at() + " < " + number(rows_.length);
  }

  // All packs that stay and that this pass is the first to read: before anything is computed, so that all are
  // on their way at once.
  std::string loads(int pass) const {
    std::string text;
    for (std::size_t j = 0; j < spec_.code.size(); ++j) {
      const bool isWord = own_.kept[j] && typeOfValue(j) != "Pair<float>" && two_;
      if (isWord && plan_.firstPass(own_, j) < pass && own_.read[static_cast<std::size_t>(pass)][j])
        text += "  #pragma unroll\n  for (int i = 0; i < " + number(own_.held * turns()) + "; ++i) renew(v" +
                number(static_cast<std::int64_t>(j)) + "[i]);\n";
      if (!isHeld(j)) continue;
      const std::string name = "h" + number(static_cast<std::int64_t>(j)) + "[k]";
      const std::string head = "  #pragma unroll\n  for (int k = 0; k < " + number(own_.held) + "; ++k)";
      // Each thread copies what it will read itself, so none waits for another.
      if (plan_.firstPass(own_, j) == pass && own_.copied)
        text += head + "\n    if (" + inside() + ") copyAsync((u16*)&" + sharedPack(j) + ", (const u16*)(a" +
                number(spec_.code[j].a) + " + " + operands_.at() + "), true);\n" +
                "  commitCopies();\n  awaitCopies<0>();\n" + head + "\n    if (" + inside() + ") " + name +
                ".pack = " + sharedPack(j) + ";\n";
      else if (plan_.firstPass(own_, j) == pass)
        text += head + "\n    if (" + inside() + ") " + operands_.load(name + ".pack", spec_.code[j].a);
      else if (own_.read[static_cast<std::size_t>(pass)][j])
        text += head + " renew(" + name + ");\n";
    }
    return text;
  }

  std::string loop(int pass, std::int64_t from, std::int64_t to, const std::vector<std::size_t>& reductions) {
    const std::vector<bool>& own = own_.computed[static_cast<std::size_t>(pass)];
    const bool isLast = pass + 1 == rows_.passes;
    const std::vector<bool> computed =
        inRegisters_ ? own : rows_.computedIn(spec_, noneKept())[static_cast<std::size_t>(pass)];
    std::string text = inRegisters_ ? "  #pragma unroll\n  for (int k = " + number(from) + "; k < " +
                                          number(to) + "; ++k) {\n"
                                    : batch(pass, computed, from, to);
    text += "    if (!(" + inside() + ")) continue;\n";
    for (std::size_t j = 0; inShared_ && j < spec_.code.size(); ++j)
      if (isShared(j) && plan_.sharedFrom(j) == pass)
        text += "    " + sharedPack(j) + " = l" + number(static_cast<std::int64_t>(j)) + "[n];\n";
    for (std::size_t j = 0; inRegisters_ && j < spec_.code.size(); ++j) {
      if (!isLoaded(computed, j)) continue;
      const std::string name = "l" + number(static_cast<std::int64_t>(j));
      text += "    " + operands_.packOfOperand(static_cast<std::size_t>(spec_.code[j].a)) + " " + name +
              ";\n    " + operands_.load(name, spec_.code[j].a);
    }
    if (isLast)
      for (std::size_t r = 0; r < spec_.results.size(); ++r)
        if (!spec_.results[r].row)
          text += "    " + operands_.packOfResult(r) + " m" + number(static_cast<std::int64_t>(r)) + ";\n";
    text += "    #pragma unroll\n    for (int j = 0; j < " + number(turns()) + "; ++j) {\n";
    for (std::size_t j = 0; j < spec_.code.size(); ++j)
      if (computed[j]) text += "      " + element(j);
    for (std::size_t j : reductions) text += "      " + totals_.combined(j, value(spec_.code[j].a));
    if (isLast)
      for (std::size_t r = 0; r < spec_.results.size(); ++r)
        if (!spec_.results[r].row)
          text += std::string(two_ ? "      storePair(" : "      store(") + value(spec_.results[r].value) +
                  ", m" + number(static_cast<std::int64_t>(r)) + (two_ ? ", j);\n" : ".v[j]);\n");
    text += "    }\n";
    if (isLast)
      for (std::size_t r = 0; r < spec_.results.size(); ++r)
        if (!spec_.results[r].row)
          text += "    " + std::string(isFull() ? "" : "if (live) ") + "*(" + operands_.packOfResult(r) +
                  "*)(b" + number(static_cast<std::int64_t>(r)) + " + " + operands_.at() + ") = m" +
                  number(static_cast<std::int64_t>(r)) + ";\n";
    return text + (inRegisters_ ? "  }\n" : "  }\n  }\n");
  }

  // The head of a loop over packs that are not in registers: some are read at once, since a pack that is
  // written might lie, for all that the compiler knows, where the next one is read.
  std::string batch(int pass, const std::vector<bool>& computed, std::int64_t first, std::int64_t to) const {
    const std::string head = "    #pragma unroll\n    for (int n = 0; n < " + number(kBatch) +
                             "; ++n) {\n      const int k = from + n;\n";
    const std::string within = "k < " + number(to) + " && " + inside();
    std::string arrays, reads;
    for (std::size_t j = 0; j < spec_.code.size(); ++j) {
      if (!isLoaded(computed, j)) continue;
      const std::string name = "l" + number(static_cast<std::int64_t>(j));
      arrays += "    " + operands_.packOfOperand(static_cast<std::size_t>(spec_.code[j].a)) + " " + name +
                "[" + number(kBatch) + "];\n";
      const bool isThere = inShared_ && isShared(j) && plan_.sharedFrom(j) < pass;
      reads +=
          "      if (" + within + ") " +
          (isThere ? name + "[n] = " + sharedPack(j) + ";\n" : operands_.load(name + "[n]", spec_.code[j].a));
    }
    return "  for (int from = " + number(first) + "; from < " + number(to) + "; from += " + number(kBatch) +
           ") {\n" + arrays + head + reads + "    }\n" + head + "    if (k >= " + number(to) +
           ") continue;\n";
  }

  std::vector<bool> noneKept() const { return std::vector<bool>(spec_.code.size(), false); }
  // Whether a loop reads the operand of instruction j itself.
  bool isLoaded(const std::vector<bool>& computed, std::size_t j) const {
    return computed[j] && spec_.code[j].op == MapOp::operand && !(inRegisters_ && isHeld(j));
  }

  // An instruction for one element of a pack, or for two.
  std::string element(std::size_t j) const {
    const MapInstruction& instruction = spec_.code[j];
    const auto own = static_cast<std::int32_t>(j);
    const bool stays = inRegisters_ && own_.kept[j];
    std::string text = (stays ? "" : "const " + typeOfValue(j) + " ") + value(own) + " = ";
    const auto name = [&](std::int32_t argument) { return value(argument); };
    if (instruction.op == MapOp::operand) {
      const std::string pack = !inRegisters_ ? "l" + number(own) + "[n]"
                               : isHeld(j)   ? "h" + number(own) + "[k].pack"
                                             : "l" + number(own);
      text += two_ ? "pairOf(" + pack + ", j)"
                   : std::string(spec_.computeInt ? "loadI(" : "loadF(") + pack + ".v[j])";
    } else if (instruction.op == MapOp::index && two_) {
      text +=
          "Pair<float>((float)(" + operands_.at() + " + 2 * j), (float)(" + operands_.at() + " + 2 * j + 1))";
    } else if (instruction.op == MapOp::index) {
      text += "(" + std::string(type()) + ")(" + operands_.at() + " + j)";
    } else if (plain_ && instruction.op == MapOp::div && isDivisor(static_cast<std::size_t>(instruction.b))) {
      const std::string divisor = "d" + number(instruction.b), over = quotient(j);
      text += two_ ? "each([&](float a) { return " + over + "(a, " + divisor + "); }, " +
                         value(instruction.a) + ")"
                   : over + "(" + value(instruction.a) + ", " + divisor + ")";
    } else {
      text += two_ ? code_.pair(j, name) : code_.element(j, name);
    }
    return text + ";\n";
  }

  const RowPlan& plan_;
  const KernelSpec& spec_;
  const MapRows& rows_;
  const Division own_;
  const MapCode& code_;
  const bool two_;  // each turn does two elements
  const RowOperands operands_;
  const RowTotals totals_;
  bool plain_ = true;        // whether the loop that is written divides by plain divisors
  bool inRegisters_ = true;  // whether the loop that is written is over packs that stay in registers
  bool inShared_ = false;    // or over those in shared memory
};

KernelSource::Variant variantOf(const char* entry, const RowPlan& plan, const Division& division) {
  const std::int64_t blocks = (plan.rows.rows + division.rowsOfBlock() - 1) / division.rowsOfBlock();
  return {entry, blocks * division.block, static_cast<unsigned>(division.block), false,
          static_cast<unsigned>(plan.sharedBytes(division))};
}

}  // namespace

void rowSource(const KernelSpec& spec, Multiprocessors multiprocessors, KernelSource* source) {
  const RowPlan plan(spec, multiprocessors);
  const Division plain = plan.division(1);
  const Division packed = plan.division(plan.lanes);
  const bool pairs = plan.vector && RowWriter(plan, packed).pairs();
  source->text = std::string(kPrelude) + (pairs ? kPairs : "") + "typedef " +
                 (plan.loops.wide ? "long long" : "int") + " Index;\n" + kHeld + kRowHelpers +
                 (packed.copied ? kAsyncCopies : "") + "\n" + RowWriter(plan, plain).kernel("braid_rows");
  source->plain = variantOf("braid_rows", plan, plain);
  if (plan.vector) {
    source->text += "\n" + RowWriter(plan, packed).kernel("braid_rows_vector");
    source->vector = variantOf("braid_rows_vector", plan, packed);
  }
  const auto aligned = [&](DType type, bool row) {
    const std::size_t bytes = elementBytes(type) * static_cast<std::size_t>(plan.lanes);
    source->alignments.push_back(plan.vector && !row ? std::min<std::size_t>(16, bytes) : 1);
  };
  for (std::size_t o = 0; o < spec.operands.size(); ++o) {
    const auto bytes = static_cast<std::int64_t>(elementBytes(spec.operands[o].dtype));
    source->byteOffsets.push_back(spec.operands[o].offset * bytes);
    aligned(spec.operands[o].dtype, isRowOperand(spec, o));
  }
  for (const MapResult& result : spec.results) {
    source->byteOffsets.push_back(0);
    aligned(result.dtype, result.row);
  }
  source->count = plan.rows.rows;
  source->wide = plan.loops.wide;
}

}  // namespace braid::cuda
