// The NativeCachingDevice of runtime/addon.ts: its infrequent calls. TypeScript has checked the arguments.
#include "bindings/allocator_object.h"

#include "bindings/allocator_calls.h"
#include "bindings/allocator_device.h"
#include "bindings/allocator_options.h"
#include "bindings/allocator_report.h"
#include "bindings/allocator_sources.h"
#include "bindings/async.h"
#include "bindings/channel.h"
#include "bindings/checks.h"
#include "bindings/convert.h"
#include "bindings/device.h"
#include "bindings/device_kernel.h"
#include "bindings/failure_object.h"
#include "bindings/graph_object.h"
#include "bindings/handle.h"
#include "bindings/host_options.h"
#include "bindings/pinned_views.h"

namespace braid::bindings {
namespace {

using Shared = std::shared_ptr<AllocatorDevice>;

Shared opened(const Napi::CallbackInfo& info) {
  auto device = self<AllocatorDevice>(info);
  checkOpen(info.Env(), *device);
  return device;
}

void check(const Napi::CallbackInfo& info, AllocatorDevice& device, Status status, const char* op) {
  checkStatus(info.Env(), device, status, op);
}

caching::Allocator& spaceAt(const Napi::CallbackInfo& info, AllocatorDevice& device, std::size_t at = 0) {
  return *device.spaces[integerAt(info[at], "space", 0, 1)].allocator;
}

caching::Block* blockAt(const Napi::CallbackInfo& info) {
  const double handle = numberAt(info[0], "block");
  if (!(handle >= 1 && handle < mostInteger))
    throw Napi::RangeError::New(info.Env(), "there is no such block");
  return reinterpret_cast<caching::Block*>(static_cast<std::uintptr_t>(handle));
}

Napi::Value nothing(const Napi::CallbackInfo& info) { return info.Env().Undefined(); }

// priority: -1 high, 0 normal, 1 low; or the caller's stream. → { id, stream }
Napi::Value addLane(const Napi::CallbackInfo& info) {
  const Shared device = opened(info);
  const std::string name = textAt(info[0], "name");
  const bool owned = !info[1].IsUndefined();
  check(info, *device, device->driver->bind(), "bind");
  Stream stream = nullptr;
  if (owned) {
    const DeviceInfo& about = device->driver->info();
    const auto given = integerAt(info[1], "priority", -1, 1);
    const int priority = given < 0 ? about.greatestPriority : given > 0 ? about.leastPriority : 0;
    check(info, *device, device->driver->streamCreate(&stream, priority), "streamCreate");
  } else {
    bool lossless = false;
    if (!info[2].IsBigInt()) throw Napi::TypeError::New(info.Env(), "stream must be a bigint");
    stream = reinterpret_cast<Stream>(
        static_cast<std::uintptr_t>(info[2].As<Napi::BigInt>().Uint64Value(&lossless)));
    const Status status = device->driver->streamQuery(stream);
    check(info, *device, status == Status::notReady ? Status::ok : status, "streamQuery");
  }
  Lane* lane = nullptr;
  if (const Status status = device->lanes->add(stream, owned, name, &lane); status != Status::ok) {
    if (owned) device->driver->streamDestroy(stream);
    if (status == Status::outOfMemory) return info.Env().Null();
    check(info, *device, status, "lane");
  }
  if (device->laneKinds.size() <= lane->id) device->laneKinds.resize(lane->id + 1);
  device->laneKinds[lane->id] =
      owned ? AllocatorDevice::LaneKind::owned : AllocatorDevice::LaneKind::external;
  Napi::Object result = Napi::Object::New(info.Env());
  result.Set("id", static_cast<double>(lane->id));
  result.Set("stream",
             Napi::BigInt::New(info.Env(), std::uint64_t{reinterpret_cast<std::uintptr_t>(stream)}));
  return result;
}

Napi::Value retireLane(const Napi::CallbackInfo& info) {
  const Shared device = opened(info);
  Lane& lane = laneAt(info[0], *device);
  Stream stream = lane.stream;
  check(info, *device, device->driver->bind(), "bind");
  check(info, *device, device->lanes->retire(lane), "eventRecord");
  // From here on another share may use the lane's number again.
  const auto kind = std::exchange(device->laneKinds[lane.id], AllocatorDevice::LaneKind::none);
  if (kind == AllocatorDevice::LaneKind::owned)
    check(info, *device, device->driver->streamDestroy(stream), "streamDestroy");
  return nothing(info);
}

// The caller is given the lane's stream, and may queue work there.
Napi::Value lendStream(const Napi::CallbackInfo& info) {
  const Shared device = opened(info);
  device->lanes->lend(laneAt(info[0], *device));
  return nothing(info);
}

// The home lane of pinned memory.
Napi::Value hostLane(const Napi::CallbackInfo& info) {
  const Shared device = opened(info);
  Status status = Status::ok;
  check(info, *device, device->driver->bind(), "bind");
  const Lane* lane = device->memory->hostLane(&status);
  check(info, *device, status, "streamCreate");
  return Napi::Number::New(info.Env(), lane->id);
}

// pool → a NativeDevice, whose programs take their memory from it; 0: from the device's own pool.
Napi::Value sessions(const Napi::CallbackInfo& info) {
  const Shared device = opened(info);
  caching::MemPool* pool = nullptr;
  if (!device->pool(numberOr(info[0], "pool", 0), &pool))
    throw Napi::RangeError::New(info.Env(), "there is no such pool");
  return deviceObject(info.Env(), device->memory, pool);
}

// The number of what memory is for, in words.
Napi::Value site(const Napi::CallbackInfo& info) {
  const Shared device = opened(info);
  return Napi::Number::New(info.Env(), device->memory->site(textAt(info[0], "words")));
}

Napi::Value sites(const Napi::CallbackInfo& info) {
  const Shared device = opened(info);
  const std::vector<std::string> all = device->memory->allSites();
  Napi::Array result = Napi::Array::New(info.Env(), all.size());
  for (std::uint32_t i = 0; i < all.size(); ++i) {
    const Napi::HandleScope scope(info.Env());
    result.Set(i, all[i]);
  }
  return result;
}

// Waits for a mark off the JavaScript thread, and holds it until then.
Napi::Value waitFor(const Napi::CallbackInfo& info, const Shared& device, Mark* mark, const char* op) {
  auto status = std::make_shared<Status>(Status::ok);
  auto detail = std::make_shared<std::string>();
  const auto work = [device, mark, status, detail] {
    std::shared_lock lock(device->inUse);
    if (!device->lanes) return;
    *status = device->driver->bind();
    if (*status == Status::ok) *status = device->lanes->synchronize(*mark);
    if (*status != Status::ok) *detail = device->driver->lastDetail();
    mark->release();
  };
  const auto finish = [device, status, detail, op](Napi::Env env) -> Napi::Value {
    // Functions that the lane has called are called before its caller hears of the end.
    if (device->channel && !device->closed()) device->channel->deliver(env);
    if (*status == Status::ok) return env.Undefined();
    Failure failure;
    failure.code = statusName(*status);
    failure.op = op;
    failure.detail = *detail;
    if (*status == Status::launchFailed)
      if (std::string problem = referenceProblem(*device); !problem.empty())
        failure.detail = std::move(problem);
    throw failureObject(env, failure);
  };
  return runAsync(info.Env(), "braid.synchronize", work, finish);
}

Napi::Value synchronizeLane(const Napi::CallbackInfo& info) {
  const Shared device = opened(info);
  Mark* mark = nullptr;
  check(info, *device, device->driver->bind(), "bind");
  check(info, *device, device->lanes->mark(laneAt(info[0], *device), &mark), "eventRecord");
  return waitFor(info, device, mark, "synchronize");
}

Napi::Value synchronizeEvent(const Napi::CallbackInfo& info) {
  const Shared device = opened(info);
  const double handle = numberAt(info[0], "event");
  if (!(handle >= 1 && handle < mostInteger))
    throw Napi::RangeError::New(info.Env(), "there is no such event");
  auto* mark = reinterpret_cast<Mark*>(static_cast<std::uintptr_t>(handle));
  mark->hold();
  return waitFor(info, device, mark, "synchronize");
}

// useOnOutOfMemory, noSplit, then allocate and release: functions, or a library's path and two symbols.
Napi::Value makePool(const Napi::CallbackInfo& info) {
  const Shared device = opened(info);
  std::unique_ptr<caching::Source> source;
  if (info[2].IsFunction()) {
    device->scriptedPools = true;
    source = callbackSource(*device, info[2].As<Napi::Function>(), info[3].As<Napi::Function>());
  } else if (info[2].IsString()) {
    std::string problem;
    source = librarySource(*device, textAt(info[2], "library"), textAt(info[3], "allocate"),
                           textAt(info[4], "release"), &problem);
    if (!source) throw Napi::Error::New(info.Env(), problem);
  }
  caching::MemPool* pool = device->spaces[0].allocator->makePool(
      flagOr(info[0], "useOnOutOfMemory", false), flagOr(info[1], "noSplit", false), std::move(source));
  device->pools.push_back(pool);
  Napi::Object result = Napi::Object::New(info.Env());
  result.Set("handle", static_cast<double>(device->pools.size()));
  result.Set("id", static_cast<double>(pool->id));
  return result;
}

Napi::Value closePool(const Napi::CallbackInfo& info) {
  const Shared device = opened(info);
  caching::MemPool* pool = nullptr;
  if (!device->pool(numberAt(info[0], "pool"), &pool) || !pool) return nothing(info);
  check(info, *device, device->driver->bind(), "bind");
  device->pools[static_cast<std::size_t>(info[0].As<Napi::Number>().DoubleValue()) - 1] = nullptr;
  device->memory->close(pool);
  return nothing(info);
}

Napi::Value view(const Napi::CallbackInfo& info) {
  const Shared device = opened(info);
  caching::Block* block = blockAt(info);
  if (block->state != caching::BlockState::live) throw Napi::Error::New(info.Env(), "the block is freed");
  return pinnedView(info.Env(), device, block);
}

Napi::Value lend(const Napi::CallbackInfo& info) {
  lendView(*opened(info), blockAt(info));
  return nothing(info);
}

// Also of a block that is freed, or whose device is closed.
Napi::Value endLoanOf(const Napi::CallbackInfo& info) {
  if (!info[0].IsArrayBuffer()) throw Napi::TypeError::New(info.Env(), "view must be an ArrayBuffer");
  endLoan(*self<AllocatorDevice>(info), info[0].As<Napi::ArrayBuffer>());
  return nothing(info);
}

Napi::Value freePinnedView(const Napi::CallbackInfo& info) {
  const Shared device = opened(info);
  return Napi::Number::New(info.Env(), static_cast<int>(freeViewed(*device, blockAt(info))));
}

Napi::Value stats(const Napi::CallbackInfo& info) {
  const Shared device = opened(info);
  return statsRow(info.Env(), spaceAt(info, *device));
}

Napi::Value resetPeaks(const Napi::CallbackInfo& info) {
  const Shared device = opened(info);
  spaceAt(info, *device).resetPeaks();
  return nothing(info);
}

Napi::Value resetAccumulated(const Napi::CallbackInfo& info) {
  const Shared device = opened(info);
  spaceAt(info, *device).resetAccumulated();
  return nothing(info);
}

// Waits for every lane off the JavaScript thread, so that the release that follows need not wait.
Napi::Value emptyCache(const Napi::CallbackInfo& info) {
  const Shared device = opened(info);
  const double pool = numberOr(info[0], "pool", 0);
  return runAsync(
      info.Env(), "braid.emptyCache", [device] { device->awaitLanes(); },
      [device, pool](Napi::Env env) -> Napi::Value {
        caching::MemPool* only = nullptr;
        if (device->closed() || !device->pool(pool, &only)) return env.Undefined();
        Status status = device->driver->bind();
        if (status == Status::ok) status = device->spaces[0].allocator->emptyCache(only);
        if (status == Status::ok && !only) status = device->spaces[1].allocator->emptyCache();
        if (status != Status::ok) throw failureObject(env, failureOf(*device->driver, status, "emptyCache"));
        return env.Undefined();
      });
}

Napi::Value memory(const Napi::CallbackInfo& info) {
  const Shared device = opened(info);
  std::size_t free = 0, total = 0;
  check(info, *device, device->driver->bind(), "bind");
  check(info, *device, device->driver->memInfo(&free, &total), "memInfo");
  Napi::Object result = Napi::Object::New(info.Env());
  result.Set("free", static_cast<double>(free));
  result.Set("total", static_cast<double>(total));
  return result;
}

// entries; 0 stops
Napi::Value keepHistory(const Napi::CallbackInfo& info) {
  const Shared device = opened(info);
  const auto entries = static_cast<std::size_t>(integerAt(info[0], "entries", 0, 1 << 26));
  for (MemorySpace& space : device->spaces) {
    if (entries > 0)
      space.allocator->history().start(entries);
    else
      space.allocator->history().stop();
  }
  return nothing(info);
}

Napi::Value snapshot(const Napi::CallbackInfo& info) {
  const Shared device = opened(info);
  const Napi::Env env = info.Env();
  Napi::Object result = Napi::Object::New(env);
  result.Set("lanes", laneRows(env, *device->lanes));
  result.Set("laneNames", laneNames(env, *device->lanes));
  const char* const segments[] = {"segments", "pinnedSegments"};
  const char* const histories[] = {"history", "pinnedHistory"};
  for (int space = 0; space < 2; ++space) {
    caching::Allocator& allocator = *device->spaces[space].allocator;
    result.Set(segments[space], segmentRows(env, allocator));
    result.Set(histories[space], historyRows(env, allocator.history()));
  }
  return result;
}

Napi::Value shortage(const Napi::CallbackInfo& info) {
  const Shared device = opened(info);
  return shortageObject(info.Env(), device->spaces[integerAt(info[0], "space", 0, 1)].shortage);
}

// The driver's message for a code.
Napi::Value describe(const Napi::CallbackInfo& info) {
  const auto device = self<AllocatorDevice>(info);
  const auto status = static_cast<Status>(integerAt(info[0], "status", 0, 9999));
  Napi::Object result = Napi::Object::New(info.Env());
  result.Set("code", statusName(status));
  std::string detail = device->driver ? device->driver->lastDetail() : std::string();
  if (status == Status::launchFailed)
    if (std::string problem = referenceProblem(*device); !problem.empty()) detail = std::move(problem);
  result.Set("detail", detail);
  result.Set("sticky", isSticky(status));
  return result;
}

// The exception that a source has thrown since the last call, in an array.
Napi::Value takeThrown(const Napi::CallbackInfo& info) {
  const auto device = self<AllocatorDevice>(info);
  if (!device->thrown) return info.Env().Undefined();
  napi_value list = nullptr;
  napi_get_reference_value(info.Env(), device->thrown, &list);
  napi_delete_reference(info.Env(), device->thrown);
  device->thrown = nullptr;
  return Napi::Value(info.Env(), list);
}

bool askObserver(void* data, const caching::Shortage& shortage) {
  const auto* observed = static_cast<ObservedSpace*>(data);
  if (observed->thread != std::this_thread::get_id()) return false;
  const MemorySpace* space = observed->space;
  const Napi::Env env(space->device->env);
  const Napi::HandleScope scope(env);
  napi_value observer = nullptr;
  if (napi_get_reference_value(env, space->observer, &observer) != napi_ok || !observer) return false;
  const int which = space == &space->device->spaces[1] ? 1 : 0;
  try {
    napi_value arguments[] = {Napi::Number::New(env, which), shortageObject(env, shortage)}, result = nullptr;
    // The function is TypeScript's own and never throws.
    if (napi_call_function(env, env.Undefined(), observer, 2, arguments, &result) != napi_ok) return false;
    bool again = false;
    return napi_get_value_bool(env, result, &again) == napi_ok && again;
  } catch (const Napi::Error&) {
    // The environment ends. The allocator, in the middle of whose call this is, goes on as without an
    // observer.
    return false;
  }
}

// (space, shortage) => whether it freed blocks; set once
Napi::Value observe(const Napi::CallbackInfo& info) {
  const Shared device = opened(info);
  if (!info[0].IsFunction()) throw Napi::TypeError::New(info.Env(), "observer must be a function");
  for (MemorySpace& space : device->spaces) {
    if (space.observer) continue;
    if (napi_create_reference(info.Env(), info[0], 1, &space.observer) != napi_ok)
      throw Napi::Error::New(info.Env());
    space.observed = std::make_shared<ObservedSpace>(device->thread, &space);
    space.allocator->observe(askObserver, space.observed);
  }
  return nothing(info);
}

// The external bytes that all addons of the process have reported to V8.
Napi::Value externalBytes(const Napi::CallbackInfo& info) {
  opened(info);
  std::int64_t total = 0;
  napi_adjust_external_memory(info.Env(), 0, &total);
  return Napi::Number::New(info.Env(), static_cast<double>(total));
}

void waitAtGate(void* data) {
  const std::unique_ptr<std::shared_ptr<Gate>> held(static_cast<std::shared_ptr<Gate>*>(data));
  Gate& gate = **held;
  std::unique_lock lock(gate.mutex);
  gate.opened.wait(lock, [&] { return gate.open; });
}

Napi::Value hold(const Napi::CallbackInfo& info) {
  const Shared device = opened(info);
  Lane& lane = laneAt(info[0], *device);
  auto gate = std::make_shared<Gate>();
  auto held = std::make_unique<std::shared_ptr<Gate>>(gate);
  check(info, *device, device->driver->bind(), "bind");
  check(info, *device, device->driver->hostFunction(lane.stream, waitAtGate, held.get()), "hostFunction");
  held.release();
  lane.queued();
  device->gates.emplace(device->gatesMade, std::move(gate));
  return Napi::Number::New(info.Env(), device->gatesMade++);
}

Napi::Value openGate(const Napi::CallbackInfo& info) {
  const auto device = self<AllocatorDevice>(info);
  const auto last = static_cast<std::int64_t>(device->gatesMade) - 1;
  const auto held = device->gates.extract(static_cast<std::uint32_t>(integerAt(info[0], "gate", 0, last)));
  if (held.empty()) return nothing(info);
  Gate& gate = *held.mapped();
  std::lock_guard lock(gate.mutex);
  gate.open = true;
  gate.opened.notify_all();
  return nothing(info);
}

Napi::Value close(const Napi::CallbackInfo& info) {
  const Shared device = self<AllocatorDevice>(info);
  if (device->refusal() == static_cast<int>(Refusal::inSource)) checkOpen(info.Env(), *device);
  detachViews(*device);
  device->close();
  return runAsync(
      info.Env(), "braid.close",
      [device] {
        device->drain();
        device->awaitWaits();
      },
      [device](Napi::Env env) -> Napi::Value {
        // The callbacks of the last work.
        if (device->channel) device->channel->deliver(env);
        device->leaveJavaScript();
        device->destroy();
        return env.Undefined();
      });
}

Napi::Object deviceObject(Napi::Env env, const Shared& device) {
  Napi::Object object = handle(env, device);
  std::size_t free = 0, total = 0;
  device->driver->bind();
  device->driver->memInfo(&free, &total);
  object.Set("info", deviceInfo(env, device->driver->info(), free));
  Napi::Float64Array out = Napi::Float64Array::New(env, 4);
  device->out = out.Data();
  if (napi_create_reference(env, out, 1, &device->outBuffer) != napi_ok) throw Napi::Error::New(env);
  object.Set("out", out);
  defineDeviceCalls(env, object, device);
  const char* const spaces[] = {"device", "pinned"};
  for (int space = 0; space < 2; ++space) {
    const Napi::Object functions = Napi::Object::New(env);
    defineSpaceCalls(env, functions, device, space);
    object.Set(spaces[space], functions);
  }
  // Shares of one device's memory have one number: their lanes and blocks go together.
  object.Set("memoryId", static_cast<double>(reinterpret_cast<std::uintptr_t>(device->memory.get())));
  object.Set("settings", device->memory->options());
  define<hostLane>(object, "hostLane");
  define<sessions>(object, "sessions");
  define<site>(object, "site");
  define<sites>(object, "sites");
  define<addLane>(object, "addLane");
  define<retireLane>(object, "retireLane");
  define<lendStream>(object, "lendStream");
  define<synchronizeLane>(object, "synchronizeLane");
  define<synchronizeEvent>(object, "synchronizeEvent");
  define<makePool>(object, "makePool");
  define<closePool>(object, "closePool");
  define<view>(object, "view");
  define<freePinnedView>(object, "freeViewed");
  define<lend>(object, "lend");
  define<endLoanOf>(object, "endLoan");
  define<stats>(object, "stats");
  define<resetPeaks>(object, "resetPeaks");
  define<resetAccumulated>(object, "resetAccumulated");
  define<emptyCache>(object, "emptyCache");
  define<memory>(object, "memory");
  define<keepHistory>(object, "keepHistory");
  define<snapshot>(object, "snapshot");
  define<shortage>(object, "shortage");
  define<describe>(object, "describe");
  define<takeThrown>(object, "takeThrown");
  define<observe>(object, "observe");
  define<externalBytes>(object, "externalBytes");
  define<hold>(object, "hold");
  define<openGate>(object, "openGate");
  defineKernelCalls(object);
  defineGraphCalls(object);
  define<close>(object, "close");
  return object;
}

}  // namespace

Napi::Value openCaching(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  const bool cuda = info[0].IsNumber();
  const auto make = [&] {
    std::unique_ptr<Driver> driver;
    std::string detail;
    const Status status =
        cuda ? openCuda(&driver, static_cast<int>(integerAt(info[0], "ordinal", 0, INT32_MAX)), &detail)
             : openHost(&driver, hostOptions(info[0]), &detail);
    if (status != Status::ok)
      throw failureObject(env, openFailure(status, cuda ? "openCuda" : "openHost", detail));
    if (const Status bound = driver->bind(); bound != Status::ok)
      throw failureObject(env, failureOf(*driver, bound, "bind"));
    const std::uint64_t bytes = driver->info().totalBytes;
    const caching::Options options = allocatorOptions(info[1], "options", bytes);
    const caching::Options pinned = allocatorOptions(info[2], "pinned", bytes);
    auto made = std::make_shared<DeviceMemory>(std::move(driver), options, pinned);
    Status reserved = Status::ok;
    Lane* const host = made->hostLane(&reserved);
    if (host != nullptr) reserved = made->pinned().reserve(*host);
    if (reserved != Status::ok)
      throw failureObject(env, failureOf(made->driver(), reserved, "pinned.reserveFirst"));
    return made;
  };
  const bool alone = info[3].IsUndefined();
  auto memory = alone ? make()
                      : DeviceMemory::shared(textAt(info[3], "name"), textAt(info[4], "settings"),
                                             flagOr(info[5], "any", false), make);
  if (const Status bound = memory->driver().bind(); bound != Status::ok)
    throw failureObject(env, failureOf(memory->driver(), bound, "bind"));
  const auto device = std::make_shared<AllocatorDevice>(env, std::move(memory));
  Environment::of(env).add(device);
  return deviceObject(env, device);
}

}  // namespace braid::bindings
