#pragma once

#include <cstdint>
#include <string>

namespace braid::cuda {

// How the blocks of a cluster meet and read one another's shared memory. A cluster of one is a block, which
// is all there is before 9.0.
inline constexpr const char* kCluster = R"cuda(
#ifndef BRAID_EMULATED
#if CLUSTER > 1
FN unsigned rankOf() { unsigned rank; asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank)); return rank; }
FN void clusterBarrier() {
  asm volatile("barrier.cluster.arrive.aligned;" ::: "memory");
  asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
}
// The same variable of another block of the cluster.
FN float ofRank(const float* mine, unsigned rank) {
  const unsigned own = (unsigned)__cvta_generic_to_shared(mine);
  unsigned other;
  float value;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(other) : "r"(own), "r"(rank));
  asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(value) : "r"(other) : "memory");
  return value;
}
#else
FN unsigned rankOf() { return 0; }
FN void clusterBarrier() { __syncthreads(); }
FN float ofRank(const float* mine, unsigned) { return *mine; }
#endif
#endif
)cuda";

// What stands before it: CLUSTER, and IN_CLUSTERS for the kernel's declaration.
inline std::string clusterText(std::int64_t cluster) {
  const std::string size = std::to_string(cluster);
  return "#define CLUSTER " + size + "\n#define IN_CLUSTERS" +
         (cluster > 1 ? " __cluster_dims__(" + size + ", 1, 1)" : "") + "\n" + kCluster;
}

}  // namespace braid::cuda
