#include "bindings/event_loop.h"

#include <cstdlib>

#include "bindings/convert.h"
#include "bindings/handle.h"
#include "bindings/libuv.h"

namespace braid::bindings {
namespace {

const Libuv& uv() { return *Libuv::find(); }

// Keeps the event loop of an environment from sleeping until a point in time, without a call of JavaScript:
// a function that JavaScript calls in each turn leaves garbage, and V8 collects it every few hundred short
// ticks. Lives until libuv has closed its handle, which holds it. Only for an environment that runsOnLibuv.
class Turner : public std::enable_shared_from_this<Turner> {
 public:
  static std::shared_ptr<Turner> create(napi_env env) {
    uv_loop_s* loop = nullptr;
    if (napi_get_uv_event_loop(env, &loop) != napi_ok) throw Napi::Error::New(env);
    auto turner = std::make_shared<Turner>();
    uv().idleInit(loop, turner->idle_);  // never fails
    uv().unref(turner->handle());
    uv().setData(turner->handle(), new std::shared_ptr<Turner>(turner));
    // An environment ends only when its handles are closed.
    const auto end = [](napi_async_cleanup_hook_handle, void* data) { static_cast<Turner*>(data)->close(); };
    if (napi_add_async_cleanup_hook(env, end, turner.get(), &turner->hook_) != napi_ok) {
      turner->close();
      throw Napi::Error::New(env);
    }
    return turner;
  }
  Turner() : idle_(static_cast<uv_idle_s*>(std::calloc(1, uv().handleSize(Libuv::idleType)))) {
    if (idle_ == nullptr) throw std::bad_alloc();
  }
  ~Turner() { std::free(idle_); }
  Turner(const Turner&) = delete;

  void turn(std::uint64_t nanoseconds) {
    if (closing_) return;
    until_ = uv().now() + nanoseconds;
    uv().idleStart(idle_, [](uv_idle_s* idle) {
      if (uv().now() >= (*held(reinterpret_cast<uv_handle_s*>(idle)))->until_) uv().idleStop(idle);
    });
  }

  void sleep() {
    if (!closing_) uv().idleStop(idle_);
  }

  void close() {
    if (std::exchange(closing_, true)) return;
    uv().close(handle(), [](uv_handle_s* handle) {
      const std::unique_ptr<std::shared_ptr<Turner>> self(held(handle));
      if ((*self)->hook_ != nullptr) napi_remove_async_cleanup_hook((*self)->hook_);
    });
  }

 private:
  uv_handle_s* handle() { return reinterpret_cast<uv_handle_s*>(idle_); }
  static std::shared_ptr<Turner>* held(const uv_handle_s* handle) {
    return static_cast<std::shared_ptr<Turner>*>(uv().getData(handle));
  }

  uv_idle_s* const idle_;
  napi_async_cleanup_hook_handle hook_ = nullptr;
  std::uint64_t until_ = 0;
  bool closing_ = false;
};

struct EventLoop {
  static constexpr napi_type_tag typeTag{0x627261696465766cu, 0x51c08e7b3fa6d924u};
  static constexpr const char* typeName = "NativeEventLoop";

  explicit EventLoop(std::shared_ptr<Turner> turner) : turner(std::move(turner)) {}
  ~EventLoop() { turner->close(); }
  EventLoop(const EventLoop&) = delete;

  const std::shared_ptr<Turner> turner;
};

Napi::Value turn(const Napi::CallbackInfo& info) {
  constexpr std::uint64_t nanoseconds = 1'000'000;
  self<EventLoop>(info)->turner->turn(sizeAt(info[0], "milliseconds") * nanoseconds);
  return info.Env().Undefined();
}

Napi::Value sleep(const Napi::CallbackInfo& info) {
  self<EventLoop>(info)->turner->sleep();
  return info.Env().Undefined();
}

}  // namespace

Napi::Value eventLoop(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  if (!runsOnLibuv(env)) return env.Undefined();
  Napi::Object object = handle(env, std::make_shared<EventLoop>(Turner::create(env)));
  define<turn>(object, "turn");
  define<sleep>(object, "sleep");
  return object;
}

}  // namespace braid::bindings
