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

// What a hot call answers beside the driver's codes: below 0, so that it is none of them.
enum class Refusal : int { closed = -1, inSource = -2, badHandle = -3 };

class CachingDevice;
struct PinnedViewOwner;

// One allocator of a device: of its own memory, or of pinned host memory.
struct CachingSpace {
  CachingDevice* device = nullptr;
  std::unique_ptr<caching::Allocator> allocator;
  caching::Shortage shortage;  // of the last allocation that failed
  napi_ref observer = nullptr;
};

// Holds a lane back until it is opened: for tests, which must see what is outstanding.
struct Gate {
  std::mutex mutex;
  std::condition_variable opened;
  bool open = false;
};

// A driver, its lanes and its two allocators, behind the numbers that JavaScript holds. Owned by its object
// and by every function made for it, so that none of them outlives it.
//
// Hazards, and their rules:
//   - A handle is a number. A lane's is its id and a pool's its place, both checked; a block's and an event's
//   is an
//     address, which stands still until the allocators are gone: after `closed_` no handle is looked at.
//   - All calls are made on the JavaScript thread, but for waits: those hold `inUse_` shared, and `destroy`
//   takes it
//     alone.
//   - A source that is a JavaScript function is called under the allocator's mutex: what it calls is refused.
class CachingDevice {
 public:
  CachingDevice(napi_env env, std::unique_ptr<Driver> driver);
  ~CachingDevice();
  CachingDevice(const CachingDevice&) = delete;

  static constexpr napi_type_tag typeTag{0x6272616963616368u, 0xb1f47c05d29e6a83u};
  static constexpr const char* typeName = "NativeCachingDevice";

  void open(const caching::Options& device, const caching::Options& pinned);

  // 0, or the Refusal that every call answers with now.
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

  // Bytes that JavaScript's objects keep alive. V8 is told at once of more, and of less only what a window of
  // operations has not needed, so that a loop tells it nothing.
  void weigh(std::int64_t by) {
    weight_ += by;
    if (weight_ > highest_) highest_ = weight_;
    if (weight_ > tellAbove_ || --window_ == 0) tell();
  }

  // Nothing is called any more. Gates open. Idempotent.
  void close();
  // Off the JavaScript thread: until all lanes have run what they were given. What a lane's failure is, its
  // users were told.
  void drain();
  // After `close` and `drain`: everything goes back, but for pinned memory that JavaScript has moved out of
  // reach.
  void destroy();
  bool closed() const { return closed_; }

  const napi_env env;
  std::unique_ptr<Driver> driver;
  std::unique_ptr<Lanes> lanes;
  CachingSpace spaces[2];  // device, pinned
  std::vector<caching::MemPool*> pools;
  std::vector<bool> owned;  // by lane: whether its stream is ours
  std::vector<std::shared_ptr<Gate>> gates;
  std::shared_mutex inUse;
  double* out = nullptr;  // where hot calls leave what does not fit into their answer
  napi_ref outBuffer = nullptr;
  napi_ref thrown = nullptr;                          // by a source, until it is asked for
  bool tearing = false;                               // no JavaScript may be called any more
  std::map<caching::Block*, PinnedViewOwner*> views;  // of blocks that are live
  std::size_t movedViews = 0;  // pinned views that somebody else's ArrayBuffer may still read

 private:
  static void teardown(void* data);
  // Node-API frees a reference when it is told to, and never by itself: not even with its environment.
  void forget();
  void tell();

  bool closed_ = false, destroyed_ = false, hooked_ = false;
  int refusal_ = 0;
  static constexpr int windowLength = 4096;
  int window_ = windowLength;
  std::int64_t weight_ = 0, highest_ = 0, told_ = 0, tellAbove_ = 1 << 20;
};

}  // namespace braid::bindings
