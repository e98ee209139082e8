// The laws of the caching allocator, held against random owners. A failure names its seed; BRAID_SEED=N repeats it.
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "caching_model.h"

namespace braid::test {
namespace {

using namespace caching;

std::uint64_t firstSeed() {
  if (const char* asked = std::getenv("BRAID_SEED")) return std::strtoull(asked, nullptr, 10);
  if (const char* ci = std::getenv("CI"); ci && std::string(ci) == "true") return 20'261'121;
  return std::random_device()();
}

TEST(CachingModel, SimulatedDevice) {
  const std::uint64_t seed = firstSeed();
  const char* one = std::getenv("BRAID_SEED");
  for (std::uint64_t i = 0; i < (one ? 1 : 200); ++i) {
    ModelPlan plan = randomPlan(seed + i);
    plan.operations = 400;
    const ModelReport report = runModel(plan);
    ASSERT_EQ(report.problem, "") << "BRAID_SEED=" << plan.seed << ": " << describe(plan);
  }
}

}  // namespace
}  // namespace braid::test
