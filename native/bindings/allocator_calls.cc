#include "bindings/allocator_calls.h"

#include <bit>

#include "bindings/graph_state.h"
#include "bindings/handle.h"
#include "driver/unsafe_calls.h"

namespace braid::bindings {
namespace {

using caching::Block;

napi_value number(napi_env env, double value) {
  napi_value result = nullptr;
  napi_create_double(env, value, &result);
  return result;
}

napi_value code(napi_env env, int value) {
  napi_value result = nullptr;
  napi_create_int32(env, value, &result);
  return result;
}

template <class T>
T* pointer(double handle) {
  return handle >= 1 && handle < 9007199254740992.0
             ? reinterpret_cast<T*>(static_cast<std::uintptr_t>(handle))
             : nullptr;
}

double handleOf(const void* pointer) {
  return static_cast<double>(reinterpret_cast<std::uintptr_t>(pointer));
}

constexpr int bad = static_cast<int>(Refusal::badHandle);

AllocatorDevice& deviceOf(MemorySpace& space) { return *space.device; }
AllocatorDevice& deviceOf(AllocatorDevice& device) { return device; }

// How a call reports a failure: as its result, or as 0 with the code in `out`.
using Report = napi_value (*)(napi_env env, napi_callback_info info, Status status);

napi_value asResult(napi_env env, napi_callback_info, Status status) {
  return code(env, static_cast<int>(status));
}

template <class Owner>
napi_value inOut(napi_env env, napi_callback_info info, Status status) {
  void* data = nullptr;
  if (napi_get_cb_info(env, info, nullptr, nullptr, nullptr, &data) == napi_ok)
    deviceOf(*static_cast<Owner*>(data)).out[0] = static_cast<double>(status);
  return number(env, 0);
}

// All calls run inside this function: no C++ exception leaves them. Those that are thrown are of memory of
// the process that ran out, or of an environment that ends in the middle of the call.
template <napi_value (*call)(napi_env, napi_callback_info), Report report = asResult>
napi_value guardedRaw(napi_env env, napi_callback_info info) {
  try {
    return call(env, info);
  } catch (const std::exception&) {
    return report(env, info, Status::outOfMemory);
  }
}

// The arguments of one call: the object of the function, its numbers, and whether the device refuses calls.
template <class Owner, std::size_t count>
struct Call {
  Call(napi_env env, napi_callback_info info) {
    napi_value values[count];
    std::size_t given = count;
    void* data = nullptr;
    if (napi_get_cb_info(env, info, &given, values, nullptr, &data) != napi_ok) return;
    owner = static_cast<Owner*>(data);
    refusal = deviceOf(*owner).refusal();
    for (std::size_t i = 0; i < count; ++i)
      if (napi_get_value_double(env, values[i], &arguments[i]) != napi_ok && refusal == 0) refusal = bad;
  }
  AllocatorDevice& device() const { return deviceOf(*owner); }

  Owner* owner = nullptr;
  int refusal = bad;
  double arguments[count] = {};
};

// What graphs that have gone held may be wanted now.
void releaseEnded(const AllocatorDevice& device) {
  if (!device.graphs || !device.graphs->cleanup->hasWork()) return;
  const UnsafeCalls allowed(device.capturing());
  device.graphs->cleanup->drain();
}

// lane, bytes, pool, site → the block, its address and size in `out`; 0, and the code in `out`.
napi_value malloc(napi_env env, napi_callback_info info) {
  const Call<MemorySpace, 4> call(env, info);
  if (!call.owner) return number(env, 0);
  AllocatorDevice& device = call.device();
  const auto& [laneId, bytes, poolHandle, site] = call.arguments;
  int status = call.refusal;
  Block* block = nullptr;
  if (status == 0) status = static_cast<int>(device.driver->bind());
  if (status == 0) {
    releaseEnded(device);
    Lane* lane = device.lane(laneId);
    caching::MemPool* pool = nullptr;
    if (!lane || !device.pool(poolHandle, &pool) || !(bytes >= 1 && bytes <= 9007199254740992.0)) {
      status = bad;
    } else if (pool != nullptr && pool->kept()) {
      status = static_cast<int>(Refusal::poolOfGraphs);
    } else {
      MemorySpace& space = *call.owner;
      status = static_cast<int>(space.allocator->malloc(static_cast<std::uint64_t>(bytes), *lane, &block,
                                                        &space.shortage, pool,
                                                        static_cast<std::uint32_t>(site), &device));
    }
  }
  if (status != 0) {
    device.out[0] = status;
    return number(env, 0);
  }
  device.out[0] = static_cast<double>(block->address);
  device.out[1] = static_cast<double>(block->size);
  device.weigh(static_cast<std::int64_t>(block->size));
  return number(env, handleOf(block));
}

// block
napi_value free(napi_env env, napi_callback_info info) {
  const Call<MemorySpace, 1> call(env, info);
  if (call.refusal != 0) return code(env, call.refusal);
  Block* block = pointer<Block>(call.arguments[0]);
  if (!block) return code(env, bad);
  const auto bytes = static_cast<std::int64_t>(block->size);
  AllocatorDevice& device = call.device();
  Status status = device.driver->bind();
  const UnsafeCalls allowed(device.capturing());
  if (status == Status::ok) status = device.memory->free(block, call.owner == &device.spaces[1]);
  if (status != Status::invalidHandle) device.weigh(-bytes);
  return code(env, static_cast<int>(status));
}

// block, lane
template <Status (caching::Allocator::*method)(Block*, Lane&)>
napi_value use(napi_env env, napi_callback_info info) {
  const Call<MemorySpace, 2> call(env, info);
  if (call.refusal != 0) return code(env, call.refusal);
  Block* block = pointer<Block>(call.arguments[0]);
  Lane* lane = call.device().lane(call.arguments[1]);
  if (!block || !lane) return code(env, bad);
  Status status = call.device().driver->bind();
  if (status == Status::ok) status = (call.owner->allocator->*method)(block, *lane);
  return code(env, static_cast<int>(status));
}

// block, event
napi_value keepUntil(napi_env env, napi_callback_info info) {
  const Call<MemorySpace, 2> call(env, info);
  if (call.refusal != 0) return code(env, call.refusal);
  Block* block = pointer<Block>(call.arguments[0]);
  Mark* mark = pointer<Mark>(call.arguments[1]);
  if (!block || !mark) return code(env, bad);
  return code(env, static_cast<int>(call.owner->allocator->keepUntil(block, *mark)));
}

// block
napi_value endLoan(napi_env env, napi_callback_info info) {
  const Call<MemorySpace, 1> call(env, info);
  if (call.refusal != 0) return code(env, call.refusal);
  Block* block = pointer<Block>(call.arguments[0]);
  if (!block) return code(env, bad);
  Status status = call.device().driver->bind();
  if (status == Status::ok) status = call.owner->allocator->endLoan(block);
  return code(env, static_cast<int>(status));
}

// The uses that a block had: their holder now, which must outlive the lock of the lane that waits for them.
struct TakenUses {
  TakenUses() = default;
  ~TakenUses() {
    for (Mark* const mark : marks) mark->release();
  }
  TakenUses(const TakenUses&) = delete;
  std::vector<Mark*> marks;
};

// block, lane: the lane waits for every use that was marked so far. The block has none of them any more.
napi_value waitUses(napi_env env, napi_callback_info info) {
  const Call<MemorySpace, 2> call(env, info);
  if (call.refusal != 0) return code(env, call.refusal);
  AllocatorDevice& device = call.device();
  Block* block = pointer<Block>(call.arguments[0]);
  Lane* lane = device.lane(call.arguments[1]);
  if (!block || !lane || lane->retired) return code(env, bad);
  Status status = device.driver->bind();
  if (status == Status::ok) status = call.owner->allocator->endLoan(block);
  if (status != Status::ok) return code(env, static_cast<int>(status));
  TakenUses uses;
  call.owner->allocator->takeUses(block, &uses.marks);
  {
    std::lock_guard guard(lane->mutex);
    bool issued = false;
    for (Mark* const use : uses.marks)
      if (status == Status::ok) status = device.lanes->wait(*lane, *use, &issued);
  }
  return code(env, static_cast<int>(status));
}

// lane → an event, its point in `out`; 0, and the code in `out`.
template <bool timed>
napi_value recordMark(napi_env env, napi_callback_info info) {
  const Call<AllocatorDevice, 1> call(env, info);
  if (!call.owner) return number(env, 0);
  AllocatorDevice& device = call.device();
  Mark* mark = nullptr;
  int status = call.refusal;
  if (status == 0) {
    Lane* lane = device.lane(call.arguments[0]);
    status = lane ? static_cast<int>(device.driver->bind()) : bad;
    // A timed event is recorded each time, whether the lane has been given work since or not.
    if (status == 0 && timed && !device.lanes->mayQueue(*lane))
      status = static_cast<int>(Status::notPermitted);
    if (status == 0)
      status =
          static_cast<int>(timed ? device.lanes->markTime(*lane, &mark) : device.lanes->mark(*lane, &mark));
  }
  device.out[0] = status == 0 ? static_cast<double>(mark->point) : status;
  return number(env, status == 0 ? handleOf(mark) : 0);
}

// lane, event; `out`: whether a wait was issued
napi_value wait(napi_env env, napi_callback_info info) {
  const Call<AllocatorDevice, 2> call(env, info);
  if (call.refusal != 0) return code(env, call.refusal);
  AllocatorDevice& device = call.device();
  Lane* lane = device.lane(call.arguments[0]);
  Mark* mark = pointer<Mark>(call.arguments[1]);
  if (!lane || !mark || lane->retired) return code(env, bad);
  bool issued = false;
  Status status = device.driver->bind();
  if (status == Status::ok) {
    std::lock_guard guard(lane->mutex);
    status = device.lanes->wait(*lane, *mark, &issued);
  }
  device.out[0] = issued ? 1 : 0;
  return code(env, static_cast<int>(status));
}

// block: 1 where a graph keeps it, else 0
napi_value held(napi_env env, napi_callback_info info) {
  const Call<MemorySpace, 1> call(env, info);
  const Block* block = pointer<Block>(call.arguments[0]);
  return number(env, call.refusal == 0 && block && block->held ? 1 : 0);
}

// lane, an event of another device of the kind
napi_value waitPeer(napi_env env, napi_callback_info info) {
  const Call<AllocatorDevice, 2> call(env, info);
  if (call.refusal != 0) return code(env, call.refusal);
  AllocatorDevice& device = call.device();
  Lane* lane = device.lane(call.arguments[0]);
  const Mark* mark = pointer<Mark>(call.arguments[1]);
  if (!lane || !mark || lane->retired) return code(env, bad);
  if (!device.lanes->mayQueue(*lane)) return code(env, static_cast<int>(Status::notPermitted));
  Status status = device.driver->bind();
  if (status == Status::ok) status = device.driver->streamWait(lane->stream, mark->event);
  // The wait is work: a point of the lane from here on is not one from before it.
  lane->queued();
  return code(env, static_cast<int>(status));
}

// event: releases it
napi_value drop(napi_env env, napi_callback_info info) {
  const Call<AllocatorDevice, 1> call(env, info);
  if (call.refusal == static_cast<int>(Refusal::closed)) return code(env, call.refusal);
  if (Mark* mark = pointer<Mark>(call.arguments[0])) mark->release();
  return code(env, 0);
}

// from, to → 0, and the milliseconds in `out`; or notReady
napi_value elapsed(napi_env env, napi_callback_info info) {
  const Call<AllocatorDevice, 2> call(env, info);
  if (call.refusal != 0) return code(env, call.refusal);
  const Mark *from = pointer<Mark>(call.arguments[0]), *to = pointer<Mark>(call.arguments[1]);
  if (!from || !to) return code(env, bad);
  float milliseconds = 0;
  Status status = call.device().driver->bind();
  if (status == Status::ok) status = call.device().lanes->elapsed(*from, *to, &milliseconds);
  call.device().out[0] = static_cast<double>(milliseconds);
  return code(env, static_cast<int>(status));
}

// event → 0, or notReady
napi_value done(napi_env env, napi_callback_info info) {
  const Call<AllocatorDevice, 1> call(env, info);
  if (call.refusal != 0) return code(env, call.refusal);
  Mark* mark = pointer<Mark>(call.arguments[0]);
  if (!mark) return code(env, bad);
  Status status = call.device().driver->bind();
  if (status == Status::ok) status = call.device().lanes->poll(*mark);
  return code(env, static_cast<int>(status));
}

// lane, kind, to, from, bytes
napi_value copy(napi_env env, napi_callback_info info) {
  const Call<AllocatorDevice, 5> call(env, info);
  if (call.refusal != 0) return code(env, call.refusal);
  AllocatorDevice& device = call.device();
  const auto& [laneId, kind, to, from, bytes] = call.arguments;
  Lane* lane = device.lane(laneId);
  if (!lane || lane->retired || !(kind >= 0 && kind <= 3)) return code(env, bad);
  if (!device.lanes->mayQueue(*lane)) return code(env, static_cast<int>(Status::notPermitted));
  Status status = device.driver->bind();
  if (status == Status::ok)
    status =
        device.driver->copy(static_cast<CopyKind>(kind), static_cast<DeviceAddress>(to),
                            static_cast<DeviceAddress>(from), static_cast<std::size_t>(bytes), lane->stream);
  lane->queued();
  return code(env, static_cast<int>(status));
}

// lane, to, value, words
napi_value fill32(napi_env env, napi_callback_info info) {
  const Call<AllocatorDevice, 4> call(env, info);
  if (call.refusal != 0) return code(env, call.refusal);
  AllocatorDevice& device = call.device();
  const auto& [laneId, to, value, words] = call.arguments;
  Lane* lane = device.lane(laneId);
  if (!lane || lane->retired) return code(env, bad);
  if (!device.lanes->mayQueue(*lane)) return code(env, static_cast<int>(Status::notPermitted));
  Status status = device.driver->bind();
  if (status == Status::ok)
    status = device.driver->fill32(static_cast<DeviceAddress>(to), static_cast<std::uint32_t>(value),
                                   static_cast<std::size_t>(words), lane->stream);
  lane->queued();
  return code(env, static_cast<int>(status));
}

// lane, to, value, bytes of an element, width, height, pitch
napi_value fill(napi_env env, napi_callback_info info) {
  const Call<AllocatorDevice, 7> call(env, info);
  if (call.refusal != 0) return code(env, call.refusal);
  AllocatorDevice& device = call.device();
  const auto& [laneId, to, value, each, width, height, pitch] = call.arguments;
  Lane* lane = device.lane(laneId);
  if (!lane || lane->retired) return code(env, bad);
  if (!device.lanes->mayQueue(*lane)) return code(env, static_cast<int>(Status::notPermitted));
  Status status = device.driver->bind();
  if (status == Status::ok)
    status = device.driver->fill(
        NodeParams::fill(static_cast<DeviceAddress>(to), static_cast<std::uint32_t>(value),
                         static_cast<std::uint32_t>(each), static_cast<std::size_t>(width),
                         static_cast<std::size_t>(height), static_cast<std::size_t>(pitch)),
        lane->stream);
  lane->queued();
  return code(env, static_cast<int>(status));
}

// lane, executable, whether the launch waits for JavaScript
template <Status (graphs::ExecutableGraph::*method)(Stream)>
napi_value onLane(napi_env env, napi_callback_info info) {
  const Call<AllocatorDevice, 3> call(env, info);
  if (call.refusal != 0) return code(env, call.refusal);
  AllocatorDevice& device = call.device();
  const auto& [laneId, number, awaitsHost] = call.arguments;
  Lane* lane = device.lane(laneId);
  if (!lane || lane->retired || !device.graphs) return code(env, bad);
  if (!device.lanes->mayQueue(*lane)) return code(env, static_cast<int>(Status::notPermitted));
  const auto& all = device.graphs->executables;
  if (!(number >= 1 && number <= static_cast<double>(all.size()))) return code(env, bad);
  graphs::ExecutableGraph* const executable = all[static_cast<std::size_t>(number) - 1];
  if (!executable) return code(env, bad);
  Status status = device.driver->bind();
  if (status == Status::ok) status = (executable->*method)(lane->stream);
  lane->queued(device.driver->launchPieces());
  Mark* mark = nullptr;
  if (status == Status::ok && awaitsHost != 0) status = device.lanes->mark(*lane, &mark);
  if (mark) device.lanes->hostAwaited(mark);
  return code(env, static_cast<int>(status));
}

// lane → 0, or notReady
napi_value idle(napi_env env, napi_callback_info info) {
  const Call<AllocatorDevice, 1> call(env, info);
  if (call.refusal != 0) return code(env, call.refusal);
  Lane* lane = call.device().lane(call.arguments[0]);
  if (!lane) return code(env, bad);
  Status status = call.device().driver->bind();
  if (status == Status::ok) status = call.device().lanes->pollLane(*lane);
  return code(env, static_cast<int>(status));
}

// The function owns the device, since its data is part of it.
void function(napi_env env, napi_value object, const char* name, napi_callback callback, void* data,
              const std::shared_ptr<AllocatorDevice>& device) {
  napi_value made = nullptr;
  if (napi_create_function(env, name, NAPI_AUTO_LENGTH, callback, data, &made) != napi_ok)
    throw Napi::Error::New(env);
  auto* held = new std::shared_ptr<AllocatorDevice>(device);
  const auto release = [](napi_env, void* owned, void*) {
    delete static_cast<std::shared_ptr<AllocatorDevice>*>(owned);
  };
  if (napi_add_finalizer(env, made, held, release, nullptr, nullptr) != napi_ok) {
    delete held;
    throw Napi::Error::New(env);
  }
  if (napi_set_named_property(env, object, name, made) != napi_ok) throw Napi::Error::New(env);
}

}  // namespace

void defineSpaceCalls(napi_env env, napi_value object, const std::shared_ptr<AllocatorDevice>& device,
                      int space) {
  MemorySpace* data = &device->spaces[space];
  function(env, object, "malloc", guardedRaw<malloc, inOut<MemorySpace>>, data, device);
  function(env, object, "free", guardedRaw<free>, data, device);
  function(env, object, "recordUse", guardedRaw<use<&caching::Allocator::recordUse>>, data, device);
  function(env, object, "recordStream", guardedRaw<use<&caching::Allocator::recordStream>>, data, device);
  function(env, object, "keepUntil", guardedRaw<keepUntil>, data, device);
  function(env, object, "endLoan", guardedRaw<endLoan>, data, device);
  function(env, object, "waitUses", guardedRaw<waitUses>, data, device);
  function(env, object, "held", guardedRaw<held>, data, device);
}

void defineDeviceCalls(napi_env env, napi_value object, const std::shared_ptr<AllocatorDevice>& device) {
  AllocatorDevice* data = device.get();
  function(env, object, "record", guardedRaw<recordMark<false>, inOut<AllocatorDevice>>, data, device);
  function(env, object, "wait", guardedRaw<wait>, data, device);
  function(env, object, "waitPeer", guardedRaw<waitPeer>, data, device);
  function(env, object, "drop", guardedRaw<drop>, data, device);
  function(env, object, "done", guardedRaw<done>, data, device);
  function(env, object, "copy", guardedRaw<copy>, data, device);
  function(env, object, "fill32", guardedRaw<fill32>, data, device);
  function(env, object, "fill", guardedRaw<fill>, data, device);
  function(env, object, "recordTime", guardedRaw<recordMark<true>, inOut<AllocatorDevice>>, data, device);
  function(env, object, "elapsed", guardedRaw<elapsed>, data, device);
  function(env, object, "idle", guardedRaw<idle>, data, device);
  function(env, object, "launchGraph", guardedRaw<onLane<&graphs::ExecutableGraph::launch>>, data, device);
  function(env, object, "uploadGraph", guardedRaw<onLane<&graphs::ExecutableGraph::upload>>, data, device);
}

}  // namespace braid::bindings
