#pragma once

#include "graphs/definition.h"

namespace braid::graphs {

// An executable copy of a definition. What its nodes referred to when it was made is held by the driver: by
// the executable, and by each launch until it has completed, whatever happens to the definition.
//
// User objects cannot be attached to an executable. So it is given one of its own while it is made, whose
// payload takes the owners of nodes that are updated later: they stay until the whole is updated or the
// executable and its last launch have gone.
class ExecutableGraph {
 public:
  ExecutableGraph() = default;
  ~ExecutableGraph() { destroy(); }
  ExecutableGraph(ExecutableGraph&& other) noexcept { *this = std::move(other); }
  ExecutableGraph& operator=(ExecutableGraph&& other) noexcept;

  static Status instantiate(const GraphDefinition& definition, const InstantiateOptions& options,
                            ExecutableGraph* made, InstantiateResult* result);
  // Launches that are queued still complete. No error where it is done already.
  Status destroy();

  bool valid() const { return handle_ != nullptr; }
  GraphExec handle() const { return handle_; }
  Status upload(Stream stream);
  Status launch(Stream stream);
  // To another definition's parameters. Takes over its owners, and gives up all earlier ones once the last
  // launch that uses them has completed. After a failure nothing has changed.
  Status update(const GraphDefinition& definition, UpdateResult* result);
  // The complete parameters of a node of the definition that was instantiated.
  Status updateNode(const Node& node, const NodeParams& params, OwnerPair owners = {});
  // Another graph in a child node. The driver takes over the references of that graph.
  Status updateChild(const Node& node, const GraphDefinition& child);
  Status enable(const Node& node, bool enabled);
  Status enabled(const Node& node, bool* enabled) const;
  // How many updates' owners are held now.
  std::size_t updatesHeld() const { return payload_ ? payload_->more.size() : 0; }

 private:
  std::shared_ptr<Driver> driver_;
  std::shared_ptr<CleanupQueue> queue_;
  GraphExec handle_ = nullptr;
  Payload* payload_ = nullptr;  // of the user object that the executable holds
};

}  // namespace braid::graphs
