#pragma once

#include <napi.h>

#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bindings/allocator_device.h"
#include "bindings/channel.h"
#include "driver/driver.h"

namespace braid::bindings {

// What a launch adds to its kernel.
struct KernelShape {
  std::array<std::uint32_t, 3> grid{1, 1, 1}, block{1, 1, 1};
  std::uint32_t sharedBytes = 0;
  std::vector<double> scalars;
  std::vector<std::size_t> readBytes, writeBytes;  // of the operands, for the kernel's reference
  bool operator==(const KernelShape&) const = default;
};

// A user's kernel of one device (a NativeKernel of runtime/addon.ts), whose CUDA C++ is compiled once. A
// Kernel of the driver table has a shape and scalars of its own, so this makes one for each. JavaScript
// thread only, except `prepare`.
class DeviceKernel {
 public:
  static constexpr napi_type_tag typeTag{0x627261696b65726eu, 0x8d2f60c1a35be947u};
  static constexpr const char* typeName = "NativeKernel";

  // Its function of JavaScript's, on the host device: the channel holds it as long as a kernel may call it.
  struct Reference {
    Reference(std::shared_ptr<Channel> through, std::uint32_t number)
        : channel(std::move(through)), number(number) {}
    ~Reference() { channel->forget(number); }
    Reference(const Reference&) = delete;
    const std::shared_ptr<Channel> channel;
    const std::uint32_t number;
  };
  DeviceKernel(KernelSpec spec, std::shared_ptr<const Reference> reference)
      : spec_(std::move(spec)), reference_(std::move(reference)) {}

  const KernelSpec& spec() const { return spec_; }
  // Compiles the source. May take long; on any thread that has bound the device.
  Status prepare(Driver& driver);
  // The kernel with this shape and these scalars. Whatever launches it, or holds it in a graph, keeps it
  // alive until then.
  Status shaped(Driver& driver, KernelShape shape, std::shared_ptr<Kernel>* kernel);

  // A launch as TypeScript lays it out: grid, block (3 numbers each), bytes of shared memory, the scalars,
  // then the address and the bytes of each read and of each write. False where the count does not fit.
  struct Launch {
    KernelShape shape;
    std::vector<DeviceAddress> reads, writes;
  };
  bool read(const double* words, std::size_t count, Launch* launch) const;

 private:
  Status make(Driver& driver, const KernelShape& shape, std::unique_ptr<Kernel>* kernel);

  KernelSpec spec_;  // its shape and scalars are those of the kernel that was made last
  const std::shared_ptr<const Reference> reference_;
  static constexpr std::size_t kept = 8;  // the newest
  std::vector<std::pair<KernelShape, std::shared_ptr<Kernel>>> shapes_;
  std::size_t oldest_ = 0;
};

// Adds `prepareKernel`, `launch` and `callback` to a NativeCachingDevice.
void defineKernelCalls(Napi::Object object);
// What a kernel's reference threw, for an error of that launch; or "".
std::string referenceProblem(const AllocatorDevice& device);

}  // namespace braid::bindings
