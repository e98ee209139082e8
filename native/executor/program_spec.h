#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "driver/kernel_spec.h"

namespace braid {

// Mirrors NativeProgramSpec in runtime/addon.ts field by field. `decode` checks it before anything uses it.
enum class Life : std::uint8_t { tick, state, param, input, output };
enum class Space : std::uint8_t { device, pinned };

struct BufferSpec {
  std::string name;
  std::uint64_t bytes = 0;
  Space space = Space::device;
  std::uint32_t home = 0;
  Life life = Life::tick;
  std::uint32_t root = 0;
  std::uint64_t rootOffset = 0;
  std::int64_t arenaOffset = -1;
  std::uint32_t device = 0;
};

struct LaneSpec {
  std::string name;
  int priority = 0;
  std::uint32_t device = 0;
};

struct NodeSpec {
  std::string name;
  std::uint32_t kernel = 0;
  bool peerAccess = false;  // a kernel, not a copy, that accesses memory of other devices
};

// The memory of one device that the program may hold.
struct DeviceSpec {
  std::uint64_t boundBytes = 0;
  std::uint64_t arenaBytes = 0;
};

// Ranges of commands that are launched as graphs, in order: commands from[g] up to to[g]. `edges` are pairs
// of commands, the first before the second; those of graph g are the pairs edgeStart[g] up to edgeStart[g +
// 1].
struct GraphTable {
  std::vector<std::int32_t> from, to, edgeStart, edges;
};

struct ProgramSpec {
  std::string name;
  std::uint32_t inFlight = 1;
  // 1: all ticks have the same tick buffers and streams. Else inFlight: those of a slot are its own.
  std::uint32_t arenas = 1;
  std::vector<LaneSpec> lanes;
  std::vector<BufferSpec> buffers;
  std::vector<KernelSpec> kernels;
  std::vector<NodeSpec> nodes;
  std::uint32_t events = 0;
  std::vector<std::int32_t> commands;
  GraphTable graphs;
  bool planned = false;
  // The bound is that of one tick on an idle device. So each tick begins, on the device, after the end of the
  // tick before, and has its blocks where the first one had them.
  bool enforced = false;
  std::vector<DeviceSpec> devices = std::vector<DeviceSpec>(1);
  std::uint64_t boundPinned = 0;
};

}  // namespace braid
