#include <algorithm>
#include <optional>
#include <type_traits>

#include "kernels/cpu.h"
#include "kernels/element.h"
#include "kernels/map_rows.h"
#include "kernels/map_steps.h"

// The interpreter of maps that reduce along their rows. A tile is some whole rows that fit a block of
// elements, or one longer row, which is done block by block; or rows that lie side by side, of which a block
// has as many lines across as fit. Over each tile go as many passes as reductions follow from one another; a
// reduction adds from the first element of the row to the last, floats in f64, so that a sum is the same sum
// on every run. A reduction that is alone is such a map too.

namespace braid {
namespace {

constexpr std::int64_t kBlock = 512;
// Floats of scratch memory for values that stay from pass to pass; of longer rows they are computed again.
constexpr std::int64_t kMostKept = std::int64_t{1} << 22;

// Where a value lies: a block of elements, elements of the whole tile, or one number a row.
struct Place {
  enum class Kind : std::uint8_t { none, block, tile, row } kind = Kind::none;
  std::size_t index = 0;
};

// `expand` repeats a number a row along the row.
struct Step {
  MapOp op = MapOp::constant;
  bool expand = false;
  Place to, arguments[3];
  std::size_t number = 0;  // of an operand or a dimension
  double constant = 0;
};

struct Reduction {
  MapOp op = MapOp::rowSum;
  Place from, to;
};

struct Pass {
  std::vector<Step> rows;  // before it
  std::vector<Step> steps;
  std::vector<Reduction> reductions;
};

struct Stored {
  Place from;
  DType dtype = DType::f32;
  std::size_t write = 0;
};

template <class T>
T joined(MapOp op, T a, T b) {
  return op == MapOp::rowMax   ? element::max(a, b)
         : op == MapOp::rowMin ? element::min(a, b)
                               : element::add(a, b);
}

// In f64 there are sums alone.
double joined(MapOp, double a, double b) { return a + b; }

bool isOfSum(MapOp op) { return op == MapOp::rowSum || op == MapOp::rowMean; }

// Turns a spec into passes. Blocks are reused once what lies in them has been read for the last time.
class Layout {
 public:
  explicit Layout(const KernelSpec& spec) : spec_(spec), rows(spec) {
    const std::size_t count = spec.code.size();
    std::vector<bool> kept(count, false);
    const auto several = [&] {
      std::vector<int> passes(count, 0);
      for (const std::vector<bool>& computed : rows.computedIn(spec, std::vector<bool>(count, false)))
        for (std::size_t j = 0; j < count; ++j) passes[j] += computed[j] ? 1 : 0;
      return passes;
    }();
    tileRows = rows.inner > 1 ? std::min(rows.inner, kBlock)
                              : std::min(std::max<std::int64_t>(1, kBlock / rows.length), rows.rows);
    std::int64_t most = kMostKept / (rows.inner > 1 ? tileRows * rows.length : rows.length);
    for (std::size_t j = 0; j < count; ++j) {
      const bool again =
          spec.code[j].op != MapOp::operand && spec.code[j].op != MapOp::index && several[j] > 1;
      if (again && most-- > 0) kept[j] = true;
    }
    computed_ = rows.computedIn(spec, kept);
    for (std::size_t j = 0; j < count; ++j) {
      if (rows.isRow[j])
        place_.push_back({Place::Kind::row, rowValues++});
      else if (kept[j])
        place_.push_back({Place::Kind::tile, tiles++});
      else
        place_.push_back({});
    }
    passes.resize(static_cast<std::size_t>(rows.passes) + 1);
    for (std::size_t pass = 0; pass < passes.size(); ++pass) fill(static_cast<int>(pass));
    for (std::size_t r = 0; r < spec.results.size(); ++r)
      if (spec.results[r].row) rowResults.push_back({at(spec.results[r].value), spec.results[r].dtype, r});
  }

 private:
  const KernelSpec& spec_;
  std::vector<Place> place_;
  std::vector<std::vector<bool>> computed_;

 public:
  MapRows rows;
  std::vector<Pass> passes;  // after the last one only rows are computed
  std::vector<Stored> results, rowResults;
  std::size_t blocks = 0, tiles = 0, rowValues = 0, mostReductions = 0;
  std::int64_t tileRows = 1;  // of a tile, at most

 private:
  Place at(std::int32_t value) const { return place_[static_cast<std::size_t>(value)]; }

  Step stepOf(std::size_t j) const {
    const MapInstruction& instruction = spec_.code[j];
    Step step;
    step.op = instruction.op;
    step.to = place_[j];
    step.constant = instruction.constant;
    if (arityOf(step.op) == 0) step.number = static_cast<std::size_t>(std::max(0, instruction.a));
    const std::int32_t arguments[] = {instruction.a, instruction.b, instruction.c};
    for (int i = 0; i < arityOf(step.op); ++i) step.arguments[i] = at(arguments[i]);
    return step;
  }

  // The steps of one pass, with places for its values.
  void fill(int number) {
    Pass& pass = passes[static_cast<std::size_t>(number)];
    const std::size_t count = spec_.code.size();
    for (std::size_t j = 0; j < count; ++j)
      if (rows.isRow[j] && rows.isRead[j] && rows.depth[j] == number && !isRowReduction(spec_.code[j].op))
        pass.rows.push_back(stepOf(j));
    if (number == rows.passes) return;
    const std::vector<bool>& own = computed_[static_cast<std::size_t>(number)];
    // By value: the last instruction that reads it in this pass; those that end the pass come after all.
    std::vector<std::size_t> last(count, 0);
    std::vector<std::size_t> spare;
    const auto arguments = [&](std::size_t j, auto visit) { forArguments(spec_.code[j], visit); };
    for (std::size_t j = 0; j < count; ++j)
      if (own[j]) arguments(j, [&](std::size_t argument) { last[argument] = j; });
    const auto ends = [&](std::int32_t value) { last[static_cast<std::size_t>(value)] = count; };
    for (std::size_t j = 0; j < count; ++j)
      if (rows.endsPass(spec_, j, number)) ends(spec_.code[j].a);
    if (number + 1 == rows.passes)
      for (const MapResult& result : spec_.results)
        if (!result.row) ends(result.value);
    std::vector<Place> expanded(count);
    const auto block = [&] {
      if (spare.empty()) return Place{Place::Kind::block, blocks++};
      const std::size_t index = spare.back();
      spare.pop_back();
      return Place{Place::Kind::block, index};
    };
    // A number a row is repeated along the row once a block, where it is read first.
    const auto wide = [&](std::size_t value) {
      if (!rows.isRow[value]) return place_[value];
      if (expanded[value].kind == Place::Kind::none) {
        expanded[value] = block();
        Step step;
        step.expand = true;
        step.to = expanded[value];
        step.arguments[0] = place_[value];
        pass.steps.push_back(step);
      }
      return expanded[value];
    };
    for (std::size_t j = 0; j < count; ++j) {
      if (!own[j]) continue;
      Place places[3];
      int i = 0;
      arguments(j, [&](std::size_t argument) { places[i++] = wide(argument); });
      if (place_[j].kind != Place::Kind::tile) place_[j] = block();
      Step step = stepOf(j);
      std::copy(places, places + 3, step.arguments);
      pass.steps.push_back(step);
      // Only now: a target must not be one of its own arguments. An argument may be named twice.
      arguments(j, [&](std::size_t argument) {
        if (last[argument] != j) return;
        last[argument] = count + 1;
        const Place old = rows.isRow[argument] ? expanded[argument] : place_[argument];
        if (old.kind == Place::Kind::block) spare.push_back(old.index);
      });
    }
    for (std::size_t j = 0; j < count; ++j)
      if (rows.endsPass(spec_, j, number))
        pass.reductions.push_back(
            {spec_.code[j].op, wide(static_cast<std::size_t>(spec_.code[j].a)), place_[j]});
    mostReductions = std::max(mostReductions, pass.reductions.size());
    if (number + 1 < rows.passes) return;
    for (std::size_t r = 0; r < spec_.results.size(); ++r)
      if (!spec_.results[r].row)
        results.push_back(
            {wide(static_cast<std::size_t>(spec_.results[r].value)), spec_.results[r].dtype, r});
  }
};

class CpuMapRows final : public CpuKernel {
 public:
  explicit CpuMapRows(const KernelSpec& spec) : computeInt_(spec.computeInt), layout_(spec) {
    readCount = spec.operands.size();
    writeCount = spec.results.size();
    const std::int64_t count = layout_.rows.rows * layout_.rows.length;
    for (std::size_t i = 0; i < readCount; ++i) {
      const MapOperand& operand = spec.operands[i];
      const auto bytes = static_cast<std::uint32_t>(elementBytes(operand.dtype));
      const std::int64_t last = lastElement(spec, operand);
      extents.push_back(Extent{static_cast<std::uint64_t>(last + 1) * bytes, bytes});
      movedBytes += static_cast<double>(std::min(count, last + 1 - operand.offset)) * bytes;
      sources_.push_back(isRowOperand(spec, i) ? steps::normalise(spec, i, rowAxis(spec))
                                               : steps::normalise(spec, i));
    }
    for (const MapResult& result : spec.results) {
      const auto bytes = static_cast<std::uint32_t>(elementBytes(result.dtype));
      const std::int64_t written = result.row ? layout_.rows.rows : count;
      extents.push_back(Extent{static_cast<std::uint64_t>(written) * bytes, bytes});
      movedBytes += static_cast<double>(written) * bytes;
    }
    shape_ = spec.shape;
    inner_.assign(shape_.size(), 1);
    for (std::size_t d = shape_.size(); d-- > 1;) inner_[d - 1] = inner_[d] * shape_[d];
    axis_ = rowAxis(spec);
    tileRows_ = layout_.tileRows;
  }

  bool run(const DeviceAddress* addresses, Scratch& scratch, Part part) const override {
    static_assert(sizeof(float) == sizeof(std::int32_t));
    const auto tile = static_cast<std::size_t>(tileRows_ * layout_.rows.length);
    // Sums are f64: two floats each.
    float* memory = scratch.floats(2 * sumCount() + layout_.blocks * kBlock + layout_.tiles * tile +
                                   layout_.rowValues * static_cast<std::size_t>(tileRows_));
    if (computeInt_)
      compute(addresses, reinterpret_cast<std::int32_t*>(memory), part);
    else
      compute(addresses, memory, part);
    return true;
  }

 private:
  // The values of one tile while it is computed.
  template <class T>
  struct Tile {
    const DeviceAddress* addresses;
    double* sums;  // by reduction of the pass, and row
    T *blocks, *tiles, *rowValues;
    std::int64_t first, rows;  // of the kernel's rows
    std::int64_t block;        // elements that are computed at a time

    std::int64_t tileSize, tileRows;

    // From element `at` of the tile on.
    T* elements(Place place, std::int64_t at) const {
      const auto index = static_cast<std::int64_t>(place.index);
      return place.kind == Place::Kind::tile ? tiles + index * tileSize + at : blocks + index * kBlock;
    }
    T* row(Place place) const { return rowValues + static_cast<std::int64_t>(place.index) * tileRows; }
  };

  std::size_t sumCount() const { return layout_.mostReductions * static_cast<std::size_t>(tileRows_); }

  template <class T>
  void compute(const DeviceAddress* addresses, T* memory, Part part) const {
    Tile<T> tile{};
    tile.addresses = addresses;
    tile.tileSize = tileRows_ * layout_.rows.length;
    tile.tileRows = tileRows_;
    tile.sums = reinterpret_cast<double*>(memory);
    tile.blocks = memory + 2 * sumCount();
    tile.tiles = tile.blocks + static_cast<std::int64_t>(layout_.blocks) * kBlock;
    tile.rowValues = tile.tiles + static_cast<std::int64_t>(layout_.tiles) * tile.tileSize;
    const PartRange range(part, layout_.rows.rows);
    const std::int64_t inner = layout_.rows.inner;
    for (tile.first = range.first; tile.first < range.last; tile.first += tile.rows) {
      tile.rows = std::min(tileRows_, range.last - tile.first);
      tile.block = kBlock;
      if (inner > 1) {
        tile.rows = std::min(tile.rows, inner - tile.first % inner);
        // Lines across follow one another where they are whole.
        tile.block = tile.rows == inner ? kBlock / inner * inner : tile.rows;
      }
      for (std::size_t i = 0; i < layout_.passes.size(); ++i)
        runPass(tile, layout_.passes[i], i + 2 == layout_.passes.size());
      for (const Stored& result : layout_.rowResults)
        element::store(addresses[readCount + result.write], result.dtype, tile.first, tile.row(result.from),
                       tile.rows);
    }
  }

  template <class T>
  void runPass(const Tile<T>& tile, const Pass& pass, bool isLast) const {
    for (const Step& step : pass.rows) runRow(tile, step);
    if (pass.reductions.empty() && !isLast) return;
    const std::int64_t elements = tile.rows * layout_.rows.length;
    for (std::int64_t at = 0; at < elements; at += tile.block) {
      const std::int64_t count = std::min(tile.block, elements - at);
      for (const Step& step : pass.steps) runStep(tile, step, at, count);
      for (std::size_t r = 0; r < pass.reductions.size(); ++r) reduce(tile, pass.reductions[r], r, at, count);
      if (!isLast) continue;
      for (const Stored& result : layout_.results)
        element::store(tile.addresses[readCount + result.write], result.dtype, elementAt(tile, at),
                       tile.elements(result.from, at), count);
    }
    for (std::size_t r = 0; r < pass.reductions.size(); ++r) finish(tile, pass.reductions[r], r);
  }

  // Where element `at` of a tile is among all of the kernel, in row-major order.
  template <class T>
  std::int64_t elementAt(const Tile<T>& tile, std::int64_t at) const {
    const std::int64_t inner = layout_.rows.inner, length = layout_.rows.length;
    if (inner == 1) return tile.first * length + at;
    return (tile.first / inner * length + at / tile.rows) * inner + tile.first % inner;
  }

  template <class T>
  void runStep(const Tile<T>& tile, const Step& step, std::int64_t at, std::int64_t count) const {
    T* const to = tile.elements(step.to, at);
    const std::int64_t length = layout_.rows.length, first = elementAt(tile, at);
    if (step.expand && layout_.rows.inner > 1) {
      for (std::int64_t i = 0; i < count; i += tile.rows)
        std::copy_n(tile.row(step.arguments[0]), tile.rows, to + i);
    } else if (step.expand) {
      const T* const from = tile.row(step.arguments[0]);
      for (std::int64_t i = 0; i < count;) {
        const std::int64_t run = std::min(count - i, length - (at + i) % length);
        std::fill_n(to + i, run, from[(at + i) / length]);
        i += run;
      }
    } else if (step.op == MapOp::operand) {
      steps::readStrided(to, tile.addresses, sources_[step.number], first, count);
    } else if (step.op == MapOp::index) {
      steps::readIndex(to, shape_[step.number], inner_[step.number], first, count);
    } else {
      const auto argument = [&](int i) -> const T* {
        return i < arityOf(step.op) ? tile.elements(step.arguments[i], at) : nullptr;
      };
      steps::run(step.op, to, argument(0), argument(1), argument(2), count);
    }
  }

  // A step of numbers a row, over the rows of the tile.
  template <class T>
  void runRow(const Tile<T>& tile, const Step& step) const {
    T* const to = tile.row(step.to);
    if (step.op == MapOp::constant) {
      if constexpr (std::is_same_v<T, float>)
        std::fill_n(to, tile.rows, static_cast<float>(step.constant));
      else
        std::fill_n(to, tile.rows, element::toInt32(step.constant));
    } else if (step.op == MapOp::operand) {
      steps::readStrided(to, tile.addresses, sources_[step.number], tile.first, tile.rows);
    } else if (step.op == MapOp::index) {
      const std::int64_t inner = inner_[step.number] / (step.number < axis_ ? layout_.rows.length : 1);
      steps::readIndex(to, shape_[step.number], inner, tile.first, tile.rows);
    } else {
      const auto argument = [&](int i) -> const T* {
        return i < arityOf(step.op) ? tile.row(step.arguments[i]) : nullptr;
      };
      steps::run(step.op, to, argument(0), argument(1), argument(2), tile.rows);
    }
  }

  template <class T>
  void reduce(const Tile<T>& tile, const Reduction& reduction, std::size_t which, std::int64_t at,
              std::int64_t count) const {
    const T* const from = tile.elements(reduction.from, at);
    const auto into = [&](auto* totals) {
      if (layout_.rows.inner > 1)
        addAcross(from, totals, reduction.op, at, count, tile.rows);
      else
        add(from, totals, reduction.op, at, count);
    };
    if (std::is_same_v<T, float> && isOfSum(reduction.op))
      into(tile.sums + which * static_cast<std::size_t>(tileRows_));
    else
      into(tile.row(reduction.to));
  }

  // Lines across rows that lie side by side, each of which has one element of each row.
  template <class T, class Total>
  void addAcross(const T* from, Total* totals, MapOp op, std::int64_t at, std::int64_t count,
                 std::int64_t rows) const {
    for (std::int64_t i = 0; i < count; i += rows, from += rows) {
      if (at + i == 0)
        for (std::int64_t r = 0; r < rows; ++r) totals[r] = static_cast<Total>(from[r]);
      else if (isOfSum(op))
        for (std::int64_t r = 0; r < rows; ++r)
          totals[r] = joined(MapOp::rowSum, totals[r], static_cast<Total>(from[r]));
      else
        for (std::int64_t r = 0; r < rows; ++r)
          totals[r] = joined(op, totals[r], static_cast<Total>(from[r]));
    }
  }

  template <class T, class Total>
  void add(const T* from, Total* totals, MapOp op, std::int64_t at, std::int64_t count) const {
    const std::int64_t length = layout_.rows.length;
    for (std::int64_t i = 0; i < count;) {
      const std::int64_t within = (at + i) % length, end = i + std::min(count - i, length - within);
      const std::int64_t row = (at + i) / length;
      Total total = within == 0 ? static_cast<Total>(from[i++]) : totals[row];
      for (; i < end; ++i) total = joined(op, total, static_cast<Total>(from[i]));
      totals[row] = total;
    }
  }

  // The results of a reduction, once all its elements were added.
  template <class T>
  void finish(const Tile<T>& tile, const Reduction& reduction, std::size_t which) const {
    T* const result = tile.row(reduction.to);
    const bool isMean = reduction.op == MapOp::rowMean;
    const std::int64_t length = layout_.rows.length;
    if (std::is_same_v<T, float> && isOfSum(reduction.op)) {
      const double* const sums = tile.sums + which * static_cast<std::size_t>(tileRows_);
      for (std::int64_t r = 0; r < tile.rows; ++r)
        result[r] = static_cast<T>(isMean ? element::mean(sums[r], length) : sums[r]);
    } else if (isMean) {
      for (std::int64_t r = 0; r < tile.rows; ++r) result[r] = element::mean(result[r], length);
    }
  }

  bool computeInt_;
  Layout layout_;
  std::vector<steps::Source> sources_;       // by operand
  std::vector<std::int64_t> shape_, inner_;  // inner: how far neighbours along a dimension are apart
  std::size_t axis_ = 0;
  std::int64_t tileRows_ = 1;
};

}  // namespace

CpuKernelResult makeCpuMapRows(const KernelSpec& spec) { return std::make_unique<CpuMapRows>(spec); }

}  // namespace braid
