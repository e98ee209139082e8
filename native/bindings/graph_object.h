#pragma once

#include <napi.h>

#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "bindings/graph_state.h"

namespace braid::bindings {

// A root graph with all graphs inside it, for JavaScript. Its graphs and nodes are numbers: 0 is the root. A
// number is of one graph or node for ever, and of none once that has gone.
class GraphObject final : public GraphPart {
 public:
  GraphObject(std::shared_ptr<AllocatorDevice> device, graphs::GraphDefinition root);
  ~GraphObject() override { end(); }
  void end() override;

  static constexpr napi_type_tag typeTag{0x6272616964677268u, 0x9d31c6407be2f58au};
  static constexpr const char* typeName = "NativeGraph";

  // Throws where there is none.
  graphs::GraphDefinition& graph(Napi::Value number);
  graphs::Node& node(Napi::Value number);
  std::vector<graphs::Node> nodesAt(Napi::Value numbers);
  std::uint32_t numberOf(const graphs::GraphDefinition& graph);
  std::uint32_t numberOf(const graphs::Node& node);
  // Forgets graphs and nodes that have gone, and returns their numbers: { nodes, graphs }.
  Napi::Object sweep(Napi::Env env);

 private:
  std::uint32_t graphCounter_ = 0, nodeCounter_ = 0;
  std::map<std::uint32_t, graphs::GraphDefinition> graphs_;
  std::map<std::uint32_t, graphs::Node> nodes_;
  std::unordered_map<const void*, std::uint32_t> graphNumbers_, nodeNumbers_;
};

// The NativeGraph of runtime/addon.ts.
Napi::Object graphObject(Napi::Env env, const std::shared_ptr<AllocatorDevice>& device,
                         graphs::GraphDefinition root);
// The NativeExecutable.
Napi::Object executableObject(Napi::Env env, const std::shared_ptr<AllocatorDevice>& device,
                              graphs::ExecutableGraph made);

// Adds `graph`, `graphEvent`, `recordEvent`, `waitEvent` and `elapsedEvents` to a NativeCachingDevice.
void defineGraphCalls(Napi::Object object);
// The method of a NativeGraph that begins a capture.
Napi::Value beginCapture(const Napi::CallbackInfo& info);

}  // namespace braid::bindings
