#include "executor/plan_graphs.h"

#include <algorithm>

#include "executor/poison.h"
#include "graphs/capture.h"

namespace braid {
namespace {

// Makes the nodes of one graph, for one slot.
class Maker {
 public:
  Maker(Program& program, const Trace& trace, const std::vector<FirstTouch>& touches, std::uint32_t graph,
        std::uint32_t slot)
      : program_(program),
        trace_(trace),
        touches_(touches),
        range_(program.decoded().graphs[graph]),
        lane_(program.schedule().issuedOn[range_.from]),
        slot_(slot),
        driver_(program.sharedDriver(program.deviceOf(lane_))),
        queue_(std::make_shared<graphs::CleanupQueue>()),
        nodes_(range_.to - range_.from) {}

  MaybeFailure make(graphs::ExecutableGraph* made) {
    if (MaybeFailure failure = bind(*driver_)) return failure;
    Status status = Status::ok;
    status = graphs::GraphDefinition::create(driver_, queue_, &definition_);
    if (status != Status::ok) return failed(status, "graphCreate");
    auto edges = range_.edges;
    std::sort(edges.begin(), edges.end(),
              [](const auto& one, const auto& other) { return one.second < other.second; });
    auto edge = edges.begin();
    for (std::uint32_t at = range_.from; at < range_.to; ++at) {
      const Step& step = program_.steps()[at];
      if (step.kind != StepKind::run) continue;
      After after;
      for (; edge != edges.end() && edge->second == at; ++edge) {
        const graphs::Node& node = nodes_[edge->first - range_.from];
        const LaneId lane = program_.steps()[edge->first].lane;
        after.nodes.push_back(node);
        // A Kernel may be a node that copies: the driver knows.
        NodeKind kind = NodeKind::other;
        after.kernels.push_back(driver_->nodeKind(node.handle(), &kind) == Status::ok &&
                                kind == NodeKind::kernel &&
                                program_.deviceOf(lane) == program_.deviceOf(step.lane));
      }
      Driver& own = program_.driverOf(step.lane);
      if (MaybeFailure failure = bind(own)) return failure;
      driver_->label({&program_, 0, at});
      status = add(step, std::move(after), &own == driver_.get() ? nullptr : &own);
      driver_->label({});
      if (status != Status::ok) return failed(step, status);
    }
    if (MaybeFailure failure = bind(*driver_)) return failure;
    return instantiate(made);
  }

 private:
  // What a node comes after, and which of these are kernels of its own device.
  struct After {
    std::vector<graphs::Node> nodes;
    std::vector<bool> kernels;
    void only(graphs::Node node) {
      nodes = {std::move(node)};
      kernels = {false};
    }
  };

  MaybeFailure bind(Driver& driver) {
    if (bound_ == &driver) return std::nullopt;
    if (const Status status = driver.bind(); status != Status::ok) return failureOf(driver, status, "bind");
    bound_ = &driver;
    return std::nullopt;
  }

  // `device`: that of the run, where another one launches the graph; else null.
  Status add(const Step& run, After after, Driver* device) {
    graphs::Node node;
    Status status = poison(run, &after, device);
    if (status == Status::ok && trace_.enabled()) {
      status = definition_.add(&node, after.nodes, NodeParams::record(trace_.event(slot_, run.run, 0)));
      after.only(node);
    }
    if (status == Status::ok) status = addKernel(run, after, device, &node);
    if (status != Status::ok) return status;
    graphs::Node& end = nodes_[run.command - range_.from];
    end = node;
    if (!trace_.enabled()) return Status::ok;
    return definition_.add(&end, {node}, NodeParams::record(trace_.event(slot_, run.run, 1)));
  }

  // The fills come one after the other, since most runs touch one buffer first.
  Status poison(const Step& run, After* after, Driver* device) {
    auto touch =
        std::lower_bound(touches_.begin(), touches_.end(), run.command,
                         [](const FirstTouch& one, std::uint32_t command) { return one.command < command; });
    for (; touch != touches_.end() && touch->command == run.command; ++touch) {
      graphs::Node fill;
      const std::size_t words = program_.spec().buffers[touch->buffer].bytes / sizeof(garbage);
      if (words == 0) continue;
      NodeParams params = NodeParams::fill(address(touch->buffer), garbage, sizeof(garbage), words);
      params.device = device;
      const Status status = definition_.add(&fill, after->nodes, params);
      if (status != Status::ok) return status;
      after->only(fill);
    }
    return Status::ok;
  }

  Status addKernel(const Step& run, After after, Driver* device, graphs::Node* node) {
    const Kernel& kernel = program_.kernel(run.run);
    const std::uint32_t* operands = program_.decoded().operands.data() + run.operands;
    std::vector<DeviceAddress> reads, writes;
    for (std::uint32_t i = 0; i < run.reads; ++i) reads.push_back(address(operands[i]));
    for (std::uint32_t i = 0; i < run.writes; ++i) writes.push_back(address(operands[run.reads + i]));
    if (kernel.form(reads.data(), writes.data()) == Kernel::Form::node) {
      NodeParams params = NodeParams::launch(kernel, std::move(reads), std::move(writes));
      params.device = device;
      if (kernel.waitsForNodes()) params.early = std::move(after.kernels);
      return definition_.add(node, after.nodes, params);
    }
    return graphs::GraphCapture::launch(definition_, node, after.nodes,
                                        program_.service(program_.deviceOf(run.lane)), kernel, reads, writes,
                                        {});
  }

  DeviceAddress address(std::uint32_t buffer) const {
    return program_.memory.address(program_.spec(), buffer, slot_);
  }

  MaybeFailure instantiate(graphs::ExecutableGraph* made) {
    InstantiateResult result = InstantiateResult::success;
    Status status = graphs::ExecutableGraph::instantiate(definition_, {}, made, &result);
    if (status != Status::ok) return failed(status, "graphInstantiate");
    status = made->upload(program_.stream(lane_, slot_));
    if (status != Status::ok) return failed(status, "execUpload");
    return std::nullopt;
  }

  Failure failed(Status status, const char* call) const {
    Failure failure = failureOf(*driver_, status, call);
    failure.lane = program_.spec().lanes[lane_].name;
    return failure;
  }
  Failure failed(const Step& run, Status status) const {
    const std::string& name = program_.spec().nodes[run.subject].name;
    Failure failure = failed(status, "");
    failure.op = "nodeAdd " + name;
    failure.node = static_cast<int>(run.subject);
    return failure;
  }

  Program& program_;
  const Trace& trace_;
  const std::vector<FirstTouch>& touches_;
  const GraphRange& range_;
  const LaneId lane_;
  const std::uint32_t slot_;
  const std::shared_ptr<Driver> driver_;
  const std::shared_ptr<graphs::CleanupQueue> queue_;
  graphs::GraphDefinition definition_;
  Driver* bound_ = nullptr;          // of the device that is current on this thread
  std::vector<graphs::Node> nodes_;  // by run of the range: what its edges lead from
};

// Whether the executables of two slots differ.
bool dependsOnSlot(const Program& program, const GraphRange& range) {
  const ProgramSpec& spec = program.spec();
  for (std::uint32_t at = range.from; at < range.to; ++at) {
    const Step& step = program.steps()[at];
    for (std::uint32_t i = 0; i < step.reads + step.writes; ++i) {
      const std::uint32_t root = spec.buffers[program.decoded().operands[step.operands + i]].root;
      const Life life = spec.buffers[root].life;
      if (life == Life::input || life == Life::output) return true;
      if (life == Life::tick && program.spec().arenas > 1) return true;
    }
  }
  return false;
}

}  // namespace

MaybeFailure PlanGraphs::make(Program& program, const Trace& trace, bool poison) {
  const std::vector<GraphRange>& ranges = program.decoded().graphs;
  const std::vector<FirstTouch> touches = poison ? firstTouches(program) : std::vector<FirstTouch>{};
  executables_.resize(ranges.size());
  for (std::uint32_t graph = 0; graph < ranges.size(); ++graph) {
    if (!program.schedule().launched[graph]) continue;
    const bool slots = trace.enabled() || dependsOnSlot(program, ranges[graph]);
    executables_[graph].resize(slots ? program.spec().inFlight : 1);
    for (std::uint32_t slot = 0; slot < executables_[graph].size(); ++slot)
      if (MaybeFailure failure = Maker(program, trace, touches, graph, slot).make(&executables_[graph][slot]))
        return failure;
  }
  return std::nullopt;
}

std::size_t PlanGraphs::executables() const {
  std::size_t count = 0;
  for (const auto& slots : executables_) count += slots.size();
  return count;
}

}  // namespace braid
