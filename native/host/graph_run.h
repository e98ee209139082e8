#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "driver/driver.h"
#include "host/graph_memory.h"
#include "host/handle_table.h"
#include "host/stream.h"
#include "host/user_objects.h"

namespace braid::host {

struct Image;
class HostDriver;

// A node of an executable graph. Dependencies are indices into the image's nodes.
struct ImageNode {
  NodeKind kind = NodeKind::empty;
  bool enabled = true;
  Work work;                           // kernel, copy, fill, host function
  std::uint64_t event = 0;             // eventWait, eventRecord: the event's handle
  std::shared_ptr<GraphRange> memory;  // memAllocate, memFree
  // Of the thread that made the node: a launch of the same owner reports this step, in its own tick.
  WorkLabel label;
  HostDriver* device = nullptr;  // whose engines and memory the work uses; null: the launching device's
  Condition condition = 0;
  ConditionalKind conditional = ConditionalKind::branch;
  std::vector<std::shared_ptr<const Image>> bodies;  // one of a child node, any of a conditional one
  std::uint64_t source = 0;                          // the definition's node
  std::vector<std::uint32_t> dependencies;           // ascending
  std::vector<std::uint32_t> dependents;
};

// The nodes of an executable graph, or of one inside it.
struct Image {
  struct Initial {
    Condition condition = 0;
    bool assign = false;
    std::uint32_t value = 0;
  };
  std::vector<ImageNode> nodes;
  std::vector<Initial> conditions;
  std::unordered_map<std::uint64_t, std::uint32_t> indexOf;  // by source
};

// The points of nodes that record events, one for each run of a node. Each is used again once it is reached,
// and counts on, so that earlier marks stay valid.
class Points {
 public:
  Mark take();
  void reach(const Mark& point, Time time);

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<Progress>> made_;
  std::vector<std::pair<Progress*, std::uint64_t>> free_;  // with the pieces done
};

// A device's streams and points: whatever a mark can refer to. Shared with the pieces of other devices that
// wait for one.
struct Marks {
  explicit Marks(std::uint16_t streamTag) : streams(streamTag) {}
  HandleTable<StreamQueue> streams;
  Points points;
};

// Threads that run the nodes of all graphs of a device beside the threads of the streams that launched them.
// The launching stream's thread runs nodes too, so a launch goes on even where all others are blocked.
class GraphEngine {
 public:
  GraphEngine(Context* context, Points* points);
  ~GraphEngine();
  Context& context() { return *context_; }

  // Runs all nodes; returns the engines' time at which the last one is done.
  Time run(GraphLaunch& launch, const Image& image, Time ready);
  Points& points() { return *points_; }

 private:
  struct Run;
  void offer(Run& run);
  void withdraw(Run& run);
  void assist();
  void step(Run& run, std::unique_lock<std::mutex>& lock);
  void serve();

  Context* const context_;
  Points* const points_;
  const std::size_t most_;  // threads
  std::mutex mutex_;
  std::condition_variable work_;
  std::deque<Run*> offered_;  // runs with nodes that are ready
  std::size_t idle_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

// One launch of an executable, in its stream's queue.
class GraphLaunch {
 public:
  GraphLaunch(GraphEngine* engine, std::shared_ptr<const Image> image,
              std::shared_ptr<const UserReferences> users,
              std::shared_ptr<std::atomic<std::uint64_t>> flights);
  ~GraphLaunch() { flights_->fetch_sub(1, std::memory_order_release); }
  GraphLaunch(const GraphLaunch&) = delete;
  GraphLaunch& operator=(const GraphLaunch&) = delete;

  // Set by the call, before the launch is queued.
  WorkLabel label;
  std::vector<Mark> previous;          // launches that come before this one
  std::shared_ptr<const void> memory;  // holds what its nodes allocate
  std::uint64_t jitter = 0;
  struct Point {
    EventState* event = nullptr;
    Mark mark;
    std::shared_ptr<const void> keep;
  };
  std::unordered_map<const ImageNode*, Point> points;                      // of event nodes
  std::unordered_map<const ImageNode*, const HostOptions::Fault*> faults;  // of nodes that have one

  Time run(Time ready);
  Time perform(const ImageNode& node, Time ready);
  void setCondition(Condition condition, std::uint32_t value);
  // The launch whose node the calling thread runs, or null.
  static GraphLaunch* current();

 private:
  std::uint32_t condition(Condition condition);
  Time performBodies(const ImageNode& node, Time ready);

  GraphEngine* const engine_;
  const std::shared_ptr<const Image> image_;
  const std::shared_ptr<const UserReferences> users_;  // released with the launch
  const std::shared_ptr<std::atomic<std::uint64_t>> flights_;
  std::mutex mutex_;
  std::unordered_map<Condition, std::uint32_t> conditions_;
  std::atomic<std::uint64_t> performed_{0};
};

}  // namespace braid::host
