#include "bindings/replay.h"

#include <algorithm>
#include <chrono>

#include "bindings/allocator_options.h"
#include "bindings/allocator_report.h"
#include "bindings/async.h"
#include "bindings/convert.h"
#include "bindings/failure_object.h"
#include "bindings/host_options.h"
#include "memory/replay/replay.h"

namespace braid::bindings {
namespace {

using caching::ReplayFigures;
using caching::TraceOp;

struct Job {
  std::unique_ptr<Driver> driver;
  caching::Options options;
  std::vector<TraceOp> ops;

  ReplayFigures figures;
  caching::Shortage shortage;
  std::optional<Failure> failure;
  std::uint64_t failedAt = 0;
  std::size_t count = 0;

  static constexpr std::size_t mostRuns = 5;
  static constexpr std::chrono::seconds enough{1};

  // Every run of a replay does the same; only its times differ. The first run has gates, where the trace has
  // outstanding uses; then come a few runs without gates, and the one with the median time counts.
  void run() {
    std::vector<ReplayFigures> runs;
    bool gates = true;
    const auto began = std::chrono::steady_clock::now();
    do {
      ReplayFigures figures;
      std::string detail;
      const Status status = caching::replay(*driver, options, ops, &figures, &detail, &shortage, gates);
      if (!gates || figures.outstanding == 0) runs.push_back(figures);
      gates = false;
      if (status == Status::ok) continue;
      failure = failureOf(*driver, status, "replay");
      failure->detail = failure->detail.empty() ? detail : detail + ": " + failure->detail;
      failedAt = figures.events;
      return;
    } while (runs.empty() || (runs.size() < mostRuns && std::chrono::steady_clock::now() - began < enough));
    const auto middle = runs.begin() + static_cast<std::ptrdiff_t>(runs.size() / 2);
    std::nth_element(runs.begin(), middle, runs.end(), [](const ReplayFigures& a, const ReplayFigures& b) {
      return a.nsPerEvent < b.nsPerEvent;
    });
    figures = *middle;
    count = runs.size();
  }
};

// Typed arrays of one length, with an element for each operation. TypeScript has checked their contents.
template <class Array>
Array columnAt(const Napi::Object& trace, const char* name, napi_typedarray_type type, std::size_t length) {
  const Napi::Value value = trace.Get(name);
  if (!value.IsTypedArray() || value.As<Napi::TypedArray>().TypedArrayType() != type ||
      value.As<Napi::TypedArray>().ElementLength() != length)
    throw Napi::TypeError::New(trace.Env(),
                               std::string("trace.") + name + " must be a typed array as long as the others");
  return value.As<Array>();
}

std::vector<TraceOp> opsAt(Napi::Value value) {
  const Napi::Object trace = objectAt(value, "trace");
  const Napi::Value first = trace.Get("kinds");
  const std::size_t length = first.IsTypedArray() ? first.As<Napi::TypedArray>().ElementLength() : 0;
  const auto kinds = columnAt<Napi::Uint8Array>(trace, "kinds", napi_uint8_array, length);
  const auto streams = columnAt<Napi::Uint8Array>(trace, "streams", napi_uint8_array, length);
  const auto ids = columnAt<Napi::Float64Array>(trace, "ids", napi_float64_array, length);
  const auto bytes = columnAt<Napi::Float64Array>(trace, "bytes", napi_float64_array, length);
  std::vector<TraceOp> ops(length);
  for (std::size_t i = 0; i < length; ++i) {
    if (kinds[i] > 2 || streams[i] >= caching::mostTraceStreams || !(ids[i] >= 0 && ids[i] <= mostInteger) ||
        !(bytes[i] >= 0 && bytes[i] <= mostInteger))
      throw Napi::RangeError::New(value.Env(), item("ops", i) + " is not an operation of a trace");
    ops[i] = {static_cast<TraceOp::Kind>(kinds[i]), streams[i], static_cast<std::uint64_t>(ids[i]),
              static_cast<std::uint64_t>(bytes[i])};
  }
  return ops;
}

Napi::Value figuresObject(Napi::Env env, const Job& job) {
  const ReplayFigures& figures = job.figures;
  const caching::Stats& stats = figures.stats;
  Napi::Object result = Napi::Object::New(env);
  result.Set("device", job.driver->info().name);
  const auto set = [&](const char* name, auto value) { result.Set(name, static_cast<double>(value)); };
  set("runs", job.count);
  set("events", figures.events);
  set("peakLive", figures.peakLive);
  set("peakReserved", figures.peakReserved);
  set("segments", figures.segments);
  set("nsPerEvent", figures.nsPerEvent);
  set("nsMedian", figures.nsMedian);
  set("ns99", figures.ns99);
  set("nsMost", figures.nsMost);
  set("waits", figures.waits);
  set("moves", figures.moves);
  set("pagesMoved", figures.pagesMoved);
  set("moveNs", figures.moveNs);
  set("pagesMade", stats.pagesMade);
  set("outstanding", figures.outstanding);
  set("synchronizations", stats.synchronizations);
  set("retries", stats.retries);
  set("queries", stats.queries);
  Napi::Array served = Napi::Array::New(env, stats.served.size());
  for (std::uint32_t i = 0; i < stats.served.size(); ++i) served.Set(i, static_cast<double>(stats.served[i]));
  result.Set("served", served);
  return result;
}

Napi::Value finish(Napi::Env env, const Job& job) {
  if (!job.failure) return figuresObject(env, job);
  const Napi::Error error = failureObject(env, *job.failure);
  error.Value().Set("operation", static_cast<double>(job.failedAt));
  if (job.shortage.status == Status::outOfMemory)
    error.Value().Set("shortage", shortageObject(env, job.shortage));
  throw error;
}

}  // namespace

Napi::Value replayTrace(const Napi::CallbackInfo& info) {
  const auto job = std::make_shared<Job>();
  std::string detail;
  const bool cuda = info[0].IsNumber();
  const Status status =
      cuda ? openCuda(&job->driver, static_cast<int>(integerAt(info[0], "ordinal", 0, INT32_MAX)), &detail)
           : openHost(&job->driver, hostOptions(info[0]), &detail);
  if (status != Status::ok)
    throw failureObject(info.Env(), openFailure(status, cuda ? "openCuda" : "openHost", detail));
  job->options = allocatorOptions(info[1], "options", job->driver->info().totalBytes);
  job->ops = opsAt(info[2]);
  return runAsync(
      info.Env(), "braid.replay", [job] { job->run(); }, [job](Napi::Env env) { return finish(env, *job); });
}

}  // namespace braid::bindings
