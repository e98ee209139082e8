// Many sessions, one issuing thread: turns, and failures that stay with their session. Each test is a
// sentence of IssueThread's contract.
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <random>
#include <set>
#include <thread>

#include "test/executor/held_driver.h"
#include "test/executor/support.h"
#include "test/host/support.h"

namespace braid {
namespace {

using namespace test;
using Unbegun = Session::Unbegun;

constexpr std::uint64_t always = std::uint64_t{1} << 40;

// A session on a driver of its own, all before one host device or each before its own.
struct Opened {
  explicit Opened(std::shared_ptr<Driver> inner = hostDriver(), std::uint32_t inFlight = 2,
                  std::function<Status(Stream)> onLaunch = {})
      : driver(std::make_shared<WatchedDriver>(std::move(inner))) {
    driver->onLaunch = std::move(onLaunch);
    session = opened(driver, pipeline(inFlight), ends);
    const std::vector<float> w(count, 10);
    EXPECT_FALSE(session->load(4, w.data()));
  }
  void submit(std::uint64_t ticks) {
    for (std::uint64_t i = 0; i < ticks; ++i) ASSERT_TRUE(session->submit(submitted++));
  }
  std::shared_ptr<WatchedDriver> driver;
  Ends ends;
  std::unique_ptr<Session> session;
  std::uint64_t submitted = 0;
};

TEST(IssueThread, OneForAllSessionsOfADeviceAndNoneOfTheirOwn) {
  std::mutex mutex;
  std::set<std::thread::id> issuing, asking;
  const auto note = [&](Stream) {
    std::lock_guard lock(mutex);
    issuing.insert(std::this_thread::get_id());
    return Status::ok;
  };
  const auto shared = hostDriver();
  Opened a(shared, 2, note), b(shared, 2, note), c(hostDriver(), 2, note), d(hostDriver(), 2, note);
  std::vector<std::thread> callers;
  for (Opened* each : {&a, &b, &c, &d}) {
    callers.emplace_back([each, &mutex, &asking] {
      runTicks(*each->session, each->ends, 40);
      EXPECT_EQ(each->session->stats().ticks, 40u);
      std::lock_guard lock(mutex);
      asking.insert(std::this_thread::get_id());
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(issuing.size(), 1u);
  EXPECT_EQ(issuing.count(std::this_thread::get_id()), 0u);
  for (const std::thread::id caller : asking) EXPECT_EQ(issuing.count(caller), 0u);
}

// The sessions that begin a tick, in order: the first launch of each.
struct Turns {
  std::mutex mutex;
  std::string began;
  std::function<Status(Stream)> of(char name, Gate* gate = nullptr) {
    return [this, name, gate, launches = std::size_t{0}](Stream) mutable {
      if (launches++ % runsPerTick != 0) return Status::ok;
      {
        std::lock_guard lock(mutex);
        began += name;
      }
      if (gate) gate->pass();
      return Status::ok;
    };
  }
  std::string text() {
    std::lock_guard lock(mutex);
    return began;
  }
};

TEST(IssueThread, SessionsTakeTurnsATickAtATime) {
  Gate gate;
  Turns turns;
  Opened a(hostDriver(), 6, turns.of('a', &gate)), b(hostDriver(), 6, turns.of('b')),
      c(hostDriver(), 6, turns.of('c'));
  a.submit(1);
  gate.awaitArrival(1);
  // All of these are ready, with room for all their ticks, before the thread comes to any of them.
  a.submit(5);
  b.submit(3);
  c.submit(6);
  gate.give(always);
  a.ends.await(6);
  b.ends.await(3);
  c.ends.await(6);
  EXPECT_EQ(turns.text(), "abcabcabcacacac") << "b came into the ready list first, and left it first";
}

TEST(IssueThread, ABlockingCallDelaysTheOthersByThatCallAlone) {
  Gate gate;
  Turns turns;
  Opened a(hostDriver(), 6, turns.of('a', &gate)), b(hostDriver(), 6, turns.of('b'));
  a.submit(6);
  gate.awaitArrival(1);
  for (std::uint64_t tick = 1; tick < 6; ++tick) {
    b.submit(1);
    EXPECT_EQ(b.ends.size(), tick - 1);
    gate.give(1);
    b.ends.await(tick);
    gate.awaitArrival(tick + 1);
    EXPECT_EQ(turns.text().size(), 2 * tick + 1);
  }
  gate.give(always);
  a.ends.await(6);
  EXPECT_EQ(turns.text(), "abababababa");
}

TEST(IssueThread, ASessionInFlightToItsLimitIsNotInTheLine) {
  for (const bool sameDevice : {true, false}) {
    Gate gate;
    auto inner = hostDriver();
    Opened a(inner, 2), b(sameDevice ? inner : hostDriver());
    a.driver->onLaunch = [&](Stream stream) {
      return inner->hostFunction(
          stream, [](void* data) { static_cast<Gate*>(data)->pass(); }, &gate);
    };
    a.submit(10);
    runTicks(*b.session, b.ends, 60);
    EXPECT_EQ(a.ends.size(), 0u);
    gate.give(always);
    a.ends.await(10);
    EXPECT_EQ(a.ends.failed(), 0u);
  }
}

TEST(IssueThread, OneSessionsFailureIsNoOthers) {
  const auto inner = hostDriver();
  Opened a(inner, 2,
           [calls = 0](Stream) mutable { return ++calls == 8 ? Status::launchFailed : Status::ok; }),
      b(inner), c;
  a.submit(20);
  runTicks(*b.session, b.ends, 40);
  runTicks(*c.session, c.ends, 40);
  a.ends.await(20);
  EXPECT_EQ(a.ends.failed(), 18u) << "all but the two ticks before the eighth launch";
  EXPECT_EQ(b.ends.failed() + c.ends.failed(), 0u);
  a.session->close();
  EXPECT_TRUE(b.session->submit(40));
  b.ends.await(41);
  EXPECT_EQ(b.ends.failed(), 0u);
}

TEST(IssueThread, ADevicesFailureIsThatOfItsSessionsAlone) {
  HostOptions options;
  options.faults = {{"run", 50, Status::illegalAddress}};
  const auto broken = hostDriver(options);
  Opened a(broken), b(broken), c;
  std::thread other([&] { runTicks(*c.session, c.ends, 60); });
  a.submit(20);
  b.submit(20);
  a.ends.await(20);
  b.ends.await(20);
  // Either may have ended its ticks before the other came to the fault: what follows the fault fails in both.
  a.submit(1);
  b.submit(1);
  a.ends.await(21);
  b.ends.await(21);
  other.join();
  EXPECT_GT(a.ends.failed(), 0u);
  EXPECT_GT(b.ends.failed(), 0u);
  EXPECT_EQ(c.ends.failed(), 0u);
}

TEST(IssueThread, ADeviceMayVanish) {
  auto inner = hostDriver();
  std::size_t before = 0, after = 0, total = 0;
  inner->memInfo(&before, &total);
  {
    Opened a(inner), b;
    runTicks(*a.session, a.ends, 10);
    a.driver->vanish();
    ASSERT_TRUE(a.session->submit(10));
    ASSERT_TRUE(a.session->submit(11));
    a.ends.await(12);
    EXPECT_EQ(a.ends.failed(), 2u);
    EXPECT_EQ(a.ends.failures[10]->code, "CUDA_ERROR_CONTEXT_IS_DESTROYED");
    runTicks(*b.session, b.ends, 10);
    std::vector<float> w(count);
    EXPECT_TRUE(a.session->read(4, w.data()));
    MaybeFailure failure;
    EXPECT_FALSE(Session::open(a.driver, pipeline(), {}, &failure));
    ASSERT_TRUE(failure);
    EXPECT_EQ(failure->op, "bind");
    a.session->close();
    ASSERT_TRUE(b.session->submit(10));
    b.ends.await(11);
    EXPECT_EQ(b.ends.failed(), 0u);
  }
  inner->memInfo(&after, &total);
  EXPECT_EQ(before, after);
}

bool taskLives(pid_t task) { return std::filesystem::exists("/proc/self/task/" + std::to_string(task)); }

TEST(IssueThread, LivesFromTheFirstSessionToTheEndOfTheLast) {
  std::vector<std::size_t> order = {0, 1, 2};
  do {
    std::atomic<pid_t> task{0};
    std::atomic<bool> moved{false};
    const auto note = [&](Stream) {
      if (task.exchange(gettid()) != gettid()) moved = true;
      return Status::ok;
    };
    std::vector<std::unique_ptr<Opened>> all;
    for (int i = 0; i < 3; ++i) all.push_back(std::make_unique<Opened>(hostDriver(), 2, note));
    for (const auto& each : all) {
      each->submit(1);
      each->ends.await(1);
    }
    moved = false;
    for (const std::size_t which : order) {
      for (const auto& each : all)
        if (each->session->submit(each->submitted)) ++each->submitted;
      EXPECT_TRUE(taskLives(task));
      all[which]->session->close();
      EXPECT_EQ(all[which]->ends.size(), all[which]->submitted) << "closing waits for what was submitted";
      EXPECT_EQ(all[which]->ends.failed(), 0u);
      EXPECT_FALSE(all[which]->session->submit(all[which]->submitted));
    }
    EXPECT_FALSE(moved) << "one thread from first to last";
    // It has been joined; its entry may outlast it by a moment.
    for (int i = 0; i < 2000 && taskLives(task); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_FALSE(taskLives(task)) << "closed sessions keep no thread";
    Opened next;
    runTicks(*next.session, next.ends, 5);
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST(IssueThread, ASessionMayBeClosedFromItsOwnOnTick) {
  Opened other;
  auto driver = hostDriver();
  std::size_t before = 0, after = 0, total = 0;
  driver->memInfo(&before, &total);
  Ends ends;
  Gate gate;
  std::unique_ptr<Session> session;
  SessionOptions options;
  options.onTick = [&, report = ends.callback()](std::uint64_t tick, const Failure* failure) {
    if (tick == 0) gate.pass();
    if (tick == 3) {
      session->close();
      EXPECT_FALSE(session->submit(8));
    }
    report(tick, failure);
  };
  MaybeFailure failure;
  session = Session::open(driver, pipeline(), std::move(options), &failure);
  ASSERT_TRUE(session);
  for (std::uint64_t tick = 0; tick < 8; ++tick) ASSERT_TRUE(session->submit(tick));
  gate.give(1);
  ends.await(8);
  EXPECT_EQ(ends.failed(), 0u);
  runTicks(*other.session, other.ends, 10);
  session->close();
  EXPECT_EQ(session->stats().reserved, 0u);
  EXPECT_EQ(session->stats().ticks, 8u);
  driver->memInfo(&after, &total);
  EXPECT_EQ(before, after);
}

TEST(IssueThread, DroppingUnbegunTicksWaitsForNoOtherSession) {
  Gate gate;
  Turns turns;
  Opened a(hostDriver(), 2, turns.of('a', &gate)), idle;
  {
    Opened b(hostDriver(), 2, turns.of('b'));
    runTicks(*idle.session, idle.ends, 3);
    a.submit(4);
    gate.awaitArrival(1);
    b.submit(5);
    std::thread reader([&] {
      std::vector<float> w(count);
      b.session->read(4, w.data());
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    // With `a` held where it is, all of this must end.
    b.session->close(Unbegun::drop);
    reader.join();
    EXPECT_EQ(b.ends.size(), 0u);
    EXPECT_FALSE(b.session->submit(5));
    EXPECT_FALSE(b.session->submit(0));
    idle.session->close();
    EXPECT_EQ(idle.ends.size(), 3u);
  }
  EXPECT_EQ(a.ends.size(), 0u);
  gate.give(always);
  a.ends.await(4);
  EXPECT_EQ(turns.text(), "aaaa");
}

TEST(IssueThread, IssuesForManySessionsWithoutHeapAllocations) {
  struct Plain {
    std::unique_ptr<Session> session;
    std::atomic<std::uint64_t> ended{0};
    std::uint64_t submitted = 0;
  };
  std::array<Plain, 3> all;
  for (Plain& each : all) {
    SessionOptions options;
    options.onTick = [&each](std::uint64_t, const Failure* failure) {
      EXPECT_EQ(failure, nullptr);
      each.ended.fetch_add(1);
      each.ended.notify_one();
    };
    MaybeFailure failure;
    each.session = Session::open(hostDriver(), pipeline(), std::move(options), &failure);
    ASSERT_TRUE(each.session);
  }
  const auto turn = [&](int ticks) {
    for (int i = 0; i < ticks; ++i)
      for (Plain& each : all) each.session->submit(each.submitted++);
    for (Plain& each : all)
      for (std::uint64_t seen = each.ended; seen < each.submitted; seen = each.ended) each.ended.wait(seen);
  };
  for (int i = 0; i < 100; ++i) turn(4);
  const std::uint64_t before = allocations();
  for (int i = 0; i < 200; ++i) turn(4);
  EXPECT_EQ(allocations() - before, 0u);
}

// Any number of sessions, opened, run and closed by several threads in any order: every tick that was
// submitted is reported once, in order, with its answer, and no two threads ever issue at once.
TEST(IssueThread, AnyOrderOfOpeningSubmittingAndClosing) {
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    HostOptions options;
    options.jitterSeed = seed;
    options.jitterMicroseconds = 60;
    options.poison = true;
    const std::shared_ptr<Driver> inner[] = {hostDriver(options), hostDriver()};
    std::atomic<bool> issuing{false};
    const auto alone = [&](Stream) {
      EXPECT_FALSE(issuing.exchange(true));
      std::this_thread::yield();
      issuing = false;
      return Status::ok;
    };
    std::vector<std::thread> callers;
    for (std::uint64_t caller = 0; caller < 3; ++caller) {
      callers.emplace_back([&, caller] {
        std::mt19937_64 random(seed * 31 + caller);
        const auto upTo = [&](std::uint64_t most) { return random() % (most + 1); };
        std::vector<std::unique_ptr<Opened>> open;
        for (int step = 0; step < 60; ++step) {
          const std::uint64_t choice = upTo(9);
          if (open.empty() || (choice == 0 && open.size() < 4)) {
            open.push_back(std::make_unique<Opened>(inner[upTo(1)], 2, alone));
            continue;
          }
          const std::size_t which = upTo(open.size() - 1);
          Opened& one = *open[which];
          if (choice <= 6) {
            one.submit(upTo(5));
            if (choice == 6) one.ends.await(upTo(one.submitted));
            continue;
          }
          if (choice == 7) {
            std::vector<float> w(count);
            EXPECT_FALSE(one.session->read(4, w.data()));
            EXPECT_EQ(w[5], 10.0f);
            EXPECT_EQ(one.ends.size(), one.submitted);
            continue;
          }
          const std::uint64_t way = upTo(2);
          if (way == 0) one.session->close();
          if (way == 1) one.session->close(Unbegun::drop);
          if (way == 2) one.session.reset();
          EXPECT_TRUE(way == 1 ? one.ends.size() <= one.submitted : one.ends.size() == one.submitted);
          for (std::size_t i = 0; i < one.ends.ticks.size(); ++i) EXPECT_EQ(one.ends.ticks[i], i);
          EXPECT_EQ(one.ends.failed(), 0u);
          open.erase(open.begin() + static_cast<std::ptrdiff_t>(which));
        }
      });
    }
    for (std::thread& caller : callers) caller.join();
  }
}

// The same on a GPU, where two drivers also share the primary context.
TEST(IssueThread, TwoDriversOfOneCudaDeviceShareIt) {
  std::shared_ptr<Driver> inner[3];
  for (int i = 0; i < 2; ++i) {
    std::unique_ptr<Driver> driver;
    std::string detail;
    if (openCuda(&driver, 0, &detail) != Status::ok) GTEST_SKIP() << detail;
    inner[i] = std::move(driver);
  }
  inner[2] = hostDriver();
  std::mutex mutex;
  std::set<std::thread::id> issuing[2];
  const auto note = [&](int device) {
    return [&, device](Stream) {
      std::lock_guard lock(mutex);
      issuing[device].insert(std::this_thread::get_id());
      return Status::ok;
    };
  };
  // The thread that opens a session need not have used the device before.
  Opened a(inner[0], 2, note(0)), b(inner[1], 2, note(0)), c(inner[0], 2, note(0)),
      host(inner[2], 2, note(1));
  std::vector<std::thread> callers;
  for (Opened* each : {&a, &b, &c, &host})
    callers.emplace_back([each] { runTicks(*each->session, each->ends, 500); });
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(issuing[0].size(), 1u);
  EXPECT_EQ(issuing[1].size(), 1u);
  EXPECT_NE(*issuing[0].begin(), *issuing[1].begin()) << "another device, another thread";
  a.session->close();
  inner[0].reset();
  for (std::uint64_t tick = 500; tick < 600; ++tick)
    ASSERT_TRUE(b.session->submit(tick) && c.session->submit(tick));
  b.ends.await(600);
  c.ends.await(600);
  for (Opened* each : {&a, &b, &c, &host}) EXPECT_EQ(each->ends.failed(), 0u);

  // What going from one session to another costs the thread, at its best: other work may hold the processor.
  constexpr int kTurns = 1000;
  std::chrono::duration<double, std::nano> spent{1e18};
  for (int tries = 0; tries < 10'000 && spent.count() / kTurns >= 2000; ++tries) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < kTurns; ++i) ASSERT_EQ((i % 2 == 0 ? b : c).driver->bind(), Status::ok);
    spent = std::chrono::steady_clock::now() - start;
  }
  std::vector<double> issue = b.session->stats().issueNanoseconds;
  std::nth_element(issue.begin(), issue.begin() + issue.size() / 2, issue.end());
  std::printf("  bind %.0f ns, a tick of three runs %.1f us\n", spent.count() / kTurns,
              issue[issue.size() / 2] / 1000);
  EXPECT_LT(spent.count() / kTurns, 2000);
}

// A session that runs as the process ends: kept by a static object, so closed after `main`, or never.
TEST(IssueThreadDeathTest, TheProcessEndsWhileTicksRun) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  for (const bool closed : {true, false}) {
    EXPECT_EXIT(
        {
          static std::unique_ptr<Opened> destroyed;
          static Opened* kept = nullptr;
          auto one = std::make_unique<Opened>();
          one->submit(50);
          if (closed)
            destroyed = std::move(one);
          else
            kept = one.release();
          std::exit(kept == nullptr || !closed ? 0 : 1);
        },
        testing::ExitedWithCode(0), "");
  }
}

#if !defined(__SANITIZE_THREAD__)  // which starts no thread after a fork
TEST(IssueThread, AForkedChildHasItsOwn) {
  Opened parent;
  runTicks(*parent.session, parent.ends, 3);
  const pid_t child = fork();
  if (child == 0) {
    Opened own;
    runTicks(*own.session, own.ends, 20);
    own.session->close();
    _exit(own.ends.failed() == 0 && own.ends.size() == 20 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  ASSERT_TRUE(parent.session->submit(3));
  parent.ends.await(4);
}
#endif

}  // namespace
}  // namespace braid
