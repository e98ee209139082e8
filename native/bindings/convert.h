#pragma once

#include <napi.h>

#include <cstdint>
#include <string>

// Reading JavaScript values with exact messages: each reader throws a TypeError or RangeError that names the
// field.
namespace braid::bindings {

// 2^53: beyond it a double no longer counts every integer.
constexpr double mostInteger = 9007199254740992.0;

Napi::Object objectAt(Napi::Value value, const std::string& field);
Napi::Array arrayAt(Napi::Value value, const std::string& field);
std::string textAt(Napi::Value value, const std::string& field);
double numberAt(Napi::Value value, const std::string& field);
// An integer within [least, most].
std::int64_t integerAt(Napi::Value value, const std::string& field, std::int64_t least, std::int64_t most);
std::uint64_t sizeAt(Napi::Value value, const std::string& field);  // 0 … 2^53

inline std::string item(const std::string& list, std::size_t index) {
  return list + "[" + std::to_string(index) + "]";
}
inline bool absent(const Napi::Value& value) { return value.IsUndefined() || value.IsNull(); }
// `otherwise` where the field is absent.
double numberOr(Napi::Value value, const std::string& field, double otherwise);
bool flagOr(Napi::Value value, const std::string& field, bool otherwise);

}  // namespace braid::bindings
