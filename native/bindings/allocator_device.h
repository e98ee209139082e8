#pragma once

#include <node_api.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <shared_mutex>
#include <string>
#include <thread>
#include <vector>

#include "bindings/environment.h"
#include "driver/driver.h"
#include "memory/device_memory.h"

namespace braid::bindings {

// What a call may return besides the driver's codes; below 0, to differ from them.
enum class Refusal : int { closed = -1, inSource = -2, badHandle = -3, poolOfGraphs = -4 };

class AllocatorDevice;
class Channel;
struct PinnedViewOwner;
struct GraphState;

// One allocator of a device: of its own memory, or of pinned host memory.
struct MemorySpace;

// Reached by every thread that runs out of memory, but used by the JavaScript thread of its device alone.
struct ObservedSpace {
  std::thread::id thread;
  MemorySpace* space;
};

struct MemorySpace {
  AllocatorDevice* device = nullptr;
  caching::Allocator* allocator = nullptr;
  caching::Shortage shortage;  // of the last allocation that failed
  napi_ref observer = nullptr;
  std::shared_ptr<ObservedSpace> observed;  // while there is an observer
};

// Holds a lane's work back until it is opened: for tests of outstanding uses.
struct Gate {
  std::mutex mutex;
  std::condition_variable opened;
  bool open = false;
};

// A share of a device's memory, for one JavaScript thread: its own lanes, pools and blocks of the one driver,
// the one set of lanes and the two allocators. JavaScript refers to lanes, blocks, events and pools by
// numbers. The JavaScript object and every function made for it own the share, so none of them outlives it.
//
// Hazards, and their rules:
//   - A handle is a number. A lane's is its id and a pool's its index, and both are checked. A block's and an
//     event's is an address, valid until the allocators are destroyed: after `closed_` no handle is used.
//   - All calls come from the JavaScript thread, except waits: those hold `inUse` shared, and `destroy` takes
//     it alone. A wait may be for work that needs JavaScript (another share's kernel with a reference). So
//     `close` first waits on another thread until no wait is left.
//   - A source that is a JavaScript function is called under the allocator's mutex: calls that it makes to
//     the device are refused.
class AllocatorDevice final : public Awaited {
 public:
  AllocatorDevice(napi_env env, std::shared_ptr<DeviceMemory> memory);
  ~AllocatorDevice() override;

  static constexpr napi_type_tag typeTag{0x6272616963616368u, 0xb1f47c05d29e6a83u};
  static constexpr const char* typeName = "NativeCachingDevice";

  // 0, or the Refusal that every call returns now.
  int refusal() const { return refusal_; }
  void enterSource() { refusal_ = static_cast<int>(Refusal::inSource); }
  void leaveSource() { refusal_ = closed_ ? static_cast<int>(Refusal::closed) : 0; }

  Lane* lane(double id) const {
    return id >= 0 && id < static_cast<double>(lanes->count()) ? &lanes->at(static_cast<LaneId>(id))
                                                               : nullptr;
  }
  bool pool(double handle, caching::MemPool** pool) const {
    if (handle == 0) return true;
    if (!(handle >= 1 && handle <= static_cast<double>(pools.size()))) return false;
    *pool = pools[static_cast<std::size_t>(handle) - 1];
    return *pool != nullptr;
  }

  // Counts the bytes that JavaScript objects keep alive, which V8 must know to schedule its garbage
  // collection. More bytes are reported at once; fewer only after a window of operations that did not need
  // them, so that a loop reports nothing.
  void weigh(std::int64_t by) {
    weight_ += by;
    if (weight_ > highest_) highest_ = weight_;
    if (weight_ > reportAbove_ || --window_ == 0) reportBytes();
  }

  // Refuses all further calls and opens all gates. Idempotent.
  void close();
  void shut() override { close(); }
  // Waits until its own lanes are idle, and all lanes where a pool's memory is JavaScript's. After `close`:
  // from then on no call makes or retires a lane, so another thread may read which lanes are its own. A
  // lane's failure has been reported to its users before.
  void drain();
  // Waits until all lanes of the memory are idle, but not beyond `close`. Off the JavaScript thread, which
  // may make lanes and pools meanwhile.
  void awaitLanes();
  // Waits until no other thread waits for this share. Off the JavaScript thread.
  void awaitWaits();
  // Calls no JavaScript any more: work that waits for it goes on without. Idempotent.
  void leaveJavaScript();
  // Frees its blocks, pools and lanes, but no pinned memory that JavaScript has transferred. After `close`
  // and `drain`.
  void destroy();
  bool closed() const { return closed_; }
  // The driver while a capture is under way in a mode that forbids calls of this thread; else null.
  Driver* capturing() const { return strictCaptures > 0 ? driver : nullptr; }

  const napi_env env;
  const std::thread::id thread = std::this_thread::get_id();
  std::shared_ptr<DeviceMemory> memory;  // null once destroyed
  Driver* driver;                        // its
  Lanes* lanes;                          // its; null once destroyed
  MemorySpace spaces[2];                 // device, pinned
  std::vector<caching::MemPool*> pools;
  // By lane: whether it was made by this share, and over a stream of its own.
  enum class LaneKind : std::uint8_t { none, external, owned };
  std::vector<LaneKind> laneKinds;
  bool scriptedPools = false;                            // it has a pool whose memory JavaScript gives
  std::map<std::uint32_t, std::shared_ptr<Gate>> gates;  // that are closed, by number
  std::uint32_t gatesMade = 0;
  std::shared_ptr<GraphState> graphs;  // null before its first graph
  std::size_t strictCaptures = 0;      // under way, in a mode that forbids calls of this thread
  std::shared_mutex inUse;
  double* out = nullptr;  // where frequent calls return further numbers
  napi_ref outBuffer = nullptr;
  napi_ref thrown = nullptr;                          // by a source, until JavaScript fetches it
  napi_ref released = nullptr;                        // a function, called when graphs have let owners go
  std::shared_ptr<Channel> channel;                   // to JavaScript, once something calls it
  std::uint32_t callbacks = 0;                        // the number of the next one
  std::vector<std::string> referenceNames;            // the kernels' names, by the number of the reference
  bool tearing = false;                               // the environment ends: JavaScript must not be called
  std::map<caching::Block*, PinnedViewOwner*> views;  // of blocks that are live
  std::size_t movedViews = 0;                         // that outlive the ownership of their blocks
  std::set<caching::Block*> movedBlocks;              // theirs
  std::map<const void*, PinnedViewOwner*> lentViews;  // by address

 private:
  static void teardown(void* data);
  // Node-API never frees a reference by itself, not even with its environment.
  void dropReferences();
  void reportBytes();
  void freeBlocks();

  std::atomic<bool> closed_ = false;
  bool destroyed_ = false, hooked_ = false;
  int refusal_ = 0;
  static constexpr int windowLength = 4096;
  int window_ = windowLength;
  std::int64_t weight_ = 0, highest_ = 0, reported_ = 0, reportAbove_ = 1 << 20;
};

}  // namespace braid::bindings
