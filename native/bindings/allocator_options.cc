#include "bindings/allocator_options.h"

#include <algorithm>
#include <cmath>

#include "bindings/convert.h"

namespace braid::bindings {
namespace {

std::uint64_t boundAt(const Napi::Object& from, const char* name, const std::string& field) {
  const Napi::Value value = from.Get(name);
  if (value.IsNumber() && std::isinf(value.As<Napi::Number>().DoubleValue())) return caching::unlimited;
  return sizeAt(value, field + "." + name);
}

}  // namespace

caching::Options allocatorOptions(Napi::Value given, const std::string& field, std::uint64_t deviceBytes) {
  const Napi::Object from = objectAt(given, field);
  caching::Options options;
  const std::string policy = textAt(from.Get("policy"), field + ".policy");
  options.policy = caching::policyNamed(policy);
  if (!options.policy)
    throw Napi::TypeError::New(given.Env(), field + ".policy: there is no policy " + policy);
  options.limit = boundAt(from, "limit", field);
  const double fraction = numberOr(from.Get("fraction"), field + ".fraction", 1);
  if (fraction < 1)
    options.limit =
        std::min(options.limit, static_cast<std::uint64_t>(fraction * static_cast<double>(deviceBytes)));
  options.expandable = flagOr(from.Get("expandable"), field + ".expandable", true);
  options.movePages = flagOr(from.Get("movePages"), field + ".movePages", true);
  options.maxSplit = boundAt(from, "maxSplit", field);
  options.maxNonSplitRounding = boundAt(from, "maxNonSplitRounding", field);
  options.largeSegment = boundAt(from, "largeSegment", field);
  options.collectAbove = numberAt(from.Get("collectAbove"), field + ".collectAbove");
  options.refuseEarly = flagOr(from.Get("refuseEarly"), field + ".refuseEarly", false);
  const Napi::Array divisions = arrayAt(from.Get("divisions"), field + ".divisions");
  for (std::uint32_t i = 0; i < options.divisions.size() && i < divisions.Length(); ++i)
    options.divisions[i] =
        static_cast<std::uint32_t>(integerAt(divisions.Get(i), item(field + ".divisions", i), 0, UINT32_MAX));
  options.roundToPowerOfTwoUpTo = boundAt(from, "roundUpTo", field);
  options.cacheUpTo = boundAt(from, "cacheUpTo", field);
  options.reserveFirst = boundAt(from, "reserveFirst", field);
  return options;
}

}  // namespace braid::bindings
