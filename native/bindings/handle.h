#pragma once

#include <napi.h>

#include <memory>
#include <string>

namespace braid::bindings {

// A JavaScript object that wraps a native one. It carries a type tag, which is checked before the pointer is
// used, so that a method called on any other object throws. JavaScript cannot forge a tag.
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

// The native object that a JavaScript value wraps; null where it wraps none of this type.
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

// All methods run inside this function, so that the only C++ exceptions that leave them are JavaScript
// errors.
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
