#pragma once

namespace braid::test {

// Copies into shared memory as a program on the processor has them, for blocks of up to 512 threads. They
// land when they are awaited, not before.
inline constexpr const char* kEmulatedCopies = R"(
#include <cstring>
#include <utility>
#include <vector>
struct Copy { void* to; const void* from; bool there; unsigned bytes; };
static thread_local std::vector<std::vector<Copy>> pending[512];
static thread_local std::vector<Copy> open_[512];
static void copyAsync(unsigned short* to, const unsigned short* from, bool there) {
  open_[threadIdx.x].push_back({to, from, there, 16});
}
static void copyFloatAsync(float* to, const float* from, bool there) {
  open_[threadIdx.x].push_back({to, from, there, 4});
}
static void commitCopies() {
  pending[threadIdx.x].push_back(std::move(open_[threadIdx.x]));
  open_[threadIdx.x].clear();
}
template <int N> void awaitCopies() {
  auto& groups = pending[threadIdx.x];
  for (; groups.size() > N; groups.erase(groups.begin()))
    for (const Copy& one : groups.front())
      if (one.there) std::memcpy(one.to, one.from, one.bytes);
      else std::memset(one.to, 0, one.bytes);
}
)";

}  // namespace braid::test
