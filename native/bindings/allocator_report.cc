#include "bindings/allocator_report.h"

#include <algorithm>
#include <vector>

namespace braid::bindings {
namespace {

Napi::Value row(Napi::Env env, const std::vector<double>& numbers) {
  Napi::Float64Array array = Napi::Float64Array::New(env, numbers.size());
  std::copy(numbers.begin(), numbers.end(), array.Data());
  return array;
}

template <class T>
double real(T value) {
  return static_cast<double>(value);
}

double idOf(const Lane* lane) { return lane ? real(lane->id) : -1.0; }

}  // namespace

Napi::Value statsRow(Napi::Env env, const caching::Allocator& allocator) {
  using caching::Figure, caching::SizeStats;
  const caching::Stats stats = allocator.stats();
  std::vector<double> numbers;
  const auto add = [&](const Figure& figure) {
    numbers.insert(numbers.end(),
                   {real(figure.current), real(figure.peak), real(figure.allocated), real(figure.freed)});
  };
  for (const SizeStats* sizes : {&stats.all, &stats.small, &stats.large}) {
    for (const Figure* figure :
         {&sizes->allocation, &sizes->segment, &sizes->active, &sizes->inactiveSplit, &sizes->allocatedBytes,
          &sizes->reservedBytes, &sizes->activeBytes, &sizes->inactiveSplitBytes, &sizes->requestedBytes})
      add(*figure);
  }
  for (const std::uint64_t served : stats.served) numbers.push_back(real(served));
  for (const std::uint64_t counter :
       {stats.retries, stats.outOfMemory, stats.refusedEarly, stats.sourceCalls, stats.sourceReleases,
        stats.synchronizations, stats.moves, stats.pagesMoved, stats.pagesMade, stats.uses, stats.usesShared,
        stats.waits, stats.waitsElided, stats.queries, stats.eventsCreated})
    numbers.push_back(real(counter));
  for (const Figure* figure : {&stats.oversizeAllocations, &stats.oversizeSegments}) add(*figure);
  return row(env, numbers);
}

Napi::Value segmentRows(Napi::Env env, const caching::Allocator& allocator) {
  std::vector<double> numbers;
  allocator.eachSegment([&](const caching::Segment& segment) {
    numbers.insert(numbers.end(),
                   {real(segment.base), real(segment.size), real(segment.mapped), idOf(segment.lane),
                    real(static_cast<int>(segment.heap->config.sizes)), real(segment.heap->config.pool),
                    segment.expandable ? 1.0 : 0.0, real(segment.counter)});
    const std::size_t count = numbers.size();
    numbers.push_back(0);
    for (const caching::Block* block = segment.first; block != nullptr; block = block->nextInSegment) {
      ++numbers[count];
      numbers.insert(numbers.end(),
                     {real(block->address), real(block->size), real(std::uint64_t{block->requested}),
                      real(static_cast<int>(caching::BlockState{block->state})), idOf(block->lane),
                      real(Count{block->release}), real(std::uint32_t{block->site})});
      const bool marked =
          block->state == caching::BlockState::live || block->state == caching::BlockState::pending;
      numbers.push_back(marked ? real(block->uses.size()) : 0);
      if (marked)
        for (const Mark* mark : block->uses)
          numbers.insert(numbers.end(), {idOf(mark->lane), real(mark->point)});
      const bool noted = marked && block->noted;
      numbers.push_back(noted ? real(block->noted->size()) : 0);
      if (noted)
        for (const Lane* lane : *block->noted) numbers.push_back(idOf(lane));
    }
  });
  return row(env, numbers);
}

Napi::Value historyRows(Napi::Env env, const caching::History& history) {
  std::vector<double> numbers;
  for (const caching::Record& record : history.read())
    numbers.insert(numbers.end(), {real(static_cast<int>(record.action)), real(record.address),
                                   real(record.size), real(record.lane), real(record.pool),
                                   real(record.microseconds), real(record.site), real(record.id)});
  return row(env, numbers);
}

Napi::Value laneNames(Napi::Env env, Lanes& lanes) {
  Napi::Array names = Napi::Array::New(env);
  for (LaneId id = 0; id < lanes.count(); ++id) names.Set(id, lanes.nameOf(id));
  return names;
}

Napi::Value laneRows(Napi::Env env, const Lanes& lanes) {
  std::vector<double> numbers;
  for (LaneId id = 0; id < lanes.count(); ++id) {
    const Lane& lane = lanes.at(id);
    numbers.insert(numbers.end(), {real(id),
                                   real(reinterpret_cast<std::uintptr_t>(static_cast<Stream>(lane.stream)) %
                                        (std::uintptr_t{1} << 53)),
                                   lane.retired ? 1.0 : 0.0, real(lane.completed()), real(lane.present())});
  }
  return row(env, numbers);
}

Napi::Object shortageObject(Napi::Env env, const caching::Shortage& shortage) {
  Napi::Object object = Napi::Object::New(env);
  const bool limited = shortage.limit != caching::unlimited;
  object.Set("wanted", real(shortage.wanted));
  object.Set("size", real(shortage.size));
  object.Set("reserved", real(shortage.reserved));
  object.Set("limit", limited ? Napi::Number::New(env, real(shortage.limit)) : env.Null());
  object.Set("live", real(shortage.live));
  object.Set("pending", real(shortage.pending));
  object.Set("free", real(shortage.free));
  object.Set("longestFree", real(shortage.longestFree));
  object.Set("otherPools", real(shortage.otherPools));
  object.Set("asked", real(shortage.asked));
  object.Set("deviceFree", real(shortage.deviceFree));
  object.Set("deviceTotal", real(shortage.deviceTotal));
  Napi::Array holders = Napi::Array::New(env);
  for (std::size_t i = 0; i < shortage.holders.size(); ++i) {
    Napi::Object holder = Napi::Object::New(env);
    holder.Set("bytes", real(shortage.holders[i].bytes));
    holder.Set("count", real(shortage.holders[i].count));
    holder.Set("site", real(shortage.holders[i].site));
    holders.Set(static_cast<std::uint32_t>(i), holder);
  }
  object.Set("holders", holders);
  return object;
}

}  // namespace braid::bindings
