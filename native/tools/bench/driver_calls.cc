// The floor: what the driver's own calls cost the thread that makes them, on idle streams.
#include "tools/bench/bench.h"

namespace braid::bench {

void driverCalls(const Run& run) {
  Driver& driver = run.driver;
  Stream reader = nullptr, writer = nullptr;
  Event event = nullptr;
  must(driver, driver.streamCreate(&reader, 0), "streamCreate");
  must(driver, driver.streamCreate(&writer, 0), "streamCreate");
  must(driver, driver.eventCreate(&event, EventKind::order), "eventCreate");
  must(driver, driver.eventRecord(event, reader), "eventRecord");
  must(driver, driver.streamSynchronize(reader), "streamSynchronize");

  const auto measure = [&](const char* what, auto call) {
    Line("driver-calls", what)
        .add(perTurn(run,
                     [&](std::uint64_t turns) {
                       for (; turns > 0; --turns) call();
                     }),
             "ns");
    must(driver, driver.streamSynchronize(reader), what);
    must(driver, driver.streamSynchronize(writer), what);
  };
  measure("record", [&] { driver.eventRecord(event, reader); });
  measure("query", [&] { driver.eventQuery(event); });
  measure("wait", [&] { driver.streamWait(writer, event); });
  measure("record, wait", [&] {
    driver.eventRecord(event, reader);
    driver.streamWait(writer, event);
  });
  // An event whose use is outstanding is not recorded again: the one that is found done was recorded some
  // turns before.
  constexpr std::size_t outstanding = 16;
  Event ring[outstanding];
  for (Event& each : ring) must(driver, driver.eventCreate(&each, EventKind::order), "eventCreate");
  std::size_t at = 0;
  measure("record, query", [&] {
    driver.eventRecord(ring[at], reader);
    at = (at + 1) % outstanding;
    driver.eventQuery(ring[at]);
  });
  for (const Event each : ring) driver.eventDestroy(each);
  driver.eventDestroy(event);
  driver.streamDestroy(reader);
  driver.streamDestroy(writer);
}

}  // namespace braid::bench
