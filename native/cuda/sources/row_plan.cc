#include "cuda/sources/row_plan.h"

#include <algorithm>
#include <utility>

namespace braid::cuda {
namespace {

// The longest row that a warp has; of longer ones each has a block.
constexpr std::int64_t kWarpRow = 1024;
constexpr unsigned kWarpBlock = 128, kMostBlock = 512;
// Bytes of a longer row that a thread has. Fewer would leave fewer on their way at a time: what a thread has
// beside them takes as many registers of the multiprocessor, so there would be fewer rows.
constexpr std::int64_t kThreadBytes = 64;
// Registers of a thread that are not its part of the row, and those of a multiprocessor and of a thread.
constexpr std::int64_t kOwnRegisters = 36, kRegisters = 65536, kMostRegisters = 255;
// Packs that are on their way at a time of operands that a later pass is the first to read.
constexpr std::int64_t kLatePacks = 4;
// Bytes of shared memory in which the threads of a block add up their totals, at most.
constexpr std::int64_t kTotals = 4096;
// Instructions of a kernel that are written out for each element in registers.
constexpr std::int64_t kMostUnrolled = 8192;

bool isDear(MapOp op) {
  return (op >= MapOp::exp && op <= MapOp::cos) || op == MapOp::div || op == MapOp::pow;
}

MapLoops outerOf(const KernelSpec& spec) {
  KernelSpec rows = spec;
  rows.shape.pop_back();
  for (MapOperand& operand : rows.operands) operand.strides.pop_back();
  return mapLoops(rows);
}

}  // namespace

RowPlan::RowPlan(const KernelSpec& spec, Multiprocessors multiprocessors)
    : spec(spec),
      rows(spec),
      outer(outerOf(spec)),
      loops(mapLoops(spec)),
      code(spec, rows.isRow),
      multiprocessors_(multiprocessors) {
  bool packed = false;
  vector = true;
  for (std::size_t o = 0; o < spec.operands.size(); ++o) {
    const MapOperand& operand = spec.operands[o];
    smallest_ = std::min(smallest_, static_cast<std::int64_t>(elementBytes(operand.dtype)));
    if (isRowOperand(spec, o)) continue;
    packed = true;
    vector = vector && operand.strides.back() == 1;
    // A pack has one index.
    if (operand.indexed) vector = vector && isRowOperand(spec, operand.indexed->by);
  }
  for (const MapResult& result : spec.results) {
    smallest_ = std::min(smallest_, static_cast<std::int64_t>(elementBytes(result.dtype)));
    packed = packed || !result.row;
  }
  lanes = smallest_ == 4 ? 4 : 8;
  vector = vector && packed && rows.length % lanes == 0;
  // Each row must start at a multiple of the access, since only the alignment of the first row is checked.
  for (std::size_t o = 0; o < spec.operands.size(); ++o) {
    if (isRowOperand(spec, o)) continue;
    for (std::size_t d = 0; vector && d < outer.shape.size(); ++d) vector = outer.strides[o][d] % lanes == 0;
    if (const auto& index = spec.operands[o].indexed) vector = vector && index->step % lanes == 0;
  }
}

Division RowPlan::division(std::int64_t width) const {
  Division made;
  made.width = width;
  const std::int64_t packs = (rows.length + width - 1) / width;
  if (rows.length <= kWarpRow) {
    made.block = kWarpBlock;
    made.group = std::clamp<std::int64_t>(powerOfTwoAtLeast((packs + 3) / 4),
                                          std::min<std::int64_t>(8, powerOfTwoAtLeast(packs)), 32);
  } else {
    made.block = made.group = std::clamp<std::int64_t>(
        powerOfTwoAtLeast((rows.length * smallest_ + kThreadBytes - 1) / kThreadBytes), kWarpBlock,
        kMostBlock);
  }
  made.packs = (packs + made.group - 1) / made.group;
  hold(&made);
  share(&made);
  made.copied = isCopied(made);
  return made;
}

int RowPlan::sharedFrom(std::size_t j) const {
  if (spec.code[j].op != MapOp::operand || rows.isRow[j]) return -1;
  const auto& strides = outer.strides[static_cast<std::size_t>(spec.code[j].a)];
  if (std::all_of(strides.begin(), strides.end(), [](std::int64_t stride) { return stride == 0; })) return -1;
  const auto computed = rows.computedIn(spec, std::vector<bool>(spec.code.size(), false));
  int first = -1, reads = 0;
  for (int pass = 0; pass < rows.passes; ++pass) {
    if (!computed[static_cast<std::size_t>(pass)][j]) continue;
    if (reads++ == 0) first = pass;
  }
  return reads > 1 ? first : -1;
}

std::int64_t RowPlan::sharedBytesOf(const Division& made, std::size_t j) const {
  const DType type = spec.operands[static_cast<std::size_t>(spec.code[j].a)].dtype;
  return made.group * made.width * static_cast<std::int64_t>(elementBytes(type));
}

// Each thread has packs of its own there, so none waits for another.
void RowPlan::share(Division* made) const {
  if (made->held == made->packs || made->group < made->block) return;
  made->shared = 1;
  const std::int64_t bytes = sharedBytes(*made);
  const std::int64_t room = static_cast<std::int64_t>(multiprocessors_.sharedBytes) - kTotals;
  made->shared = bytes == 0 ? 0 : std::clamp<std::int64_t>(room / bytes, 0, made->packs - made->held);
}

std::int64_t RowPlan::sharedBytes(const Division& made) const {
  std::int64_t bytes = 0;
  for (std::size_t j = 0; j < spec.code.size(); ++j)
    if (sharedFrom(j) >= 0) bytes += sharedBytesOf(made, j) * (made.copied ? made.packs : made.shared);
  return bytes;
}

// A row of one operand of 16 bits that stays in registers whole, of the only block of a multiprocessor. More
// operands, as a scale, leave no registers for it (decision 319).
bool RowPlan::isCopied(const Division& made) const {
  if (multiprocessors_.architecture < 80 || !vector || made.width < 8) return false;
  if (made.block < kMostBlock || made.two || made.held < made.packs) return false;
  int operands = 0;
  for (std::size_t j = 0; j < spec.code.size(); ++j) {
    if (spec.code[j].op != MapOp::operand || rows.isRow[j]) continue;
    const bool isHeld = firstPass(made, j) == 0 && lastRead(made, j) > 0;
    if (++operands > 1 || !isHeld || sharedFrom(j) < 0 || sharedBytesOf(made, j) != made.group * 16 ||
        spec.operands[static_cast<std::size_t>(spec.code[j].a)].indexed)
      return false;
  }
  const std::int64_t room = static_cast<std::int64_t>(multiprocessors_.sharedBytes) - kTotals;
  return operands == 1 && made.packs * made.group * 16 <= room;
}

// Registers of a thread for each of its packs that stays: the most that lie between two passes.
std::int64_t RowPlan::registersOf(const Division& made) const {
  std::int64_t most = 0;
  for (int pass = 0; pass + 1 < rows.passes; ++pass) most = std::max(most, registersAfter(made, pass));
  return most;
}

std::int64_t RowPlan::registersAfter(const Division& made, int pass) const {
  std::int64_t words = 0;
  for (std::size_t j = 0; j < spec.code.size(); ++j) {
    if (rows.isRow[j] || (spec.code[j].op != MapOp::operand && !made.kept[j])) continue;
    if (firstPass(made, j) <= pass && lastRead(made, j) > pass) words += wordsOf(made, j);
  }
  return words;
}

// Registers of a value that stays, for each pack.
std::int64_t RowPlan::wordsOf(const Division& made, std::size_t j) const {
  const bool isOperand = spec.code[j].op == MapOp::operand;
  const DType type = isOperand        ? spec.operands[static_cast<std::size_t>(spec.code[j].a)].dtype
                     : made.width > 1 ? code.heldAs(j)
                                      : DType::f32;
  return std::max<std::int64_t>(1, made.width * static_cast<std::int64_t>(elementBytes(type)) / 4);
}

// Registers of a thread for each pack of the operands that a later pass is the first to read.
std::int64_t RowPlan::lateOf(const Division& made) const {
  std::int64_t words = 0;
  for (std::size_t j = 0; j < spec.code.size(); ++j)
    if (spec.code[j].op == MapOp::operand && !rows.isRow[j] && firstPass(made, j) > 0 &&
        firstPass(made, j) < rows.passes)
      words += wordsOf(made, j);
  return words;
}

int RowPlan::firstPass(const Division& made, std::size_t j) const {
  int pass = 0;
  while (pass < rows.passes && !made.computed[static_cast<std::size_t>(pass)][j]) ++pass;
  return pass;
}

int RowPlan::lastRead(const Division& made, std::size_t j) const {
  int pass = rows.passes - 1;
  while (pass >= 0 && !made.read[static_cast<std::size_t>(pass)][j]) --pass;
  return pass;
}

void RowPlan::keep(Division* made, std::vector<bool> kept) const {
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
void RowPlan::keepLess(Division* made) const {
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
void RowPlan::hold(Division* made) const {
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

}  // namespace braid::cuda
