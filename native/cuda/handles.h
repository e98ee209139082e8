#pragma once

#include <cstdint>

#include "cuda/api.h"
#include "driver/driver.h"

namespace braid::cuda {

// The driver's own handles stand behind those of the table.
inline CUstream cu(Stream stream) { return reinterpret_cast<CUstream>(stream); }
inline CUevent cu(Event event) { return reinterpret_cast<CUevent>(event); }
inline CUpages cu(Pages pages) { return reinterpret_cast<CUpages>(pages); }
inline CUgraph cu(Graph graph) { return reinterpret_cast<CUgraph>(graph); }
inline CUgraphNode cu(GraphNode node) { return reinterpret_cast<CUgraphNode>(node); }
inline const CUgraphNode* cu(const GraphNode* nodes) { return reinterpret_cast<const CUgraphNode*>(nodes); }
inline CUgraphExec cu(GraphExec exec) { return reinterpret_cast<CUgraphExec>(exec); }
inline CUuserObject cu(UserObject object) { return reinterpret_cast<CUuserObject>(object); }

}  // namespace braid::cuda
