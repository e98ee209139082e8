#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "driver/graph.h"
#include "driver/kernel_spec.h"
#include "driver/status.h"

namespace braid {

struct PageTag;
using Pages = PageTag*;  // physical memory without an address

struct DeviceInfo {
  std::string kind;  // "cuda" or "host"
  std::string name;  // "NVIDIA H200", "host (2 cores)"
  int ordinal = 0;
  std::size_t totalBytes = 0;
  int computeMajor = 0, computeMinor = 0, multiprocessors = 0;
  int driverVersion = 0;  // 13000 for CUDA 13.0; 0 on host
  int leastPriority = 0, greatestPriority = 0;
  std::size_t pageBytes = 0;  // granularity of addressReserve/pagesCreate/pagesMap; 0: not supported
};

// Which program queued a piece of work, and where in that program.
struct WorkLabel {
  const void* owner = nullptr;
  std::uint64_t tick = 0;
  std::size_t step = 0;
};

// The purpose of an event. All kinds may be recorded, waited for on streams, queried, and synchronised with.
enum class EventKind : std::uint8_t {
  order,
  timed,  // it also records the time
};

// A kernel prepared for one device: compiled, with its algorithm and launch shape chosen. Immutable; launched
// from the issuing thread only.
class Kernel {
 public:
  virtual ~Kernel() = default;
  // The most pieces of work that one launch puts into its stream's queue.
  virtual std::size_t pieces() const { return 1; }
  // How it gets into a graph: as one node (NodeParams::launch), or, where a library launches what it likes,
  // by capturing a launch.
  enum class Form : std::uint8_t { node, captured };
  virtual Form form(const DeviceAddress* /*reads*/, const DeviceAddress* /*writes*/) const {
    return Form::node;
  }
  // Whether its node waits on the device for the nodes before it, so that it may start early
  // (NodeParams::early).
  virtual bool waitsForNodes() const { return false; }
};

// Computes a user's kernel on the host device by its TypeScript reference. Called on a lane's worker thread,
// which it blocks until the result is written. Takes the addresses of the reads, then of the writes. Returns
// false if the reference threw.
using HostCallback = std::function<bool(const DeviceAddress* reads, std::size_t readCount,
                                        const DeviceAddress* writes, std::size_t writeCount)>;

// One device, as everything above sees it: the allocator, the executor and the graphs are written once
// against this table. Beneath it stand `cuda` (native/cuda) and `host` (native/host), with the same codes and
// the same ordering rules:
//   1. Work on a stream runs in order, one piece after the other. Streams run concurrently.
//   2. eventRecord marks the point that the stream has reached; a second record moves the mark.
//   3. streamWait orders all later work of the stream after the mark as it is *at the call*. Waiting for an
//      event that was never recorded does nothing. The event may belong to another device of the same kind.
//   4. No call blocks, except those documented to block and those that queue work on a full stream
//      (streamDepth).
// Every call may be made from any thread once that thread has called bind(). No call throws.
// The calls that make and launch graphs stand in driver/graph.h, with their rules.
class Driver : public GraphCalls {
 public:
  virtual const DeviceInfo& info() const = 0;
  // Makes this device current on the calling thread. Cheap: done before each tick.
  virtual Status bind() = 0;
  // Details of the last failure on this thread (NVRTC's log, a library's name), or "".
  virtual std::string lastDetail() = 0;

  // Memory. Addresses are aligned to 512 bytes at least. memAllocate may block.
  virtual Status memAllocate(DeviceAddress* address, std::size_t bytes) = 0;
  virtual Status memFree(DeviceAddress address) = 0;  // the caller has made sure that nothing uses it
  virtual Status memInfo(std::size_t* freeBytes, std::size_t* totalBytes) = 0;
  virtual Status pinnedAllocate(void** pointer, std::size_t bytes) = 0;
  virtual Status pinnedFree(void* pointer) = 0;

  // Virtual memory: sizes and addresses are multiples of info().pageBytes. Status::notSupported where that is
  // 0.
  virtual Status addressReserve(DeviceAddress* address, std::size_t bytes) = 0;
  virtual Status addressRelease(DeviceAddress address, std::size_t bytes) = 0;
  virtual Status pagesCreate(Pages* pages,
                             std::size_t bytes) = 0;  // counts against the device's memory from here on
  virtual Status pagesRelease(Pages pages) = 0;
  virtual Status pagesMap(DeviceAddress address, std::size_t bytes,
                          Pages pages) = 0;  // readable and writable at once
  // Maps `count` handles of `each` bytes side by side. Where one fails, none is mapped.
  virtual Status pagesMapEach(DeviceAddress address, std::size_t each, const Pages* pages,
                              std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      const Status status = pagesMap(address + i * each, each, pages[i]);
      if (status == Status::ok) continue;
      if (i > 0) pagesUnmap(address, i * each);
      return status;
    }
    return Status::ok;
  }
  virtual Status pagesUnmap(DeviceAddress address, std::size_t bytes) = 0;  // nothing may still use the range

  // Streams and events.
  virtual Status streamCreate(Stream* stream,
                              int priority) = 0;        // clamped into [greatestPriority, leastPriority]
  virtual Status streamDestroy(Stream stream) = 0;      // work already queued still completes
  virtual Status streamSynchronize(Stream stream) = 0;  // blocks
  virtual Status streamQuery(Stream stream) = 0;        // ok, or notReady
  // The pieces of work that each stream can hold at present; a call for one more blocks. 0: any number.
  virtual std::size_t streamDepth() const { return 0; }
  // Of these, what one launch of an executable graph takes.
  virtual std::size_t launchPieces() const { return 1; }
  virtual Status streamWait(Stream stream, Event event) = 0;
  virtual Status eventCreate(Event* event, EventKind kind) = 0;
  virtual Status eventDestroy(Event event) = 0;
  virtual Status eventRecord(Event event, Stream stream) = 0;
  virtual Status eventQuery(Event event) = 0;                                  // ok, or notReady
  virtual Status eventSynchronize(Event event) = 0;                            // blocks without spinning
  virtual Status eventElapsed(float* milliseconds, Event from, Event to) = 0;  // both timed and complete

  // Work.
  virtual Status copy(CopyKind kind, DeviceAddress to, DeviceAddress from, std::size_t bytes,
                      Stream stream) = 0;
  virtual Status fill32(DeviceAddress to, std::uint32_t value, std::size_t words, Stream stream) = 0;
  // A fill of any form, as NodeParams::fill describes it.
  virtual Status fill(const NodeParams& /*fill*/, Stream) { return Status::notSupported; }
  // `callback` (host device, KernelSpec::Kind::cuda only) may be empty. May take long (compilation): call it
  // off the hot path.
  virtual Status prepare(std::unique_ptr<Kernel>* kernel, const KernelSpec& spec, HostCallback callback) = 0;
  // Addresses in the order of the run's reads and writes. No allocation, no blocking.
  virtual Status launch(const Kernel& kernel, const DeviceAddress* reads, const DeviceAddress* writes,
                        Stream stream) = 0;

  // A kernel of one read, a u32 in device memory, and one write, a Condition: sets the condition to the
  // value. It runs only in a graph.
  virtual Status prepareCondition(std::unique_ptr<Kernel>*) { return Status::notSupported; }

  // Lets this device's kernels access all memory of another device of the same kind, what it maps later too.
  // Called for each pair and direction before work that needs it. Status::notSupported where the machine
  // cannot; peer copies work all the same, through the host if need be.
  virtual Status reachPeer(Driver&) { return Status::notSupported; }
  // A copy on this device's streams with memory of another device at one or both ends: of devices `from` and
  // `to`, where null means pinned memory.
  virtual Status preparePeerCopy(std::unique_ptr<Kernel>*, std::size_t /*bytes*/, Driver* /*from*/,
                                 Driver* /*to*/) {
    return Status::notSupported;
  }

  // Labels the work that this thread queues from now on. `failedWork` returns the label of the piece that
  // failed, or one without an owner on devices that do not know it (cuda).
  virtual void label(const WorkLabel&) {}
  virtual WorkLabel failedWork() { return {}; }

  // Runs `function(data)` on a thread of the driver's after all work queued on the stream. It must not call
  // the driver, or take a lock that a caller of the driver may hold.
  virtual Status hostFunction(Stream stream, void (*function)(void*), void* data) = 0;
};

// Options of the host device. All are off by default.
struct HostOptions {
  int ordinal = 0;  // which of the process's host devices it is called
  std::size_t memoryBytes = std::size_t{4} << 30;
  double copyBytesPerSecond =
      0;  // 0: as fast as it goes. Copies to and from the host and between devices take at least bytes / rate
  double flopsPerSecond = 0;        // 0: as fast as it goes. A matmul takes at least 2·m·n·k·batch / rate
  double deviceBytesPerSecond = 0;  // the same for map, reduce, and device-to-device copies
  std::uint64_t jitterSeed =
      0;  // 0: none. Else seeded random delays before each piece of work, up to jitterMicroseconds
  double jitterMicroseconds = 200;
  std::size_t queueDepth =
      0;  // pieces of work that a stream holds: a call for one more blocks. 0: any number
  bool poison =
      false;  // memory is filled with signalling garbage when it is given out and when it is taken back
  struct Fault {
    std::string call;
    std::uint64_t nth = 1;
    Status status = Status::unknown;
    double delayMicroseconds =
        0;  // above 0, for "run" alone: the work does not fail, but takes so much longer
  };
  std::vector<Fault>
      faults;  // the nth use of the named call (a Driver method's name, or "run" for work on a stream) fails
};

// Opens a device. After a failure *detail names the missing library or device and what to do.
Status openHost(std::unique_ptr<Driver>* driver, const HostOptions& options, std::string* detail);
Status openCuda(std::unique_ptr<Driver>* driver, int ordinal, std::string* detail);

// The report of `doctor`: each library, found or missing, with its version or the reason.
struct LibraryReport {
  std::string name, found, version, problem;
};
// Measured choices of algorithms: the folder where they are kept (empty: nowhere), why it is not used (empty:
// it is), how many it has, and how many this process has measured. And how many kernels of this process call
// cuDNN.
struct ChoicesReport {
  std::string folder, refusal;
  std::size_t kept = 0;
  std::uint64_t measured = 0, byCudnn = 0;
};
// The code of generated kernels: the folder where it is kept, as above, how many kernels it has, and how many
// this process has compiled.
struct KernelsReport {
  std::string folder, refusal;
  std::size_t kept = 0;
  std::uint64_t compiled = 0;
};
// Whether cuDNN is asked ("measured", "never", "always"), on GPUs from this compute capability on (80: 8.0),
// of problems of so many floating-point operations.
struct CudnnReport {
  std::string use;
  int leastArchitecture = 0;
  double askedFrom = 0;
};
struct CudaReport {
  int deviceCount = 0;
  std::vector<LibraryReport> libraries;
  std::vector<DeviceInfo> devices;
  std::vector<std::size_t> freeBytes;
  CudnnReport cudnn;
  ChoicesReport choices;
  KernelsReport kernels;
};
CudaReport probeCuda();
// Why what is kept on disk was not used, a line for each folder, since the last call. Any thread.
std::vector<std::string> keptProblems();

}  // namespace braid
