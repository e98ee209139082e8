#include "bindings/convert.h"

#include <cmath>

namespace braid::bindings {
namespace {

[[noreturn]] void wrongType(Napi::Env env, const std::string& field, const char* wanted) {
  throw Napi::TypeError::New(env, field + " must be " + wanted);
}

}  // namespace

Napi::Object objectAt(Napi::Value value, const std::string& field) {
  if (!value.IsObject()) wrongType(value.Env(), field, "an object");
  return value.As<Napi::Object>();
}

Napi::Array arrayAt(Napi::Value value, const std::string& field) {
  if (!value.IsArray()) wrongType(value.Env(), field, "an array");
  return value.As<Napi::Array>();
}

std::string textAt(Napi::Value value, const std::string& field) {
  if (!value.IsString()) wrongType(value.Env(), field, "a string");
  return value.As<Napi::String>().Utf8Value();
}

double numberAt(Napi::Value value, const std::string& field) {
  if (!value.IsNumber()) wrongType(value.Env(), field, "a number");
  return value.As<Napi::Number>().DoubleValue();
}

std::int64_t integerAt(Napi::Value value, const std::string& field, std::int64_t least, std::int64_t most) {
  const double number = numberAt(value, field);
  if (!(std::fabs(number) <= mostInteger) || number != std::floor(number) ||
      number < static_cast<double>(least) || number > static_cast<double>(most)) {
    throw Napi::RangeError::New(value.Env(), field + " must be a whole number from " + std::to_string(least) +
                                                 " to " + std::to_string(most) + ", not " +
                                                 value.ToString().Utf8Value());
  }
  return static_cast<std::int64_t>(number);
}

std::uint64_t sizeAt(Napi::Value value, const std::string& field) {
  return static_cast<std::uint64_t>(integerAt(value, field, 0, std::int64_t{1} << 53));
}

double numberOr(Napi::Value value, const std::string& field, double otherwise) {
  if (absent(value)) return otherwise;
  const double number = numberAt(value, field);
  if (!std::isfinite(number) || number < 0)
    throw Napi::RangeError::New(value.Env(), field + " must be finite and not negative");
  return number;
}

bool flagOr(Napi::Value value, const std::string& field, bool otherwise) {
  if (absent(value)) return otherwise;
  if (!value.IsBoolean()) wrongType(value.Env(), field, "a boolean");
  return value.As<Napi::Boolean>().Value();
}

}  // namespace braid::bindings
