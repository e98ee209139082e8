// What a launch of an executable graph costs the thread that queues it, without JavaScript: chains of nodes
// that do nothing, and of fills of four bytes. spec/bench/graph-launches.ts has the same from JavaScript.
#include "graphs/executable.h"
#include "tools/bench/bench.h"

namespace braid::bench {
namespace {

constexpr int nodeCount = 1000;
// Launches in a row on an idle device.
constexpr int inARow = 10;

void launches(const Run& run, const char* kind, const NodeParams& params) {
  const std::shared_ptr<Driver> driver(std::shared_ptr<void>(), &run.driver);
  const auto queue = std::make_shared<graphs::CleanupQueue>();
  graphs::GraphDefinition definition;
  const Status made = graphs::GraphDefinition::create(driver, queue, &definition);
  if (made == Status::notSupported) return;
  must(run.driver, made, "graphCreate");
  std::vector<graphs::Node> last;
  for (int i = 0; i < nodeCount; ++i) {
    graphs::Node node;
    must(run.driver, definition.add(&node, last, params), "nodeAdd");
    last = {node};
  }
  graphs::ExecutableGraph executable;
  InstantiateResult result = InstantiateResult::error;
  must(run.driver, graphs::ExecutableGraph::instantiate(definition, {}, &executable, &result),
       "graphInstantiate");
  Stream stream = nullptr;
  must(run.driver, run.driver.streamCreate(&stream, 0), "streamCreate");
  std::vector<double> each;
  // The first launches upload the graph.
  for (int turn = -3; turn < 5 * run.repeats; ++turn) {
    must(run.driver, run.driver.streamSynchronize(stream), "streamSynchronize");
    const auto began = Clock::now();
    for (int i = 0; i < inARow; ++i) must(run.driver, executable.launch(stream), "execLaunch");
    if (turn >= 0) each.push_back(nanoseconds(Clock::now() - began) / inARow / 1000);
  }
  must(run.driver, run.driver.streamSynchronize(stream), "streamSynchronize");
  run.driver.streamDestroy(stream);
  Line("graph-launches", kind).add(spread(each), "us a launch").add("nodes", nodeCount);
}

}  // namespace

void graphLaunches(const Run& run) {
  DeviceAddress memory = 0;
  must(run.driver, run.driver.memAllocate(&memory, 256), "memAllocate");
  launches(run, "empty", NodeParams::empty());
  launches(run, "fill", NodeParams::fill(memory, 1, 1, 4));
  run.driver.memFree(memory);
}

}  // namespace braid::bench
