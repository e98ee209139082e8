#include "executor/decode.h"

#include <algorithm>
#include <string>

#include "kernels/check.h"
#include "kernels/map_rows.h"

namespace braid {
namespace {

constexpr std::uint64_t mostBytes = std::uint64_t{1} << 53;
constexpr std::uint32_t mostEvents = 1u << 24;

std::string item(const char* list, std::size_t index) {
  return std::string(list) + "[" + std::to_string(index) + "]";
}

// The bytes that a kernel touches, from the start of each operand.
struct Extents {
  std::vector<std::uint64_t> reads, writes;
  bool unknown = false;  // a user's kernel: only its author knows
};

// No product overflows: the spec has passed `checkKernel`.
std::uint64_t bytesOf(std::int64_t elements, DType type) {
  return static_cast<std::uint64_t>(elements) * elementBytes(type);
}

Extents extentsOf(const KernelSpec& spec) {
  Extents extents;
  switch (spec.kind) {
    case KernelSpec::Kind::copy:
      extents.reads.assign(spec.parts, spec.bytes / spec.parts);
      extents.writes = {spec.bytes};
      break;
    case KernelSpec::Kind::map: {
      std::int64_t count = 1;
      for (const std::int64_t size : spec.shape) count *= size;
      for (const MapOperand& operand : spec.operands) {
        std::int64_t furthest = operand.offset;
        for (std::size_t d = 0; d < spec.shape.size(); ++d)
          if (operand.strides[d] > 0) furthest += operand.strides[d] * (spec.shape[d] - 1);
        extents.reads.push_back(bytesOf(furthest + 1, operand.dtype));
      }
      for (const MapResult& result : spec.results)
        extents.writes.push_back(bytesOf(
            result.row && !spec.shape.empty() ? count / spec.shape[rowAxis(spec)] : count, result.dtype));
      break;
    }
    case KernelSpec::Kind::matmul: {
      const std::uint64_t c = bytesOf(spec.endOfC(), spec.c.dtype);
      extents.reads = {bytesOf(spec.endOfA(), spec.a.dtype), bytesOf(spec.endOfB(), spec.b.dtype)};
      if (spec.epilogue.bias) extents.reads.push_back(bytesOf(spec.n, spec.c.dtype));
      if (spec.epilogue.residual) extents.reads.push_back(c);
      extents.writes.assign(spec.epilogue.writes(), c);
      break;
    }
    case KernelSpec::Kind::attention: {
      const AttentionSpec& one = spec.attention;
      extents.reads = {bytesOf(one.q.end(spec.batch, one.heads, one.queries, one.size), spec.input),
                       bytesOf(one.k.end(spec.batch, one.groups, one.keys, one.size), spec.input),
                       bytesOf(one.v.end(spec.batch, one.groups, one.keys, one.valueSize), spec.input)};
      if (one.masked) extents.reads.push_back(bytesOf(one.maskEnd(spec.batch), one.maskType));
      if (one.counted) extents.reads.push_back(bytesOf(1, DType::i32));
      if (one.isGradient()) {
        const std::uint64_t sums = bytesOf(spec.batch * one.heads * one.queries, DType::f32);
        const auto end = one.dy.end(spec.batch, one.heads, one.queries, one.valueSize);
        extents.reads.insert(extents.reads.end(), {bytesOf(end, spec.input), sums, sums});
      }
      extents.writes = {bytesOf(one.resultEnd(spec.batch), one.resultType(spec.input))};
      if (one.logs) extents.writes.push_back(bytesOf(spec.batch * one.heads * one.queries, DType::f32));
      if (one.withValues)
        extents.writes.push_back(
            bytesOf(one.dv.end(spec.batch, one.groups, one.keys, one.valueSize), spec.input));
      if (one.appended > 0) {
        for (const std::int64_t row : {one.size, one.valueSize})
          extents.reads.push_back(bytesOf(spec.batch * one.groups * one.appended * row, spec.input));
        extents.reads.push_back(bytesOf(1, DType::i32));
        extents.writes.insert(extents.writes.end(), {extents.reads[1], extents.reads[2]});
      }
      break;
    }
    case KernelSpec::Kind::conv: {
      const ConvSpec& one = spec.conv;
      extents.reads = {bytesOf(spec.batch * one.groups * one.channels * one.inputs(), spec.input),
                       bytesOf(one.groups * one.filters * one.channels * one.taps(), spec.input)};
      extents.writes = {bytesOf(spec.batch * one.groups * one.filters * one.outputs(), spec.input)};
      break;
    }
    case KernelSpec::Kind::reduce:
      extents.reads = {bytesOf(spec.outer * spec.length * spec.inner, spec.input)};
      extents.writes = {bytesOf(spec.outer * spec.count * spec.inner, spec.output)};
      break;
    case KernelSpec::Kind::scan:
      extents.reads = {bytesOf(spec.outer * spec.length * spec.inner, spec.input)};
      extents.writes = {bytesOf(spec.outer * spec.length * spec.inner, spec.output)};
      break;
    case KernelSpec::Kind::join: {
      std::int64_t total = 0;
      for (const JoinPiece& piece : spec.pieces) {
        total += piece.length;
        if (!piece.filled)
          extents.reads.push_back(bytesOf(spec.outer * piece.length * spec.inner, spec.input));
      }
      extents.writes = {bytesOf(spec.outer * total * spec.inner, spec.input)};
      break;
    }
    case KernelSpec::Kind::random:
      extents.reads = {0, bytesOf(1, DType::i32)};
      extents.writes = {bytesOf(spec.count, spec.output)};
      break;
    case KernelSpec::Kind::gather:
      extents.reads = {bytesOf(spec.outer * spec.length * spec.inner, spec.input),
                       bytesOf(spec.along ? spec.outer * spec.count * spec.inner : spec.count, DType::i32)};
      extents.writes = {bytesOf(spec.outer * spec.count * spec.inner, spec.input)};
      break;
    case KernelSpec::Kind::scatterAdd:
      extents.reads = {bytesOf(spec.outer * spec.count * spec.inner, spec.input),
                       bytesOf(spec.count, DType::i32), bytesOf(spec.count, DType::i32)};
      extents.writes = {bytesOf(spec.outer * spec.length * spec.inner, spec.output)};
      break;
    case KernelSpec::Kind::append: {
      const std::size_t whole = bytesOf(spec.outer * spec.length * spec.inner, spec.input);
      extents.reads = {whole, bytesOf(spec.outer * spec.count * spec.inner, spec.input),
                       bytesOf(1, DType::i32)};
      extents.writes = {whole};
      break;
    }
    case KernelSpec::Kind::cuda: extents.unknown = true; break;
  }
  if (spec.workspace > 0) extents.writes.push_back(spec.workspace);
  return extents;
}

// Reads a spec once, in the order of its fields. Every check returns whether it passed; the first one that
// did not is the failure.
class Decoder {
 public:
  Decoder(const ProgramSpec& spec, Decoded* decoded) : spec_(spec), out_(*decoded), words_(spec.commands) {}

  MaybeFailure decode() {
    if (header() && buffers() && kernels() && commands()) graphs();
    return failure_;
  }

 private:
  enum State : std::uint8_t { unborn, live, dead };

  bool check(bool passed, const std::string& problem) {
    if (!passed && !failure_) failure_ = invalidProgram(where_, problem);
    return passed;
  }
  bool check(bool passed, const char* problem) { return passed || check(false, std::string(problem)); }

  bool header() {
    const auto from1 = [&](const char* field, std::size_t value, std::size_t most) {
      where_ = field;
      return check(value >= 1 && value <= most, "must be 1 to " + std::to_string(most));
    };
    if (!from1("inFlight", spec_.inFlight, mostInFlight) || !from1("lanes", spec_.lanes.size(), mostLanes) ||
        !from1("devices", spec_.devices.size(), mostDevices))
      return false;
    where_ = "events";
    if (!check(spec_.events <= mostEvents, "must be at most " + std::to_string(mostEvents))) return false;
    where_ = "bound";
    bool representable = spec_.boundPinned <= mostBytes;
    for (const auto& [boundBytes, arenaBytes] : spec_.devices)
      representable = representable && boundBytes <= mostBytes && arenaBytes <= mostBytes;
    if (!check(representable, "more than 2^53 bytes")) return false;
    for (std::size_t i = 0; i < spec_.lanes.size(); ++i) {
      where_ = item("lanes", i) + " (" + spec_.lanes[i].name + ")";
      if (!check(spec_.lanes[i].device < spec_.devices.size(), "device names none")) return false;
    }
    return true;
  }

  bool buffers() {
    for (std::size_t i = 0; i < spec_.buffers.size(); ++i) {
      const BufferSpec& buffer = spec_.buffers[i];
      where_ = item("buffers", i) + " (" + buffer.name + ")";
      if (!check(buffer.bytes <= mostBytes, "more than 2^53 bytes") ||
          !check(buffer.home < spec_.lanes.size(), "home names no lane") ||
          !check(buffer.device < spec_.devices.size(), "device names none") ||
          !check(buffer.root < spec_.buffers.size(), "root names no buffer") ||
          !(buffer.root == i ? root(buffer) : view(buffer)))
        return false;
      if (!check(buffer.life != Life::input || buffer.space == Space::pinned, "inputs must be pinned"))
        return false;
    }
    return true;
  }

  bool view(const BufferSpec& buffer) {
    const BufferSpec& root = spec_.buffers[buffer.root];
    return check(root.root == buffer.root, "root is itself a view") &&
           check(root.space == buffer.space, "a view must lie in its root's space") &&
           check(root.space != Space::device || root.device == buffer.device,
                 "a view must lie on its root's device") &&
           check(buffer.rootOffset <= root.bytes && buffer.bytes <= root.bytes - buffer.rootOffset,
                 "reaches beyond its root");
  }

  bool root(const BufferSpec& buffer) {
    const bool onDevice = buffer.space == Space::device;
    if (!check(buffer.rootOffset == 0, "rootOffset of a root must be 0") ||
        !check(!onDevice || spec_.lanes[buffer.home].device == buffer.device,
               "home is a lane of another device"))
      return false;
    if (buffer.arenaOffset < 0)
      return check(!spec_.planned || !onDevice || buffer.life != Life::tick, "no place in the arena");
    const auto offset = static_cast<std::uint64_t>(buffer.arenaOffset);
    const std::uint64_t arena = spec_.devices[buffer.device].arenaBytes;
    return check(spec_.planned, "an offset without planned storage") &&
           check(onDevice, "only device buffers have a place in the arena") &&
           // Their addresses are those of their slots, which a buffer of the arena does not get.
           check(buffer.life != Life::input && buffer.life != Life::output,
                 "an input or output has slots of its own, and no place in the arena") &&
           check(offset <= arena && buffer.bytes <= arena - offset, "reaches beyond the arena") &&
           check(offset % 16 == 0, "arenaOffset must be a multiple of 16");
  }

  bool kernels() {
    for (std::size_t i = 0; i < spec_.nodes.size(); ++i) {
      where_ = item("nodes", i) + " (" + spec_.nodes[i].name + ")";
      if (!check(spec_.nodes[i].kernel < spec_.kernels.size(), "kernel names none")) return false;
    }
    for (std::size_t i = 0; i < spec_.kernels.size(); ++i) {
      where_ = item("kernels", i);
      const auto problem = checkKernel(spec_.kernels[i]);
      if (!check(!problem, problem.value_or(""))) return false;
      extents_.push_back(extentsOf(spec_.kernels[i]));
    }
    return true;
  }

  bool commands() {
    recordedOn_.assign(spec_.events, -1);
    state_.assign(spec_.buffers.size(), unborn);
    out_.alternating.assign(spec_.events, false);
    while (at_ < words_.size()) {
      where_ = item("commands", out_.steps.size());
      Step step;
      step.command = static_cast<std::uint32_t>(out_.steps.size());
      if (!command(words_[at_++], step)) return false;
      out_.steps.push_back(step);
    }
    for (std::size_t i = 0; i < spec_.buffers.size(); ++i) {
      where_ = item("buffers", i);
      if (!check(state_[i] != live, "allocated and never freed")) return false;
    }
    for (const std::int64_t lane : recordedOn_)
      out_.recordedOn.push_back(static_cast<std::uint32_t>(std::max<std::int64_t>(lane, 0)));
    for (const Step& step : out_.steps) {
      if (step.kind != StepKind::wait) continue;
      where_ = item("events", step.subject);
      if (!check(recordedOn_[step.subject] >= 0, "waited for and never recorded")) return false;
    }
    return true;
  }

  bool graphs() {
    const GraphTable& table = spec_.graphs;
    const std::size_t count = table.from.size();
    where_ = "arenas";
    if (!check(spec_.arenas == 1 || (spec_.arenas == spec_.inFlight && count > 0),
               "must be 1, or with graphs as many as ticks in flight"))
      return false;
    where_ = "graphs";
    if (count == 0) return true;
    if (!check(spec_.planned, "only planned storage has the same addresses in every tick") ||
        !check(table.to.size() == count && table.edgeStart.size() == count + 1 && table.edges.size() % 2 == 0,
               "the lists of from, to, edgeStart and edges do not match"))
      return false;
    std::int64_t end = 0;
    for (std::size_t i = 0; i < count; ++i) {
      where_ = item("graphs", i);
      GraphRange graph;
      if (!range(table.from[i], table.to[i], end, &graph) ||
          !check(table.edgeStart[i] >= 0 && table.edgeStart[i] <= table.edgeStart[i + 1] &&
                     static_cast<std::size_t>(table.edgeStart[i + 1]) <= table.edges.size() / 2,
                 "edgeStart names no edges"))
        return false;
      for (auto at = static_cast<std::size_t>(table.edgeStart[i]);
           at < static_cast<std::size_t>(table.edgeStart[i + 1]); ++at)
        if (!edge(table.edges[2 * at], table.edges[2 * at + 1], &graph)) return false;
      end = table.to[i];
      out_.graphs.push_back(std::move(graph));
    }
    return true;
  }

  bool range(std::int64_t from, std::int64_t to, std::int64_t end, GraphRange* graph) {
    if (!check(from >= end && from < to && to <= static_cast<std::int64_t>(out_.steps.size()),
               "from and to are no range of commands after the graph before"))
      return false;
    graph->from = static_cast<std::uint32_t>(from);
    graph->to = static_cast<std::uint32_t>(to);
    const bool runs = std::any_of(out_.steps.begin() + from, out_.steps.begin() + to,
                                  [](const Step& step) { return step.kind == StepKind::run; });
    return check(runs, "has no run");
  }

  bool edge(std::int64_t before, std::int64_t after, GraphRange* graph) {
    const auto node = [&](std::int64_t command) {
      return command >= graph->from && command < graph->to &&
             out_.steps[static_cast<std::size_t>(command)].kind == StepKind::run;
    };
    if (!check(node(before) && node(after) && before < after,
               "edge " + std::to_string(before) + " to " + std::to_string(after) +
                   " is not from one run of the graph to a later one"))
      return false;
    graph->edges.emplace_back(static_cast<std::uint32_t>(before), static_cast<std::uint32_t>(after));
    return true;
  }

  bool word(std::int32_t* value) {
    if (!check(at_ < words_.size(), "the words end inside a command")) return false;
    *value = words_[at_++];
    return true;
  }
  // The next word as an id below `limit`.
  bool id(std::uint32_t* value, std::size_t limit, const char* what) {
    std::int32_t next = 0;
    if (!word(&next)) return false;
    *value = static_cast<std::uint32_t>(next);
    if (next >= 0 && *value < limit) return true;
    return check(false, std::string(what) + " " + std::to_string(next) + " is not one of the " +
                            std::to_string(limit));
  }
  bool buffer(std::uint32_t* value) { return id(value, spec_.buffers.size(), "buffer"); }
  bool lane(Step& step) { return id(&step.lane, spec_.lanes.size(), "lane"); }
  bool event(std::uint32_t* value) { return id(value, spec_.events, "event"); }

  bool command(std::int32_t kind, Step& step) {
    if (!check(kind >= 0 && kind <= 5, "unknown command")) return false;
    step.kind = static_cast<StepKind>(kind);
    switch (step.kind) {
      case StepKind::alloc: return pooled(step) && lane(step) && alloc(step);
      case StepKind::free: return pooled(step) && release(step);
      case StepKind::run: return run(step);
      case StepKind::record: return event(&step.subject) && lane(step) && record(step);
      case StepKind::wait: return event(&step.subject) && lane(step) && wait(step);
      case StepKind::use: return pooled(step) && lane(step) && event(&step.event) && use(step);
      case StepKind::launch: break;
    }
    return false;
  }

  // The next word is a buffer that the session's pool allocates.
  bool pooled(Step& step) {
    if (!buffer(&step.subject)) return false;
    const BufferSpec& buffer = spec_.buffers[step.subject];
    return check(!spec_.planned, "planned storage has no alloc, use or free") &&
           check(buffer.root == step.subject, "the buffer is a view") &&
           check(buffer.life == Life::tick, "the buffer does not live for a tick only");
  }

  bool alloc(const Step& step) {
    State& state = state_[step.subject];
    const bool passed = check(step.lane == spec_.buffers[step.subject].home, "the lane is not its home") &&
                        check(state == unborn, "allocated twice");
    state = live;
    return passed;
  }

  bool release(const Step& step) {
    State& state = state_[step.subject];
    const bool passed = check(state == live, state == dead ? "freed twice" : "freed before it is allocated");
    state = dead;
    return passed;
  }

  bool run(Step& step) {
    step.run = out_.runs++;
    if (!id(&step.subject, spec_.nodes.size(), "node") || !lane(step) ||
        !id(&step.reads, words_.size(), "read count") || !id(&step.writes, words_.size(), "write count"))
      return false;
    const NodeSpec& node = spec_.nodes[step.subject];
    const Extents& extents = extents_[node.kernel];
    if (!check(
            extents.unknown || (step.reads == extents.reads.size() && step.writes == extents.writes.size()),
            node.name + ": another number of operands than its kernel has"))
      return false;
    step.operands = static_cast<std::uint32_t>(out_.operands.size());
    out_.mostOperands = std::max<std::size_t>(out_.mostOperands, std::size_t{step.reads} + step.writes);
    for (std::uint32_t i = 0; i < step.reads + step.writes; ++i) {
      std::uint32_t operand = 0;
      if (!buffer(&operand) || !accessible(operand) || !reachable(step, operand)) return false;
      out_.operands.push_back(operand);
      if (extents.unknown) continue;
      const std::uint64_t reach = i < step.reads ? extents.reads[i] : extents.writes[i - step.reads];
      const BufferSpec& spec = spec_.buffers[operand];
      if (reach > spec.bytes)
        return check(false, node.name + " reaches " + std::to_string(reach) + " bytes into " + spec.name +
                                ", which has " + std::to_string(spec.bytes));
    }
    return true;
  }

  bool accessible(std::uint32_t operand) {
    const std::uint32_t root = spec_.buffers[operand].root;
    if (spec_.planned || spec_.buffers[root].life != Life::tick) return true;
    return check(state_[root] == live,
                 state_[root] == dead ? "touches a freed buffer" : "touches a buffer before it is allocated");
  }

  // Copies may touch memory of any device; a kernel only that of its own, unless it declares peer access.
  bool reachable(const Step& run, std::uint32_t operand) {
    const BufferSpec& buffer = spec_.buffers[operand];
    const NodeSpec& node = spec_.nodes[run.subject];
    if (buffer.space == Space::pinned || buffer.device == spec_.lanes[run.lane].device) return true;
    const KernelSpec& kernel = spec_.kernels[node.kernel];
    const bool copy = kernel.kind == KernelSpec::Kind::copy;
    if (!check(!copy || kernel.parts == 1, "gathers several parts, which must be on one device"))
      return false;
    return copy || node.peerAccess ||
           check(false, node.name + " touches " + buffer.name + ", which is on another device");
  }

  bool record(const Step& step) {
    const bool passed = check(recordedOn_[step.subject] < 0, "the event is recorded twice in a tick");
    recordedOn_[step.subject] = static_cast<std::int64_t>(step.lane);
    return passed;
  }

  bool wait(Step& step) {
    std::int32_t tick = 0;
    if (!word(&tick) || !check(tick == 0 || tick == -1, "a wait's tick is 0 or -1")) return false;
    step.previous = tick == -1;
    const bool recorded = recordedOn_[step.subject] >= 0;
    // Before this tick's record the driver's event still marks the tick before. After it, that takes a second
    // event.
    if (step.previous && recorded) out_.alternating[step.subject] = true;
    return check(step.previous || recorded, "the event is waited for before it is recorded");
  }

  bool use(const Step& step) {
    return accessible(step.subject) && check(recordedOn_[step.event] == static_cast<std::int64_t>(step.lane),
                                             "the event has not been recorded on that lane");
  }

  const ProgramSpec& spec_;
  Decoded& out_;
  const std::vector<std::int32_t>& words_;
  MaybeFailure failure_;
  std::string where_;                     // the field or command that is being read
  std::vector<Extents> extents_;          // by kernel
  std::vector<std::int64_t> recordedOn_;  // by event: the lane of its record in this tick, -1 before it
  std::vector<State> state_;              // by buffer
  std::size_t at_ = 0;
};

}  // namespace

MaybeFailure decode(const ProgramSpec& spec, Decoded* decoded) { return Decoder(spec, decoded).decode(); }

}  // namespace braid
