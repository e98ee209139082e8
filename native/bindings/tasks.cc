#include "bindings/tasks.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <system_error>
#include <thread>
#include <utility>

#if defined(__linux__)
#include <sys/prctl.h>
#endif

namespace braid::bindings {
namespace {

// Threads for whatever may have to wait: as many as there are calls at a time, and a few that are kept for
// the next ones. Never destroyed, since they may still wait while the process ends.
class Threads {
 public:
  static Threads& all() {
    static auto* threads = new Threads;
    return *threads;
  }

  // Throws std::system_error where there is no thread for the call, and none to come.
  void call(std::function<void()> call) {
    std::unique_lock lock(mutex_);
    calls_.push_back(std::move(call));
    if (calls_.size() > idle_) {
      try {
        std::thread([this] { serve(); }).detach();
        ++threads_;
      } catch (const std::system_error&) {
        // Where others run, the call waits for one of them to end.
        if (threads_ == 0) {
          calls_.pop_back();
          throw;
        }
      }
    }
    lock.unlock();
    called_.notify_one();
  }

 private:
  static constexpr std::size_t kept = 2;

  void serve() {
    std::unique_lock lock(mutex_);
    for (;;) {
      while (calls_.empty()) {
        if (idle_ == kept) {
          --threads_;
          return;
        }
        ++idle_;
        called_.wait(lock);
        --idle_;
      }
      const std::function<void()> call = std::exchange(calls_.front(), {});
      calls_.pop_front();
      lock.unlock();
      call();
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable called_;
  std::deque<std::function<void()>> calls_;
  std::size_t threads_ = 0, idle_ = 0;
};

void nameThread(const char* name) {
#if defined(__linux__)
  prctl(PR_SET_NAME, name, 0, 0, 0);
#else
  static_cast<void>(name);
#endif
}

}  // namespace

void Tasks::start(Napi::Env env, std::unique_ptr<Task> task, const char* name) {
  if (function_ == nullptr && all_.empty()) open(env, shared_from_this(), "braid.tasks");
  Task* const started = task.get();
  all_.push_back(std::move(task));
  try {
    Threads::all().call([self = shared_from_this(), started, name] {
      nameThread(name);
      self->execute(started);
    });
  } catch (const std::system_error& error) {
    all_.pop_back();
    throw Napi::Error::New(env, std::string("no thread to wait with: ") + error.what());
  }
  if (all_.size() == 1) napi_ref_threadsafe_function(env, function_);
}

void Tasks::execute(Task* task) {
  try {
    task->run();
  } catch (const std::exception& error) {
    task->problem = error.what();
    if (task->problem.empty()) task->problem = "unknown failure";
  }
  {
    std::lock_guard lock(mutex_);
    task->ran = true;
  }
  answered_.notify_all();
  // From here on the environment may end, and the task with it.
  post(task);
}

void Tasks::deliver(Napi::Env env) {
  while (const std::optional<Task*> next = this->next()) {
    const auto found =
        std::find_if(all_.begin(), all_.end(), [&](const auto& each) { return each.get() == *next; });
    const std::unique_ptr<Task> task = std::move(*found);
    all_.erase(found);
    if (all_.empty() && function_ != nullptr) napi_unref_threadsafe_function(env, function_);
    const Napi::HandleScope scope(env);
    complete(env, *task);
  }
}

// Also while the environment ends: then every call into JavaScript fails, which is ignored.
void Tasks::complete(Napi::Env env, Task& task) {
  try {
    if (!task.problem.empty()) throw Napi::Error::New(env, task.problem);
    napi_resolve_deferred(env, task.deferred, task.finish(env));
  } catch (const Napi::Error& error) {
    napi_reject_deferred(env, task.deferred, error.Value());
  } catch (const std::exception& error) {
    napi_value text = nullptr, value = nullptr;
    if (napi_create_string_utf8(env, error.what(), NAPI_AUTO_LENGTH, &text) == napi_ok &&
        napi_create_error(env, nullptr, text, &value) == napi_ok) {
      napi_reject_deferred(env, task.deferred, value);
    }
  }
}

void Tasks::await() {
  std::unique_lock lock(mutex_);
  answered_.wait(lock, [&] {
    return std::all_of(all_.begin(), all_.end(), [](const auto& each) { return each->ran; });
  });
}

}  // namespace braid::bindings
