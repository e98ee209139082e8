#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "cuda/sources/source.h"
#include "test/cuda/emulated_copies.h"
#include "test/cuda/specs.h"

// Generated kernels run on the processor: a thread of the grid is a fiber, and the instructions of warps do
// what the PTX manual says of their fragments. A block is a thread of the process, whose thread-local memory
// is what the block shares; the blocks of a cluster run beside one another.

namespace braid::test {

// What a CUDA compiler has and a host compiler has not, and the functions that the text leaves to us under
// BRAID_EMULATED.
inline constexpr const char* kShim = R"(
#include <ucontext.h>
#include <barrier>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>
#include "kernels/half.h"
#define BRAID_EMULATED
#define __device__
#define __global__ static
#define __shared__ static thread_local
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define LAUNCHED_SHARED(name) alignas(16) static thread_local unsigned char name[228 << 10]
static thread_local struct { unsigned x; } blockIdx, threadIdx;
static float __uint_as_float(unsigned bits) { return std::bit_cast<float>(bits); }
static unsigned __float_as_uint(float value) { return std::bit_cast<unsigned>(value); }

struct Fiber { ucontext_t context; std::unique_ptr<char[]> stack; bool done; };
static thread_local ucontext_t scheduler;
static thread_local std::vector<Fiber> fibers;
static void yield() {
  const unsigned mine = threadIdx.x;
  swapcontext(&fibers[mine].context, &scheduler);
}
struct Barrier {
  int size = 32, count = 0, turn = 0;
  void wait() {
    const int mine = turn;
    if (++count == size) count = 0, ++turn;
    else while (turn == mine) yield();
  }
};
static thread_local Barrier blockBarrier, warpBarriers[8];
static void __syncthreads() { blockBarrier.wait(); }
static unsigned atomicAdd(unsigned* to, unsigned more) { return (*to += more) - more; }
static unsigned atomicMin(unsigned* to, unsigned value) { return *to = value < *to ? value : *to; }
static unsigned atomicMax(unsigned* to, unsigned value) { return *to = value > *to ? value : *to; }
static Barrier& warp() { return warpBarriers[threadIdx.x / 32]; }
template <class T> T __shfl_xor_sync(unsigned, T value, int step) {
  static thread_local T slots[256];
  slots[threadIdx.x] = value;
  warp().wait();
  const T other = slots[threadIdx.x ^ step];
  warp().wait();
  return other;
}
static thread_local unsigned ownRank = 0;
static thread_local char marker;
static char* markers[16];
static std::barrier<>* blocksMeet = nullptr;
static unsigned rankOf() { return ownRank; }
static void clusterBarrier() {
  blockBarrier.wait();
  if (threadIdx.x == 0 && blocksMeet) blocksMeet->arrive_and_wait();
  blockBarrier.wait();
}
static float ofRank(const float* mine, unsigned rank) {
  return *(const float*)((const char*)mine - &marker + markers[rank]);
}
static float exp2Of(float x) { return std::exp2(x); }
)";

// The instructions of warps.
inline constexpr const char* kWarps = R"(
static thread_local const unsigned short* matrixRows[256];
template <bool Transposed> void matrices(unsigned (&to)[4], const unsigned short* row) {
  const unsigned lane = threadIdx.x % 32, first = threadIdx.x - lane;
  matrixRows[threadIdx.x] = row;
  warp().wait();
  for (unsigned j = 0; j < 4; ++j) {
    unsigned short half[2];
    for (unsigned e = 0; e < 2; ++e) {
      const unsigned r = lane / 4, c = lane % 4 * 2 + e;
      half[e] = Transposed ? matrixRows[first + j * 8 + c][r] : matrixRows[first + j * 8 + r][c];
    }
    to[j] = half[0] | (unsigned)half[1] << 16;
  }
  warp().wait();
}
static void loadMatrices(unsigned (&to)[4], const unsigned short* row) { matrices<false>(to, row); }
static void loadTransposed(unsigned (&to)[4], const unsigned short* row) { matrices<true>(to, row); }
static float half(unsigned both, int which, bool bf16) {
  const unsigned short bits = which ? both >> 16 : both & 0xffff;
  return bf16 ? braid::floatFromBf16(bits) : braid::floatFromF16(bits);
}
static unsigned packedAs(float low, float high, bool bf16) {
  const auto bits = [bf16](float x) { return bf16 ? braid::bf16FromFloat(x) : braid::f16FromFloat(x); };
  return bits(low) | (unsigned)bits(high) << 16;
}
static void multiplyAs(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1, bool bf16) {
  static thread_local unsigned left[256][4], right[256][2];
  const unsigned lane = threadIdx.x % 32, first = threadIdx.x - lane;
  for (int i = 0; i < 4; ++i) left[threadIdx.x][i] = a[i];
  right[threadIdx.x][0] = b0, right[threadIdx.x][1] = b1;
  warp().wait();
  for (int i = 0; i < 4; ++i) {
    const unsigned row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
    for (unsigned k = 0; k < 16; ++k)
      c[i] += half(left[first + row % 8 * 4 + k % 8 / 2][row / 8 + k / 8 * 2], k % 2, bf16) *
              half(right[first + column * 4 + k % 8 / 2][k / 8], k % 2, bf16);
  }
  warp().wait();
}

static void (*kernel)(char**);
static char** arguments;
static void fiber() { kernel(arguments); fibers[threadIdx.x].done = true; }
static void runBlock(unsigned block, unsigned threads) {
  blockIdx.x = block;
  blockBarrier.size = threads;
  fibers.resize(threads);
  for (Fiber& each : fibers) {
    if (!each.stack) each.stack.reset(new char[262144]);
    getcontext(&each.context);
    each.context.uc_stack.ss_sp = each.stack.get(), each.context.uc_stack.ss_size = 262144;
    each.context.uc_link = &scheduler;
    each.done = false;
    makecontext(&each.context, fiber, 0);
  }
  for (unsigned left = threads; left > 0;)
    for (unsigned i = 0; i < threads; ++i) {
      if (fibers[i].done) continue;
      threadIdx.x = i;
      swapcontext(&scheduler, &fibers[i].context);
      if (fibers[i].done) --left;
    }
}
static void launch(void (*entry)(char**), char** pointers, unsigned blocks, unsigned threads, unsigned cluster) {
  kernel = entry, arguments = pointers;
  for (unsigned first = 0; first < blocks; first += cluster) {
    if (cluster == 1) {
      markers[0] = &marker;
      runBlock(first, threads);
      continue;
    }
    std::barrier<> meet(cluster);
    blocksMeet = &meet;
    std::vector<std::thread> running;
    for (unsigned rank = 0; rank < cluster; ++rank)
      running.emplace_back([=] {
        ownRank = rank, markers[rank] = &marker;
        runBlock(first + rank, threads);
      });
    for (std::thread& each : running) each.join();
    blocksMeet = nullptr;
  }
}
static char* aligned(std::vector<char>& bytes) { return (char*)(((size_t)bytes.data() + 63) / 64 * 64); }
static std::vector<char> fileOf(const std::string& path) {
  std::vector<char> bytes(1 << 22);
  std::FILE* file = std::fopen(path.c_str(), "rb");
  std::fread(aligned(bytes), 1, (1 << 22) - 64, file);
  std::fclose(file);
  return bytes;
}
static void toFile(const std::string& path, const char* from, size_t bytes) {
  std::FILE* file = std::fopen(path.c_str(), "wb");
  std::fwrite(from, 1, bytes, file);
  std::fclose(file);
}
)";

inline std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
  return text;
}

// Kernels of several specs in one program, compiled and run once.
class Emulation {
 public:
  explicit Emulation(const std::string& name)
      : folder_(std::filesystem::temp_directory_path() / ("braid-" + name + "-" + std::to_string(getpid()))) {
    std::filesystem::create_directories(folder_);
  }
  ~Emulation() { std::filesystem::remove_all(folder_); }
  Emulation(const Emulation&) = delete;
  Emulation& operator=(const Emulation&) = delete;

  // A source with its reads, the types of its pointers in the source's words, and the bytes that it writes.
  // `before` is put in front of the text, in its namespace. The reads in `changed` are written too, in their
  // memory, after the first write. Of `more` bytes there is another write after it, the result of
  // "entry-more".
  void add(const std::string& name, const cuda::KernelSource& source, const std::vector<const char*>& types,
           const std::vector<std::vector<std::uint8_t>>& reads, std::size_t bytes,
           const std::string& before = "", const std::vector<std::size_t>& changed = {},
           std::size_t more = 0) {
    std::string text = replaced(source.text, "extern \"C\" ", "");
    text = replaced(text, "asm(\"cvt.f32.f16 %0, %1;\" : \"=f\"(y) : \"h\"(x.bits));",
                    "y = braid::floatFromF16(x.bits);");
    text = replaced(text, "asm(\"cvt.rn.f16.f32 %0, %1;\" : \"=h\"(y.bits) : \"f\"(x));",
                    "y.bits = braid::f16FromFloat(x);");
    std::string arguments;
    for (std::size_t i = 0; i < types.size(); ++i)
      arguments += "(" + std::string(types[i]) + "*)p[" + std::to_string(i) + "], ";
    text_ += "namespace " + name + " {\n" + before + text;
    main_ += "  {\n    std::vector<std::vector<char>> files;\n    std::vector<char*> p;\n";
    for (std::size_t r = 0; r < reads.size(); ++r) {
      const std::string path = (folder_ / (name + "-" + std::to_string(r))).string();
      std::ofstream(path, std::ios::binary)
          .write(reinterpret_cast<const char*>(reads[r].data()),
                 static_cast<std::streamsize>(reads[r].size()));
      main_ += "    files.push_back(fileOf(\"" + path + "\"));\n    p.push_back(aligned(files.back()) + " +
               std::to_string(source.byteOffsets[r]) + ");\n";
    }
    for (const cuda::KernelSource::Variant& variant : {source.plain, source.vector}) {
      if (!*variant.entry) continue;
      const std::string entry = variant.entry;
      text_ += "static void run_" + entry + "(char** p) { " + entry + "(" + arguments +
               std::to_string(source.count) + "); }\n";
      main_ += "    std::vector<char> " + entry + "(" + std::to_string(bytes) +
               " + 64);\n    p.push_back(aligned(" + entry + "));\n";
      if (more > 0)
        main_ += "    std::vector<char> more_" + entry + "(" + std::to_string(more) +
                 " + 64);\n    p.push_back(aligned(more_" + entry + "));\n";
      for (const std::size_t r : changed) {
        const std::string which = std::to_string(r);
        main_ += "    files[" + which + "] = fileOf(\"" + (folder_ / (name + "-" + which)).string() +
                 "\");\n    p[" + which + "] = aligned(files[" + which + "]) + " +
                 std::to_string(source.byteOffsets[r]) + ";\n    p.push_back(p[" + which + "]);\n";
      }
      main_ += "    launch(" + name + "::run_" + entry + ", p.data(), " +
               std::to_string((variant.threads + variant.block - 1) / variant.block) + ", " +
               std::to_string(variant.block) + ", " + name + "::clusterSize);\n    toFile(\"" +
               pathOf(name, entry) + "\", aligned(" + entry + "), " + std::to_string(bytes) + ");\n";
      if (more > 0)
        main_ += "    toFile(\"" + pathOf(name, entry + "-more") + "\", aligned(more_" + entry + "), " +
                 std::to_string(more) + ");\n";
      for (const std::size_t r : changed)
        main_ += "    toFile(\"" + pathOf(name, entry + "-" + std::to_string(r)) + "\", aligned(files[" +
                 std::to_string(r) + "]), " + std::to_string(reads[r].size()) + ");\n";
      main_ += "    p.resize(" + std::to_string(reads.size()) + ");\n";
    }
    text_ +=
        "#ifdef CLUSTER\nconstexpr unsigned clusterSize = CLUSTER;\n#else\n"
        "constexpr unsigned clusterSize = 1;\n#endif\n";
    text_ += "#undef PARAMETERS\n#undef CLUSTER\n#undef IN_CLUSTERS\n#undef TYPE\n#undef FN\n}\n";
    main_ += "  }\n";
  }

  // False where the program did not compile or did not run.
  bool run() const {
    const std::string source = (folder_ / "kernels.cc").string(), program = (folder_ / "kernels").string();
    std::ofstream(source) << kShim << kEmulatedCopies << kWarps << text_ << "int main() {\n"
                          << main_ << "}\n";
    const std::string command =
        "c++ -std=c++20 -pthread -O1 -w -ffp-contract=off -fno-strict-aliasing -I" BRAID_SOURCE_FOLDER " " +
        source + " -o " + program + " && " + program;
    return std::system(command.c_str()) == 0;
  }

  std::vector<std::uint8_t> result(const std::string& name, const std::string& entry,
                                   std::size_t bytes) const {
    std::ifstream file(pathOf(name, entry), std::ios::binary);
    std::vector<std::uint8_t> found(bytes);
    file.read(reinterpret_cast<char*>(found.data()), static_cast<std::streamsize>(bytes));
    return found;
  }

 private:
  std::string pathOf(const std::string& name, const std::string& entry) const {
    return (folder_ / (name + entry)).string();
  }

  std::filesystem::path folder_;
  std::string text_, main_;
};

}  // namespace braid::test
