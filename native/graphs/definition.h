#pragma once

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "graphs/cleanup.h"

namespace braid::graphs {

struct GraphRecord;

// A node of a definition: the driver's handle, and the owners of its present parameters. The record stays
// when the node goes; its handle is null then.
struct NodeRecord {
  GraphNode handle = nullptr;
  NodeKind kind = NodeKind::empty;
  std::weak_ptr<GraphRecord> graph;
  OwnerPair owners;
  UserObject object = nullptr;                       // null where the owners are none
  std::vector<std::shared_ptr<GraphRecord>> bodies;  // one of a child node, any of a conditional one
};

// A graph of a hierarchy: the root, a child node's, or a conditional node's body. One record a raw handle, so
// that all views of it see the same.
struct GraphRecord {
  Graph handle = nullptr;  // null when its node has gone
  std::map<GraphNode, std::shared_ptr<NodeRecord>> nodes;
};

// A root graph with everything inside. Any view of any part keeps the whole; the root is destroyed with the
// last one.
struct Hierarchy {
  Hierarchy(std::shared_ptr<Driver> owningDriver, std::shared_ptr<CleanupQueue> ownersQueue, Graph handle);
  ~Hierarchy();
  Hierarchy(const Hierarchy&) = delete;
  Hierarchy& operator=(const Hierarchy&) = delete;

  const std::shared_ptr<Driver> driver;
  const std::shared_ptr<CleanupQueue> queue;
  const std::shared_ptr<GraphRecord> root;
};

// A view of a node. Equal views are of one node, also after it has gone.
class Node {
 public:
  Node() = default;
  bool valid() const { return record_ && record_->handle; }
  GraphNode handle() const { return record_ ? record_->handle : nullptr; }
  NodeKind kind() const { return record_ ? record_->kind : NodeKind::other; }
  OwnerPair owners() const { return record_ ? record_->owners : OwnerPair{}; }
  const void* identity() const { return record_.get(); }
  bool operator==(const Node& other) const { return record_ == other.record_; }

 private:
  friend class GraphDefinition;
  friend class ExecutableGraph;
  friend class GraphCapture;
  Node(std::shared_ptr<Hierarchy> hierarchy, std::shared_ptr<NodeRecord> record)
      : hierarchy_(std::move(hierarchy)), record_(std::move(record)) {}
  std::shared_ptr<Hierarchy> hierarchy_;
  std::shared_ptr<NodeRecord> record_;
};

// A view of a graph. It keeps what its nodes refer to: each version of a node's parameters has one immutable
// pair of owners and one user object, which the driver hands on to clones, executables and launches.
//
// Every change is prepared (all that can fail), made by the driver, and committed (which cannot fail). A
// change that is refused leaves nodes, owners and later instantiations as they were. The driver's rule holds:
// one thread at a time uses a hierarchy, and nothing here locks.
//
// An owner must not keep a view of the graph that holds it: such a cycle runs through the driver, and nobody
// can find it.
class GraphDefinition {
 public:
  GraphDefinition() = default;
  static Status create(std::shared_ptr<Driver> driver, std::shared_ptr<CleanupQueue> queue,
                       GraphDefinition* made);

  bool valid() const { return record_ && record_->handle; }
  Graph handle() const { return record_ ? record_->handle : nullptr; }
  const void* identity() const { return record_.get(); }
  bool operator==(const GraphDefinition& other) const { return record_ == other.record_; }

  Status add(Node* node, const std::vector<Node>& after, const NodeParams& params, OwnerPair owners = {});
  // A graph of its own with the same nodes, bodies and edges, whose nodes keep the same owners.
  Status clone(GraphDefinition* made) const;
  // A copy of the child, whose nodes keep their owners there too. One of the same hierarchy is refused. Where
  // the driver neither shows the child nor takes the node out again, the node stays and keeps them as a
  // whole.
  Status embed(Node* node, const std::vector<Node>& after, GraphDefinition child);
  // Memory of `bytes` bytes, which is freed by a node of kind memFree.
  Status addAllocation(Node* node, const std::vector<Node>& after, std::size_t bytes, DeviceAddress* address);
  Status addConditional(Node* node, const std::vector<Node>& after, Condition condition, ConditionalKind kind,
                        std::vector<GraphDefinition>* bodies, std::size_t bodyCount);
  Status condition(Condition* condition, bool assign, std::uint32_t initial);

  // New parameters with new owners, for later instantiations.
  Status update(const Node& node, const NodeParams& params, OwnerPair owners = {});
  // Another child in a child node. One of the same hierarchy is refused. Once the driver has taken it nothing
  // can fail: where owners are not found node by node, the new child keeps them as a whole.
  Status updateChild(const Node& node, GraphDefinition child);
  // Destroying a node that has gone is no error.
  Status destroy(const Node& node);

  Status addEdge(const Node& from, const Node& to);
  Status removeEdge(const Node& from, const Node& to);
  // Nodes that were made behind this class's back are among them, without owners.
  Status nodes(std::vector<Node>* nodes) const;
  Status edges(std::vector<std::pair<Node, Node>>* edges) const;
  // The graphs inside a child or conditional node.
  std::vector<GraphDefinition> bodies(const Node& node) const;
  Status dot(std::string* text) const;

 private:
  friend class ExecutableGraph;
  friend class GraphCapture;
  struct Staged;
  struct Import;
  GraphDefinition(std::shared_ptr<Hierarchy> hierarchy, std::shared_ptr<GraphRecord> record)
      : hierarchy_(std::move(hierarchy)), record_(std::move(record)) {}

  Driver& driver() const { return *hierarchy_->driver; }
  Status handles(const std::vector<Node>& nodes, std::vector<GraphNode>* handles) const;
  bool holds(const Node& node) const;
  Status stage(OwnerPair owners, Staged* staged) const;
  void rollBack(Staged& staged) const;
  Status adopt(const Node& node, const GraphDefinition& child) const;
  Status importOwners(const GraphRecord& from, const std::shared_ptr<GraphRecord>& to) const;
  // Puts a copy in the place of a graph that is inside another one: no driver puts such a graph in a node.
  static Status setApart(GraphDefinition* child);
  Node view(GraphNode handle) const;
  // The driver has destroyed the graph: nothing of its hierarchy is touched any more.
  void lose();
  static void forget(GraphRecord& graph);
  static void forget(NodeRecord& node);

  std::shared_ptr<Hierarchy> hierarchy_;
  std::shared_ptr<GraphRecord> record_;
};

}  // namespace braid::graphs
