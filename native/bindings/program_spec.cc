#include "bindings/program_spec.h"

#include "bindings/convert.h"
#include "bindings/kernel_spec.h"

namespace braid::bindings {
namespace {

// The device of a lane or a buffer: 0 where the field is absent.
std::uint32_t deviceAt(const Napi::Object& object, const std::string& field) {
  const Napi::Value device = object.Get("device");
  return absent(device) ? 0 : static_cast<std::uint32_t>(integerAt(device, field + ".device", 0, INT32_MAX));
}

// A number for one device, or a list with a number for each device.
std::vector<std::uint64_t> sizesAt(Napi::Value value, const std::string& field) {
  if (!value.IsArray()) return {sizeAt(value, field)};
  const auto list = value.As<Napi::Array>();
  std::vector<std::uint64_t> sizes;
  for (std::uint32_t i = 0; i < list.Length(); ++i) sizes.push_back(sizeAt(list.Get(i), item(field, i)));
  return sizes;
}

BufferSpec buffer(Napi::Value value, const std::string& field) {
  const Napi::Object object = objectAt(value, field);
  BufferSpec spec;
  spec.name = textAt(object.Get("name"), field + ".name");
  spec.bytes = sizeAt(object.Get("bytes"), field + ".bytes");
  spec.space = static_cast<Space>(integerAt(object.Get("space"), field + ".space", 0, 1));
  spec.home = static_cast<std::uint32_t>(integerAt(object.Get("home"), field + ".home", 0, INT32_MAX));
  spec.life = static_cast<Life>(integerAt(object.Get("life"), field + ".life", 0, 4));
  spec.root = static_cast<std::uint32_t>(integerAt(object.Get("root"), field + ".root", 0, INT32_MAX));
  spec.rootOffset = sizeAt(object.Get("rootOffset"), field + ".rootOffset");
  spec.arenaOffset = integerAt(object.Get("arenaOffset"), field + ".arenaOffset", -1, std::int64_t{1} << 53);
  spec.device = deviceAt(object, field);
  return spec;
}

std::vector<std::int32_t> words(Napi::Value value, const std::string& field) {
  if (!value.IsTypedArray() || value.As<Napi::TypedArray>().TypedArrayType() != napi_int32_array) {
    throw Napi::TypeError::New(value.Env(), field + " must be an Int32Array");
  }
  const auto array = value.As<Napi::Int32Array>();
  return array.ElementLength() == 0
             ? std::vector<std::int32_t>{}
             : std::vector<std::int32_t>(array.Data(), array.Data() + array.ElementLength());
}

}  // namespace

ProgramSpec programSpec(Napi::Value value) {
  const Napi::Object object = objectAt(value, "spec");
  ProgramSpec spec;
  spec.name = textAt(object.Get("name"), "spec.name");
  spec.inFlight =
      static_cast<std::uint32_t>(integerAt(object.Get("inFlight"), "spec.inFlight", 1, INT32_MAX));
  const Napi::Array lanes = arrayAt(object.Get("lanes"), "spec.lanes");
  for (std::uint32_t i = 0; i < lanes.Length(); ++i) {
    const std::string where = item("spec.lanes", i);
    const Napi::Object lane = objectAt(lanes.Get(i), where);
    spec.lanes.push_back({textAt(lane.Get("name"), where + ".name"),
                          static_cast<int>(integerAt(lane.Get("priority"), where + ".priority", -1000, 1000)),
                          deviceAt(lane, where)});
  }
  const Napi::Array buffers = arrayAt(object.Get("buffers"), "spec.buffers");
  for (std::uint32_t i = 0; i < buffers.Length(); ++i) {
    const Napi::HandleScope scope(value.Env());
    spec.buffers.push_back(buffer(buffers.Get(i), item("spec.buffers", i)));
  }
  const Napi::Array kernels = arrayAt(object.Get("kernels"), "spec.kernels");
  for (std::uint32_t i = 0; i < kernels.Length(); ++i) {
    const Napi::HandleScope scope(value.Env());
    spec.kernels.push_back(kernelSpec(kernels.Get(i), item("spec.kernels", i)));
  }
  const Napi::Array nodes = arrayAt(object.Get("nodes"), "spec.nodes");
  for (std::uint32_t i = 0; i < nodes.Length(); ++i) {
    const Napi::HandleScope scope(value.Env());
    const std::string where = item("spec.nodes", i);
    const Napi::Object node = objectAt(nodes.Get(i), where);
    spec.nodes.push_back(
        {textAt(node.Get("name"), where + ".name"),
         static_cast<std::uint32_t>(integerAt(node.Get("kernel"), where + ".kernel", 0, INT32_MAX)),
         flagOr(node.Get("peerAccess"), where + ".peerAccess", false)});
  }
  spec.events = static_cast<std::uint32_t>(integerAt(object.Get("events"), "spec.events", 0, INT32_MAX));
  spec.commands = words(object.Get("commands"), "spec.commands");
  if (const Napi::Value graphs = object.Get("graphs"); !absent(graphs)) {
    const Napi::Object table = objectAt(graphs, "spec.graphs");
    spec.graphs = {words(table.Get("from"), "spec.graphs.from"), words(table.Get("to"), "spec.graphs.to"),
                   words(table.Get("edgeStart"), "spec.graphs.edgeStart"),
                   words(table.Get("edges"), "spec.graphs.edges")};
  }
  const std::string storage = textAt(object.Get("storage"), "spec.storage");
  if (storage != "pooled" && storage != "planned")
    throw Napi::TypeError::New(value.Env(), "spec.storage must be pooled or planned");
  spec.planned = storage == "planned";
  if (const Napi::Value arenas = object.Get("arenas"); !absent(arenas))
    spec.arenas = static_cast<std::uint32_t>(integerAt(arenas, "spec.arenas", 1, INT32_MAX));
  spec.enforced = flagOr(object.Get("enforced"), "spec.enforced", false);
  const Napi::Object bound = objectAt(object.Get("bound"), "spec.bound");
  const std::vector<std::uint64_t> bounds = sizesAt(bound.Get("device"), "spec.bound.device");
  const std::vector<std::uint64_t> arenas = sizesAt(object.Get("arenaBytes"), "spec.arenaBytes");
  if (arenas.size() != bounds.size())
    throw Napi::RangeError::New(value.Env(), "spec.arenaBytes must have as many sizes as spec.bound.device");
  spec.devices.resize(bounds.size());
  for (std::size_t i = 0; i < bounds.size(); ++i) spec.devices[i] = {bounds[i], arenas[i]};
  spec.boundPinned = sizeAt(bound.Get("pinned"), "spec.bound.pinned");
  return spec;
}

}  // namespace braid::bindings
