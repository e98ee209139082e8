#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <new>

// Counts every allocation of the test program. In a file of its own: the compiler must not see both ends of a
// pair at once.

static std::atomic<std::uint64_t> count{0};

void* operator new(std::size_t bytes) {
  ++count;
  if (void* memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  ++count;
  return std::malloc(bytes);
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace braid::test {
std::uint64_t allocations() { return count.load(); }
}  // namespace braid::test
