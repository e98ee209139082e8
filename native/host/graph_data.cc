#include "host/graph_data.h"

#include <algorithm>
#include <set>

namespace braid::host {

bool GraphData::isConditional() const {
  if (owner == nullptr) return false;
  return owner->kind == NodeKind::conditional || owner->graph->isConditional();
}

bool GraphData::contains(NodeKind kind) const {
  return std::ranges::any_of(nodes, [&](const auto& node) {
    return node->kind == kind ||
           std::ranges::any_of(node->bodies, [&](const auto& body) { return body->contains(kind); });
  });
}

namespace {

bool hasConditionInside(const GraphData& graph) {
  return !graph.conditions.empty() || std::ranges::any_of(graph.nodes, [](const auto& node) {
    return std::ranges::any_of(node->bodies, [](const auto& body) { return hasConditionInside(*body); });
  });
}

}  // namespace

bool GraphData::hasCondition() const { return hasConditionInside(*root()); }

std::unique_ptr<GraphData> copyGraph(const GraphData& from, UserObjects* objects,
                                     const std::function<void(GraphData&)>& namedGraph,
                                     const std::function<void(NodeData&)>& namedNode) {
  auto made = std::make_unique<GraphData>(objects);
  namedGraph(*made);
  made->users.add(from.users);
  std::unordered_map<const NodeData*, NodeData*> copies;
  for (const auto& node : from.nodes) {
    auto copy = std::make_unique<NodeData>();
    copy->graph = made.get();
    copy->original = node->id;
    copy->kind = node->kind;
    copy->work = node->work;
    copy->event = node->event;
    copy->label = node->label;
    copy->device = node->device;
    namedNode(*copy);
    for (const auto& body : node->bodies) {
      copy->bodies.push_back(copyGraph(*body, objects, namedGraph, namedNode));
      copy->bodies.back()->owner = copy.get();
    }
    copies[node.get()] = copy.get();
    made->nodes.push_back(std::move(copy));
  }
  for (const auto& node : from.nodes)
    for (const NodeData* dependency : node->dependencies)
      copies[node.get()]->dependencies.push_back(copies[dependency]);
  return made;
}

namespace {

bool acyclic(const Image& image) {
  std::vector<std::size_t> waitsFor;
  std::vector<std::uint32_t> ready;
  for (std::uint32_t i = 0; i < image.nodes.size(); ++i) {
    waitsFor.push_back(image.nodes[i].dependencies.size());
    if (waitsFor.back() == 0) ready.push_back(i);
  }
  std::size_t left = image.nodes.size();
  while (!ready.empty()) {
    const std::uint32_t node = ready.back();
    ready.pop_back();
    --left;
    for (const std::uint32_t dependent : image.nodes[node].dependents)
      if (--waitsFor[dependent] == 0) ready.push_back(dependent);
  }
  return left == 0;
}

struct Conditions {
  std::vector<Image::Initial> made;
  std::set<Condition> used;
};

std::shared_ptr<Image> imageOf(const GraphData& graph, Conditions* conditions, InstantiateResult* result) {
  auto image = std::make_shared<Image>();
  image->nodes.resize(graph.nodes.size());
  for (std::uint32_t i = 0; i < graph.nodes.size(); ++i) image->indexOf[graph.nodes[i]->id] = i;
  conditions->made.insert(conditions->made.end(), graph.conditions.begin(), graph.conditions.end());
  for (std::uint32_t i = 0; i < graph.nodes.size(); ++i) {
    const NodeData& node = *graph.nodes[i];
    ImageNode& made = image->nodes[i];
    made.kind = node.kind;
    made.work = node.work;
    made.event = node.event;
    made.memory = node.memory;
    made.label = node.label;
    made.device = node.device;
    made.condition = node.condition;
    made.conditional = node.conditional;
    made.source = node.id;
    if (node.kind == NodeKind::conditional) conditions->used.insert(node.condition);
    for (const NodeData* dependency : node.dependencies)
      made.dependencies.push_back(image->indexOf[dependency->id]);
    std::ranges::sort(made.dependencies);
    for (const std::uint32_t dependency : made.dependencies) image->nodes[dependency].dependents.push_back(i);
    for (const auto& body : node.bodies) {
      auto inner = imageOf(*body, conditions, result);
      if (!inner) return nullptr;
      made.bodies.push_back(std::move(inner));
    }
  }
  if (!acyclic(*image)) {
    *result = InstantiateResult::invalidStructure;
    return nullptr;
  }
  return image;
}

void writeDot(const GraphData& graph, std::string* text, const std::string& indent) {
  const auto name = [](const NodeData& node) { return "n" + std::to_string(node.id & 0xffffffffffff); };
  for (const auto& node : graph.nodes) {
    *text += indent + name(*node) + " [label=\"" + nodeKindName(node->kind) + "\"];\n";
    for (std::size_t i = 0; i < node->bodies.size(); ++i) {
      *text += indent + "subgraph cluster_" + name(*node) + "_" + std::to_string(i) + " {\n";
      *text += indent + "  label=\"" + nodeKindName(node->kind) + " " + std::to_string(i) + "\";\n";
      writeDot(*node->bodies[i], text, indent + "  ");
      *text += indent + "}\n";
    }
  }
  for (const auto& node : graph.nodes)
    for (const NodeData* dependency : node->dependencies)
      *text += indent + name(*dependency) + " -> " + name(*node) + ";\n";
}

}  // namespace

std::shared_ptr<Image> makeImage(const GraphData& graph, InstantiateResult* result) {
  Conditions conditions;
  auto image = imageOf(graph, &conditions, result);
  if (!image) return nullptr;
  for (const Image::Initial& made : conditions.made)
    if (!conditions.used.contains(made.condition)) {
      *result = InstantiateResult::conditionUnused;
      return nullptr;
    }
  image->conditions = std::move(conditions.made);
  *result = InstantiateResult::success;
  return image;
}

void collectUsers(const GraphData& graph, UserReferences* users) {
  users->add(graph.users);
  for (const auto& node : graph.nodes)
    for (const auto& body : node->bodies) collectUsers(*body, users);
}

UpdateResult comparable(const Image& before, const Image& after) {
  if (before.nodes.size() != after.nodes.size()) return UpdateResult::topologyChanged;
  for (std::size_t i = 0; i < before.nodes.size(); ++i) {
    const ImageNode& a = before.nodes[i];
    const ImageNode& b = after.nodes[i];
    if (a.dependencies != b.dependencies) return UpdateResult::topologyChanged;
    if (a.kind != b.kind) return UpdateResult::nodeKindChanged;
    if (a.device != b.device) return UpdateResult::parametersChanged;
    if (a.memory != b.memory) return UpdateResult::notSupported;
    if (a.kind == NodeKind::copy && a.work.copyKind != b.work.copyKind)
      return UpdateResult::parametersChanged;
    if (a.kind == NodeKind::conditional &&
        (a.conditional != b.conditional || a.bodies.size() != b.bodies.size()))
      return UpdateResult::parametersChanged;
    for (std::size_t body = 0; body < a.bodies.size(); ++body)
      if (const UpdateResult inner = comparable(*a.bodies[body], *b.bodies[body]);
          inner != UpdateResult::success)
        return inner;
  }
  return UpdateResult::success;
}

std::string dotText(const GraphData& graph) {
  std::string text = "digraph {\n";
  writeDot(graph, &text, "  ");
  return text + "}\n";
}

}  // namespace braid::host
