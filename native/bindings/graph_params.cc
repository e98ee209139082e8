#include "bindings/graph_params.h"

#include <dlfcn.h>

#include <cstring>

#include "bindings/checks.h"
#include "bindings/convert.h"
#include "bindings/device_kernel.h"
#include "bindings/graph_object.h"
#include "bindings/handle.h"

namespace braid::bindings {
namespace {

using graphs::Owner;
using Shared = std::shared_ptr<AllocatorDevice>;

// Whose operands are read: a node's, or those of work in a capture.
struct Context {
  const Shared& device;
  const CaptureMemory* capture;
  std::vector<caching::Block*>& blocks;
};

// The point that an event marks: its driver event is not recorded again while this lives.
Owner markOwner(const Shared& device, Mark* mark) {
  mark->hold();
  return std::shared_ptr<Mark>(mark, [memory = std::weak_ptr<DeviceMemory>(device->memory)](Mark* held) {
    if (const auto alive = memory.lock()) held->release();
  });
}

Owner ownerAt(const Context& context, Napi::Value given) {
  if (absent(given)) return nullptr;
  const Napi::Object owner = objectAt(given, "owner");
  if (owner.Has("block")) {
    bool pinned = false;
    caching::Block* const block = blockOf(owner, &pinned);
    if (context.capture == nullptr || !context.capture->has(*block))
      return blockOwner(context.device, block, pinned);
    context.blocks.push_back(block);
    return nullptr;
  }
  const Napi::Value value = owner.Get("value");
  if (!value.IsObject() && !value.IsFunction()) return nullptr;
  return std::make_shared<Napi::ObjectReference>(Napi::Persistent(value.As<Napi::Object>()));
}

Mark* markAt(Napi::Value value) {
  return reinterpret_cast<Mark*>(
      static_cast<std::uintptr_t>(integerAt(value, "mark", 1, static_cast<std::int64_t>(mostInteger))));
}

void event(const Shared& device, Napi::Object given, NodeSpec* spec) {
  const Napi::Env env = given.Env();
  const bool records = spec->params.kind == NodeKind::eventRecord;
  if (!records && given.Has("mark")) {
    Mark* const mark = markAt(given.Get("mark"));
    spec->params.event = mark->event;
    spec->owners[0] = markOwner(device, mark);
    return;
  }
  const auto made = unwrapped<GraphEvent>(env, given.Get("event"));
  if (!made || !made->event) throw Napi::TypeError::New(env, "event must be a NativeGraphEvent");
  spec->params.event = made->event;
  spec->owners[0] = made;
}

// A function of a library, with a copy of the bytes that it gets. Without bytes it gets a null pointer.
void libraryFunction(Napi::Object given, NodeSpec* spec) {
  const Napi::Env env = given.Env();
  void* const library = dlopen(textAt(given.Get("library"), "library").c_str(), RTLD_NOW | RTLD_LOCAL);
  void* const symbol = library ? dlsym(library, textAt(given.Get("symbol"), "symbol").c_str()) : nullptr;
  const std::shared_ptr<void> held(library, [](void* open) {
    if (open) dlclose(open);
  });
  if (!symbol) {
    const char* words = dlerror();
    const Napi::Error error = Napi::Error::New(env, words ? words : "the library has no such function");
    error.Value().Set("code", "NO_FUNCTION");
    throw error;
  }
  spec->params.function = reinterpret_cast<void (*)(void*)>(symbol);
  spec->owners[0] = held;
  if (absent(given.Get("data"))) return;
  const auto data = given.Get("data").As<Napi::Uint8Array>();
  if (data.ByteLength() == 0) return;
  std::shared_ptr<void> copy(std::malloc(data.ByteLength()), std::free);
  if (!copy) throw Napi::Error::New(env, "there is no memory for the data");
  std::memcpy(copy.get(), data.Data(), data.ByteLength());
  spec->params.data = copy.get();
  spec->owners[1] = std::move(copy);
}

void callback(const Shared& device, Napi::Object given, NodeSpec* spec) {
  if (given.Has("library")) return libraryFunction(given, spec);
  const auto made = std::make_shared<Callback>();
  if (!given.Get("function").IsFunction())
    throw Napi::TypeError::New(given.Env(), "function must be a function");
  made->queue = GraphState::of(*device).javascript;
  made->function = Napi::Persistent(given.Get("function").As<Napi::Function>());
  made->ordered = flagOr(given.Get("ordered"), "ordered", false);
  spec->params.function = Callback::run;
  spec->params.data = made.get();
  spec->owners[0] = made;
}

// The kernel, and all blocks of its operands as one owner.
void kernel(const Context& context, Napi::Object given, NodeSpec* spec) {
  const Napi::Env env = given.Env();
  const Shared& device = context.device;
  const auto made = unwrapped<DeviceKernel>(env, given.Get("kernel"));
  if (!made) throw Napi::TypeError::New(env, "kernel must be a NativeKernel");
  const auto words = given.Get("words").As<Napi::Float64Array>();
  DeviceKernel::Launch launch;
  if (!made->read(words.Data(), words.ElementLength(), &launch))
    throw Napi::RangeError::New(env, "words must be those of a launch of this kernel");
  std::shared_ptr<Kernel> shaped;
  checkStatus(env, *device, made->shaped(*device->driver, std::move(launch.shape), &shaped),
              "prepare a kernel");
  const auto blocks = std::make_shared<std::vector<Owner>>();
  const Napi::Array owners = arrayAt(given.Get("owners"), "owners");
  for (std::uint32_t i = 0; i < owners.Length(); ++i)
    if (Owner owner = ownerAt(context, owners.Get(i))) blocks->push_back(std::move(owner));
  spec->params = NodeParams::launch(*shaped, std::move(launch.reads), std::move(launch.writes));
  spec->owners[0] = std::move(shaped);
  if (!blocks->empty()) spec->owners[1] = blocks;
}

// Copies a word of memory into a condition.
void setCondition(const Context& context, Napi::Object given, NodeSpec* spec) {
  const Shared& device = context.device;
  GraphState& state = GraphState::of(*device);
  if (!state.conditionKernel) {
    // As for other kernels: the driver may wait for everything that runs.
    if (!device->lanes->mayBlock())
      checkStatus(given.Env(), *device, Status::notPermitted, "prepare a condition");
    std::unique_ptr<Kernel> made;
    checkStatus(given.Env(), *device, device->driver->prepareCondition(&made), "prepare a condition");
    state.conditionKernel = std::move(made);
  }
  bool lossless = false;
  const Condition condition = given.Get("condition").As<Napi::BigInt>().Uint64Value(&lossless);
  spec->params = NodeParams::launch(*state.conditionKernel, {sizeAt(given.Get("from"), "from")}, {condition});
  spec->owners = {state.conditionKernel, ownerAt(context, given.Get("owner"))};
}

}  // namespace

caching::Block* blockOf(Napi::Object given, bool* pinned) {
  *pinned = integerAt(given.Get("space"), "space", 0, 1) == 1;
  auto* block = reinterpret_cast<caching::Block*>(static_cast<std::uintptr_t>(
      integerAt(given.Get("block"), "block", 1, static_cast<std::int64_t>(mostInteger))));
  if (block->state != caching::BlockState::live) throw Napi::Error::New(given.Env(), "the block is freed");
  return block;
}

graphs::Owner blockOwner(const Shared& device, caching::Block* block, bool pinned) {
  device->memory->hold(block, pinned);
  const auto letGo = [memory = std::weak_ptr<DeviceMemory>(device->memory)](const caching::Block* held) {
    if (const auto alive = memory.lock()) alive->letGo(const_cast<caching::Block*>(held));
  };
  return std::shared_ptr<caching::Block>(block, letGo);
}

NodeSpec nodeSpec(const Shared& device, Napi::Object given, const CaptureMemory* capture) {
  NodeSpec spec;
  const Context context{device, capture, spec.blocks};
  NodeParams& params = spec.params;
  const std::string kind = textAt(given.Get("kind"), "kind");
  const auto size = [&](const char* field) { return sizeAt(given.Get(field), field); };
  if (kind == "copy") {
    const auto direction = static_cast<CopyKind>(integerAt(given.Get("copyKind"), "copyKind", 0, 3));
    params = NodeParams::copy(direction, size("to"), size("from"), size("bytes"));
  } else if (kind == "fill") {
    params = NodeParams::fill(
        size("to"), static_cast<std::uint32_t>(integerAt(given.Get("value"), "value", 0, UINT32_MAX)),
        static_cast<std::uint32_t>(size("elementBytes")), size("width"), size("height"), size("pitch"));
  } else if (kind == "kernel") {
    kernel(context, given, &spec);
  } else if (kind == "condition") {
    setCondition(context, given, &spec);
  } else if (kind == "callback") {
    params.kind = NodeKind::hostFunction;
    callback(device, given, &spec);
  } else if (kind == "record" || kind == "wait") {
    params.kind = kind == "record" ? NodeKind::eventRecord : NodeKind::eventWait;
    event(device, given, &spec);
  } else if (kind == "free") {
    params = NodeParams::memFree(size("address"));
  } else if (kind != "empty") {
    throw Napi::TypeError::New(given.Env(), "kind must be a kind of node, not " + kind);
  }
  if (kind != "copy" && kind != "fill") return spec;
  const Napi::Array owners = arrayAt(given.Get("owners"), "owners");
  for (std::uint32_t i = 0; i < 2 && i < owners.Length(); ++i)
    spec.owners[i] = ownerAt(context, owners.Get(i));
  return spec;
}

Status queueWork(Driver& driver, const NodeParams& params, Stream stream) {
  switch (params.kind) {
    case NodeKind::kernel:
      return driver.launch(*params.kernel, params.reads.data(), params.writes.data(), stream);
    case NodeKind::copy: return driver.copy(params.copyKind, params.to, params.from, params.bytes, stream);
    case NodeKind::fill:
      if (params.elementBytes != 4 || params.height != 1) return driver.fill(params, stream);
      return driver.fill32(params.to, params.value, params.width, stream);
    case NodeKind::hostFunction: return driver.hostFunction(stream, params.function, params.data);
    case NodeKind::eventWait: return driver.streamWait(stream, params.event);
    case NodeKind::eventRecord: return driver.eventRecord(params.event, stream);
    default: return Status::invalidValue;
  }
}

}  // namespace braid::bindings
