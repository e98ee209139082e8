#pragma once

#include <napi.h>

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "bindings/environment.h"

namespace braid::bindings {

// Messages of any thread for the JavaScript thread, which a thread-safe function wakes for them. Made,
// delivered and destroyed on the JavaScript thread. Does not keep the environment alive.
//
// Hazards, and their rules:
//   - A thread-safe function dies with its environment, even while it is held. It is only used under `mutex_`
//     while `open_`, which `shut` clears. The function refuses calls once its own hook has run, and is freed
//     only after all hooks; `post` handles the refusal.
//   - A thread that waits for an answer to its message would wait for ever once JavaScript stops: it waits on
//     `answered_` while `open_`, and `shut` wakes it.
template <class Message>
class Inbox : public Awaited {
 public:
  // Any thread. False where JavaScript is not going to take it: after `shut`, or in an environment that ends.
  bool post(Message message) {
    std::lock_guard lock(mutex_);
    if (!open_) return false;
    inbox_.push_back(std::move(message));
    if (wakeLocked()) return true;
    // Its poster goes on: what the message refers to may be gone when a later wake delivers it.
    inbox_.pop_back();
    return false;
  }
  bool wake() {
    std::lock_guard lock(mutex_);
    return open_ && wakeLocked();
  }

  // JavaScript thread only.
  virtual void deliver(Napi::Env env) = 0;
  // Ends all calls into JavaScript, drops what was not delivered, and wakes the threads that wait for an
  // answer. Idempotent.
  void shut() override {
    std::deque<Message> dropped;
    {
      std::lock_guard lock(mutex_);
      open_ = false;
      dropped.swap(inbox_);
    }
    answered_.notify_all();
  }

 protected:
  // Makes the thread-safe function, which owns the inbox until it is released or its environment has ended.
  static void open(Napi::Env env, const std::shared_ptr<Inbox>& inbox, const char* name) {
    auto context = std::make_unique<std::shared_ptr<Inbox>>(inbox);
    const auto finalize = [](napi_env, void*, void* held) {
      const std::unique_ptr<std::shared_ptr<Inbox>> mine(static_cast<std::shared_ptr<Inbox>*>(held));
      {
        std::lock_guard lock((*mine)->mutex_);
        (*mine)->function_ = nullptr;
      }
      (*mine)->shut();
    };
    const auto onMessage = [](napi_env environment, napi_value, void* held, void*) {
      // Without an environment the thread-safe function is only emptied.
      if (environment == nullptr) return;
      const std::shared_ptr<Inbox> mine = *static_cast<std::shared_ptr<Inbox>*>(held);
      mine->deliver(Napi::Env(environment));
    };
    const napi_value resource = Napi::String::New(env, name);
    if (napi_create_threadsafe_function(env, nullptr, nullptr, resource, 0, 1, nullptr, finalize,
                                        context.get(), onMessage, &inbox->function_) != napi_ok)
      throw Napi::Error::New(env);
    context.release();
    Environment::of(env).add(inbox);
    napi_unref_threadsafe_function(env, inbox->function_);
  }

  // The oldest message.
  std::optional<Message> next() {
    std::lock_guard lock(mutex_);
    if (inbox_.empty()) return std::nullopt;
    Message message = std::move(inbox_.front());
    inbox_.pop_front();
    return message;
  }

  // Gives the thread-safe function back. After `shut`, while the environment is alive. Idempotent.
  void releaseFunction() {
    napi_threadsafe_function function = nullptr;
    {
      std::lock_guard lock(mutex_);
      std::swap(function, function_);
    }
    if (function != nullptr) napi_release_threadsafe_function(function, napi_tsfn_abort);
  }

  std::mutex mutex_;
  std::condition_variable answered_;
  bool open_ = true;
  napi_threadsafe_function function_ = nullptr;  // null once released or gone with its environment
  std::deque<Message> inbox_;

 private:
  bool wakeLocked() {
    return function_ != nullptr &&
           napi_call_threadsafe_function(function_, nullptr, napi_tsfn_nonblocking) == napi_ok;
  }
};

}  // namespace braid::bindings
