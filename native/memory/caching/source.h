#pragma once

#include "driver/driver.h"

namespace braid::caching {

// Where segments come from. Called under the allocator's mutex, one call at a time.
class Source {
 public:
  virtual ~Source() = default;
  virtual const char* name() const = 0;
  virtual Status allocate(DeviceAddress* address, std::size_t bytes, Stream stream) = 0;
  // All work on the memory has completed. The stream is the one given to `allocate`, or null if its lane has
  // been retired.
  virtual Status release(DeviceAddress address, std::size_t bytes, Stream stream) = 0;
  // Whether the calling thread may call it. A source that is not callable neither gives nor takes memory.
  virtual bool callable() const { return true; }
  // Whether it is code of others', which may queue work on the streams that it is given.
  virtual bool foreign() const { return false; }
  // Whether the option `expandable` replaces this source by the driver's virtual memory.
  virtual bool expandable() const { return false; }
};

// The driver's device memory.
class DeviceSource final : public Source {
 public:
  explicit DeviceSource(Driver& driver) : driver_(driver) {}
  const char* name() const override { return "memAllocate"; }
  Status allocate(DeviceAddress* address, std::size_t bytes, Stream) override {
    return driver_.memAllocate(address, bytes);
  }
  Status release(DeviceAddress address, std::size_t, Stream) override { return driver_.memFree(address); }
  bool expandable() const override { return driver_.info().pageBytes != 0; }

 private:
  Driver& driver_;
};

// The driver's pinned host memory.
class PinnedSource final : public Source {
 public:
  explicit PinnedSource(Driver& driver) : driver_(driver) {}
  const char* name() const override { return "pinnedAllocate"; }
  Status allocate(DeviceAddress* address, std::size_t bytes, Stream) override {
    void* pointer = nullptr;
    const Status status = driver_.pinnedAllocate(&pointer, bytes);
    *address = reinterpret_cast<DeviceAddress>(pointer);
    return status;
  }
  Status release(DeviceAddress address, std::size_t, Stream) override {
    return driver_.pinnedFree(reinterpret_cast<void*>(address));
  }

 private:
  Driver& driver_;
};

}  // namespace braid::caching
