#pragma once

#include <napi.h>

#include <memory>
#include <string>

namespace braid::bindings {

// A JavaScript object that stands for a native one. It carries a type tag, checked before the pointer is
// touched, so that a method called on any other object throws instead of reading it as something it is not.
// (Type tags are read, never forged.)
template <class T>
Napi::Object handle(Napi::Env env, std::shared_ptr<T> native) {
  Napi::Object object = Napi::Object::New(env);
  if (napi_type_tag_object(env, object, &T::typeTag) != napi_ok) throw Napi::Error::New(env);
  auto* held = new std::shared_ptr<T>(std::move(native));
  const auto release = [](napi_env, void* data, void*) { delete static_cast<std::shared_ptr<T>*>(data); };
  if (napi_wrap(env, object, held, release, nullptr, nullptr) != napi_ok) {
    delete held;
    throw Napi::Error::New(env);
  }
  return object;
}

// What a value of JavaScript stands for; null where it is none of these.
template <class T>
std::shared_ptr<T> unwrapped(Napi::Env env, Napi::Value value) {
  bool tagged = false;
  void* data = nullptr;
  if (!value.IsObject() || napi_check_object_type_tag(env, value, &T::typeTag, &tagged) != napi_ok ||
      !tagged || napi_unwrap(env, value, &data) != napi_ok)
    return nullptr;
  return *static_cast<std::shared_ptr<T>*>(data);
}

template <class T>
std::shared_ptr<T> self(const Napi::CallbackInfo& info) {
  auto native = unwrapped<T>(info.Env(), info.This());
  if (!native)
    throw Napi::TypeError::New(info.Env(), std::string("called on something that is not a ") + T::typeName);
  return native;
}

using Method = Napi::Value (*)(const Napi::CallbackInfo& info);

// Methods run behind one net: no C++ exception but a JavaScript error leaves them.
template <Method method>
Napi::Value guarded(const Napi::CallbackInfo& info) {
  try {
    return method(info);
  } catch (const Napi::Error&) {
    throw;
  } catch (const std::exception& error) {
    throw Napi::Error::New(info.Env(), error.what());
  }
}

template <Method method>
void define(Napi::Object object, const char* name) {
  object.DefineProperty(Napi::PropertyDescriptor::Value(
      name, Napi::Function::New<guarded<method>>(object.Env(), name), napi_default));
}

}  // namespace braid::bindings
