#include "tools/bench/bench.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

namespace braid::bench {

void must(Driver& driver, Status status, const char* what) {
  if (status == Status::ok) return;
  std::fprintf(stderr, "%s: %s %s\n", what, statusName(status), driver.lastDetail().c_str());
  std::exit(1);
}

Spread spread(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  const double median = values.size() % 2 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
  return {median, values.front(), values.back()};
}

Line::Line(const char* bench, const std::string& what)
    : text_(std::string("{\"bench\":\"") + bench + "\",\"case\":\"" + what + "\"") {}

Line::~Line() {
  std::printf("%s}\n", text_.c_str());
  std::fflush(stdout);
}

Line& Line::add(const char* key, double value) {
  char number[40];
  std::snprintf(number, sizeof number, "%.6g", std::isfinite(value) ? value : -1);
  text_ += std::string(",\"") + key + "\":" + number;
  return *this;
}

Line& Line::add(const char* key, const std::string& value) {
  text_ += std::string(",\"") + key + "\":\"" + value + "\"";
  return *this;
}

Line& Line::add(const Spread& spread, const char* unit) {
  return add("unit", std::string(unit))
      .add("median", spread.median)
      .add("least", spread.least)
      .add("most", spread.most);
}

Bed::Bed(const Run& run, const caching::Options& options)
    : driver(run.driver),
      lanes(driver),
      allocator(std::make_unique<caching::Allocator>(lanes, std::make_unique<caching::DeviceSource>(driver),
                                                     options)) {}

Bed::~Bed() {
  synchronize();
  allocator.reset();
  for (const Stream stream : streams_) driver.streamDestroy(stream);
}

Lane& Bed::lane(bool tracked) {
  Stream stream = nullptr;
  must(driver, driver.streamCreate(&stream, 0), "streamCreate");
  streams_.push_back(stream);
  Lane* lane = nullptr;
  must(driver, lanes.add(stream, tracked, "", &lane), "lanes.add");
  return *lane;
}

void Bed::synchronize() {
  for (const Stream stream : streams_) must(driver, driver.streamSynchronize(stream), "streamSynchronize");
}

Mix mix(std::size_t count, std::uint64_t least, std::uint64_t most, std::uint32_t live, std::uint64_t seed) {
  Random random{seed};
  Mix made;
  const double range = std::log2(static_cast<double>(most) / static_cast<double>(least));
  for (std::size_t i = 0; i < count; ++i) {
    made.sizes.push_back(
        static_cast<std::uint64_t>(static_cast<double>(least) * std::exp2(random.unit() * range)));
    made.places.push_back(static_cast<std::uint32_t>(random.next() % live));
  }
  return made;
}

std::string sizeName(std::uint64_t bytes) {
  if (bytes >= 1 << 20 && bytes % (1 << 20) == 0) return std::to_string(bytes >> 20) + " MiB";
  if (bytes >= 1 << 10 && bytes % (1 << 10) == 0) return std::to_string(bytes >> 10) + " KiB";
  return std::to_string(bytes) + " B";
}

}  // namespace braid::bench
