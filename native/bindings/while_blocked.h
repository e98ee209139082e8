#pragma once

#include "driver/meanwhile.h"

namespace braid::bindings {

class AllocatorDevice;
class Channel;

// While a call of the host device blocks a JavaScript thread, the thread computes the references that
// kernels wait for: without that an allocation that waits for a lane would wait for ever. Meanwhile the
// devices of the thread refuse calls, since the call that waits may hold their locks. JavaScript thread only.
void serveWhileBlocked(Channel* channel);
void stopServing(Channel* channel);
void refuseWhileServing(AllocatorDevice* device);
void stopRefusing(AllocatorDevice* device);

// Calls no JavaScript in its scope: in finalizers, and when the environment ends.
class WithoutJavaScript {
 public:
  WithoutJavaScript() { meanwhile = nullptr; }
  ~WithoutJavaScript() { meanwhile = before_; }
  WithoutJavaScript(const WithoutJavaScript&) = delete;

 private:
  void (*const before_)() = meanwhile;
};

}  // namespace braid::bindings
