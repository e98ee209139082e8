// The NativeExecutable of runtime/addon.ts. TypeScript has checked the arguments.
#include <algorithm>

#include "bindings/checks.h"
#include "bindings/convert.h"
#include "bindings/graph_object.h"
#include "bindings/graph_params.h"
#include "bindings/handle.h"

namespace braid::bindings {
namespace {

class ExecutableObject final : public GraphPart {
 public:
  ExecutableObject(std::shared_ptr<AllocatorDevice> owner, graphs::ExecutableGraph made)
      : GraphPart(std::move(owner)), executable(std::move(made)) {
    auto& all = device->graphs->executables;
    const auto free = std::find(all.begin(), all.end(), nullptr);
    number = static_cast<std::size_t>(free - all.begin()) + 1;
    if (free == all.end())
      all.push_back(&executable);
    else
      *free = &executable;
  }
  ~ExecutableObject() override { end(); }
  void end() override {
    if (number > 0) device->graphs->executables[number - 1] = nullptr;
    number = 0;
    if (!executable.valid() || !device->driver) return;
    device->driver->bind();
    executable.destroy();
  }

  static constexpr napi_type_tag typeTag{0x6272616964657865u, 0xa87e51f2c903bd64u};
  static constexpr const char* typeName = "NativeExecutable";
  graphs::ExecutableGraph executable;
  std::size_t number = 0;
};

using Shared = std::shared_ptr<ExecutableObject>;

Shared opened(const Napi::CallbackInfo& info) {
  auto made = self<ExecutableObject>(info);
  checkBound(info.Env(), *made->device);
  return made;
}

GraphObject& graphAt(const Napi::CallbackInfo& info, std::size_t at) {
  const auto graph = unwrapped<GraphObject>(info.Env(), info[at]);
  if (!graph) throw Napi::TypeError::New(info.Env(), "graph must be a NativeGraph");
  return *graph;  // its JavaScript object is an argument, and holds it
}

// NativeGraph, graph → '', or why it was refused
Napi::Value update(const Napi::CallbackInfo& info) {
  const Shared self = opened(info);
  UpdateResult result = UpdateResult::error;
  const Status status = self->executable.update(graphAt(info, 0).graph(info[1]), &result);
  if (status == Status::graphExecUpdateFailure)
    return Napi::String::New(info.Env(), updateResultName(result));
  checkStatus(info.Env(), *self->device, status, "update an executable");
  return Napi::String::New(info.Env(), "");
}

// NativeGraph, node, params
Napi::Value updateNode(const Napi::CallbackInfo& info) {
  const Shared self = opened(info);
  NodeSpec spec = nodeSpec(self->device, objectAt(info[2], "params"));
  const graphs::Node& node = graphAt(info, 0).node(info[1]);
  checkStatus(info.Env(), *self->device,
              self->executable.updateNode(node, spec.params, std::move(spec.owners)),
              "update a node of an executable");
  return info.Env().Undefined();
}

// NativeGraph, node, the child's NativeGraph, its graph
Napi::Value updateChild(const Napi::CallbackInfo& info) {
  const Shared self = opened(info);
  const graphs::Node& node = graphAt(info, 0).node(info[1]);
  checkStatus(info.Env(), *self->device, self->executable.updateChild(node, graphAt(info, 2).graph(info[3])),
              "update a child node of an executable");
  return info.Env().Undefined();
}

// NativeGraph, node, whether
Napi::Value enable(const Napi::CallbackInfo& info) {
  const Shared self = opened(info);
  const graphs::Node& node = graphAt(info, 0).node(info[1]);
  checkStatus(info.Env(), *self->device, self->executable.enable(node, flagOr(info[2], "enabled", true)),
              "enable a node");
  return info.Env().Undefined();
}

Napi::Value enabled(const Napi::CallbackInfo& info) {
  const Shared self = opened(info);
  const graphs::Node& node = graphAt(info, 0).node(info[1]);
  bool is = false;
  checkStatus(info.Env(), *self->device, self->executable.enabled(node, &is), "ask for a node");
  return Napi::Boolean::New(info.Env(), is);
}

Napi::Value destroy(const Napi::CallbackInfo& info) {
  self<ExecutableObject>(info)->end();
  return info.Env().Undefined();
}

}  // namespace

Napi::Object executableObject(Napi::Env env, const std::shared_ptr<AllocatorDevice>& device,
                              graphs::ExecutableGraph made) {
  const auto executable = std::make_shared<ExecutableObject>(device, std::move(made));
  Napi::Object object = handle(env, executable);
  object.Set("number", static_cast<double>(executable->number));
  define<update>(object, "update");
  define<updateNode>(object, "updateNode");
  define<updateChild>(object, "updateChild");
  define<enable>(object, "enable");
  define<enabled>(object, "enabled");
  define<destroy>(object, "destroy");
  return object;
}

}  // namespace braid::bindings
