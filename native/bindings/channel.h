#pragma once

#include <napi.h>

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "executor/failure.h"

namespace braid::bindings {

// The way from a session's threads to JavaScript: ends of ticks, and calls of references. Holds the
// environment open while a tick is in flight and not otherwise.
//
// Hazards, and their rules:
//   - A thread-safe function dies with its environment, whoever still holds it. It is only touched under
//   `mutex_` while
//     `open_`, and `shut` (called by the environment's cleanup hook, which runs before the function's own)
//     ends that.
//   - A worker that waits for a reference's answer would wait for ever once JavaScript stops: `shut` answers
//   it.
//   - JavaScript values are held by one object, `roots_`, strongly only while a tick is in flight, so that an
//   idle program
//     that nobody holds can be collected.
class Channel : public std::enable_shared_from_this<Channel> {
 public:
  // `roots` holds the functions: its `references`, by kernel index, and later its `onTick`.
  static std::shared_ptr<Channel> create(Napi::Env env, Napi::Object roots);

  // Any thread.
  void postTick(std::uint64_t tick, const Failure* failure);
  // Blocks until JavaScript has computed it, or `shut`. False where it threw; the first message is kept for
  // `amend`.
  bool callReference(std::uint32_t kernel, std::uint32_t node, const DeviceAddress* reads,
                     const std::vector<std::size_t>& readBytes, const DeviceAddress* writes,
                     const std::vector<std::size_t>& writeBytes);
  // Names the node whose reference threw, if one did.
  bool amend(Failure* failure, const std::vector<std::string>& nodeNames);

  // JavaScript thread only.
  Napi::Object roots() const { return roots_.Value(); }
  void began();  // a tick was submitted
  void deliver(Napi::Env env);
  // Nothing is called any more, and nobody waits. Idempotent.
  void shut();
  // After `shut`, while the environment is alive: the handles go back. Idempotent.
  void release();

 private:
  struct Call {
    std::uint32_t kernel = 0, node = 0;
    const DeviceAddress *reads = nullptr, *writes = nullptr;
    const std::vector<std::size_t>*readBytes = nullptr, *writeBytes = nullptr;
    bool done = false, ok = false;
  };
  struct Message {
    std::uint64_t tick = 0;
    std::optional<Failure> failure;
    std::shared_ptr<Call> call;  // null: the end of a tick
  };
  bool post(Message message);
  void ended(Napi::Env env);
  void tickEnded(Napi::Env env, const Message& message);
  void compute(Napi::Env env, Call& call);
  void keepProblem(std::uint32_t node, std::string message);

  std::mutex mutex_;
  std::condition_variable answered_;
  bool open_ = true;
  napi_threadsafe_function function_ = nullptr;  // null once released or gone with its environment
  std::deque<Message> inbox_;
  std::optional<std::pair<std::uint32_t, std::string>> problem_;  // node, message

  Napi::ObjectReference roots_;
  std::uint64_t flying_ = 0;
};

}  // namespace braid::bindings
