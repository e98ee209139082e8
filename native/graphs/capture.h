#pragma once

#include <functional>
#include <set>

#include "graphs/definition.h"

namespace braid::graphs {

// A capture of a stream, with the owners of what is captured. Streams that wait for its events join it; what
// they capture is attached through it too.
class GraphCapture {
 public:
  GraphCapture() = default;
  ~GraphCapture() { abandon(); }
  GraphCapture(const GraphCapture&) = delete;
  GraphCapture& operator=(const GraphCapture&) = delete;

  Status begin(std::shared_ptr<Driver> driver, std::shared_ptr<CleanupQueue> queue, Stream stream,
               CaptureMode mode);
  // Into a graph that exists, such as a conditional node's body, after these of its nodes. With `restores`
  // the graph is as it was before where the capture is abandoned, or does not end; else its owner gives it
  // up.
  Status beginOnto(const GraphDefinition& definition, Stream stream, CaptureMode mode,
                   const std::vector<Node>& after = {}, bool restores = false);

  bool capturing() const { return stream_ != nullptr; }
  // Does `work`, which queues something on a stream of this capture, and keeps the owners with the node that
  // it becomes. Where that node cannot be told, the graph keeps them. `made`: the node of a graph that
  // existed before, if it is told; only work with owners is.
  Status work(Stream stream, OwnerPair owners, const std::function<Status()>& work, Node* made = nullptr);
  // The graph that the stream captures into keeps the owners, without a node.
  Status retain(Stream stream, OwnerPair owners);
  // A node that is no work of the stream's, after what the stream has captured so far, with its owners.
  Status add(Stream stream, const NodeParams& params, OwnerPair owners);
  // A copy of the child, after what the stream has captured so far.
  Status embed(Stream stream, GraphDefinition child);
  // The same for a conditional node of the definition that is captured into.
  Status addConditional(Stream stream, Condition condition, ConditionalKind kind, std::size_t bodyCount,
                        Node* node);
  // The graph, or after a failure nothing; the stream is an ordinary one again either way. The driver
  // destroys the graph of a capture that is invalid, one that existed before too: no view of its hierarchy is
  // valid then.
  Status end(GraphDefinition* made);
  // Ends a capture into a graph that existed before. `last`: the node after which the stream's next work
  // would have come.
  Status endOnto(Node* last);
  // Ends an unfinished capture, so that its stream can be used, and drops what was captured.
  void abandon();
  // Whether the graph is as it was before, after a capture with `restores` that was abandoned or did not end.
  bool restored() const { return restored_; }

  // A launch of a kernel that is no single node, such as a library's product, on an idle stream: its nodes
  // become the definition's own, the first of them after `after`, and `last` is the last one, which has the
  // owners.
  static Status launch(const GraphDefinition& definition, Node* last, const std::vector<Node>& after,
                       Stream idle, const Kernel& kernel, const std::vector<DeviceAddress>& reads,
                       const std::vector<DeviceAddress>& writes, OwnerPair owners);

 private:
  // The graph that a stream of this capture adds to, and the nodes that the next one comes after.
  Status tail(Stream stream, CaptureInfo* info);
  // The same, as nodes of the definition that is captured into.
  Status tail(Stream stream, std::vector<Node>* after);
  Status attach(Graph graph, OwnerPair owners, UserObject* object);
  // The nodes that the graph did not have when the capture began.
  Status added(Graph graph, std::vector<GraphNode>* nodes) const;
  Status joined(const CaptureInfo& info, bool* joined) const;
  // Ends the driver's capture, however its streams are joined, and takes what it added out of the graph.
  Status giveUp();
  Status takeOut(GraphDefinition definition);
  std::shared_ptr<Driver> driver_;
  std::shared_ptr<CleanupQueue> queue_;
  GraphDefinition onto_;  // valid where the graph existed before
  Stream stream_ = nullptr;
  std::map<GraphNode, std::shared_ptr<NodeRecord>> attached_;
  bool restores_ = false, restored_ = true;
  std::set<GraphNode> before_;       // the nodes that the graph had, where it is restored
  std::vector<UserObject> unnamed_;  // held by the graph for this capture, and by no node of it that is told
};

}  // namespace braid::graphs
