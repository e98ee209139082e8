#include "bindings/channel.h"

#include <algorithm>
#include <cstring>

#include "bindings/failure_object.h"
#include "bindings/while_blocked.h"

namespace braid::bindings {
namespace {

Napi::ArrayBuffer copyOf(Napi::Env env, DeviceAddress address, std::size_t bytes) {
  Napi::ArrayBuffer buffer = Napi::ArrayBuffer::New(env, bytes);
  if (bytes > 0) std::memcpy(buffer.Data(), reinterpret_cast<const void*>(address), bytes);
  return buffer;
}

// The exception may have no message, or JavaScript may have ended meanwhile and no property can be read.
std::string wordsOf(const Napi::Error& error) {
  try {
    const std::string& message = error.Message();
    return message.empty() ? "it threw something without a message" : message;
  } catch (const std::exception&) {
    return "it threw something without a message";
  }
}

// Whether the thread of JavaScript is ending, by `process.exit` or because another one ends it: every call
// fails then.
bool isEnding(Napi::Env env, napi_value object) {
  bool pending = false;
  napi_value ignored;
  if (napi_is_exception_pending(env, &pending) == napi_ok && pending)
    napi_get_and_clear_last_exception(env, &ignored);
  return napi_get_named_property(env, object, "references", &ignored) != napi_ok;
}

}  // namespace

std::shared_ptr<Channel> Channel::create(Napi::Env env, Napi::Object roots) {
  auto channel = std::make_shared<Channel>();
  channel->roots_ = Napi::Weak(roots);
  open(env, channel, "braid");
  serveWhileBlocked(channel.get());
  return channel;
}

void Channel::postTick(std::uint64_t tick, const Failure* failure) {
  Message message;
  message.tick = tick;
  if (failure != nullptr) message.failure = *failure;
  post(std::move(message));
}

bool Channel::callReference(const Reference& reference, const DeviceAddress* reads,
                            const DeviceAddress* writes) {
  const auto call = std::make_shared<Call>();
  call->reference = &reference;
  call->reads = reads;
  call->writes = writes;
  Message message;
  message.kind = Message::Kind::call;
  message.call = call;
  if (!post(std::move(message))) {
    keepProblem(reference.node, "the program is shutting down");
    return false;
  }
  std::unique_lock lock(mutex_);
  answered_.wait(lock, [&] { return call->done || !open_; });
  // Calls that are not done yet are never computed: `compute` checks `open_` under the same lock before it
  // touches the operands.
  return call->done && call->ok;
}

bool Channel::postCallback(std::uint32_t number) {
  Message message;
  message.kind = Message::Kind::callback;
  message.number = number;
  return post(std::move(message));
}

void Channel::forget(std::uint32_t number) {
  Message message;
  message.kind = Message::Kind::forget;
  message.number = number;
  post(std::move(message));
}

std::optional<std::pair<std::uint32_t, std::string>> Channel::problem() {
  std::lock_guard lock(mutex_);
  return problem_;
}

bool Channel::isShut() {
  std::lock_guard lock(mutex_);
  return !open_;
}

void Channel::keepProblem(std::uint32_t node, std::string message) {
  std::lock_guard lock(mutex_);
  if (!problem_) problem_.emplace(node, std::move(message));
}

bool Channel::amend(Failure* failure, const std::vector<std::string>& nodeNames) {
  std::lock_guard lock(mutex_);
  if (!problem_) return false;
  failure->node = static_cast<int>(problem_->first);
  failure->op = "run " + nodeNames[problem_->first];
  failure->detail = "its reference failed: " + problem_->second;
  return true;
}

void Channel::began() {
  if (flying_++ > 0) return;
  roots_.Ref();
  if (function_ != nullptr) napi_ref_threadsafe_function(roots_.Env(), function_);
}

void Channel::ended(Napi::Env env) {
  if (--flying_ > 0) return;
  roots_.Unref();
  if (function_ != nullptr) napi_unref_threadsafe_function(env, function_);
}

void Channel::deliver(Napi::Env env) {
  while (const std::optional<Message> message = next()) handle(env, *message);
}

void Channel::handle(Napi::Env env, const Message& message) {
  const Napi::HandleScope scope(env);
  try {
    switch (message.kind) {
      case Message::Kind::tick: return tickEnded(env, message);
      case Message::Kind::call: return compute(env, *message.call);
      case Message::Kind::forget:
        roots_.Value().Get("references").As<Napi::Object>().Delete(message.number);
        return;
      case Message::Kind::callback: {
        Napi::Object callbacks = roots_.Value().Get("callbacks").As<Napi::Object>();
        const Napi::Value callback = callbacks.Get(message.number);
        callbacks.Delete(message.number);
        callback.As<Napi::Function>().Call(env.Undefined(), {});
      }
    }
  } catch (const Napi::Error& error) {
    // An exception that a function of the user's has thrown is handled as uncaught.
    napi_fatal_exception(env, error.Value());
  }
}

bool Channel::hasCalls() {
  std::lock_guard lock(mutex_);
  return std::any_of(inbox_.begin(), inbox_.end(), [](const Message& each) { return each.call != nullptr; });
}

void Channel::serveCalls() {
  for (;;) {
    Message message;
    {
      std::lock_guard lock(mutex_);
      const auto found = std::find_if(inbox_.begin(), inbox_.end(),
                                      [](const Message& each) { return each.call != nullptr; });
      if (!open_ || found == inbox_.end()) return;
      message = std::move(*found);
      inbox_.erase(found);
    }
    handle(roots_.Env(), message);
  }
}

void Channel::tickEnded(Napi::Env env, const Message& message) {
  const Napi::Value callback = roots_.Value().Get("onTick");
  ended(env);
  if (!callback.IsFunction()) return;
  const Napi::Value failure = message.failure ? failureObject(env, *message.failure).Value() : env.Null();
  callback.As<Napi::Function>().Call(env.Undefined(),
                                     {Napi::Number::New(env, static_cast<double>(message.tick)), failure});
}

// The reference gets copies: JavaScript may keep an ArrayBuffer for ever, while device memory gets new
// owners.
void Channel::compute(Napi::Env env, Call& call) {
  std::optional<std::string> problem;
  std::vector<Napi::ArrayBuffer> results;
  std::uint32_t kernel = 0;
  try {
    const Napi::Array reads = Napi::Array::New(env), writes = Napi::Array::New(env),
                      scalars = Napi::Array::New(env);
    {
      // The worker cannot return while this holds the lock, so its operands stay valid.
      std::lock_guard lock(mutex_);
      if (!open_) return;
      const Reference& given = *call.reference;
      kernel = given.kernel;
      for (std::uint32_t i = 0; i < given.readBytes.size(); ++i)
        reads.Set(i, copyOf(env, call.reads[i], given.readBytes[i]));
      for (std::uint32_t i = 0; i < given.writeBytes.size(); ++i) {
        results.push_back(copyOf(env, call.writes[i], given.writeBytes[i]));
        writes.Set(i, results.back());
      }
      for (std::uint32_t i = 0; i < given.scalars.size(); ++i) scalars.Set(i, given.scalars[i]);
    }
    const Napi::Value references = roots_.Value().Get("references");
    const Napi::Value reference = references.As<Napi::Object>().Get(kernel);
    if (!reference.IsFunction())
      throw Napi::TypeError::New(env, "references[" + std::to_string(kernel) + "] is not a function");
    reference.As<Napi::Function>().Call(env.Undefined(), {reads, writes, scalars});
  } catch (const Napi::Error& error) {
    problem = wordsOf(error);
  } catch (const std::exception& error) {
    problem = error.what();
  }
  // Its work is dropped, and is no failure of the device.
  if (problem && isEnding(env, roots_.Value())) return shut();
  {
    std::lock_guard lock(mutex_);
    if (!open_) return;
    for (std::size_t i = 0; !problem && i < results.size(); ++i) {
      if (results[i].ByteLength() != call.reference->writeBytes[i])
        problem = "it detached or transferred the memory it was given to write";
      else if (results[i].ByteLength() > 0)
        std::memcpy(reinterpret_cast<void*>(call.writes[i]), results[i].Data(), results[i].ByteLength());
    }
    call.ok = !problem;
    call.done = true;
    if (problem && !problem_) problem_.emplace(call.reference->node, *problem);
  }
  answered_.notify_all();
}

void Channel::release() {
  stopServing(this);
  roots_.Reset();
  releaseFunction();
}

}  // namespace braid::bindings
