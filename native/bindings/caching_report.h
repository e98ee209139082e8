#pragma once

#include <napi.h>

#include "bindings/caching_device.h"

// What an allocator tells of itself, as rows of numbers; runtime/device gives them their names.
namespace braid::bindings {

// Of all sizes, small ones, large ones: nine figures of current, peak, allocated, freed, in the order of
// `SizeStats`; then the counters, in the order of `counterNames` in runtime/device/stats.ts.
Napi::Value statsRow(Napi::Env env, const caching::Allocator& allocator);
// A segment: its eight numbers and its count of blocks; after each block's seven: the count of its uses, lane
// and point of each, the count of its noted lanes, each one's id. A lane of which nothing is known is -1.
Napi::Value segmentRows(Napi::Env env, const caching::Allocator& allocator);
// Eight numbers a record, oldest first.
Napi::Value historyRows(Napi::Env env, const caching::History& history);
// id, stream (its low 53 bits), retired, done, present: five a lane.
Napi::Value laneRows(Napi::Env env, const Lanes& lanes);
Napi::Object shortageObject(Napi::Env env, const caching::Shortage& shortage);

}  // namespace braid::bindings
