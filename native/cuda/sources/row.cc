#include <algorithm>
#include <utility>
#include <vector>

#include "cuda/sources/map_code.h"
#include "cuda/sources/map_loops.h"
#include "cuda/sources/prelude.h"
#include "cuda/sources/source.h"
#include "kernels/map_rows.h"

// A map with reductions along its rows. A group of threads has a row: some lanes of a warp, or a block. Each
// thread takes every GROUP-th pack of WIDTH elements. The first HELD of its packs stay in registers from pass
// to pass; the others, of rows that are too long, are read again in each pass, mostly from the cache.

namespace braid::cuda {
namespace {

// The longest row that a warp has; of longer ones each has a block.
constexpr std::int64_t kWarpRow = 1024;
constexpr unsigned kWarpBlock = 128, kMostBlock = 512;
// Bytes of a longer row that a thread has. Fewer would leave fewer on their way at a time: what a thread has
// beside them takes as many registers of the multiprocessor, so there would be fewer rows.
constexpr std::int64_t kThreadBytes = 64;
// Registers of a thread that are not its part of the row, and those of a multiprocessor.
// Packs that are on their way at a time of operands that a later pass is the first to read.
constexpr std::int64_t kLatePacks = 4;
// Packs that are read at once where a row does not stay in registers.
constexpr std::int64_t kBatch = 4;
constexpr std::int64_t kOwnRegisters = 36, kRegisters = 65536, kMostRegisters = 255;
// Instructions of a kernel that are written out for each element in registers.
constexpr std::int64_t kMostUnrolled = 8192;

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
)cuda";

ReduceHow howOf(MapOp op) {
  return op == MapOp::rowMax    ? ReduceHow::max
         : op == MapOp::rowMin  ? ReduceHow::min
         : op == MapOp::rowMean ? ReduceHow::mean
                                : ReduceHow::sum;
}

bool isDear(MapOp op) {
  return (op >= MapOp::exp && op <= MapOp::cos) || op == MapOp::div || op == MapOp::pow;
}

// How a row is divided among threads, and what they keep.
struct Division {
  std::int64_t width = 1, group = 1, block = 1, packs = 1;  // packs: of each thread, at most
  std::int64_t held = 0;                                    // of these, how many stay in registers
  bool two = false;  // registers are few enough for two of the largest blocks on a multiprocessor
  std::vector<bool> kept;
  std::vector<std::vector<bool>> computed, read;  // by pass and value of each element
};

class RowPlan {
 public:
  explicit RowPlan(const KernelSpec& spec)
      : spec(spec), rows(spec), outer(outerOf(spec)), loops(mapLoops(spec)), code(spec, rows.isRow) {
    bool packed = false;
    vector = true;
    for (std::size_t o = 0; o < spec.operands.size(); ++o) {
      const MapOperand& operand = spec.operands[o];
      smallest = std::min(smallest, static_cast<std::int64_t>(elementBytes(operand.dtype)));
      if (isRowOperand(spec, o)) continue;
      packed = true;
      vector = vector && operand.strides.back() == 1;
      // A pack has one index.
      if (operand.indexed) vector = vector && isRowOperand(spec, operand.indexed->by);
    }
    for (const MapResult& result : spec.results) {
      smallest = std::min(smallest, static_cast<std::int64_t>(elementBytes(result.dtype)));
      packed = packed || !result.row;
    }
    lanes = smallest == 4 ? 4 : 8;
    vector = vector && packed && rows.length % lanes == 0;
    // Each row must start at a multiple of the access, since only the alignment of the first row is checked.
    for (std::size_t o = 0; o < spec.operands.size(); ++o) {
      if (isRowOperand(spec, o)) continue;
      for (std::size_t d = 0; vector && d < outer.shape.size(); ++d)
        vector = outer.strides[o][d] % lanes == 0;
      if (const auto& index = spec.operands[o].indexed) vector = vector && index->step % lanes == 0;
    }
  }

  Division division(std::int64_t width) const {
    Division made;
    made.width = width;
    const std::int64_t packs = (rows.length + width - 1) / width;
    if (rows.length <= kWarpRow) {
      made.block = kWarpBlock;
      made.group = std::clamp<std::int64_t>(powerOfTwoAtLeast((packs + 3) / 4),
                                            std::min<std::int64_t>(8, powerOfTwoAtLeast(packs)), 32);
    } else {
      made.block = made.group = std::clamp<std::int64_t>(
          powerOfTwoAtLeast((rows.length * smallest + kThreadBytes - 1) / kThreadBytes), kWarpBlock,
          kMostBlock);
    }
    made.packs = (packs + made.group - 1) / made.group;
    hold(&made);
    return made;
  }

  // Registers of a thread for each of its packs that stays: the most that lie between two passes.
  std::int64_t registersOf(const Division& made) const {
    std::int64_t most = 0;
    for (int pass = 0; pass + 1 < rows.passes; ++pass) most = std::max(most, registersAfter(made, pass));
    return most;
  }
  std::int64_t registersAfter(const Division& made, int pass) const {
    std::int64_t words = 0;
    for (std::size_t j = 0; j < spec.code.size(); ++j) {
      if (rows.isRow[j] || (spec.code[j].op != MapOp::operand && !made.kept[j])) continue;
      if (firstPass(made, j) <= pass && lastRead(made, j) > pass) words += wordsOf(made, j);
    }
    return words;
  }

  // Registers of a value that stays, for each pack.
  std::int64_t wordsOf(const Division& made, std::size_t j) const {
    const bool isOperand = spec.code[j].op == MapOp::operand;
    const DType type = isOperand        ? spec.operands[static_cast<std::size_t>(spec.code[j].a)].dtype
                       : made.width > 1 ? code.heldAs(j)
                                        : DType::f32;
    return std::max<std::int64_t>(1, made.width * static_cast<std::int64_t>(elementBytes(type)) / 4);
  }

  // Registers of a thread for each pack of the operands that a later pass is the first to read.
  std::int64_t lateOf(const Division& made) const {
    std::int64_t words = 0;
    for (std::size_t j = 0; j < spec.code.size(); ++j)
      if (spec.code[j].op == MapOp::operand && !rows.isRow[j] && firstPass(made, j) > 0 &&
          firstPass(made, j) < rows.passes)
        words += wordsOf(made, j);
    return words;
  }

  // The first pass that computes a value of each element, and the last one that reads it.
  int firstPass(const Division& made, std::size_t j) const {
    int pass = 0;
    while (pass < rows.passes && !made.computed[static_cast<std::size_t>(pass)][j]) ++pass;
    return pass;
  }
  int lastRead(const Division& made, std::size_t j) const {
    int pass = rows.passes - 1;
    while (pass >= 0 && !made.read[static_cast<std::size_t>(pass)][j]) --pass;
    return pass;
  }

  const KernelSpec& spec;
  const MapRows rows;
  const MapLoops outer, loops;  // of the rows, and of all elements
  const MapCode code;
  bool vector = false;
  int lanes = 1;
  std::int64_t smallest = 4;  // bytes of the narrowest element

 private:
  static MapLoops outerOf(const KernelSpec& spec) {
    KernelSpec rows = spec;
    rows.shape.pop_back();
    for (MapOperand& operand : rows.operands) operand.strides.pop_back();
    return mapLoops(rows);
  }

  void keep(Division* made, std::vector<bool> kept) const {
    const std::size_t count = spec.code.size();
    made->computed = rows.computedIn(spec, kept);
    made->kept = std::move(kept);
    made->read.assign(static_cast<std::size_t>(rows.passes), std::vector<bool>(count, false));
    for (int pass = 0; pass < rows.passes; ++pass) {
      const std::vector<bool>& own = made->computed[static_cast<std::size_t>(pass)];
      std::vector<bool>& read = made->read[static_cast<std::size_t>(pass)];
      for (std::size_t i = 0; i < count; ++i)
        if (own[i] || rows.endsPass(spec, i, pass))
          forArguments(spec.code[i], [&](std::size_t argument) { read[argument] = true; });
      if (pass + 1 == rows.passes)
        for (const MapResult& result : spec.results)
          if (!result.row) read[static_cast<std::size_t>(result.value)] = true;
    }
  }

  // Keeps values that take fewer registers than all that they are made of: of a norm whose scale and shift
  // are rows, its result.
  void keepLess(Division* made) const {
    const auto total = [&](const Division& division) {
      std::int64_t sum = 0;
      for (int pass = 0; pass + 1 < rows.passes; ++pass) sum += registersAfter(division, pass);
      return std::pair{registersOf(division), sum};
    };
    for (bool found = true; found;) {
      found = false;
      Division best = *made;
      for (std::size_t j = 0; j < spec.code.size(); ++j) {
        if (rows.isRow[j] || made->kept[j] || spec.code[j].op == MapOp::operand) continue;
        if (lastRead(*made, j) <= firstPass(*made, j)) continue;
        Division tried = *made;
        std::vector<bool> kept = made->kept;
        kept[j] = true;
        keep(&tried, std::move(kept));
        if (total(tried) < total(best)) best = std::move(tried), found = true;
      }
      *made = std::move(best);
    }
  }

  // Decides what stays in registers. What takes long to compute stays if the whole row still fits.
  void hold(Division* made) const {
    const std::size_t count = spec.code.size();
    const std::int64_t registers = std::min(kMostRegisters, kRegisters / made->block) - kOwnRegisters;
    std::vector<bool> dear(count, false);
    for (std::size_t j = 0; j < count; ++j) {
      if (rows.isRow[j]) continue;
      dear[j] = isDear(spec.code[j].op);
      forArguments(spec.code[j], [&](std::size_t argument) { dear[j] = dear[j] || dear[argument]; });
    }
    // Of these only what a later pass reads.
    keep(made, dear);
    for (std::size_t j = 0; j < count; ++j) dear[j] = dear[j] && lastRead(*made, j) > firstPass(*made, j);
    keep(made, dear);
    keepLess(made);
    const std::int64_t keeping = registersOf(*made);
    Division other = *made;
    keep(&other, std::vector<bool>(count, false));
    keepLess(&other);
    if (keeping * made->packs > registers && registersOf(other) < keeping) *made = std::move(other);
    const std::int64_t each = registersOf(*made);
    // Where not all stays, some packs of what comes later are on their way at a time.
    const std::int64_t whole = registers - (each * made->packs > registers ? kLatePacks * lateOf(*made) : 0);
    // Nothing stays where there is one pass.
    made->held = each == 0 ? 0
                           : std::min({made->packs, std::max<std::int64_t>(0, whole) / each,
                                       kMostUnrolled / (made->width * static_cast<std::int64_t>(count))});
    made->two =
        made->block == kMostBlock && each * made->packs <= kRegisters / kMostBlock / 2 - kOwnRegisters + 8;
  }
};

class RowWriter {
 public:
  RowWriter(const RowPlan& plan, Division division)
      : plan_(plan),
        spec_(plan.spec),
        rows_(plan.rows),
        own_(std::move(division)),
        code_(plan.code),
        two_(own_.width > 1 && code_.pairs()) {}

  bool pairs() const { return two_; }

  std::string kernel(const char* entry) {
    std::string text = "extern \"C\" __global__ void __launch_bounds__(" + number(own_.block) +
                       (own_.two ? ", 2" : "") + ") " + entry + "(" + parameters() +
                       "Index count) {\n  gridDependencySync();\n";
    const std::int64_t rowsOfBlock = own_.block / own_.group;
    text += "  const int lane = threadIdx.x % " + number(own_.group) + ";\n";
    text += "  const Index mine = (Index)blockIdx.x * " + number(rowsOfBlock) + " + threadIdx.x / " +
            number(own_.group) + ";\n";
    // Past the end a group repeats the last row: a warp must stay whole for its shuffles.
    text += isFull() ? "  const Index row = mine;\n"
                     : "  const bool live = mine < count;\n  const Index row = live ? mine : count - 1;\n";
    text += starts() + holders();
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
  bool isFull() const { return rows_.rows % (own_.block / own_.group) == 0; }
  // Elements that a turn of the loop over a pack does, and such turns.
  std::int64_t each() const { return two_ ? 2 : 1; }
  std::int64_t turns() const { return own_.width / each(); }
  std::string typeOfValue(std::size_t j) const { return two_ ? code_.pairType(j) : type(); }
  std::string value(std::int32_t j) const {
    const auto at = static_cast<std::size_t>(j);
    const bool stays = !rows_.isRow[at] && inRegisters_ && own_.kept[at];
    return "v" + number(j) + (stays ? "[k * " + number(turns()) + " + j]" : "");
  }
  std::string typeOf(std::size_t o) const { return cudaTypeName(spec_.operands[o].dtype); }
  bool isBroadcast(std::size_t o) const {
    const auto& strides = plan_.outer.strides[o];
    return plan_.rows.rows > 1 &&
           std::all_of(strides.begin(), strides.end(), [](std::int64_t stride) { return stride == 0; });
  }

  std::string parameters() const {
    std::string text;
    // What is the same for all rows is written by none, so it may be read at any time.
    for (std::size_t o = 0; o < spec_.operands.size(); ++o)
      text += "const " + typeOf(o) + "* " + (isBroadcast(o) ? "__restrict__ " : "") + "p" + number(o) + ", ";
    for (std::size_t r = 0; r < spec_.results.size(); ++r)
      text += std::string(cudaTypeName(spec_.results[r].dtype)) + "* q" + number(r) + ", ";
    return text;
  }

  // Where the row starts in each operand and result.
  std::string starts() const {
    std::string text;
    const auto& shape = plan_.outer.shape;
    for (std::size_t d = shape.size(); d-- > 0;) {
      const std::string rest = d + 1 == shape.size() ? "row" : "r" + number(d + 1);
      const auto used = [&](std::size_t o) { return plan_.outer.strides[o][d] != 0; };
      bool any = false;
      for (std::size_t o = 0; o < spec_.operands.size(); ++o) any = any || used(o);
      if (any)
        text +=
            "  const Index x" + number(d) + " = " + rest + (d == 0 ? "" : " % " + number(shape[d])) + ";\n";
      if (d > 0) text += "  const Index r" + number(d) + " = " + rest + " / " + number(shape[d]) + ";\n";
    }
    for (const bool indexed : {false, true})
      for (std::size_t o = 0; o < spec_.operands.size(); ++o)
        if (spec_.operands[o].indexed.has_value() == indexed) text += startOf(o);
    for (std::size_t r = 0; r < spec_.results.size(); ++r)
      if (!spec_.results[r].row)
        text += "  " + std::string(cudaTypeName(spec_.results[r].dtype)) + "* const b" + number(r) + " = q" +
                number(r) + " + row * " + number(rows_.length) + ";\n";
    return text;
  }

  std::string startOf(std::size_t o) const {
    std::string text;
    const std::string name = number(o);
    const auto& index = spec_.operands[o].indexed;
    if (isRowIndexed(o))
      text += "  const int n" + name + " = *a" + number(index->by) + ";\n  const bool w" + name + " = " +
              insideText(*index, "n" + name) + ";\n";
    text += "  const " + typeOf(o) + "* " + (isBroadcast(o) ? "__restrict__ " : "") + "const a" + name +
            " = p" + name;
    for (std::size_t d = 0; d < plan_.outer.shape.size(); ++d)
      if (plan_.outer.strides[o][d] != 0)
        text += " + x" + number(d) + " * " + number(plan_.outer.strides[o][d]);
    if (isRowIndexed(o)) text += " + (w" + name + " ? " + stepText(*index, "n" + name) + " : 0)";
    return text + ";\n";
  }

  // Whether an operand has one index for the row: then `w` says whether that is inside of the table.
  bool isRowIndexed(std::size_t o) const {
    const auto& index = spec_.operands[o].indexed;
    return index && isRowOperand(spec_, index->by);
  }
  // What is read where the operand's index for the row is inside of its table, else zeros.
  std::string guarded(std::size_t o, const std::string& read, const std::string& type) const {
    return isRowIndexed(o) ? "w" + number(o) + " ? " + read + " : " + type + "{}" : read;
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
        text += "  Raw<" + typeOf(static_cast<std::size_t>(spec_.code[j].a)) + ", " + number(own_.width) +
                "> h" + number(j) + "[" + number(own_.held) + "];\n";
      else if (own_.held > 0 && !rows_.isRow[j] && own_.kept[j] && plan_.firstPass(own_, j) < rows_.passes)
        text += "  " + typeOfValue(j) + " v" + number(j) + "[" + number(own_.held * turns()) + "];\n";
    }
    return text;
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
        text += std::string(spec_.computeInt ? "loadI(" : "loadF(") + rowElement(instruction.a) + ")";
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

  // The element of an operand that is the same along the row.
  std::string rowElement(std::int32_t operand) const {
    const auto o = static_cast<std::size_t>(operand);
    return guarded(o, "*a" + number(operand), typeOf(o));
  }

  // A number a row by which elements are divided.
  bool isDivisor(std::size_t j) const {
    if (spec_.computeInt || !rows_.isRow[j] || !rows_.isRead[j]) return false;
    for (std::size_t i = j + 1; i < spec_.code.size(); ++i)
      if (spec_.code[i].op == MapOp::div && !rows_.isRow[i] && static_cast<std::size_t>(spec_.code[i].b) == j)
        return true;
    return false;
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
    std::string text;
    for (std::size_t j : reductions)
      text += "  " + std::string(type()) + " t" + number(static_cast<std::int64_t>(j)) + " = " +
              neutralText(howOf(spec_.code[j].op), spec_.computeInt) + ";\n";
    inRegisters_ = true;
    if (own_.held > 0) text += loads(pass);
    const std::string plain = isPlain(pass);
    if (plain.empty()) return text + loops(pass, reductions) + joined(reductions);
    // One test a pass: in each division it would be as long as the division.
    text += "  if (" + plain + ") {\n" + loops(pass, reductions) + "  } else {\n";
    plain_ = false;
    text += loops(pass, reductions) + "  }\n";
    plain_ = true;
    return text + joined(reductions);
  }

  // The loops over the packs that stay, and over the others.
  std::string loops(int pass, const std::vector<std::size_t>& reductions) {
    std::string text;
    inRegisters_ = true;
    if (own_.held > 0) text += loop(pass, "int k = 0; k < " + number(own_.held), reductions);
    inRegisters_ = false;
    if (own_.held < own_.packs)
      text += loop(pass, "int from = " + number(own_.held) + "; from < " + number(own_.packs), reductions);
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

  std::string at() const { return "((Index)k * " + number(own_.group) + " + lane) * " + number(own_.width); }
  // Whether a pack lies within the row; of packs in registers the compiler knows it of all but the last.
  std::string inside() const {
    if (rows_.length % (own_.group * own_.width) == 0) return "true";
    const std::string full =
        "(k + 1) * (Index)" + number(own_.group * own_.width) + " <= " + number(rows_.length);
    return (inRegisters_ ? full + " || " : "") + at() + " < " + number(rows_.length);
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
      if (plan_.firstPass(own_, j) == pass)
        text += head + "\n    if (" + inside() + ") " + load(name + ".pack", spec_.code[j].a);
      else if (own_.read[static_cast<std::size_t>(pass)][j])
        text += head + " renew(" + name + ");\n";
    }
    return text;
  }

  // Reads a pack, or its elements one by one.
  std::string load(const std::string& to, std::int32_t operand) const {
    const auto o = static_cast<std::size_t>(operand);
    const std::string from = "a" + number(operand);
    if (own_.width > 1) {
      const std::string type = "Pack<" + typeOf(o) + ", " + number(own_.width) + ">";
      return to + " = " + guarded(o, "*(const " + type + "*)(" + from + " + " + at() + ")", type) + ";\n";
    }
    const auto& index = spec_.operands[o].indexed;
    if (!index || isRowIndexed(o))
      return to + ".v[0] = " + guarded(o, from + "[" + along(o) + "]", typeOf(o)) + ";\n";
    return "{ const int i = a" + number(index->by) + "[" + along(index->by) + "]; " + to +
           ".v[0] = " + insideText(*index, "i") + " ? " + from + "[" + along(o) + " + " +
           stepText(*index, "i") + "] : " + typeOf(o) + "{}; }\n";
  }
  // How far from its start on an element of the row lies in an operand.
  std::string along(std::size_t o) const {
    const std::int64_t stride = spec_.operands[o].strides.back();
    return stride == 1 ? at() : "(Index)(" + at() + ") * " + number(stride);
  }

  std::string loop(int pass, const std::string& range, const std::vector<std::size_t>& reductions) {
    const std::vector<bool>& own = own_.computed[static_cast<std::size_t>(pass)];
    const bool isLast = pass + 1 == rows_.passes;
    const std::vector<bool> computed =
        inRegisters_ ? own : rows_.computedIn(spec_, noneKept())[static_cast<std::size_t>(pass)];
    std::string text =
        inRegisters_ ? "  #pragma unroll\n  for (" + range + "; ++k) {\n" : batch(computed, range);
    text += "    if (!(" + inside() + ")) continue;\n";
    for (std::size_t j = 0; inRegisters_ && j < spec_.code.size(); ++j) {
      if (!isLoaded(computed, j)) continue;
      const std::string name = "l" + number(static_cast<std::int64_t>(j));
      text += "    " + packOfOperand(j) + " " + name + ";\n    " + load(name, spec_.code[j].a);
    }
    if (isLast)
      for (std::size_t r = 0; r < spec_.results.size(); ++r)
        if (!spec_.results[r].row)
          text += "    " + packOf(r) + " m" + number(static_cast<std::int64_t>(r)) + ";\n";
    text += "    #pragma unroll\n    for (int j = 0; j < " + number(turns()) + "; ++j) {\n";
    for (std::size_t j = 0; j < spec_.code.size(); ++j)
      if (computed[j]) text += "      " + element(j);
    for (std::size_t j : reductions) text += "      " + combined(j);
    if (isLast)
      for (std::size_t r = 0; r < spec_.results.size(); ++r)
        if (!spec_.results[r].row)
          text += std::string(two_ ? "      storePair(" : "      store(") + value(spec_.results[r].value) +
                  ", m" + number(static_cast<std::int64_t>(r)) + (two_ ? ", j);\n" : ".v[j]);\n");
    text += "    }\n";
    if (isLast)
      for (std::size_t r = 0; r < spec_.results.size(); ++r)
        if (!spec_.results[r].row)
          text += "    " + std::string(isFull() ? "" : "if (live) ") + "*(" + packOf(r) + "*)(b" +
                  number(static_cast<std::int64_t>(r)) + " + " + at() + ") = m" +
                  number(static_cast<std::int64_t>(r)) + ";\n";
    return text + (inRegisters_ ? "  }\n" : "  }\n  }\n");
  }

  // The head of a loop over packs that do not stay: some are read at once, since a pack that is written might
  // lie, for all that the compiler knows, where the next one is read.
  std::string batch(const std::vector<bool>& computed, const std::string& range) const {
    const std::string head = "    #pragma unroll\n    for (int n = 0; n < " + number(kBatch) +
                             "; ++n) {\n      const int k = from + n;\n";
    const std::string within = "k < " + number(own_.packs) + " && " + inside();
    std::string arrays, reads;
    for (std::size_t j = 0; j < spec_.code.size(); ++j) {
      if (!isLoaded(computed, j)) continue;
      const std::string name = "l" + number(static_cast<std::int64_t>(j));
      arrays += "    " + packOfOperand(j) + " " + name + "[" + number(kBatch) + "];\n";
      reads += "      if (" + within + ") " + load(name + "[n]", spec_.code[j].a);
    }
    return "  for (" + range + "; from += " + number(kBatch) + ") {\n" + arrays + head + reads + "    }\n" +
           head + "    if (k >= " + number(own_.packs) + ") continue;\n";
  }

  std::vector<bool> noneKept() const { return std::vector<bool>(spec_.code.size(), false); }
  // Whether a loop reads the operand of instruction j itself.
  bool isLoaded(const std::vector<bool>& computed, std::size_t j) const {
    return computed[j] && spec_.code[j].op == MapOp::operand && !(inRegisters_ && isHeld(j));
  }
  std::string packOfOperand(std::size_t j) const {
    return "Pack<" + typeOf(static_cast<std::size_t>(spec_.code[j].a)) + ", " + number(own_.width) + ">";
  }
  std::string packOf(std::size_t r) const {
    return "Pack<" + std::string(cudaTypeName(spec_.results[r].dtype)) + ", " + number(own_.width) + ">";
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
      text += "Pair<float>((float)(" + at() + " + 2 * j), (float)(" + at() + " + 2 * j + 1))";
    } else if (instruction.op == MapOp::index) {
      text += "(" + std::string(type()) + ")(" + at() + " + j)";
    } else if (plain_ && instruction.op == MapOp::div && isDivisor(static_cast<std::size_t>(instruction.b))) {
      const std::string divisor = "d" + number(instruction.b);
      text += two_ ? "each([&](float a) { return over(a, " + divisor + "); }, " + value(instruction.a) + ")"
                   : "over(" + value(instruction.a) + ", " + divisor + ")";
    } else {
      text += two_ ? code_.pair(j, name) : code_.element(j, name);
    }
    return text + ";\n";
  }

  std::string combined(std::size_t j) const {
    const std::string total = "t" + number(static_cast<std::int64_t>(j));
    const std::string of = value(spec_.code[j].a);
    if (!two_) return total + " = " + combine(j, total, of) + ";\n";
    return "{ const Pair<float> e = " + of + "; " + total + " = " + combine(j, total, "e.x") + "; " + total +
           " = " + combine(j, total, "e.y") + "; }\n";
  }
  std::string combine(std::size_t j, const std::string& a, const std::string& b) const {
    const std::string pattern = combineText(howOf(spec_.code[j].op), spec_.computeInt);
    std::string text;
    for (std::size_t i = 0; i < pattern.size(); ++i) {
      const bool alone =
          (i == 0 || !std::isalnum(static_cast<unsigned char>(pattern[i - 1]))) &&
          (i + 1 == pattern.size() || !std::isalnum(static_cast<unsigned char>(pattern[i + 1])));
      text += alone && pattern[i] == 'a' ? a : alone && pattern[i] == 'b' ? b : std::string(1, pattern[i]);
    }
    return text;
  }

  // The totals of all threads of a row, the same in each of them.
  std::string joined(const std::vector<std::size_t>& reductions) const {
    std::string text;
    const auto shuffles = [&](std::size_t j, std::int64_t lanes) {
      const std::string total = "t" + number(static_cast<std::int64_t>(j));
      std::string steps;
      for (std::int64_t step = lanes / 2; step > 0; step /= 2)
        steps += "  " + total + " = " +
                 combine(j, total, "__shfl_xor_sync(0xffffffffu, " + total + ", " + number(step) + ")") +
                 ";\n";
      return steps;
    };
    for (std::size_t j : reductions) text += shuffles(j, std::min<std::int64_t>(32, own_.group));
    if (own_.group > 32 && !reductions.empty()) {
      const std::string warps = number(own_.group / 32);
      for (std::size_t j : reductions) {
        const std::string name = number(static_cast<std::int64_t>(j));
        text += "  __shared__ " + std::string(type()) + " s" + name + "[" + warps +
                "];\n  if (lane % 32 == 0) s" + name + "[lane / 32] = t" + name + ";\n";
      }
      text += "  __syncthreads();\n";
      for (std::size_t j : reductions) {
        const std::string name = number(static_cast<std::int64_t>(j));
        text += "  t" + name + " = s" + name + "[lane % " + warps + "];\n" + shuffles(j, own_.group / 32);
      }
    }
    for (std::size_t j : reductions)
      text += "  const " + std::string(type()) + " v" + number(static_cast<std::int64_t>(j)) + " = " +
              finished(j) + ";\n";
    return text;
  }

  std::string finished(std::size_t j) const {
    const std::string total = "t" + number(static_cast<std::int64_t>(j));
    if (spec_.code[j].op != MapOp::rowMean) return total;
    const std::string length = number(rows_.length);
    if (spec_.computeInt) return "(int)(" + total + " / " + length + "LL)";
    // The quotient of two floats is rounded once; a length that is none is divided by in double.
    return rows_.length <= (1 << 24) ? total + " / " + length + ".0f"
                                     : "(float)((double)" + total + " / " + length + ".0)";
  }

  const RowPlan& plan_;
  const KernelSpec& spec_;
  const MapRows& rows_;
  const Division own_;
  const MapCode& code_;
  const bool two_;           // each turn does two elements
  bool plain_ = true;        // whether the loop that is written divides by plain divisors
  bool inRegisters_ = true;  // whether the loop that is written is over packs that stay
};

KernelSource::Variant variantOf(const char* entry, const Division& division, std::int64_t rows) {
  const std::int64_t rowsOfBlock = division.block / division.group;
  return {entry, (rows + rowsOfBlock - 1) / rowsOfBlock * division.block,
          static_cast<unsigned>(division.block), false};
}

}  // namespace

void rowSource(const KernelSpec& spec, KernelSource* source) {
  const RowPlan plan(spec);
  const Division plain = plan.division(1);
  const Division packed = plan.division(plan.lanes);
  const bool pairs = plan.vector && RowWriter(plan, packed).pairs();
  source->text = std::string(kPrelude) + (pairs ? kPairs : "") + "typedef " +
                 (plan.loops.wide ? "long long" : "int") + " Index;\n" + kHeld + kRowHelpers + "\n" +
                 RowWriter(plan, plain).kernel("braid_rows");
  source->plain = variantOf("braid_rows", plain, plan.rows.rows);
  if (plan.vector) {
    source->text += "\n" + RowWriter(plan, packed).kernel("braid_rows_vector");
    source->vector = variantOf("braid_rows_vector", packed, plan.rows.rows);
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
