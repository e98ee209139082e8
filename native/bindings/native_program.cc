// The NativeProgram of runtime/addon.ts.
#include "bindings/native_program.h"

#include <atomic>
#include <map>
#include <memory>
#include <unordered_map>
#include <utility>

#include "bindings/async.h"
#include "bindings/channel.h"
#include "bindings/convert.h"
#include "bindings/environment.h"
#include "bindings/failure_object.h"
#include "bindings/handle.h"
#include "bindings/program_spec.h"
#include "bindings/sequence.h"
#include "bindings/while_blocked.h"
#include "executor/session.h"

namespace braid::bindings {
namespace {

struct OpenProgram;

// Keeps the memory of one view alive while it may be read. The range outlives `close` where JavaScript has
// transferred the memory (ArrayBuffer.prototype.transfer) into an ArrayBuffer that `close` cannot detach.
//
// V8 counts the memory of an ArrayBuffer as some that its garbage collector may free, and collects all
// garbage once 64 MiB came up since the last time: for ticks of large outputs, every other tick. But pinned
// memory belongs to the session, so it is taken off that count for as long as V8 has it in there.
struct ViewOwner {
  void discount(Napi::Env env) {
    discounted = true;
    adjust(env, -bytes);
  }

  // Just before V8 takes the bytes off its count itself: from the least count that there was it starts the
  // next 64 MiB, so the count must not fall below what it was.
  void restore(Napi::Env env) {
    if (std::exchange(discounted, false)) adjust(env, bytes);
  }

  static void adjust(Napi::Env env, std::int64_t by) {
    std::int64_t count = 0;
    napi_adjust_external_memory(env, by, &count);
  }

  std::shared_ptr<OpenProgram> program;
  std::shared_ptr<const PinnedBlock> block;
  std::int64_t bytes;
  bool discounted = false;
};

// The ArrayBuffer over a range of pinned memory. V8 forbids two live ones over the same bytes.
struct View {
  void detach(Napi::Env env) {
    Napi::ArrayBuffer present = buffer.IsEmpty() ? Napi::ArrayBuffer() : buffer.Value();
    if (present.IsEmpty() || present.IsDetached()) return;
    owner->restore(env);
    // Nothing reads the memory from then on. The owner itself goes when Node says so, in a later turn.
    auto block = std::move(owner->block);
    try {
      present.Detach();
    } catch (...) {
      owner->block = std::move(block);
      throw;
    }
  }

  Napi::Reference<Napi::ArrayBuffer> buffer;  // weak
  ViewOwner* owner = nullptr;                 // lives at least as long as the buffer is not detached
  // Loans of the view that have not ended. Hazard: whoever has it may be writing the memory outside of
  // JavaScript (a read of a file), which detaching does not stop. Rule: a lent view is detached, and its
  // memory given back, when the last loan ends.
  std::uint32_t loans = 0;
};

// The native part of a NativeProgram. Its JavaScript object owns it, and so do the views of its memory and
// the work that closes it. JavaScript thread only, except the session.
struct OpenProgram {
  static constexpr napi_type_tag typeTag{0x6272616964707267u, 0x93c64f2a7be1480du};
  static constexpr const char* typeName = "NativeProgram";

  explicit OpenProgram(Napi::Env environment) : env(environment) {}
  ~OpenProgram() { abandon(); }

  // Closes a program that JavaScript has dropped: ends waits for JavaScript, drains, frees. It blocks, but
  // waits for no other program, since another one may be waiting for this thread to compute a reference.
  void abandon() {
    const WithoutJavaScript silent;
    if (hooked) napi_remove_env_cleanup_hook(env, teardown, this);
    hooked = false;
    // The making of the channel may have thrown.
    if (channel) channel->shut();
    if (session) session->close(Session::Unbegun::drop);
    if (channel) channel->release();
    forgetViews();
    closing.Reset();
    for (const auto& device : std::exchange(counted, {})) --device->programs;
  }

  static void teardown(void* data) {
    auto* program = static_cast<OpenProgram*>(data);
    program->hooked = false;
    Environment::of(program->env).leaveJavaScript();
    program->abandon();
    program->views.clear();
  }

  void detachViews() {
    for (auto& [address, view] : views)
      if (view.loans == 0) view.detach(env);
    forgetViews();
  }

  // Those that are not lent.
  void forgetViews() {
    std::erase_if(views, [](const auto& each) { return each.second.loans == 0; });
  }

  const Napi::Env env;
  std::shared_ptr<Channel> channel;
  std::unique_ptr<Session> session;
  std::unordered_map<const void*, View> views;  // by address
  Napi::Reference<Napi::Promise> closing;       // strong while it closes
  bool closed = false;                          // close has been called
  bool hooked = false;
  std::vector<std::shared_ptr<Device>> counted;  // its devices, each of which counts its open programs
};

std::shared_ptr<OpenProgram> opened(const Napi::CallbackInfo& info) {
  auto program = self<OpenProgram>(info);
  if (program->closed || !program->session) throw Napi::Error::New(info.Env(), "the program is closed");
  return program;
}

const BufferSpec& bufferAt(const Napi::CallbackInfo& info, const OpenProgram& program, std::uint32_t* index) {
  const auto& buffers = program.session->spec().buffers;
  if (buffers.empty()) throw Napi::RangeError::New(info.Env(), "the program has no buffers");
  *index = static_cast<std::uint32_t>(
      integerAt(info[0], "buffer", 0, static_cast<std::int64_t>(buffers.size()) - 1));
  return buffers[*index];
}

Napi::Value view(const Napi::CallbackInfo& info) {
  const auto program = opened(info);
  const Napi::Env env = info.Env();
  std::uint32_t index = 0;
  const BufferSpec& buffer = bufferAt(info, *program, &index);
  const bool slotted = buffer.life == Life::input || buffer.life == Life::output;
  if (buffer.space != Space::pinned || buffer.root != index || buffer.life == Life::tick) {
    throw Napi::TypeError::New(env, buffer.name + " is not an input, output, or pinned param buffer");
  }
  const std::int64_t slots = slotted ? program->session->spec().inFlight : 1;
  const auto slot = static_cast<std::uint32_t>(integerAt(info[1], "slot", 0, slots - 1));
  if (buffer.bytes == 0) return Napi::ArrayBuffer::New(env, 0);
  void* const address = program->session->pinned(index, slot);
  View& place = program->views[address];
  if (place.loans > 0) throw Napi::Error::New(env, "the view of " + buffer.name + " is lent");
  place.detach(env);
  const auto release = [](napi_env from, void*, void* hint) {
    const std::unique_ptr<ViewOwner> owner(static_cast<ViewOwner*>(hint));
    owner->restore(from);
  };
  auto owner = std::unique_ptr<ViewOwner>(new ViewOwner{program, program->session->pinnedBlock(index, slot),
                                                        static_cast<std::int64_t>(buffer.bytes)});
  napi_value value = nullptr;
  if (napi_create_external_arraybuffer(env, address, buffer.bytes, release, owner.get(), &value) != napi_ok)
    throw Napi::Error::New(env);
  owner->discount(env);
  const Napi::ArrayBuffer result(env, value);
  place = View{Napi::Weak(result), owner.release()};
  return result;
}

// Empties a view, so that who reads it too late reads nothing.
Napi::Value detach(const Napi::CallbackInfo& info) {
  const auto program = self<OpenProgram>(info);
  if (!info[0].IsArrayBuffer()) throw Napi::TypeError::New(info.Env(), "buffer must be an ArrayBuffer");
  const auto found = program->views.find(info[0].As<Napi::ArrayBuffer>().Data());
  if (found != program->views.end()) found->second.detach(info.Env());
  return info.Env().Undefined();
}

auto viewAt(const Napi::CallbackInfo& info, OpenProgram& program) {
  if (!info[0].IsArrayBuffer()) throw Napi::TypeError::New(info.Env(), "view must be an ArrayBuffer");
  return program.views.find(info[0].As<Napi::ArrayBuffer>().Data());
}

Napi::Value lend(const Napi::CallbackInfo& info) {
  const auto program = opened(info);
  if (const auto found = viewAt(info, *program); found != program->views.end()) ++found->second.loans;
  return info.Env().Undefined();
}

Napi::Value endLoan(const Napi::CallbackInfo& info) {
  const auto program = self<OpenProgram>(info);
  const auto found = viewAt(info, *program);
  if (found == program->views.end() || found->second.loans == 0) return info.Env().Undefined();
  if (--found->second.loans > 0 || !program->closed) return info.Env().Undefined();
  found->second.detach(info.Env());
  program->views.erase(found);
  return info.Env().Undefined();
}

// buffer, slot → the block, its address and its size
Napi::Value block(const Napi::CallbackInfo& info) {
  const auto program = opened(info);
  const Napi::Env env = info.Env();
  std::uint32_t index = 0;
  const BufferSpec& buffer = bufferAt(info, *program, &index);
  if (buffer.space != Space::device || buffer.root != index || buffer.life != Life::output)
    throw Napi::TypeError::New(env, buffer.name + " is not an output in device memory");
  const std::int64_t slots = program->session->spec().inFlight;
  const auto slot = static_cast<std::uint32_t>(integerAt(info[1], "slot", 0, slots - 1));
  const caching::Block* const found = program->session->slotBlock(index, slot);
  Napi::Array result = Napi::Array::New(env, 3);
  result.Set(0u, static_cast<double>(reinterpret_cast<std::uintptr_t>(found)));
  result.Set(1u, static_cast<double>(found->address));
  result.Set(2u, static_cast<double>(found->size));
  return result;
}

Napi::Value load(const Napi::CallbackInfo& info) {
  const auto program = opened(info);
  std::uint32_t index = 0;
  const BufferSpec& buffer = bufferAt(info, *program, &index);
  const Napi::Env env = info.Env();
  if (buffer.life != Life::state && buffer.life != Life::param)
    throw Napi::TypeError::New(env, buffer.name + " is not a state or param buffer");
  if (!info[1].IsTypedArray() || info[1].As<Napi::TypedArray>().TypedArrayType() != napi_uint8_array)
    throw Napi::TypeError::New(env, "bytes must be a Uint8Array");
  const auto bytes = info[1].As<Napi::Uint8Array>();
  if (bytes.ByteLength() != buffer.bytes) {
    throw Napi::RangeError::New(env, buffer.name + " has " + std::to_string(buffer.bytes) + " bytes, not " +
                                         std::to_string(bytes.ByteLength()));
  }
  // Held, so it is not collected. The caller does not transfer it before the promise is resolved or rejected.
  auto held = std::make_shared<Napi::Reference<Napi::Uint8Array>>(Napi::Persistent(bytes));
  const void* data = bytes.Data();
  auto failure = std::make_shared<MaybeFailure>();
  return runAsync(
      env, "braid.load", [program, index, data, failure] { *failure = program->session->load(index, data); },
      [held, failure](Napi::Env environment) -> Napi::Value {
        if (*failure) throw failureObject(environment, **failure);
        return environment.Undefined();
      });
}

Napi::Value read(const Napi::CallbackInfo& info) {
  const auto program = opened(info);
  std::uint32_t index = 0;
  const BufferSpec& buffer = bufferAt(info, *program, &index);
  const Napi::Env env = info.Env();
  if (buffer.life != Life::state && buffer.life != Life::param)
    throw Napi::TypeError::New(env, buffer.name + " is not a state or param buffer");
  // No other code has this ArrayBuffer before the promise is resolved.
  Napi::ArrayBuffer result = Napi::ArrayBuffer::New(env, buffer.bytes);
  auto held = std::make_shared<Napi::Reference<Napi::ArrayBuffer>>(Napi::Persistent(result));
  void* data = result.Data();
  auto failure = std::make_shared<MaybeFailure>();
  return runAsync(
      env, "braid.read", [program, index, data, failure] { *failure = program->session->read(index, data); },
      [held, failure](Napi::Env environment) -> Napi::Value {
        if (*failure) throw failureObject(environment, **failure);
        return held->Value();
      });
}

// The program to take from, and pairs of its buffers and this program's in one list.
Napi::Value take(const Napi::CallbackInfo& info) {
  const auto program = opened(info);
  const Napi::Env env = info.Env();
  const auto from = unwrapped<OpenProgram>(env, info[0]);
  if (!from || from->closed || !from->session)
    throw Napi::TypeError::New(env, "from must be a NativeProgram that is open");
  if (!info[1].IsTypedArray() || info[1].As<Napi::TypedArray>().TypedArrayType() != napi_uint32_array)
    throw Napi::TypeError::New(env, "buffers must be a Uint32Array");
  const auto list = info[1].As<Napi::Uint32Array>();
  std::vector<std::pair<std::uint32_t, std::uint32_t>> pairs;
  for (std::size_t i = 0; i + 1 < list.ElementLength(); i += 2) pairs.emplace_back(list[i], list[i + 1]);
  auto failure = std::make_shared<MaybeFailure>();
  return runAsync(
      env, "braid.take",
      [program, from, pairs = std::move(pairs), failure] {
        *failure = program->session->take(*from->session, pairs);
      },
      [failure](Napi::Env environment) -> Napi::Value {
        if (*failure) throw failureObject(environment, **failure);
        return environment.Undefined();
      });
}

// The marks of events, as lane.record() gives them. Their holder keeps them until the call returns.
std::vector<Mark*> usesAt(Napi::Value value) {
  std::vector<Mark*> uses;
  if (absent(value)) return uses;
  const Napi::Array list = arrayAt(value, "uses");
  for (std::uint32_t i = 0; i < list.Length(); ++i)
    uses.push_back(
        reinterpret_cast<Mark*>(static_cast<std::uintptr_t>(sizeAt(list.Get(i), item("uses", i)))));
  return uses;
}

Napi::Value submit(const Napi::CallbackInfo& info) {
  const auto program = opened(info);
  const auto tick = sizeAt(info[0], "tick");
  const std::uint32_t slots = program->session->spec().inFlight;
  const auto slot = info[1].IsUndefined()
                        ? static_cast<std::uint32_t>(tick % slots)
                        : static_cast<std::uint32_t>(integerAt(info[1], "slot", 0, std::int64_t{slots} - 1));
  const bool submitted = program->session->submit(tick, slot, usesAt(info[2]));
  if (!submitted)
    throw Napi::RangeError::New(info.Env(), "tick " + std::to_string(tick) + " is not the next one");
  program->channel->began();
  return info.Env().Undefined();
}

Napi::Value onTick(const Napi::CallbackInfo& info) {
  const auto program = opened(info);
  if (!info[0].IsFunction()) throw Napi::TypeError::New(info.Env(), "callback must be a function");
  program->channel->roots().Set("onTick", info[0]);
  return info.Env().Undefined();
}

Napi::Value stats(const Napi::CallbackInfo& info) {
  const auto program = self<OpenProgram>(info);
  const SessionStats stats = program->session->stats();
  Napi::Object result = Napi::Object::New(info.Env());
  const auto count = [&](const char* name, std::uint64_t value) {
    result.Set(name, static_cast<double>(value));
  };
  count("allocated", stats.allocated);
  count("allocatedPeak", stats.allocatedPeak);
  count("reserved", stats.reserved);
  count("reservedPeak", stats.reservedPeak);
  count("poolPeak", stats.poolPeak);
  count("pinned", stats.pinned);
  count("ticks", stats.ticks);
  count("byOrder", stats.byOrder);
  count("fullQueues", stats.fullQueues);
  count("graphLaunches", stats.graphLaunches);
  count("byWait", stats.byWait);
  count("byGrowth", stats.byGrowth);
  count("bySynchronize", stats.bySynchronize);
  count("eventsCreated", stats.eventsCreated);
  Napi::Float64Array times = Napi::Float64Array::New(info.Env(), stats.issueNanoseconds.size());
  std::copy(stats.issueNanoseconds.begin(), stats.issueNanoseconds.end(), times.Data());
  result.Set("issueNanoseconds", times);
  Napi::Array devices = Napi::Array::New(info.Env(), stats.devices.size());
  for (std::uint32_t i = 0; i < stats.devices.size(); ++i) {
    const auto& [allocated, allocatedPeak, reserved, poolPeak] = stats.devices[i];
    Napi::Object device = Napi::Object::New(info.Env());
    device.Set("allocated", static_cast<double>(allocated));
    device.Set("allocatedPeak", static_cast<double>(allocatedPeak));
    device.Set("reserved", static_cast<double>(reserved));
    device.Set("poolPeak", static_cast<double>(poolPeak));
    devices.Set(i, device);
  }
  result.Set("devices", devices);
  return result;
}

template <class Array, class Element>
Array arrayOf(Napi::Env env, const std::vector<Element>& values) {
  Array array = Array::New(env, values.size());
  std::copy(values.begin(), values.end(), array.Data());
  return array;
}

Napi::Value trace(const Napi::CallbackInfo& info) {
  const auto program = self<OpenProgram>(info);
  const TraceRows rows = program->session->trace();
  Napi::Object result = Napi::Object::New(info.Env());
  result.Set("tick", arrayOf<Napi::Float64Array>(info.Env(), rows.tick));
  result.Set("node", arrayOf<Napi::Int32Array>(info.Env(), rows.node));
  result.Set("lane", arrayOf<Napi::Int32Array>(info.Env(), rows.lane));
  result.Set("start", arrayOf<Napi::Float64Array>(info.Env(), rows.start));
  result.Set("end", arrayOf<Napi::Float64Array>(info.Env(), rows.end));
  result.Set("dropped", static_cast<double>(rows.dropped));
  return result;
}

Napi::Value close(const Napi::CallbackInfo& info) {
  const auto program = self<OpenProgram>(info);
  if (program->closed) {
    if (!program->closing.IsEmpty()) return program->closing.Value();
    const auto deferred = Napi::Promise::Deferred::New(info.Env());
    deferred.Resolve(info.Env().Undefined());
    return deferred.Promise();
  }
  program->closed = true;
  program->detachViews();
  const Napi::Promise promise = runAsync(
      info.Env(), "braid.close", [program] { program->session->close(); },
      [program](Napi::Env env) -> Napi::Value {
        // The ends of the last ticks may still be queued; they are delivered before the promise is resolved.
        program->channel->deliver(env);
        program->abandon();
        return env.Undefined();
      });
  program->closing = Napi::Persistent(promise);
  return promise;
}

Napi::Object programObject(Napi::Env env, std::shared_ptr<OpenProgram> program, Napi::Object roots) {
  Napi::Object object = handle(env, std::move(program));
  define<view>(object, "view");
  define<detach>(object, "detach");
  define<lend>(object, "lend");
  define<endLoan>(object, "endLoan");
  define<block>(object, "block");
  define<load>(object, "load");
  define<read>(object, "read");
  define<take>(object, "take");
  define<submit>(object, "submit");
  define<onTick>(object, "onTick");
  define<stats>(object, "stats");
  define<trace>(object, "trace");
  define<close>(object, "close");
  // While a tick is in flight, the channel holds the roots, and so the program.
  object.DefineProperty(
      Napi::PropertyDescriptor::Value(Napi::Symbol::New(env, "roots"), roots, napi_default));
  roots.Set("program", object);
  return object;
}

// Pairs of a root buffer and the block that holds it.
std::map<std::uint32_t, caching::Block*> sharedAt(Napi::Value value) {
  std::map<std::uint32_t, caching::Block*> shared;
  if (absent(value)) return shared;
  const Napi::Array list = arrayAt(value, "options.shared");
  for (std::uint32_t i = 0; i < list.Length(); ++i) {
    const Napi::Array pair = arrayAt(list.Get(i), item("options.shared", i));
    const auto buffer = static_cast<std::uint32_t>(
        integerAt(pair.Get(std::uint32_t{0}), item("options.shared", i), 0, INT32_MAX));
    const auto block = sizeAt(pair.Get(std::uint32_t{1}), item("options.shared", i));
    shared[buffer] = reinterpret_cast<caching::Block*>(static_cast<std::uintptr_t>(block));
  }
  return shared;
}

// The further devices of a program for several.
std::vector<std::shared_ptr<Device>> peersAt(Napi::Env env, Napi::Value value) {
  std::vector<std::shared_ptr<Device>> peers;
  if (absent(value)) return peers;
  const Napi::Array list = arrayAt(value, "options.peers");
  for (std::uint32_t i = 0; i < list.Length(); ++i) {
    auto peer = unwrapped<Device>(env, list.Get(i));
    if (!peer) throw Napi::TypeError::New(env, item("options.peers", i) + " must be a NativeDevice");
    peers.push_back(std::move(peer));
  }
  return peers;
}

}  // namespace

Napi::Promise openProgram(Napi::Env env, std::shared_ptr<Device> device, Napi::Value specValue,
                          Napi::Value optionsValue) {
  auto spec = std::make_shared<ProgramSpec>(programSpec(specValue));
  const Napi::Object given =
      absent(optionsValue) ? Napi::Object::New(env) : objectAt(optionsValue, "options");
  Napi::Object roots = Napi::Object::New(env);
  const Napi::Value references = given.Get("references");
  roots.Set("references",
            absent(references) ? Napi::Object::New(env) : objectAt(references, "options.references"));
  SessionOptions options;
  options.trace = flagOr(given.Get("trace"), "options.trace", false);
  options.poison = flagOr(given.Get("poison"), "options.poison", false);
  options.memory.pool = device->pool;
  if (const Napi::Value value = given.Get("sequence"); !absent(value)) {
    const auto sequence = unwrapped<OpenSequence>(env, value);
    if (!sequence) throw Napi::TypeError::New(env, "options.sequence must be a NativeSequence");
    options.sequence = sequence->sequence;
  }
  options.memory.shared = sharedAt(given.Get("shared"));
  std::vector<bool> referenced(spec->kernels.size());
  for (std::size_t i = 0; i < referenced.size(); ++i) {
    if (spec->kernels[i].kind == KernelSpec::Kind::cuda)
      referenced[i] =
          roots.Get("references").As<Napi::Object>().Get(static_cast<std::uint32_t>(i)).IsFunction();
  }

  std::vector<std::shared_ptr<Device>> devices = peersAt(env, given.Get("peers"));
  devices.insert(devices.begin(), device);
  // Reading the arguments above ran the caller's getters, which may have closed a device.
  std::vector<std::shared_ptr<DeviceMemory>> memories;
  for (const auto& each : devices) {
    if (each->closed) throw Napi::Error::New(env, "the device is closed");
    memories.push_back(each->memory);
  }
  auto program = std::make_shared<OpenProgram>(env);
  program->channel = Channel::create(env, roots);
  // After the channel: cleanup hooks run in reverse order, and the session must stop before its channel is
  // destroyed.
  if (napi_add_env_cleanup_hook(env, OpenProgram::teardown, program.get()) != napi_ok)
    throw Napi::Error::New(env);
  program->hooked = true;
  for (const auto& each : devices) ++each->programs;
  program->counted = std::move(devices);

  std::vector<std::string> names;
  for (const NodeSpec& node : spec->nodes) names.push_back(node.name);
  const std::shared_ptr<Channel> channel = program->channel;
  options.onTick = [channel](std::uint64_t tick, const Failure* failure) {
    channel->postTick(tick, failure);
  };
  options.amend = [channel, names](Failure* failure) { return channel->amend(failure, names); };
  options.reference = [channel, referenced](std::uint32_t kernel, std::uint32_t node,
                                            std::vector<std::size_t> reads,
                                            std::vector<std::size_t> writes) -> HostCallback {
    if (!referenced[kernel]) return {};
    const Channel::Reference called{kernel, node, std::move(reads), std::move(writes), {}};
    // Work of a thread that has ended is dropped: the device may belong to others too.
    return [channel, called](const DeviceAddress* from, std::size_t, const DeviceAddress* to, std::size_t) {
      return channel->callReference(called, from, to) || channel->isShut();
    };
  };

  if (const Napi::Value value = given.Get("prepared"); !absent(value)) {
    if (!value.IsTypedArray() || value.As<Napi::TypedArray>().TypedArrayType() != napi_int32_array ||
        value.As<Napi::TypedArray>().ElementLength() != 2)
      throw Napi::TypeError::New(env, "options.prepared must be an Int32Array of two elements");
    roots.Set("prepared", value);
    // JavaScript reads it meanwhile.
    options.onPrepared = [counts = value.As<Napi::Int32Array>().Data()](std::uint32_t runs,
                                                                        std::uint32_t total) {
      std::atomic_ref(counts[1]).store(static_cast<std::int32_t>(total), std::memory_order_relaxed);
      std::atomic_ref(counts[0]).store(static_cast<std::int32_t>(runs), std::memory_order_relaxed);
    };
  }
  auto held = std::make_shared<Napi::ObjectReference>(Napi::Persistent(roots));
  auto failure = std::make_shared<MaybeFailure>();
  auto shared = std::make_shared<SessionOptions>(std::move(options));
  // A user's pool may be closed while the program is opening: its memory is taken at once.
  const bool early = shared->memory.pool != nullptr;
  if (early) program->session = Session::begin(memories, std::move(*spec), std::move(*shared), &*failure);
  return runAsync(
      env, "braid.program",
      [program, spec, shared, failure, memories, early] {
        if (!early)
          program->session = Session::begin(memories, std::move(*spec), std::move(*shared), &*failure);
        if (program->session && (*failure = program->session->finish())) program->session.reset();
      },
      [program, failure, held](Napi::Env environment) -> Napi::Value {
        if (!program->session) {
          program->abandon();
          throw failureObject(environment,
                              failure->value_or(invalidProgram("program", "could not be opened")));
        }
        return programObject(environment, program, held->Value());
      });
}

}  // namespace braid::bindings
