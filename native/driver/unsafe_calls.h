#pragma once

#include "driver/driver.h"

namespace braid {

// Around calls that have nothing to do with a capture of this thread: in the modes `global` and
// `thread-local` the driver would refuse some of them, and the capture would be invalid.
class UnsafeCalls {
 public:
  // Null: no capture is under way.
  explicit UnsafeCalls(Driver* driver)
      : driver_(driver != nullptr && driver->captureModeExchange(&mode_) == Status::ok ? driver : nullptr) {}
  ~UnsafeCalls() {
    if (driver_ != nullptr) driver_->captureModeExchange(&mode_);
  }
  UnsafeCalls(const UnsafeCalls&) = delete;

 private:
  CaptureMode mode_ = CaptureMode::relaxed;  // then the thread's own, until it is given back
  Driver* const driver_;
};

}  // namespace braid
