#include "bindings/while_blocked.h"

#include <algorithm>
#include <vector>

#include "bindings/allocator_device.h"
#include "bindings/channel.h"

namespace braid::bindings {
namespace {

thread_local std::vector<Channel*> channels;
thread_local std::vector<AllocatorDevice*> devices;

void serve() {
  bool waiting = false;
  for (Channel* channel : channels) waiting = waiting || channel->hasCalls();
  if (!waiting) return;
  // A reference may make and drop channels and devices.
  const std::vector<Channel*> served = channels;
  std::vector<AllocatorDevice*> refusing;
  for (AllocatorDevice* device : devices)
    if (device->refusal() == 0) refusing.push_back(device);
  for (AllocatorDevice* device : refusing) device->enterSource();
  for (Channel* channel : served)
    if (std::find(channels.begin(), channels.end(), channel) != channels.end()) channel->serveCalls();
  for (AllocatorDevice* device : refusing)
    if (std::find(devices.begin(), devices.end(), device) != devices.end()) device->leaveSource();
}

}  // namespace

void serveWhileBlocked(Channel* channel) {
  channels.push_back(channel);
  meanwhile = serve;
}
void stopServing(Channel* channel) { std::erase(channels, channel); }
void refuseWhileServing(AllocatorDevice* device) { devices.push_back(device); }
void stopRefusing(AllocatorDevice* device) { std::erase(devices, device); }

}  // namespace braid::bindings
