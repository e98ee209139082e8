// Traces replayed with uses that are really outstanding. In whatever order they end and are waited for, no
// gate stays closed for ever, and two runs are the same.
#include <gtest/gtest.h>

#include <random>

#include "memory/replay/replay.h"

namespace braid::caching {
namespace {

using Kind = TraceOp::Kind;

std::unique_ptr<Driver> host(std::size_t memory = std::size_t{4} << 30) {
  std::unique_ptr<Driver> driver;
  std::string detail;
  HostOptions options;
  options.memoryBytes = memory;
  EXPECT_EQ(openHost(&driver, options, &detail), Status::ok) << detail;
  return driver;
}

// Blocks on some streams, freed while others use them; the uses end in any order, and some do not.
std::vector<TraceOp> disorder(std::uint64_t seed, std::size_t length, std::uint32_t streams,
                              std::size_t outstanding) {
  std::mt19937_64 random(seed);
  const auto below = [&](std::size_t most) { return static_cast<std::size_t>(random() % most); };
  std::vector<TraceOp> ops;
  std::vector<std::uint64_t> live, pending;
  const auto take = [&](std::vector<std::uint64_t>& from) {
    std::swap(from[below(from.size())], from.back());
    const std::uint64_t id = from.back();
    from.pop_back();
    return id;
  };
  for (std::uint64_t id = 0; ops.size() < length;) {
    if (live.size() < 40 && below(2) == 0) {
      ops.push_back({Kind::allocate, static_cast<std::uint32_t>(below(streams)), id, 1 + below(3 << 20)});
      live.push_back(id++);
    } else if (!live.empty() && pending.size() < outstanding && below(3) != 0) {
      pending.push_back(take(live));
      ops.push_back({Kind::freeRequested, 0, pending.back(), 0});
    } else if (!pending.empty()) {
      ops.push_back({Kind::freeCompleted, 0, take(pending), 0});
    }
  }
  return ops;
}

struct Outcome {
  Status status = Status::ok;
  ReplayFigures figures;
  std::string detail;
  Shortage shortage;
};

Outcome run(const std::vector<TraceOp>& ops, const Options& options, bool gates = true) {
  Outcome outcome;
  const auto driver = host();
  outcome.status = replay(*driver, options, ops, &outcome.figures, &outcome.detail, &outcome.shortage, gates);
  return outcome;
}

TEST(CachingReplay, EndsInAnyOrderUnderEveryPolicy) {
  const std::vector<TraceOp> ops = disorder(1, 800, 16, 60);
  for (const Policy* policy : policies) {
    for (const bool expandable : {false, true}) {
      Options options;
      options.policy = policy;
      options.expandable = expandable;
      const Outcome gated = run(ops, options), again = run(ops, options, false);
      ASSERT_EQ(gated.status, Status::ok) << policy->name << ": " << gated.detail;
      EXPECT_EQ(gated.figures.events, ops.size());
      EXPECT_GT(gated.figures.outstanding, 50u);
      // What holds the lanes changes nothing but the times.
      EXPECT_EQ(gated.figures.peakReserved, again.figures.peakReserved) << policy->name;
      EXPECT_EQ(gated.figures.waits, again.figures.waits) << policy->name;
      EXPECT_EQ(gated.figures.pagesMoved, again.figures.pagesMoved) << policy->name;
      EXPECT_EQ(gated.figures.stats.served, again.figures.stats.served) << policy->name;
    }
  }
}

// One block is held back by a use that ends right after the next allocation.
TEST(CachingReplay, AWaitOnTheHostMovesTheTrace) {
  const std::uint64_t bytes = 4 << 20;
  const std::vector<TraceOp> ops = {{Kind::allocate, 0, 1, bytes},  {Kind::freeRequested, 0, 1, 0},
                                    {Kind::allocate, 0, 2, bytes},  {Kind::freeCompleted, 0, 1, 0},
                                    {Kind::freeRequested, 0, 2, 0}, {Kind::freeCompleted, 0, 2, 0}};
  Options options;
  options.policy = &pollOnly;
  EXPECT_EQ(run(ops, options).figures.peakReserved, 2 * bytes);
  options.limit = bytes;
  const Outcome outcome = run(ops, options);
  EXPECT_EQ(outcome.status, Status::ok) << outcome.detail;
  EXPECT_GT(outcome.figures.stats.synchronizations, 0u);
  EXPECT_EQ(outcome.figures.peakReserved, bytes);
}

TEST(CachingReplay, AnInvalidTraceIsRefusedWithTheReason) {
  const auto said = [](std::vector<TraceOp> ops) { return run(ops, Options{}).detail; };
  EXPECT_EQ(said({{Kind::allocate, 0, 1, 1}, {Kind::allocate, 0, 1, 1}}), "ops[1]: allocated twice");
  EXPECT_EQ(said({{Kind::freeRequested, 0, 1, 0}}), "ops[0]: freed without having been allocated");
  EXPECT_EQ(said({{Kind::allocate, 0, 1, 1}, {Kind::freeCompleted, 0, 1, 0}}),
            "ops[1]: completed before it was freed");
  EXPECT_EQ(said({{Kind::allocate, mostTraceStreams, 1, 1}}), "more streams than there can be lanes");
}

}  // namespace
}  // namespace braid::caching
