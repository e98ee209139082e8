#include "bindings/device_kernel.h"

#include <numeric>

#include "bindings/async.h"
#include "bindings/checks.h"
#include "bindings/convert.h"
#include "bindings/failure_object.h"
#include "bindings/handle.h"

namespace braid::bindings {

Status DeviceKernel::prepare(Driver& driver) {
  KernelShape shape;
  shape.scalars.resize(spec_.scalars.size());
  shape.readBytes.resize(spec_.readCount);
  shape.writeBytes.resize(spec_.writeCount);
  std::unique_ptr<Kernel> kernel;
  return make(driver, shape, &kernel);
}

Status DeviceKernel::make(Driver& driver, const KernelShape& shape, std::unique_ptr<Kernel>* kernel) {
  spec_.grid = shape.grid;
  spec_.block = shape.block;
  spec_.sharedBytes = shape.sharedBytes;
  spec_.bytes = std::reduce(shape.readBytes.begin(), shape.readBytes.end()) +
                std::reduce(shape.writeBytes.begin(), shape.writeBytes.end());
  for (std::size_t i = 0; i < spec_.scalars.size(); ++i) {
    CudaScalar& scalar = spec_.scalars[i];
    if (scalar.isFloat)
      scalar.f32 = static_cast<float>(shape.scalars[i]);
    else
      scalar.i32 = static_cast<std::int32_t>(shape.scalars[i]);
  }
  HostCallback callback;
  if (reference_) {
    const std::uint32_t number = reference_->number;
    const Channel::Reference called{number, number, shape.readBytes, shape.writeBytes, shape.scalars};
    // Work of a thread that has ended is dropped: the device may belong to others too.
    callback = [held = reference_, called](const DeviceAddress* reads, std::size_t,
                                           const DeviceAddress* writes, std::size_t) {
      return held->channel->callReference(called, reads, writes) || held->channel->isShut();
    };
  }
  return driver.prepare(kernel, spec_, std::move(callback));
}

Status DeviceKernel::shaped(Driver& driver, KernelShape shape, std::shared_ptr<Kernel>* kernel) {
  if (!reference_) {
    shape.readBytes.clear();
    shape.writeBytes.clear();
  }
  for (const auto& [known, made] : shapes_) {
    if (known != shape) continue;
    *kernel = made;
    return Status::ok;
  }
  std::unique_ptr<Kernel> made;
  if (const Status status = make(driver, shape, &made); status != Status::ok) return status;
  *kernel = std::move(made);
  if (shapes_.size() < kept) {
    shapes_.emplace_back(std::move(shape), *kernel);
  } else {
    shapes_[oldest_] = {std::move(shape), *kernel};
    oldest_ = (oldest_ + 1) % kept;
  }
  return Status::ok;
}

bool DeviceKernel::read(const double* words, std::size_t count, Launch* launch) const {
  const std::size_t scalars = spec_.scalars.size(), reads = spec_.readCount, writes = spec_.writeCount;
  if (count != 7 + scalars + 2 * (reads + writes)) return false;
  KernelShape& shape = launch->shape;
  for (std::size_t d = 0; d < 3; ++d) {
    shape.grid[d] = static_cast<std::uint32_t>(words[d]);
    shape.block[d] = static_cast<std::uint32_t>(words[3 + d]);
  }
  shape.sharedBytes = static_cast<std::uint32_t>(words[6]);
  shape.scalars.assign(words + 7, words + 7 + scalars);
  const double* operand = words + 7 + scalars;
  for (std::size_t i = 0; i < reads + writes; ++i, operand += 2) {
    (i < reads ? launch->reads : launch->writes).push_back(static_cast<DeviceAddress>(operand[0]));
    (i < reads ? shape.readBytes : shape.writeBytes).push_back(static_cast<std::size_t>(operand[1]));
  }
  return true;
}

namespace {

std::shared_ptr<AllocatorDevice> opened(const Napi::CallbackInfo& info) {
  auto device = self<AllocatorDevice>(info);
  checkOpen(info.Env(), *device);
  return device;
}

// The channel by which the device reaches JavaScript. It holds the device's object until that is closed.
std::shared_ptr<Channel> channelOf(const Napi::CallbackInfo& info, AllocatorDevice& device) {
  if (device.channel) return device.channel;
  Napi::Object roots = Napi::Object::New(info.Env());
  roots.Set("references", Napi::Object::New(info.Env()));
  roots.Set("callbacks", Napi::Object::New(info.Env()));
  roots.Set("device", info.This());
  device.channel = Channel::create(info.Env(), roots);
  device.channel->keepRoots();
  return device.channel;
}

KernelSpec specAt(Napi::Value value) {
  const Napi::Object given = objectAt(value, "kernel");
  KernelSpec spec;
  spec.kind = KernelSpec::Kind::cuda;
  spec.name = textAt(given.Get("name"), "kernel.name");
  spec.source = textAt(given.Get("source"), "kernel.source");
  spec.readCount = static_cast<std::size_t>(integerAt(given.Get("reads"), "kernel.reads", 0, 4096));
  spec.writeCount = static_cast<std::size_t>(integerAt(given.Get("writes"), "kernel.writes", 0, 4096));
  const Napi::Array scalars = arrayAt(given.Get("scalars"), "kernel.scalars");
  for (std::uint32_t i = 0; i < scalars.Length(); ++i) {
    CudaScalar scalar;
    scalar.isFloat = textAt(scalars.Get(i), item("kernel.scalars", i)) == "f32";
    spec.scalars.push_back(scalar);
  }
  return spec;
}

// spec, reference? → a promise of a NativeKernel
Napi::Value prepareKernel(const Napi::CallbackInfo& info) {
  const auto device = opened(info);
  // A driver that loads a kernel may wait for everything that runs, and every other call of it for the load.
  if (!device->lanes->mayBlock())
    throw failureObject(info.Env(), failureOf(*device->driver, Status::notPermitted, "prepareKernel"));
  KernelSpec spec = specAt(info[0]);
  std::shared_ptr<const DeviceKernel::Reference> reference;
  if (info[1].IsFunction()) {
    const auto number = static_cast<std::uint32_t>(device->referenceNames.size());
    device->referenceNames.push_back(spec.name);
    reference = std::make_shared<DeviceKernel::Reference>(channelOf(info, *device), number);
    device->channel->roots().Get("references").As<Napi::Object>().Set(number, info[1]);
  }
  auto kernel = std::make_shared<DeviceKernel>(std::move(spec), std::move(reference));
  auto failure = std::make_shared<MaybeFailure>();
  return runAsync(
      info.Env(), "braid.kernel",
      [device, kernel, failure] {
        std::shared_lock lock(device->inUse);
        if (!device->driver) return;
        Driver& driver = *device->driver;
        Status status = driver.bind();
        if (status == Status::ok) status = kernel->prepare(driver);
        if (status != Status::ok) *failure = failureOf(driver, status, "prepare " + kernel->spec().name);
      },
      [device, kernel, failure](Napi::Env env) -> Napi::Value {
        if (device->closed()) throw Napi::Error::New(env, "the device is closed");
        if (*failure) throw failureObject(env, **failure);
        return handle(env, kernel);
      });
}

// lane, kernel, words → 0 or a code
Napi::Value launch(const Napi::CallbackInfo& info) {
  const auto device = self<AllocatorDevice>(info);
  const auto code = [&](int value) { return Napi::Number::New(info.Env(), value); };
  if (device->refusal() != 0) return code(device->refusal());
  Lane* lane = device->lane(numberAt(info[0], "lane"));
  const auto kernel = unwrapped<DeviceKernel>(info.Env(), info[1]);
  if (!lane || lane->retired || !kernel) return code(static_cast<int>(Refusal::badHandle));
  const auto words = info[2].As<Napi::Float64Array>();
  if (!device->lanes->mayQueue(*lane)) return code(static_cast<int>(Status::notPermitted));
  DeviceKernel::Launch launch;
  if (!kernel->read(words.Data(), words.ElementLength(), &launch))
    return code(static_cast<int>(Refusal::badHandle));
  Driver& driver = *device->driver;
  std::shared_ptr<Kernel> shaped;
  Status status = driver.bind();
  if (status == Status::ok) status = kernel->shaped(driver, std::move(launch.shape), &shaped);
  if (status == Status::ok) {
    status = driver.launch(*shaped, launch.reads.data(), launch.writes.data(), lane->stream);
    lane->queued();
  }
  return code(static_cast<int>(status));
}

struct Callback {
  std::shared_ptr<Channel> channel;
  std::uint32_t number;
};

// Runs on the driver's thread: it makes no driver call, and takes no lock that a caller of the driver holds.
void postCallback(void* data) {
  const std::unique_ptr<Callback> callback(static_cast<Callback*>(data));
  callback->channel->postCallback(callback->number);
}

// lane, function → 0 or a code
Napi::Value callback(const Napi::CallbackInfo& info) {
  const auto device = self<AllocatorDevice>(info);
  const auto code = [&](int value) { return Napi::Number::New(info.Env(), value); };
  if (device->refusal() != 0) return code(device->refusal());
  Lane* lane = device->lane(numberAt(info[0], "lane"));
  if (!lane || lane->retired || !info[1].IsFunction()) return code(static_cast<int>(Refusal::badHandle));
  if (!device->lanes->mayQueue(*lane)) return code(static_cast<int>(Status::notPermitted));
  auto made = std::make_unique<Callback>(channelOf(info, *device), device->callbacks++);
  Napi::Object functions = device->channel->roots().Get("callbacks").As<Napi::Object>();
  functions.Set(made->number, info[1]);
  Status status = device->driver->bind();
  if (status == Status::ok) status = device->driver->hostFunction(lane->stream, postCallback, made.get());
  lane->queued();
  if (status == Status::ok)
    made.release();
  else
    functions.Delete(made->number);
  return code(static_cast<int>(status));
}

}  // namespace

void defineKernelCalls(Napi::Object object) {
  define<prepareKernel>(object, "prepareKernel");
  define<launch>(object, "launch");
  define<callback>(object, "callback");
}

std::string referenceProblem(const AllocatorDevice& device) {
  if (!device.channel) return "";
  const auto problem = device.channel->problem();
  if (!problem) return "";
  return "the reference of kernel " + device.referenceNames[problem->first] + " failed: " + problem->second;
}

}  // namespace braid::bindings
