#pragma once

#include "bindings/allocator_device.h"

namespace braid::bindings {

// Around calls of the device's memory that a capture itself needs: in the modes `global` and `thread-local`
// the driver would refuse some of them on the capturing thread, and the capture would be invalid.
class UnsafeCalls {
 public:
  explicit UnsafeCalls(const AllocatorDevice& device)
      : driver_(device.strictCaptures > 0 ? device.driver : nullptr) {
    if (driver_) driver_->captureModeExchange(&mode_);
  }
  ~UnsafeCalls() {
    if (driver_) driver_->captureModeExchange(&mode_);
  }
  UnsafeCalls(const UnsafeCalls&) = delete;

 private:
  Driver* const driver_;
  CaptureMode mode_ = CaptureMode::relaxed;  // then the thread's own, until it is given back
};

}  // namespace braid::bindings
