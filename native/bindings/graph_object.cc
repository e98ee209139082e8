// The NativeGraph of runtime/addon.ts. TypeScript has checked the arguments.
#include "bindings/graph_object.h"

#include "bindings/checks.h"
#include "bindings/convert.h"
#include "bindings/graph_params.h"
#include "bindings/handle.h"

namespace braid::bindings {

using graphs::GraphDefinition;
using graphs::Node;
using Shared = std::shared_ptr<GraphObject>;

GraphObject::GraphObject(std::shared_ptr<AllocatorDevice> owner, GraphDefinition root)
    : GraphPart(std::move(owner)) {
  numberOf(root);
}

void GraphObject::end() {
  if (device->driver) device->driver->bind();
  nodes_.clear();
  graphs_.clear();
  nodeNumbers_.clear();
  graphNumbers_.clear();
}

GraphDefinition& GraphObject::graph(Napi::Value number) {
  const auto found = graphs_.find(static_cast<std::uint32_t>(integerAt(number, "graph", 0, UINT32_MAX)));
  if (found == graphs_.end()) throw Napi::RangeError::New(number.Env(), "there is no such graph");
  return found->second;
}

Node& GraphObject::node(Napi::Value number) {
  const auto found = nodes_.find(static_cast<std::uint32_t>(integerAt(number, "node", 0, UINT32_MAX)));
  if (found == nodes_.end()) throw Napi::RangeError::New(number.Env(), "there is no such node");
  return found->second;
}

std::vector<Node> GraphObject::nodesAt(Napi::Value numbers) {
  const Napi::Array list = arrayAt(numbers, "nodes");
  std::vector<Node> found;
  for (std::uint32_t i = 0; i < list.Length(); ++i) found.push_back(node(list.Get(i)));
  return found;
}

std::uint32_t GraphObject::numberOf(const GraphDefinition& graph) {
  const auto [place, added] = graphNumbers_.try_emplace(graph.identity(), graphCounter_);
  if (added) graphs_.emplace(graphCounter_++, graph);
  return place->second;
}

std::uint32_t GraphObject::numberOf(const Node& node) {
  const auto [place, added] = nodeNumbers_.try_emplace(node.identity(), nodeCounter_);
  if (added) nodes_.emplace(nodeCounter_++, node);
  return place->second;
}

Napi::Object GraphObject::sweep(Napi::Env env) {
  const auto gone = [&](auto& alive, auto& numbers) {
    Napi::Array list = Napi::Array::New(env);
    for (auto place = alive.begin(); place != alive.end();) {
      if (place->second.valid()) {
        ++place;
        continue;
      }
      list.Set(list.Length(), static_cast<double>(place->first));
      numbers.erase(place->second.identity());
      place = alive.erase(place);
    }
    return list;
  };
  Napi::Object result = Napi::Object::New(env);
  result.Set("nodes", gone(nodes_, nodeNumbers_));
  result.Set("graphs", gone(graphs_, graphNumbers_));
  return result;
}

namespace {

// The object, with its device's driver current on this thread.
Shared opened(const Napi::CallbackInfo& info) {
  auto graph = self<GraphObject>(info);
  checkBound(info.Env(), *graph->device);
  return graph;
}

void check(const Napi::CallbackInfo& info, GraphObject& graph, Status status, const char* op) {
  checkStatus(info.Env(), *graph.device, status, op);
}

Napi::Value number(const Napi::CallbackInfo& info, std::uint32_t value) {
  return Napi::Number::New(info.Env(), value);
}

// graph, after, params → the node
Napi::Value add(const Napi::CallbackInfo& info) {
  const Shared self = opened(info);
  GraphDefinition& graph = self->graph(info[0]);
  NodeSpec spec = nodeSpec(self->device, objectAt(info[2], "params"));
  Node made;
  check(info, *self, graph.add(&made, self->nodesAt(info[1]), spec.params, std::move(spec.owners)),
        "add a node");
  return number(info, self->numberOf(made));
}

// graph, after, bytes → [the node, the address]
Napi::Value malloc(const Napi::CallbackInfo& info) {
  const Shared self = opened(info);
  Node made;
  DeviceAddress address = 0;
  check(info, *self,
        self->graph(info[0]).addAllocation(&made, self->nodesAt(info[1]), sizeAt(info[2], "bytes"), &address),
        "add a malloc node");
  Napi::Array result = Napi::Array::New(info.Env(), 2);
  result.Set(0u, number(info, self->numberOf(made)));
  result.Set(1u, static_cast<double>(address));
  return result;
}

// graph, after, the child's NativeGraph, its graph → the node
Napi::Value embed(const Napi::CallbackInfo& info) {
  const Shared self = opened(info);
  const Shared child = unwrapped<GraphObject>(info.Env(), info[2]);
  if (!child) throw Napi::TypeError::New(info.Env(), "child must be a NativeGraph");
  Node made;
  check(info, *self, self->graph(info[0]).embed(&made, self->nodesAt(info[1]), child->graph(info[3])),
        "embed a graph");
  return number(info, self->numberOf(made));
}

// graph → a NativeGraph of its own
Napi::Value clone(const Napi::CallbackInfo& info) {
  const Shared self = opened(info);
  GraphDefinition made;
  check(info, *self, self->graph(info[0]).clone(&made), "clone a graph");
  return graphObject(info.Env(), self->device, std::move(made));
}

// graph, initial (or undefined: the value is kept from launch to launch) → the condition
Napi::Value condition(const Napi::CallbackInfo& info) {
  const Shared self = opened(info);
  const bool assign = !absent(info[1]);
  const auto initial = assign ? static_cast<std::uint32_t>(integerAt(info[1], "initial", 0, UINT32_MAX)) : 0;
  Condition made = 0;
  check(info, *self, self->graph(info[0]).condition(&made, assign, initial), "create a condition");
  return Napi::BigInt::New(info.Env(), std::uint64_t{made});
}

// graph, after, condition, kind, count → the node
Napi::Value conditional(const Napi::CallbackInfo& info) {
  const Shared self = opened(info);
  bool lossless = false;
  if (!info[2].IsBigInt()) throw Napi::TypeError::New(info.Env(), "condition must be a bigint");
  const Condition on = info[2].As<Napi::BigInt>().Uint64Value(&lossless);
  const auto kind = static_cast<ConditionalKind>(integerAt(info[3], "kind", 0, 2));
  const auto count = static_cast<std::size_t>(integerAt(info[4], "count", 0, 1 << 16));
  Node made;
  std::vector<GraphDefinition> bodies;
  check(info, *self,
        self->graph(info[0]).addConditional(&made, self->nodesAt(info[1]), on, kind, &bodies, count),
        "add a conditional node");
  return number(info, self->numberOf(made));
}

// graph, node, params
Napi::Value update(const Napi::CallbackInfo& info) {
  const Shared self = opened(info);
  NodeSpec spec = nodeSpec(self->device, objectAt(info[2], "params"));
  check(info, *self, self->graph(info[0]).update(self->node(info[1]), spec.params, std::move(spec.owners)),
        "update a node");
  return info.Env().Undefined();
}

// graph, node, the child's NativeGraph, its graph → what has gone
Napi::Value updateChild(const Napi::CallbackInfo& info) {
  const Shared self = opened(info);
  const Shared child = unwrapped<GraphObject>(info.Env(), info[2]);
  if (!child) throw Napi::TypeError::New(info.Env(), "child must be a NativeGraph");
  const Status status = self->graph(info[0]).updateChild(self->node(info[1]), child->graph(info[3]));
  check(info, *self, status, "update a child node");
  return self->sweep(info.Env());
}

// graph, node → what has gone
Napi::Value destroy(const Napi::CallbackInfo& info) {
  const Shared self = opened(info);
  check(info, *self, self->graph(info[0]).destroy(self->node(info[1])), "destroy a node");
  return self->sweep(info.Env());
}

// graph, from, to, whether there shall be one
Napi::Value setEdge(const Napi::CallbackInfo& info) {
  const Shared self = opened(info);
  GraphDefinition& graph = self->graph(info[0]);
  const Node &from = self->node(info[1]), &to = self->node(info[2]);
  if (flagOr(info[3], "present", true))
    check(info, *self, graph.addEdge(from, to), "add an edge");
  else
    check(info, *self, graph.removeEdge(from, to), "remove an edge");
  return info.Env().Undefined();
}

// graph → its nodes
Napi::Value nodes(const Napi::CallbackInfo& info) {
  const Shared self = opened(info);
  std::vector<Node> found;
  check(info, *self, self->graph(info[0]).nodes(&found), "list nodes");
  Napi::Array list = Napi::Array::New(info.Env(), found.size());
  for (std::uint32_t i = 0; i < found.size(); ++i) list.Set(i, number(info, self->numberOf(found[i])));
  return list;
}

// graph → [from, to, from, to, …]
Napi::Value edges(const Napi::CallbackInfo& info) {
  const Shared self = opened(info);
  std::vector<std::pair<Node, Node>> found;
  check(info, *self, self->graph(info[0]).edges(&found), "list edges");
  Napi::Array list = Napi::Array::New(info.Env(), 2 * found.size());
  for (std::uint32_t i = 0; i < found.size(); ++i) {
    list.Set(2 * i, number(info, self->numberOf(found[i].first)));
    list.Set(2 * i + 1, number(info, self->numberOf(found[i].second)));
  }
  return list;
}

// node → NodeKind
Napi::Value kind(const Napi::CallbackInfo& info) {
  const Shared self = opened(info);
  return number(info, static_cast<std::uint32_t>(self->node(info[0]).kind()));
}

// graph, node → the graphs inside
Napi::Value bodies(const Napi::CallbackInfo& info) {
  const Shared self = opened(info);
  Napi::Array list = Napi::Array::New(info.Env());
  for (const GraphDefinition& body : self->graph(info[0]).bodies(self->node(info[1])))
    list.Set(list.Length(), number(info, self->numberOf(body)));
  return list;
}

Napi::Value close(const Napi::CallbackInfo& info) {
  self<GraphObject>(info)->end();
  return info.Env().Undefined();
}

Napi::Value dot(const Napi::CallbackInfo& info) {
  const Shared self = opened(info);
  std::string text;
  check(info, *self, self->graph(info[0]).dot(&text), "draw a graph");
  return Napi::String::New(info.Env(), text);
}

// graph, whether kernels keep priorities → a NativeExecutable, or why there is none, in words
Napi::Value instantiate(const Napi::CallbackInfo& info) {
  const Shared self = opened(info);
  InstantiateOptions options;
  options.nodePriorities = flagOr(info[1], "nodePriorities", false);
  InstantiateResult result = InstantiateResult::error;
  graphs::ExecutableGraph made;
  const Status status = graphs::ExecutableGraph::instantiate(self->graph(info[0]), options, &made, &result);
  if (status != Status::ok && result != InstantiateResult::success && result != InstantiateResult::error)
    return Napi::String::New(info.Env(), instantiateResultName(result));
  check(info, *self, status, "instantiate");
  return executableObject(info.Env(), self->device, std::move(made));
}

}  // namespace

Napi::Object graphObject(Napi::Env env, const std::shared_ptr<AllocatorDevice>& device,
                         GraphDefinition root) {
  Napi::Object object = handle(env, std::make_shared<GraphObject>(device, std::move(root)));
  define<add>(object, "add");
  define<malloc>(object, "malloc");
  define<embed>(object, "embed");
  define<clone>(object, "clone");
  define<condition>(object, "condition");
  define<conditional>(object, "conditional");
  define<update>(object, "update");
  define<updateChild>(object, "updateChild");
  define<destroy>(object, "destroy");
  define<setEdge>(object, "setEdge");
  define<nodes>(object, "nodes");
  define<edges>(object, "edges");
  define<kind>(object, "kind");
  define<bodies>(object, "bodies");
  define<dot>(object, "dot");
  define<instantiate>(object, "instantiate");
  define<beginCapture>(object, "capture");
  define<close>(object, "close");
  return object;
}

}  // namespace braid::bindings
