#pragma once

#include <napi.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bindings/inbox.h"
#include "executor/failure.h"

namespace braid::bindings {

// A reference as one kernel calls it: the bytes of its operands, and the scalars of its launch.
struct KernelReference {
  std::uint32_t kernel = 0, node = 0;
  std::vector<std::size_t> readBytes, writeBytes;
  std::vector<double> scalars;
};

struct ChannelMessage {
  // Of a reference. Its caller waits until it is done, and keeps the operands until then.
  struct Call {
    const KernelReference* reference = nullptr;
    const DeviceAddress *reads = nullptr, *writes = nullptr;
    bool done = false, ok = false;
  };
  std::uint64_t tick = 0;
  std::optional<Failure> failure;
  std::shared_ptr<Call> call;
  enum class Kind : std::uint8_t { tick, call, callback, forget } kind = Kind::tick;
  std::uint32_t number = 0;  // of the callback, or of the reference
};

// Carries ends of ticks and calls of references from a session's threads to JavaScript. Keeps the environment
// alive only while a tick is in flight.
//
// Hazard: one object, `roots_`, holds the JavaScript values. It is strong only while a tick is in flight, so
// that a dropped idle program can be collected.
class Channel final : public Inbox<ChannelMessage> {
 public:
  using Reference = KernelReference;
  // `roots` holds the functions: its `references`, by kernel index, its `callbacks`, by number, and later its
  // `onTick`.
  static std::shared_ptr<Channel> create(Napi::Env env, Napi::Object roots);

  // Any thread.
  void postTick(std::uint64_t tick, const Failure* failure);
  // Blocks until JavaScript has computed the reference, or until `shut`. False where it threw; the first
  // message is kept for `amend`.
  bool callReference(const Reference& reference, const DeviceAddress* reads, const DeviceAddress* writes);
  // JavaScript calls `callbacks[number]` once, and forgets it. False after `shut`.
  bool postCallback(std::uint32_t number);
  // Forgets `references[number]`.
  void forget(std::uint32_t number);
  // The node whose reference threw first, and its message.
  std::optional<std::pair<std::uint32_t, std::string>> problem();
  bool isShut();
  // Adds the node whose reference threw, if one did.
  bool amend(Failure* failure, const std::vector<std::string>& nodeNames);

  // JavaScript thread only.
  Napi::Object roots() const { return roots_.Value(); }
  void keepRoots() { roots_.Ref(); }  // until `release`, ticks or not
  void began();                       // a tick was submitted
  void deliver(Napi::Env env) override;
  // Computes the references that workers wait for, and nothing else.
  void serveCalls();
  bool hasCalls();
  // Releases the handles. After `shut`, while the environment is alive. Idempotent.
  void release();

 private:
  using Message = ChannelMessage;
  using Call = Message::Call;
  void ended(Napi::Env env);
  void tickEnded(Napi::Env env, const Message& message);
  void handle(Napi::Env env, const Message& message);
  void compute(Napi::Env env, Call& call);
  void keepProblem(std::uint32_t node, std::string message);

  std::optional<std::pair<std::uint32_t, std::string>> problem_;  // node, message

  Napi::ObjectReference roots_;
  std::uint64_t flying_ = 0;
};

}  // namespace braid::bindings
