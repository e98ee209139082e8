#include "bindings/event_loop.h"

#include <cstdlib>

#include "bindings/convert.h"
#include "bindings/handle.h"
#include "bindings/libuv.h"

namespace braid::bindings {
namespace {

// Keeps the event loop of an environment from sleeping until a point in time, without a call of JavaScript:
// a function that JavaScript calls in each turn leaves garbage, and V8 collects it every few hundred short
// ticks. Lives until libuv has closed its handle, which holds it.
class Turner : public std::enable_shared_from_this<Turner> {
 public:
  static std::shared_ptr<Turner> create(napi_env env) {
    uv_loop_s* loop = nullptr;
    if (napi_get_uv_event_loop(env, &loop) != napi_ok) throw Napi::Error::New(env);
    auto turner = std::make_shared<Turner>();
    uv_idle_init(loop, turner->idle_);  // never fails
    uv_unref(turner->handle());
    uv_handle_set_data(turner->handle(), new std::shared_ptr<Turner>(turner));
    // An environment ends only when its handles are closed.
    const auto end = [](napi_async_cleanup_hook_handle, void* data) { static_cast<Turner*>(data)->close(); };
    if (napi_add_async_cleanup_hook(env, end, turner.get(), &turner->hook_) != napi_ok) {
      turner->close();
      throw Napi::Error::New(env);
    }
    return turner;
  }
  Turner() : idle_(static_cast<uv_idle_s*>(std::calloc(1, uv_handle_size(UV_IDLE)))) {
    if (idle_ == nullptr) throw std::bad_alloc();
  }
  ~Turner() { std::free(idle_); }
  Turner(const Turner&) = delete;

  void turn(std::uint64_t nanoseconds) {
    if (closing_) return;
    until_ = uv_hrtime() + nanoseconds;
    uv_idle_start(idle_, [](uv_idle_s* idle) {
      const auto* self =
          static_cast<std::shared_ptr<Turner>*>(uv_handle_get_data(reinterpret_cast<uv_handle_s*>(idle)));
      if (uv_hrtime() >= (*self)->until_) uv_idle_stop(idle);
    });
  }

  void sleep() {
    if (!closing_) uv_idle_stop(idle_);
  }

  void close() {
    if (std::exchange(closing_, true)) return;
    uv_close(handle(), [](uv_handle_s* handle) {
      const std::unique_ptr<std::shared_ptr<Turner>> self(
          static_cast<std::shared_ptr<Turner>*>(uv_handle_get_data(handle)));
      if ((*self)->hook_ != nullptr) napi_remove_async_cleanup_hook((*self)->hook_);
    });
  }

 private:
  uv_handle_s* handle() { return reinterpret_cast<uv_handle_s*>(idle_); }

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
  Napi::Object object = handle(env, std::make_shared<EventLoop>(Turner::create(env)));
  define<turn>(object, "turn");
  define<sleep>(object, "sleep");
  return object;
}

}  // namespace braid::bindings
