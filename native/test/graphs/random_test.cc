// Random graphs against a serial oracle: the edges alone order the nodes, and every order that they allow
// gives the same values.
#include <algorithm>
#include <set>

#include "test/graphs/support.h"

namespace braid::test {
namespace {

struct Random {
  std::uint64_t state;
  std::uint64_t below(std::uint64_t bound) {
    std::uint64_t z = (state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (z ^ (z >> 31)) % bound;
  }
};

constexpr std::size_t kCells = 6;  // on the device, and as many in pinned memory

// One step over cells 0 … 5 (device) and 6 … 11 (pinned). Affine steps do not commute, so the values prove
// the order.
struct Step {
  enum class Kind { fill, copy, affine } kind = Kind::fill;
  std::size_t to = 0, from = 0;
  std::uint32_t value = 0;

  bool conflicts(const Step& later) const {
    const auto reads = [](const Step& step, std::size_t cell) {
      return (step.kind == Kind::copy && step.from == cell) || (step.kind == Kind::affine && step.to == cell);
    };
    return to == later.to || reads(later, to) || reads(*this, later.to);
  }
  void apply(std::vector<std::uint32_t>& cells) const {
    if (kind == Kind::fill) cells[to] = value;
    if (kind == Kind::copy) cells[to] = cells[from];
    if (kind == Kind::affine) cells[to] = cells[to] * 3 + value;
  }
};

std::vector<Step> randomSteps(Random& random, std::size_t count) {
  std::vector<Step> steps;
  while (steps.size() < count) {
    Step step;
    step.value = static_cast<std::uint32_t>(random.below(1000));
    const auto kind = random.below(3);
    if (kind == 0) {
      step.to = random.below(kCells);
    } else if (kind == 1) {
      step.kind = Step::Kind::copy;
      step.to = random.below(2 * kCells);
      step.from = random.below(2 * kCells);
      if (step.from == step.to || (step.from >= kCells && step.to >= kCells)) continue;
    } else {
      step.kind = Step::Kind::affine;
      step.to = kCells + random.below(kCells);
    }
    steps.push_back(step);
  }
  return steps;
}

struct Affine {
  std::uint32_t* cell;
  std::uint32_t value;
  static void run(void* data) {
    const auto* step = static_cast<const Affine*>(data);
    *step->cell = *step->cell * 3 + step->value;
  }
};

class RandomGraphs : public GraphDevice {
 protected:
  // Cells 16 words apart.
  void makeCells() {
    device_ = words(kCells * 16);
    host_ = pinned(kCells * 16);
  }
  DeviceAddress cell(std::size_t index) const {
    return index < kCells ? device_ + index * 64 : at(host_ + (index - kCells) * 16);
  }
  static CopyKind direction(const Step& step) {
    if (step.to >= kCells) return CopyKind::deviceToHost;
    return step.from >= kCells ? CopyKind::hostToDevice : CopyKind::deviceToDevice;
  }
  NodeParams params(const Step& step, std::vector<std::unique_ptr<Affine>>& data) {
    if (step.kind == Step::Kind::fill) return NodeParams::fill(cell(step.to), step.value, 4, 1);
    if (step.kind == Step::Kind::copy)
      return NodeParams::copy(direction(step), cell(step.to), cell(step.from), 4);
    data.push_back(std::make_unique<Affine>(Affine{host_ + (step.to - kCells) * 16, step.value}));
    return NodeParams::host(Affine::run, data.back().get());
  }
  std::vector<std::uint32_t> start() {
    std::vector<std::uint32_t> cells;
    for (std::uint32_t i = 0; i < 2 * kCells; ++i) cells.push_back(i + 1);
    std::vector<std::uint32_t> spread(kCells * 16);
    for (std::size_t i = 0; i < kCells; ++i) {
      spread[i * 16] = cells[i];
      host_[i * 16] = cells[kCells + i];
    }
    write(device_, spread);
    return cells;
  }
  std::vector<std::uint32_t> values() {
    const std::vector<std::uint32_t> spread = read(device_, kCells * 16);
    std::vector<std::uint32_t> cells;
    for (std::size_t i = 0; i < kCells; ++i) cells.push_back(spread[i * 16]);
    for (std::size_t i = 0; i < kCells; ++i) cells.push_back(host_[i * 16]);
    return cells;
  }
  void expectAsSerial(GraphExec exec, const std::vector<Step>& steps, int launches) {
    std::vector<std::uint32_t> wanted = start();
    const Stream on = stream();
    for (int i = 0; i < launches; ++i) {
      for (const Step& step : steps) step.apply(wanted);
      ASSERT_EQ(driver_->execLaunch(exec, on), Status::ok) << driver_->lastDetail();
    }
    ASSERT_EQ(driver_->streamSynchronize(on), Status::ok) << driver_->lastDetail();
    EXPECT_EQ(values(), wanted);
  }

  DeviceAddress device_ = 0;
  std::uint32_t* host_ = nullptr;
};

TEST_P(RandomGraphs, TheEdgesOrderTheNodes) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(seed);
    openJittered(seed);
    if (IsSkipped()) return;
    makeCells();
    Random random{seed};
    const std::vector<Step> steps = randomSteps(random, 2 + random.below(40));
    std::vector<std::unique_ptr<Affine>> data;
    const Graph made = graph();
    std::vector<GraphNode> nodes;
    std::vector<std::set<std::size_t>> before;  // of each node, transitively
    for (std::size_t i = 0; i < steps.size(); ++i) {
      std::vector<GraphNode> after;
      std::set<std::size_t> known;
      for (std::size_t j = i; j-- > 0;) {
        // An edge that others imply is left out at times.
        if (!steps[j].conflicts(steps[i]) || (known.contains(j) && random.below(4) > 0)) continue;
        after.push_back(nodes[j]);
        known.insert(j);
        known.insert(before[j].begin(), before[j].end());
      }
      // Some nodes go into a child graph, which is as good as the node itself.
      if (random.below(5) == 0) {
        const Graph child = graph();
        add(child, params(steps[i], data));
        nodes.push_back(add(made, NodeParams::embed(child), after));
        driver_->graphDestroy(child);
      } else {
        nodes.push_back(add(made, params(steps[i], data), after));
      }
      before.push_back(std::move(known));
    }
    Graph run = made;
    if (random.below(2) == 0) {
      ASSERT_EQ(driver_->graphClone(&run, made), Status::ok);
      driver_->graphDestroy(made);
    }
    const GraphExec exec = instantiate(run);
    driver_->graphDestroy(run);  // the executable is a copy
    expectAsSerial(exec, steps, 4);
    EXPECT_EQ(driver_->execDestroy(exec), Status::ok);
  }
}

TEST_P(RandomGraphs, ACaptureKeepsTheOrderOfItsStreams) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(seed);
    openJittered(seed);
    if (IsSkipped()) return;
    makeCells();
    Random random{seed};
    const std::vector<Step> steps = randomSteps(random, 2 + random.below(30));
    std::vector<std::unique_ptr<Affine>> data;
    constexpr std::size_t lanes = 3;
    const std::vector<Stream> on{stream(), stream(), stream()};
    ASSERT_EQ(driver_->captureBegin(on[0], CaptureMode::relaxed), Status::ok);
    const Event fork = event();
    ASSERT_EQ(driver_->eventRecord(fork, on[0]), Status::ok);
    for (std::size_t lane = 1; lane < lanes; ++lane)
      ASSERT_EQ(driver_->streamWait(on[lane], fork), Status::ok) << driver_->lastDetail();
    std::vector<std::size_t> laneOf;
    std::vector<Event> done;
    for (std::size_t i = 0; i < steps.size(); ++i) {
      laneOf.push_back(random.below(lanes));
      const Stream here = on[laneOf[i]];
      for (std::size_t j = 0; j < i; ++j) {
        if (laneOf[j] == laneOf[i] || !steps[j].conflicts(steps[i])) continue;
        ASSERT_EQ(driver_->streamWait(here, done[j]), Status::ok) << driver_->lastDetail();
      }
      const Step& step = steps[i];
      if (step.kind == Step::Kind::fill) {
        ASSERT_EQ(driver_->fill32(cell(step.to), step.value, 1, here), Status::ok);
      } else if (step.kind == Step::Kind::copy) {
        ASSERT_EQ(driver_->copy(direction(step), cell(step.to), cell(step.from), 4, here), Status::ok);
      } else {
        const NodeParams host = params(step, data);
        ASSERT_EQ(driver_->hostFunction(here, host.function, host.data), Status::ok);
      }
      done.push_back(event());
      ASSERT_EQ(driver_->eventRecord(done[i], here), Status::ok);
    }
    for (std::size_t lane = 1; lane < lanes; ++lane) {
      const Event end = event();
      ASSERT_EQ(driver_->eventRecord(end, on[lane]), Status::ok);
      ASSERT_EQ(driver_->streamWait(on[0], end), Status::ok);
    }
    Graph made = nullptr;
    ASSERT_EQ(driver_->captureEnd(on[0], &made), Status::ok) << driver_->lastDetail();
    std::vector<GraphNode> nodes;
    ASSERT_EQ(driver_->graphNodes(made, &nodes), Status::ok);
    EXPECT_EQ(nodes.size(), steps.size());
    const GraphExec exec = instantiate(made);
    driver_->graphDestroy(made);
    expectAsSerial(exec, steps, 3);
    EXPECT_EQ(driver_->execDestroy(exec), Status::ok);
  }
}

TEST_P(RandomGraphs, UpdatesReachLaterLaunchesOnly) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    openJittered(seed);
    if (IsSkipped()) return;
    Random random{seed};
    constexpr std::size_t count = 5, turns = 40;
    const DeviceAddress memory = words(count);
    std::uint32_t* seen = pinned(count * turns);
    const auto fill = [&](std::size_t i, std::uint32_t value) {
      return NodeParams::fill(memory + 4 * i, value, 4, 1);
    };
    const auto definition = [&](const std::vector<std::uint32_t>& values, std::vector<GraphNode>* nodes) {
      const Graph made = graph();
      for (std::size_t i = 0; i < count; ++i) {
        const GraphNode node = add(made, fill(i, values[i]));
        if (nodes) nodes->push_back(node);
      }
      return made;
    };
    // The model: what each node writes, whether it does, and the memory.
    std::vector<std::uint32_t> values(count, 1), cells(count, 0), wanted;
    std::vector<bool> enabled(count, true);
    std::vector<GraphNode> nodes;
    const Graph made = definition(values, &nodes);
    const GraphExec exec = instantiate(made);
    write(memory, cells);
    const Stream on = stream();
    for (std::uint32_t turn = 0; turn < turns; ++turn) {
      const std::size_t i = random.below(count);
      const std::uint32_t value = 2 + turn;
      if (const auto what = random.below(8); what < 4) {
        ASSERT_EQ(driver_->execNodeUpdate(exec, nodes[i], fill(i, value)), Status::ok);
        values[i] = value;
      } else if (what < 6) {
        ASSERT_EQ(driver_->execNodeEnable(exec, nodes[i], !enabled[i]), Status::ok);
        enabled[i] = !enabled[i];
      } else if (std::ranges::count(enabled, true) == static_cast<std::ptrdiff_t>(count)) {
        values.assign(count, value);
        const Graph other = definition(values, nullptr);
        UpdateResult result = UpdateResult::error;
        ASSERT_EQ(driver_->execUpdate(exec, other, &result), Status::ok) << driver_->lastDetail();
        driver_->graphDestroy(other);
      }
      ASSERT_EQ(driver_->execLaunch(exec, on), Status::ok);
      ASSERT_EQ(driver_->copy(CopyKind::deviceToHost, at(seen + count * turn), memory, 4 * count, on),
                Status::ok);
      for (std::size_t each = 0; each < count; ++each)
        if (enabled[each]) cells[each] = values[each];
      wanted.insert(wanted.end(), cells.begin(), cells.end());
    }
    ASSERT_EQ(driver_->streamSynchronize(on), Status::ok) << driver_->lastDetail();
    EXPECT_EQ(std::vector<std::uint32_t>(seen, seen + count * turns), wanted);
    driver_->execDestroy(exec);
    driver_->graphDestroy(made);
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, RandomGraphs, ::testing::Values("host", "cuda"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace braid::test
