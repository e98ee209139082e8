#include "bindings/sequence.h"

#include "bindings/async.h"
#include "bindings/convert.h"
#include "bindings/failure_object.h"
#include "bindings/handle.h"

namespace braid::bindings {
namespace {

Napi::Value issued(const Napi::CallbackInfo& info) {
  return Napi::Number::New(info.Env(), static_cast<double>(self<OpenSequence>(info)->sequence->issued()));
}

Napi::Value whenIssued(const Napi::CallbackInfo& info) {
  const std::shared_ptr<Sequence> sequence = self<OpenSequence>(info)->sequence;
  const std::uint64_t count = sizeAt(info[0], "count");
  return runAsync(
      info.Env(), "braid.issued", [sequence, count] { sequence->awaitIssued(count); },
      [](Napi::Env env) -> Napi::Value { return env.Undefined(); });
}

// lane → a code of the driver
Napi::Value order(const Napi::CallbackInfo& info) {
  const auto opened = self<OpenSequence>(info);
  const auto last = static_cast<std::int64_t>(opened->lanes.count()) - 1;
  Lane& lane = opened->lanes.at(static_cast<LaneId>(integerAt(info[0], "lane", 0, last)));
  const Status status = opened->sequence->order(lane.stream);
  // The wait is work: a point of the lane from here on is not one from before it.
  lane.queued();
  return Napi::Number::New(info.Env(), static_cast<int>(status));
}

}  // namespace

Napi::Object sequenceObject(Napi::Env env, const Device& device) {
  auto opened = std::make_shared<OpenSequence>(device.memory);
  Environment::of(env).add(opened);
  Napi::Object object = handle(env, std::move(opened));
  define<issued>(object, "issued");
  define<whenIssued>(object, "whenIssued");
  define<order>(object, "order");
  return object;
}

}  // namespace braid::bindings
