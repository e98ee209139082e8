#include "executor/decode.h"

#include <algorithm>
#include <string>

#include "executor/extents.h"

namespace braid {
namespace {

constexpr std::uint64_t mostBytes = std::uint64_t{1} << 53;
constexpr std::uint32_t mostEvents = 1u << 24;

std::string item(const char* list, std::size_t index) {
  return std::string(list) + "[" + std::to_string(index) + "]";
}

MaybeFailure checkBuffer(const ProgramSpec& spec, std::size_t index) {
  const BufferSpec& buffer = spec.buffers[index];
  const std::string where = item("buffers", index) + " (" + buffer.name + ")";
  if (buffer.bytes > mostBytes) return invalidProgram(where, "more than 2^53 bytes");
  if (buffer.home >= spec.lanes.size()) return invalidProgram(where, "home names no lane");
  if (buffer.device >= spec.devices.size()) return invalidProgram(where, "device names none");
  if (buffer.root >= spec.buffers.size()) return invalidProgram(where, "root names no buffer");
  const BufferSpec& root = spec.buffers[buffer.root];
  if (root.root != buffer.root) return invalidProgram(where, "root is itself a view");
  if (root.space != buffer.space) return invalidProgram(where, "a view must lie in its root's space");
  if (root.space == Space::device && root.device != buffer.device)
    return invalidProgram(where, "a view must lie on its root's device");
  if (buffer.rootOffset > root.bytes || buffer.bytes > root.bytes - buffer.rootOffset)
    return invalidProgram(where, "reaches beyond its root");
  if (buffer.root == index && buffer.rootOffset != 0)
    return invalidProgram(where, "rootOffset of a root must be 0");
  const bool handedOver = buffer.life == Life::input || buffer.life == Life::output;
  if (handedOver && buffer.space != Space::pinned)
    return invalidProgram(where, "inputs and outputs must be pinned");
  if (buffer.root != index) return std::nullopt;
  if (buffer.space == Space::device && spec.lanes[buffer.home].device != buffer.device)
    return invalidProgram(where, "home is a lane of another device");
  if (buffer.arenaOffset >= 0) {
    if (!spec.planned) return invalidProgram(where, "an offset without planned storage");
    if (buffer.space != Space::device)
      return invalidProgram(where, "only device buffers have a place in the arena");
    const auto offset = static_cast<std::uint64_t>(buffer.arenaOffset);
    const std::uint64_t arena = spec.devices[buffer.device].arenaBytes;
    if (offset > arena || buffer.bytes > arena - offset)
      return invalidProgram(where, "reaches beyond the arena");
    if (offset % 16 != 0) return invalidProgram(where, "arenaOffset must be a multiple of 16");
  } else if (spec.planned && buffer.space == Space::device && buffer.life == Life::tick) {
    return invalidProgram(where, "no place in the arena");
  }
  return std::nullopt;
}

// Walks the words once, in issue order.
class Decoder {
 public:
  Decoder(const ProgramSpec& spec, Decoded* out)
      : spec_(spec),
        out_(*out),
        words_(spec.commands),
        kernels_(spec.kernels.size()),
        recordedOn_(spec.events, -1),
        state_(spec.buffers.size(), unborn) {
    out_.alternating.assign(spec.events, false);
  }

  MaybeFailure decode() {
    for (std::size_t i = 0; i < spec_.kernels.size(); ++i) {
      if (auto problem = extentsOf(spec_.kernels[i], &kernels_[i]))
        return invalidProgram(item("kernels", i), *problem);
    }
    while (at_ < words_.size()) {
      where_ = item("commands", out_.steps.size());
      if (MaybeFailure failure = command()) return failure;
    }
    for (std::size_t i = 0; i < spec_.buffers.size(); ++i) {
      if (state_[i] == live)
        return invalidProgram(item("buffers", i) + " (" + spec_.buffers[i].name + ")",
                              "allocated and never freed");
    }
    for (const std::int64_t lane : recordedOn_)
      out_.recordedOn.push_back(static_cast<std::uint32_t>(std::max<std::int64_t>(lane, 0)));
    // A wait for the tick before that stands where no record ever comes waits for nothing, which no plan can
    // mean.
    for (const Step& step : out_.steps) {
      if (step.kind == StepKind::wait && recordedOn_[step.subject] < 0)
        return invalidProgram(item("events", step.subject), "waited for and never recorded");
    }
    return std::nullopt;
  }

 private:
  enum State : std::uint8_t { unborn, live, dead };

  MaybeFailure bad(const std::string& problem) const { return invalidProgram(where_, problem); }

  // The next word as an id below `limit`.
  MaybeFailure id(std::uint32_t* value, std::size_t limit, const char* what) {
    if (at_ >= words_.size()) return bad("the words end inside a command");
    const std::int32_t word = words_[at_++];
    if (word < 0 || static_cast<std::size_t>(word) >= limit)
      return bad(std::string(what) + " " + std::to_string(word) + " is not one of the " +
                 std::to_string(limit));
    *value = static_cast<std::uint32_t>(word);
    return std::nullopt;
  }
  MaybeFailure buffer(std::uint32_t* value) { return id(value, spec_.buffers.size(), "buffer"); }
  MaybeFailure lane(std::uint32_t* value) { return id(value, spec_.lanes.size(), "lane"); }
  MaybeFailure event(std::uint32_t* value) { return id(value, spec_.events, "event"); }

  MaybeFailure pooledRoot(std::uint32_t index) const {
    const BufferSpec& spec = spec_.buffers[index];
    if (spec_.planned) return bad("planned storage has no alloc, use or free");
    if (spec.root != index) return bad(spec.name + " is a view");
    if (spec.life != Life::tick) return bad(spec.name + " does not live for a tick only");
    return std::nullopt;
  }

  MaybeFailure accessible(std::uint32_t index) const {
    const std::uint32_t root = spec_.buffers[index].root;
    if (!spec_.planned && spec_.buffers[root].life == Life::tick && state_[root] != live) {
      return bad(spec_.buffers[index].name + (state_[root] == dead ? " is touched after it was freed"
                                                                   : " is touched before it is allocated"));
    }
    return std::nullopt;
  }

  // What another device holds is out of a kernel's reach, unless it says that it reaches there; copies go
  // anywhere.
  MaybeFailure reachable(const Step& run, std::uint32_t index) const {
    const BufferSpec& buffer = spec_.buffers[index];
    const NodeSpec& node = spec_.nodes[run.subject];
    if (buffer.space == Space::pinned || buffer.device == spec_.lanes[run.lane].device) return std::nullopt;
    const KernelSpec& kernel = spec_.kernels[node.kernel];
    const bool copy = kernel.kind == KernelSpec::Kind::copy;
    if (copy && kernel.parts > 1) return bad(node.name + " gathers several parts, which stay on one device");
    if (copy || node.peerAccess) return std::nullopt;
    return bad(node.name + " runs on device " + std::to_string(spec_.lanes[run.lane].device) +
               " and touches " + buffer.name + ", which is on device " + std::to_string(buffer.device));
  }

  MaybeFailure command() {
    const std::int32_t kind = words_[at_++];
    Step step;
    MaybeFailure failure;
    switch (kind) {
      case 0: failure = alloc(step); break;
      case 1: failure = release(step); break;
      case 2: failure = run(step); break;
      case 3: failure = record(step); break;
      case 4: failure = wait(step); break;
      case 5: failure = use(step); break;
      default: return bad("unknown command " + std::to_string(kind));
    }
    if (!failure) out_.steps.push_back(step);
    return failure;
  }

  MaybeFailure alloc(Step& step) {
    step.kind = StepKind::alloc;
    if (MaybeFailure failure = buffer(&step.subject)) return failure;
    if (MaybeFailure failure = lane(&step.lane)) return failure;
    if (MaybeFailure failure = pooledRoot(step.subject)) return failure;
    const BufferSpec& spec = spec_.buffers[step.subject];
    if (step.lane != spec.home) return bad(spec.name + " is allocated on a lane that is not its home");
    if (state_[step.subject] != unborn) return bad(spec.name + " is allocated twice");
    state_[step.subject] = live;
    return std::nullopt;
  }

  MaybeFailure release(Step& step) {
    step.kind = StepKind::free;
    if (MaybeFailure failure = buffer(&step.subject)) return failure;
    if (MaybeFailure failure = pooledRoot(step.subject)) return failure;
    if (state_[step.subject] != live)
      return bad(spec_.buffers[step.subject].name +
                 (state_[step.subject] == dead ? " is freed twice" : " is freed before it is allocated"));
    state_[step.subject] = dead;
    return std::nullopt;
  }

  MaybeFailure run(Step& step) {
    step.kind = StepKind::run;
    step.run = out_.runs++;
    if (MaybeFailure failure = id(&step.subject, spec_.nodes.size(), "node")) return failure;
    if (MaybeFailure failure = lane(&step.lane)) return failure;
    const std::size_t left = words_.size();
    if (MaybeFailure failure = id(&step.reads, left, "read count")) return failure;
    if (MaybeFailure failure = id(&step.writes, left, "write count")) return failure;
    step.operands = static_cast<std::uint32_t>(out_.operands.size());
    const NodeSpec& node = spec_.nodes[step.subject];
    const Extents& extents = kernels_[node.kernel];
    if (!extents.unknown && (step.reads != extents.reads.size() || step.writes != extents.writes.size())) {
      return bad(node.name + " takes " + std::to_string(extents.reads.size()) + " reads and " +
                 std::to_string(extents.writes.size()) + " writes, not " + std::to_string(step.reads) +
                 " and " + std::to_string(step.writes));
    }
    out_.mostOperands = std::max<std::size_t>(out_.mostOperands, std::size_t{step.reads} + step.writes);
    for (std::uint32_t i = 0; i < step.reads + step.writes; ++i) {
      std::uint32_t operand = 0;
      if (MaybeFailure failure = buffer(&operand)) return failure;
      if (MaybeFailure failure = accessible(operand)) return failure;
      if (MaybeFailure failure = reachable(step, operand)) return failure;
      if (!extents.unknown) {
        const std::uint64_t reach = i < step.reads ? extents.reads[i] : extents.writes[i - step.reads];
        const BufferSpec& spec = spec_.buffers[operand];
        if (reach > spec.bytes)
          return bad(node.name + " reaches " + std::to_string(reach) + " bytes into " + spec.name +
                     ", which has " + std::to_string(spec.bytes));
      }
      out_.operands.push_back(operand);
    }
    return std::nullopt;
  }

  MaybeFailure record(Step& step) {
    step.kind = StepKind::record;
    if (MaybeFailure failure = event(&step.subject)) return failure;
    if (MaybeFailure failure = lane(&step.lane)) return failure;
    if (recordedOn_[step.subject] >= 0)
      return bad("event " + std::to_string(step.subject) + " is recorded twice in a tick");
    recordedOn_[step.subject] = static_cast<std::int64_t>(step.lane);
    return std::nullopt;
  }

  MaybeFailure wait(Step& step) {
    step.kind = StepKind::wait;
    if (MaybeFailure failure = event(&step.subject)) return failure;
    if (MaybeFailure failure = lane(&step.lane)) return failure;
    if (at_ >= words_.size()) return bad("the words end inside a command");
    const std::int32_t tick = words_[at_++];
    if (tick != 0 && tick != -1) return bad("a wait's tick is 0 or -1, not " + std::to_string(tick));
    step.previous = tick == -1;
    const bool recorded = recordedOn_[step.subject] >= 0;
    if (!step.previous && !recorded)
      return bad("event " + std::to_string(step.subject) + " is waited for before it is recorded");
    // Before this tick's record the driver's event still marks the tick before; after it only a second event
    // does.
    if (step.previous && recorded) out_.alternating[step.subject] = true;
    return std::nullopt;
  }

  MaybeFailure use(Step& step) {
    step.kind = StepKind::use;
    if (MaybeFailure failure = buffer(&step.subject)) return failure;
    if (MaybeFailure failure = lane(&step.lane)) return failure;
    if (MaybeFailure failure = event(&step.event)) return failure;
    if (MaybeFailure failure = pooledRoot(step.subject)) return failure;
    if (MaybeFailure failure = accessible(step.subject)) return failure;
    if (recordedOn_[step.event] != static_cast<std::int64_t>(step.lane))
      return bad("event " + std::to_string(step.event) + " has not been recorded on that lane");
    return std::nullopt;
  }

  const ProgramSpec& spec_;
  Decoded& out_;
  const std::vector<std::int32_t>& words_;
  std::vector<Extents> kernels_;
  std::vector<std::int64_t> recordedOn_;  // by event: the lane of its record in this tick, -1 before it
  std::vector<State> state_;              // by buffer
  std::size_t at_ = 0;
  std::string where_;
};

}  // namespace

MaybeFailure decode(const ProgramSpec& spec, Decoded* decoded) {
  if (spec.inFlight < 1 || spec.inFlight > mostInFlight)
    return invalidProgram("inFlight", "must be 1 to " + std::to_string(mostInFlight));
  if (spec.lanes.empty() || spec.lanes.size() > mostLanes)
    return invalidProgram("lanes", "must be 1 to " + std::to_string(mostLanes));
  if (spec.events > mostEvents)
    return invalidProgram("events", "must be at most " + std::to_string(mostEvents));
  if (spec.devices.empty() || spec.devices.size() > mostDevices)
    return invalidProgram("devices", "must be 1 to " + std::to_string(mostDevices));
  bool representable = spec.boundPinned <= mostBytes;
  for (const auto& [boundBytes, arenaBytes] : spec.devices)
    representable = representable && boundBytes <= mostBytes && arenaBytes <= mostBytes;
  if (!representable) return invalidProgram("bound", "more than 2^53 bytes");
  for (std::size_t i = 0; i < spec.lanes.size(); ++i) {
    if (spec.lanes[i].device >= spec.devices.size())
      return invalidProgram(item("lanes", i) + " (" + spec.lanes[i].name + ")", "device names none");
  }
  for (std::size_t i = 0; i < spec.buffers.size(); ++i) {
    if (MaybeFailure failure = checkBuffer(spec, i)) return failure;
  }
  for (std::size_t i = 0; i < spec.nodes.size(); ++i) {
    if (spec.nodes[i].kernel >= spec.kernels.size())
      return invalidProgram(item("nodes", i) + " (" + spec.nodes[i].name + ")", "kernel names none");
  }
  return Decoder(spec, decoded).decode();
}

}  // namespace braid
