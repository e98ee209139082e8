#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "host/graph_run.h"

namespace braid::host {

struct GraphData;

// A node of a definition. Its dependencies are nodes of the same graph, in the order in which they were
// given.
struct NodeData {
  std::uint64_t id = 0;
  GraphData* graph = nullptr;
  std::uint64_t original = 0;  // of a clone: the node that it was made of
  NodeKind kind = NodeKind::empty;
  Work work;
  std::uint64_t event = 0;
  std::shared_ptr<GraphRange> memory;
  WorkLabel label;
  HostDriver* device = nullptr;
  Condition condition = 0;
  ConditionalKind conditional = ConditionalKind::branch;
  std::vector<std::unique_ptr<GraphData>> bodies;  // one of a child node, any of a conditional one
  std::vector<NodeData*> dependencies;
};

// A definition: a root, the graph of a child node, or a conditional node's body.
struct GraphData {
  explicit GraphData(UserObjects* objects) : users(objects) {}
  std::uint64_t id = 0;
  NodeData* owner = nullptr;  // null: a root
  std::vector<std::unique_ptr<NodeData>> nodes;
  UserReferences users;
  std::vector<Image::Initial> conditions;  // made for this graph

  const GraphData* root() const { return owner ? owner->graph->root() : this; }
  // Whether the graph is a conditional node's body, or inside one.
  bool isConditional() const;
  // Whether a node of this graph, or of one inside it, is of such a kind.
  bool contains(NodeKind kind) const;
  // Whether it has memory nodes, here or inside.
  bool hasMemory() const { return contains(NodeKind::memAllocate); }
  // Whether a condition was made for this graph, for one inside it, or for one that it is inside of.
  bool hasCondition() const;
};

// A deep copy. `named` gives every copied graph and node its handle.
std::unique_ptr<GraphData> copyGraph(const GraphData& from, UserObjects* objects,
                                     const std::function<void(GraphData&)>& namedGraph,
                                     const std::function<void(NodeData&)>& namedNode);

// The executable copy. On a cycle, or a condition that no node reads, null and *result says which.
std::shared_ptr<Image> makeImage(const GraphData& graph, InstantiateResult* result);
// The references to user objects of the graph and of all inside it.
void collectUsers(const GraphData& graph, UserReferences* users);

// Whether an executable of `before` may become `after`: the same nodes with the same edges, in the same
// order.
UpdateResult comparable(const Image& before, const Image& after);

std::string dotText(const GraphData& graph);

}  // namespace braid::host
