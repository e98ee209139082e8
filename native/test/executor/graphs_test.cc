// Plans as graphs: one launch for many runs, and the answers of the same plan issued command by command.
#include <cstring>

#include "test/executor/generated.h"

namespace braid {
namespace {

using namespace test;

// What a program yields in so many ticks: outputs tick by tick, then the states.
std::vector<float> yields(const std::shared_ptr<Driver>& driver, const ProgramSpec& spec, std::uint64_t ticks,
                          bool trace = false) {
  Ends ends;
  auto session = opened(driver, spec, ends, trace);
  if (!session) return {};
  std::vector<float> initial(count);
  for (std::uint32_t buffer = parameter; buffer < firstState + states; ++buffer) {
    for (std::size_t i = 0; i < count; ++i)
      initial[i] = static_cast<float>(buffer) + 0.25f * static_cast<float>(i);
    EXPECT_FALSE(session->load(buffer, initial.data()));
  }
  std::vector<float> found;
  const auto keep = [&](std::uint64_t tick) {
    ends.await(tick + 1);
    EXPECT_FALSE(ends.failure(tick)) << ends.failure(tick)->op << ends.failure(tick)->detail;
    for (const std::uint32_t output : {firstOutput, firstOutput + 1}) {
      const auto* values = static_cast<const float*>(
          session->pinned(output, static_cast<std::uint32_t>(tick % spec.inFlight)));
      found.insert(found.end(), values, values + count);
    }
  };
  for (std::uint64_t tick = 0; tick < ticks; ++tick) {
    if (tick >= spec.inFlight) keep(tick - spec.inFlight);
    for (std::uint32_t input = 0; input < generatedInputs; ++input) {
      auto* values =
          static_cast<float*>(session->pinned(input, static_cast<std::uint32_t>(tick % spec.inFlight)));
      for (std::size_t i = 0; i < count; ++i)
        values[i] = static_cast<float>(tick * 3 + input) - static_cast<float>(i);
    }
    EXPECT_TRUE(session->submit(tick));
  }
  for (std::uint64_t tick = ticks - std::min<std::uint64_t>(ticks, spec.inFlight); tick < ticks; ++tick)
    keep(tick);
  for (std::uint32_t state = firstState; state < firstState + states; ++state) {
    EXPECT_FALSE(session->read(state, initial.data()));
    found.insert(found.end(), initial.begin(), initial.end());
  }
  EXPECT_EQ(session->stats().eventsCreated, 0u);
  return found;
}

bool sameBits(const std::vector<float>& one, const std::vector<float>& other) {
  return one.size() == other.size() && std::memcmp(one.data(), other.data(), one.size() * sizeof(float)) == 0;
}

TEST(PlanGraphs, YieldWhatCommandsIssuedOneByOneYield) {
  std::mt19937 random(20261123);
  for (int i = 0; i < 60; ++i) {
    const std::uint32_t inFlight = 1 + random() % 4;
    const ProgramSpec eager = generated(random, inFlight);
    HostOptions options;
    options.poison = true;
    options.jitterSeed = i % 2 == 0 ? 0 : random();
    options.jitterMicroseconds = 20;
    const std::vector<float> wanted = yields(hostDriver(options), eager, 12);
    ASSERT_FALSE(wanted.empty());
    EXPECT_TRUE(sameBits(yields(hostDriver(options), asOneGraph(eager), 12), wanted)) << "program " << i;
    for (int cut = 0; cut < 2; ++cut) {
      const ProgramSpec spec = withGraphs(eager, randomRanges(eager, random));
      EXPECT_TRUE(sameBits(yields(hostDriver(options), spec, 12, cut == 1), wanted))
          << "program " << i << ", cut " << cut;
    }
  }
}

}  // namespace
}  // namespace braid
