#pragma once

namespace braid::cuda {

// Copies into shared memory that are on their way while the thread goes on, of devices from 8.0 on. A thread
// sees its own copies when it has awaited them; the other threads of the block, after a barrier.
inline constexpr const char* kAsyncCopies = R"cuda(
#ifndef BRAID_EMULATED
FN unsigned sharedAddress(const void* at) { return (unsigned)__cvta_generic_to_shared(at); }
// 16 bytes, or zeros.
FN void copyAsync(u16* to, const u16* from, bool there) {
  const int bytes = there ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :: "r"(sharedAddress(to)), "l"(from), "r"(bytes) : "memory");
}
FN void copyFloatAsync(float* to, const float* from, bool there) {
  const int bytes = there ? 4 : 0;
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
               :: "r"(sharedAddress(to)), "l"(from), "r"(bytes) : "memory");
}
FN void commitCopies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> FN void awaitCopies() { asm volatile("cp.async.wait_group %0;" :: "n"(N) : "memory"); }
#endif
)cuda";

}  // namespace braid::cuda
