#pragma once

#include <napi.h>

#include "bindings/allocator_device.h"

// An allocator's statistics, segments, history and lanes as rows of numbers; runtime/device names them.
namespace braid::bindings {

// For all sizes, small ones and large ones: nine figures with current, peak, allocated and freed, in the
// order of `SizeStats`. Then the counters, in the order of `counterNames` in runtime/device/stats.ts.
Napi::Value statsRow(Napi::Env env, const caching::Allocator& allocator);
// For each segment eight numbers and its count of blocks. For each block seven numbers; the count of its
// uses, and the lane and point of each; the count of its noted lanes, and the id of each. An unknown lane is
// -1.
Napi::Value segmentRows(Napi::Env env, const caching::Allocator& allocator);
// Eight numbers for each record, oldest first.
Napi::Value historyRows(Napi::Env env, const caching::History& history);
Napi::Value laneNames(Napi::Env env, Lanes& lanes);
// Five numbers for each lane: id, stream (its low 53 bits), retired, completed point, present point.
Napi::Value laneRows(Napi::Env env, const Lanes& lanes);
Napi::Object shortageObject(Napi::Env env, const caching::Shortage& shortage);

}  // namespace braid::bindings
