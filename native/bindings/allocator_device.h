#pragma once

#include <node_api.h>

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <vector>

#include "driver/driver.h"
#include "memory/caching/allocator.h"

namespace braid::bindings {

// What a call may return besides the driver's codes; below 0, to differ from them.
enum class Refusal : int { closed = -1, inSource = -2, badHandle = -3 };

class AllocatorDevice;
struct PinnedViewOwner;

// One allocator of a device: of its own memory, or of pinned host memory.
struct MemorySpace {
  AllocatorDevice* device = nullptr;
  std::unique_ptr<caching::Allocator> allocator;
  caching::Shortage shortage;  // of the last allocation that failed
  napi_ref observer = nullptr;
};

// Holds a lane's work back until it is opened: for tests of outstanding uses.
struct Gate {
  std::mutex mutex;
  std::condition_variable opened;
  bool open = false;
};

// A driver, its lanes and its two allocators. JavaScript refers to lanes, blocks, events and pools by
// numbers. The JavaScript object and every function made for it own the device, so none of them outlives it.
//
// Hazards, and their rules:
//   - A handle is a number. A lane's is its id and a pool's its index, and both are checked. A block's and an
//     event's is an address, valid until the allocators are destroyed: after `closed_` no handle is used.
//   - All calls come from the JavaScript thread, except waits: those hold `inUse` shared, and `destroy` takes
//   it
//     alone.
//   - A source that is a JavaScript function is called under the allocator's mutex: calls that it makes to
//   the
//     device are refused.
class AllocatorDevice {
 public:
  AllocatorDevice(napi_env env, std::unique_ptr<Driver> driver);
  ~AllocatorDevice();
  AllocatorDevice(const AllocatorDevice&) = delete;

  static constexpr napi_type_tag typeTag{0x6272616963616368u, 0xb1f47c05d29e6a83u};
  static constexpr const char* typeName = "NativeCachingDevice";

  void open(const caching::Options& device, const caching::Options& pinned);

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
  // Waits until all lanes are idle. Off the JavaScript thread. A lane's failure has been reported to its
  // users before.
  void drain();
  // Frees everything but pinned memory that JavaScript has transferred. After `close` and `drain`.
  void destroy();
  bool closed() const { return closed_; }

  const napi_env env;
  std::unique_ptr<Driver> driver;
  std::unique_ptr<Lanes> lanes;
  MemorySpace spaces[2];  // device, pinned
  std::vector<caching::MemPool*> pools;
  std::vector<bool> owned;  // by lane: whether this device created its stream
  std::vector<std::shared_ptr<Gate>> gates;
  std::shared_mutex inUse;
  double* out = nullptr;  // where frequent calls return further numbers
  napi_ref outBuffer = nullptr;
  napi_ref thrown = nullptr;                          // by a source, until JavaScript fetches it
  bool tearing = false;                               // the environment ends: JavaScript must not be called
  std::map<caching::Block*, PinnedViewOwner*> views;  // of blocks that are live
  std::size_t movedViews = 0;                         // pinned views whose memory JavaScript has transferred

 private:
  static void teardown(void* data);
  // Node-API never frees a reference by itself, not even with its environment.
  void dropReferences();
  void reportBytes();

  bool closed_ = false, destroyed_ = false, hooked_ = false;
  int refusal_ = 0;
  static constexpr int windowLength = 4096;
  int window_ = windowLength;
  std::int64_t weight_ = 0, highest_ = 0, reported_ = 0, reportAbove_ = 1 << 20;
};

}  // namespace braid::bindings
