// A random user of an allocator that checks what it gets. Each thread has its own lanes, which come and go,
// and shares others. It owns blocks, hands some to other threads, and knows for each what its next owner must
// come after.
#include "test/memory/caching/random_owner.h"

#include <array>
#include <chrono>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <random>
#include <sstream>
#include <thread>

#include "test/memory/caching/checking_driver.h"
#include "test/memory/caching/invariants.h"
#include "test/memory/caching/simulated_device.h"

namespace braid::test {
namespace {

using namespace caching;

constexpr std::size_t probe = 32;  // words at either end of a block that carry its owner's number

struct Random {
  std::uint64_t state;
  std::uint64_t next() {
    std::uint64_t z = (state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  std::uint64_t below(std::uint64_t bound) { return next() % bound; }
  bool chance(std::uint64_t in) { return below(in) == 0; }
};

struct ModelLane {
  Lane* lane = nullptr;
  Stream stream = nullptr;
};

struct Owned {
  Block* block = nullptr;
  ModelLane home;
  std::uint32_t number = 0;
  std::uint64_t bytes = 0;
  std::vector<Access> uses;
  std::vector<Stream> noted;
  bool written = false;
};

// What a reader found, and what it must find. The reader writes it from its stream, later.
struct Reading {
  std::uint32_t found[probe] = {};
  std::uint32_t wanted = 0;
  std::uint64_t bytes = 0;
};

class Worker;

class Model {
 public:
  explicit Model(const ModelPlan& plan) : plan_(plan) {}
  ModelReport run();

 private:
  friend class Worker;
  void complain(const std::string& words) {
    std::lock_guard lock(mutex_);
    if (report_.problem.empty()) report_.problem = words;
    stop_ = true;
  }
  bool addLane(std::vector<ModelLane>& lanes);
  void finish(std::vector<std::unique_ptr<Worker>>& workers);

  const ModelPlan plan_;
  ModelReport report_;
  std::mutex mutex_;  // of the report and of what is handed over
  std::deque<Owned> handed_;
  std::atomic<bool> stop_{false};
  std::atomic<std::uint32_t> numbers_{0};
  std::unique_ptr<Driver> device_;
  SimulatedDevice* simulated_ = nullptr;
  std::unique_ptr<CheckingDriver> watch_;
  Driver* driver_ = nullptr;
  std::unique_ptr<Lanes> lanes_;
  std::unique_ptr<Allocator> allocator_;
  std::vector<ModelLane> shared_;
  Random progress_{0};
};

class Worker {
 public:
  Worker(Model& model, std::size_t index)
      : m_(model), plan_(model.plan_), random_{plan_.seed * 1000 + index}, alone_(plan_.threads == 1) {}

  void run();
  void end();
  void check();
  void leave();
  void take(Owned owned) { live_.push_back(std::move(owned)); }

  ModelReport mine;

 private:
  bool stopped() const { return m_.stop_.load(std::memory_order_relaxed); }
  bool good(Status status, const char* what);
  void step();
  void go();
  std::uint64_t size();
  ModelLane& lane();
  Owned* any();
  void allocate();
  void free(std::size_t index);
  void work(Owned& owned, const ModelLane& on);
  void read(Owned& owned, const ModelLane& on);
  void order(const ModelLane& from, const ModelLane& to);
  void keep(Owned& owned);
  void used(Owned& owned, Stream stream);
  void pool();
  void lanesChange();
  void audit();
  void look();
  bool alive(const ModelLane& lane) const;

  Model& m_;
  const ModelPlan& plan_;
  Random random_;
  const bool alone_;
  std::vector<ModelLane> own_;
  std::vector<Owned> live_;
  std::vector<MemPool*> pools_;
  std::vector<Event> leaving_;  // the ends of streams that are gone
  std::deque<Reading> readings_;
  std::uint64_t sizes_[8] = {};
};

bool Model::addLane(std::vector<ModelLane>& lanes) {
  ModelLane made;
  Status status = driver_->streamCreate(&made.stream, 0);
  if (status == Status::ok) status = lanes_->add(made.stream, true, "", &made.lane);
  if (status != Status::ok) {
    if (made.stream) driver_->streamDestroy(made.stream);
    if (plan_.fault.empty()) complain(std::string("a lane was refused: ") + statusName(status));
    return false;
  }
  lanes.push_back(made);
  return true;
}

// A failure that was requested is expected; any other one is a problem.
bool Worker::good(Status status, const char* what) {
  if (status == Status::ok) return true;
  if (plan_.fault.empty() || status != plan_.failure)
    m_.complain(std::string(what) + ": " + statusName(status));
  return false;
}

std::uint64_t Worker::size() {
  constexpr std::uint64_t kibi = 1024, mebi = 1024 * kibi;
  if (plan_.sizes < 8 ? !random_.chance(20) : !random_.chance(3)) return sizes_[random_.below(plan_.sizes)];
  switch (random_.below(8)) {
    case 0: return 1 + random_.below(4 * kibi);
    case 1: return 1 + random_.below(64 * kibi);
    case 2:
    case 3: return 1 + random_.below(mebi);
    case 4: return mebi - 512 + random_.below(1024);
    case 5: return mebi + random_.below(8 * mebi);
    case 6: return mebi + random_.below(2 * mebi);
    default: return 9 * mebi + random_.below(8 * mebi);
  }
}

ModelLane& Worker::lane() {
  const std::uint64_t all = m_.shared_.size() + own_.size();
  const std::uint64_t index = random_.below(all);
  return index < m_.shared_.size() ? m_.shared_[index] : own_[index - m_.shared_.size()];
}

Owned* Worker::any() { return live_.empty() ? nullptr : &live_[random_.below(live_.size())]; }

// The device goes on by a little, or not, whatever the operations are.
void Worker::go() {
  if (!m_.simulated_) return;
  std::lock_guard lock(m_.mutex_);
  if (plan_.behind != 0 && m_.progress_.chance(plan_.behind)) m_.simulated_->advance(m_.progress_.below(12));
}

void Worker::allocate() {
  Owned owned;
  owned.home = lane();
  owned.bytes = size();
  MemPool* pool = !pools_.empty() && random_.chance(4) ? pools_[random_.below(pools_.size())] : nullptr;
  const auto site = static_cast<std::uint32_t>(random_.below(7));
  Shortage shortage;
  const auto attempt = [&] {
    return m_.allocator_->malloc(owned.bytes, *owned.home.lane, &owned.block, &shortage, pool, site);
  };
  Status status = attempt();
  if (alone_) mine.trace.push_back(status == Status::ok ? owned.block->address : 0);
  if (status == Status::outOfMemory) {
    ++mine.refused;
    // What cannot be had now cannot be had by asking again.
    if (alone_ && plan_.fault.empty() && attempt() == Status::ok)
      m_.complain("an allocation of " + std::to_string(owned.bytes) + " bytes was refused, and then granted");
    if (alone_ && shortage.wanted != owned.bytes) m_.complain("a shortage that does not say what was wanted");
    // Too full: make room.
    for (int i = 0; i < 3 && !live_.empty(); ++i) free(random_.below(live_.size()));
    return;
  }
  if (!good(status, "malloc")) return;
  ++mine.allocations;
  owned.number = m_.numbers_.fetch_add(1) + 1;
  if (m_.watch_) m_.watch_->owned(owned.block->address, owned.block->size, owned.home.stream);
  if (owned.block->requested != owned.bytes || owned.block->size < owned.bytes ||
      owned.block->address % 512 != 0)
    m_.complain("a block that is not what was asked for");
  live_.push_back(std::move(owned));
  work(live_.back(), live_.back().home);
}

// The owner writes its number at both ends of its block, on the home lane.
void Worker::work(Owned& owned, const ModelLane& on) {
  const std::uint64_t all = owned.bytes / 4;
  if (all == 0) return;
  const std::uint64_t words = std::min<std::uint64_t>(all, probe);
  const DeviceAddress start = owned.block->address, tail = start + (all - words) * 4;
  Status status = m_.driver_->fill32(start, owned.number, words, on.stream);
  if (status == Status::ok && all > words) status = m_.driver_->fill32(tail, owned.number, words, on.stream);
  on.lane->queued();
  if (m_.watch_ && status == Status::ok) owned.uses.push_back(CheckingDriver::last());
  owned.written = status == Status::ok;
  good(status, "fill32");
}

// Checks later on this lane what the owner wrote. The caller has ordered the lane after the writes.
void Worker::read(Owned& owned, const ModelLane& on) {
  if (!owned.written) return;
  const std::uint64_t all = owned.bytes / 4, words = std::min<std::uint64_t>(all, probe);
  Reading& reading = readings_.emplace_back();
  reading.wanted = owned.number;
  reading.bytes = words * 4;
  const DeviceAddress from = owned.block->address + (random_.chance(2) ? 0 : (all - words) * 4);
  const Status status = m_.driver_->copy(
      CopyKind::deviceToHost, reinterpret_cast<DeviceAddress>(reading.found), from, reading.bytes, on.stream);
  on.lane->queued();
  if (!good(status, "copy"))
    readings_.pop_back();
  else if (m_.watch_)
    owned.uses.push_back(CheckingDriver::last());
}

// What follows on `to` comes after what was queued on `from`.
void Worker::order(const ModelLane& from, const ModelLane& to) {
  if (from.lane == to.lane) return;
  Mark* mark = nullptr;
  if (!good(m_.lanes_->mark(*from.lane, &mark), "mark")) {
    // A failed record: the host makes the order.
    m_.driver_->streamSynchronize(from.stream);
    return;
  }
  Status status = Status::ok;
  {
    std::lock_guard guard(to.lane->mutex);
    status = m_.lanes_->wait(*to.lane, *mark, nullptr);
  }
  mark->release();
  if (!good(status, "wait")) m_.driver_->streamSynchronize(from.stream);
}

// An event, of its own or shared, keeps the block.
void Worker::keep(Owned& owned) {
  const ModelLane& on = lane();
  order(owned.home, on);
  read(owned, on);
  Mark* mark = nullptr;
  const bool timed = random_.chance(2);
  const Status status = timed ? m_.lanes_->markTime(*on.lane, &mark) : m_.lanes_->mark(*on.lane, &mark);
  if (!good(status, "mark")) {
    m_.driver_->streamSynchronize(on.stream);
    return;
  }
  used(owned, on.stream);
  good(m_.allocator_->keepUntil(owned.block, *mark), "keepUntil");
  mark->release();
}

bool Worker::alive(const ModelLane& lane) const {
  for (const std::vector<ModelLane>* lanes : {static_cast<const std::vector<ModelLane>*>(&m_.shared_), &own_})
    for (const ModelLane& each : *lanes)
      if (each.stream == lane.stream) return true;
  return false;
}

// Everything on the stream so far counts as a use; where other threads queue work there too, the owner's own
// alone.
void Worker::used(Owned& owned, Stream stream) {
  if (m_.watch_ && alone_) owned.uses.push_back(m_.watch_->reached(stream));
}

void Worker::free(std::size_t index) {
  Owned owned = std::move(live_[index]);
  live_[index] = std::move(live_.back());
  live_.pop_back();
  if (m_.watch_) {
    used(owned, owned.home.stream);
    for (const Stream stream : owned.noted) used(owned, stream);
    m_.watch_->released(owned.block->address, owned.block->size, owned.uses);
  }
  ++mine.frees;
  Status status = m_.allocator_->free(owned.block);
  if (status == Status::ok) return;
  good(status, "free");
  // Refused: the block is still owned, and the free is tried again.
  if (owned.block->state == BlockState::live) good(m_.allocator_->free(owned.block), "free, again");
}

void Worker::pool() {
  if (pools_.size() < 3 && random_.chance(2)) {
    pools_.push_back(m_.allocator_->makePool(random_.chance(2), random_.chance(3)));
  } else if (!pools_.empty()) {
    const std::size_t index = random_.below(pools_.size());
    m_.allocator_->closePool(pools_[index]);
    pools_.erase(pools_.begin() + static_cast<std::ptrdiff_t>(index));
  }
}

void Worker::lanesChange() {
  if (own_.size() < 4 && random_.chance(2)) {
    m_.addLane(own_);
  } else if (!own_.empty()) {
    const std::size_t index = random_.below(own_.size());
    const ModelLane gone = own_[index];
    // Blocks that it is home to may live on; work queued on it still completes.
    Event last = nullptr;
    if (!good(m_.driver_->eventCreate(&last, EventKind::order), "eventCreate")) return;
    leaving_.push_back(last);
    if (!good(m_.driver_->eventRecord(last, gone.stream), "eventRecord")) return;
    if (!good(m_.lanes_->retire(*gone.lane), "retire")) return;
    own_.erase(own_.begin() + static_cast<std::ptrdiff_t>(index));
    m_.driver_->streamDestroy(gone.stream);
  }
}

void Worker::step() {
  ++mine.operations;
  if (random_.chance(50)) sizes_[random_.below(8)] = 0;
  for (std::uint64_t& each : sizes_)
    while (each == 0) each = 1 + random_.below(random_.chance(3) ? 6u << 20 : 40u << 10);
  switch (random_.below(32)) {
    case 0:
    case 1:
    case 2:
    case 3:
    case 4:
    case 5:
    case 6:
    case 7:
    case 8:
    case 9: allocate(); break;
    case 10:
    case 11:
    case 12:
    case 13:
    case 14:
    case 15:
    case 16:
    case 17:
      if (!live_.empty() && random_.below(plan_.live) < live_.size()) free(random_.below(live_.size()));
      break;
    case 18:
    case 19:
    case 20:
    case 21:
      if (Owned* owned = any()) {
        const ModelLane& on = lane();
        order(owned->home, on);
        read(*owned, on);
        ++mine.uses;
        if (good(m_.allocator_->recordUse(owned->block, *on.lane), "recordUse")) {
          used(*owned, on.stream);
        } else {
          m_.driver_->streamSynchronize(on.stream);
        }
      }
      break;
    case 22:
      // Noted lanes are shared ones: whoever frees the block need not know which of another thread's are
      // still there.
      if (Owned* owned = any(); owned && !m_.shared_.empty()) {
        const ModelLane& on = m_.shared_[random_.below(m_.shared_.size())];
        order(owned->home, on);
        good(m_.allocator_->recordStream(owned->block, *on.lane), "recordStream");
        if (on.lane != owned->home.lane) owned->noted.push_back(on.stream);
        read(*owned, on);
      }
      break;
    case 23:
      if (Owned* owned = any()) keep(*owned);
      break;
    case 24:
      if (Owned* owned = any(); owned && alive(owned->home)) read(*owned, owned->home);
      break;
    case 25:
    case 26: {
      const ModelLane from = lane(), to = lane();
      order(from, to);
      break;
    }
    case 27:
      if (plan_.asking) {
        const ModelLane& on = lane();
        const Status status = m_.lanes_->pollLane(*on.lane);
        if (status != Status::notReady) good(status, "pollLane");
      }
      break;
    case 28:
      if (plan_.asking && random_.chance(4))
        good(m_.lanes_->synchronizeLane(*lane().lane), "synchronizeLane");
      break;
    case 29:
      if (random_.chance(16)) good(m_.allocator_->emptyCache(), "emptyCache");
      if (random_.chance(16)) m_.allocator_->resetPeaks();
      if (random_.chance(16)) (void)m_.allocator_->stats();
      if (random_.chance(16)) look();
      if (plan_.changing && random_.chance(32)) {
        if (random_.chance(2))
          m_.allocator_->history().start(random_.below(200));
        else
          m_.allocator_->history().stop();
        (void)m_.allocator_->history().read();
      }
      break;
    case 30:
      if (plan_.changing && random_.chance(3)) pool();
      break;
    default:
      if (plan_.changing && random_.chance(4)) lanesChange();
      if (alone_) break;
      // Blocks change hands.
      {
        std::lock_guard lock(m_.mutex_);
        if (!live_.empty() && m_.handed_.size() < 64) {
          const std::size_t index = random_.below(live_.size());
          bool lasting = false;
          for (const ModelLane& each : m_.shared_) lasting = lasting || each.lane == live_[index].home.lane;
          if (lasting) {
            m_.handed_.push_back(std::move(live_[index]));
            live_[index] = std::move(live_.back());
            live_.pop_back();
          }
        }
        if (!m_.handed_.empty() && random_.chance(2)) {
          live_.push_back(std::move(m_.handed_.front()));
          m_.handed_.pop_front();
        }
      }
      break;
  }
}

// A snapshot's view, while other threads go on.
void Worker::look() {
  std::uint64_t bytes = 0, wanted = 0;
  m_.allocator_->eachSegment([&](const Segment& segment) {
    bytes += segment.size;
    for (const Block* block = segment.first; block != nullptr; block = block->nextInSegment) {
      wanted += block->size;
      if (block->state == BlockState::live && block->requested > block->size)
        m_.complain("a block too short");
    }
  });
  if (bytes != wanted) m_.complain("a snapshot whose blocks do not fill their segments");
}

// Checks all invariants. No other thread is running.
void Worker::audit() {
  Expected expected;
  for (const Owned& owned : live_) {
    ++expected.liveBlocks;
    expected.requested += owned.bytes;
  }
  const std::string wrong = violations(*m_.allocator_, m_.watch_.get(), expected);
  if (!wrong.empty()) m_.complain("after operation " + std::to_string(mine.operations) + ": " + wrong);
}

void Worker::run() {
  m_.driver_->bind();
  const std::size_t lanes = (plan_.lanes + plan_.threads - 1) / plan_.threads;
  for (std::size_t i = 0; i < lanes; ++i) m_.addLane(own_);
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(plan_.minutes * 60);
  for (std::size_t i = 0; !stopped(); ++i) {
    if (plan_.minutes == 0 ? i >= plan_.operations : i % 64 == 0 && std::chrono::steady_clock::now() >= until)
      break;
    // A block handed over may have its home among another thread's lanes: those are never given over.
    step();
    go();
    if (alone_) mine.trace.push_back(m_.allocator_->reserved());
    if (m_.watch_ && i % 8 == 0)
      if (const std::string wrong = m_.watch_->problem(); !wrong.empty())
        m_.complain("after operation " + std::to_string(mine.operations) + ": " + wrong);
    if (alone_ && plan_.audit != 0 && i % plan_.audit == 0) audit();
    if (readings_.size() > 4096) check();
  }
  if (alone_ && !stopped()) audit();
}

// What the readers found. Everything queued has to be complete for it.
void Worker::check() {
  for (const auto* lanes : {&m_.shared_, &own_})
    for (const ModelLane& each : *lanes) m_.driver_->streamSynchronize(each.stream);
  for (const Event event : leaving_) {
    m_.driver_->eventSynchronize(event);
    m_.driver_->eventDestroy(event);
  }
  leaving_.clear();
  if (plan_.host) {
    for (const Reading& reading : readings_)
      for (std::size_t i = 0; i < reading.bytes / 4; ++i)
        if (reading.found[i] != reading.wanted) {
          std::ostringstream words;
          words << "a reader found 0x" << std::hex << reading.found[i] << " where the owner wrote 0x"
                << reading.wanted;
          m_.complain(words.str());
          break;
        }
  }
  mine.checked += readings_.size();
  readings_.clear();
}

void Worker::end() {
  while (!live_.empty()) free(live_.size() - 1);
  for (MemPool* each : pools_) m_.allocator_->closePool(each);
  pools_.clear();
}

void Worker::leave() {
  for (const ModelLane& each : own_) {
    good(m_.lanes_->retire(*each.lane), "retire");
    m_.driver_->streamDestroy(each.stream);
  }
}

// The end of every run: what is freed and complete can be given back, all of it.
void Model::finish(std::vector<std::unique_ptr<Worker>>& workers) {
  const auto say = [&](const std::string& wrong) {
    if (!wrong.empty()) complain("at the end: " + wrong);
  };
  if (watch_) {
    say(watch_->problem());
    report_.struck = watch_->failed();
    watch_->fail("", 0, Status::ok);
  }
  {
    std::lock_guard lock(mutex_);
    while (!handed_.empty()) {
      workers[0]->take(std::move(handed_.front()));
      handed_.pop_front();
    }
  }
  for (auto& worker : workers) worker->end();
  if (simulated_) simulated_->finish();
  for (auto& worker : workers) worker->check();
  if (const Status status = allocator_->emptyCache(); status != Status::ok)
    say(std::string("emptyCache: ") + statusName(status));
  say(violations(*allocator_, watch_.get(), {}));
  if (watch_) say(watch_->problem());
  if (allocator_->reserved() != 0) say(std::to_string(allocator_->reserved()) + " bytes cannot be released");
  report_.stats = allocator_->stats();
  for (auto& worker : workers) {
    worker->leave();
    const ModelReport& mine = worker->mine;
    report_.operations += mine.operations;
    report_.allocations += mine.allocations;
    report_.frees += mine.frees;
    report_.uses += mine.uses;
    report_.checked += mine.checked;
    report_.refused += mine.refused;
    if (plan_.threads == 1) report_.trace = mine.trace;
  }
  for (const ModelLane& each : shared_) driver_->streamDestroy(each.stream);
  allocator_.reset();
  lanes_.reset();
  if (!watch_) return;
  say(watch_->problem());
  const CheckingDriver::Out out = watch_->out();
  if (out.plain + out.pinned + out.pages + out.ranges + out.mapped + out.events + out.streams != 0)
    say("left behind: " + std::to_string(out.plain + out.pinned) + " bytes, " + std::to_string(out.pages) +
        " bytes of pages, " + std::to_string(out.ranges) + " ranges, " + std::to_string(out.events) +
        " events, " + std::to_string(out.streams) + " streams");
}

ModelReport Model::run() {
  std::string detail;
  if (plan_.host) {
    HostOptions options;
    options.memoryBytes = plan_.deviceBytes;
    options.jitterSeed = plan_.progress;
    options.jitterMicroseconds = 60;
    options.poison = true;
    if (openHost(&device_, options, &detail) != Status::ok) {
      report_.problem = detail;
      return report_;
    }
  } else {
    SimulatedDevice::Config config;
    config.seed = plan_.progress;
    config.totalBytes = plan_.deviceBytes;
    auto simulated = std::make_unique<SimulatedDevice>(config);
    simulated_ = simulated.get();
    device_ = std::move(simulated);
  }
  progress_.state = plan_.progress * 77;
  driver_ = device_.get();
  if (plan_.watched) {
    watch_ = std::make_unique<CheckingDriver>(*device_);
    driver_ = watch_.get();
  }
  driver_->bind();
  lanes_ = std::make_unique<Lanes>(*driver_);
  std::unique_ptr<Source> source;
  if (plan_.pinned)
    source = std::make_unique<PinnedSource>(*driver_);
  else
    source = std::make_unique<DeviceSource>(*driver_);
  allocator_ = std::make_unique<Allocator>(*lanes_, std::move(source), plan_.options);
  const std::size_t shared = plan_.threads == 1 ? 1 : 2;
  for (std::size_t i = 0; i < shared; ++i) addLane(shared_);
  if (watch_ && !plan_.fault.empty()) watch_->fail(plan_.fault, plan_.nth, plan_.failure);

  std::vector<std::unique_ptr<Worker>> workers;
  for (std::size_t i = 0; i < plan_.threads; ++i) workers.push_back(std::make_unique<Worker>(*this, i));
  if (plan_.threads == 1) {
    workers[0]->run();
  } else {
    std::vector<std::thread> threads;
    for (auto& worker : workers) threads.emplace_back([&worker] { worker->run(); });
    for (std::thread& thread : threads) thread.join();
  }
  finish(workers);
  return report_;
}

}  // namespace

ModelReport runModel(const ModelPlan& plan) { return Model(plan).run(); }

ModelPlan randomPlan(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto below = [&](std::uint64_t bound) { return random() % bound; };
  ModelPlan plan;
  plan.seed = seed;
  plan.progress = below(1000) + 1;
  plan.behind = std::array{2, 6, 20, 0}[below(4)];
  plan.options.policy = policies[below(std::size(policies))];
  plan.options.expandable = below(3) != 0;
  plan.options.movePages = below(2) == 0;
  plan.lanes = 1 + below(5);
  plan.sizes = std::array<std::size_t, 3>{8, 8, 2}[below(3)];
  plan.live = std::array<std::size_t, 3>{48, 48, 4}[below(3)];
  const std::uint64_t mebi = std::uint64_t{1} << 20;
  if (below(2) == 0) plan.options.limit = (32 + below(128)) * mebi;
  if (below(4) == 0) plan.options.maxSplit = (20 + below(10)) * mebi;
  if (below(4) == 0) plan.options.collectAbove = 0.5;
  if (below(4) == 0) plan.options.divisions.fill(4);
  plan.deviceBytes = (96 + below(160)) * mebi;
  plan.pinned = below(8) == 0;
  if (plan.pinned && below(2) == 0) plan.options.roundToPowerOfTwoUpTo = mebi << below(5);
  if (plan.pinned && below(2) == 0) plan.options.cacheUpTo = mebi << below(5);
  return plan;
}

std::string describe(const ModelPlan& plan) {
  std::ostringstream words;
  words << "seed " << plan.seed << ", progress " << plan.progress << ", " << plan.options.policy->name
        << (plan.options.expandable ? ", expandable" : ", plain")
        << (plan.options.movePages ? ", moving" : "") << (plan.pinned ? ", pinned" : "")
        << (plan.host ? ", host" : ", simulated") << (plan.watched ? "" : ", unwatched") << ", "
        << plan.threads << " threads, " << plan.lanes << " lanes";
  if (plan.options.limit != unlimited) words << ", limit " << (plan.options.limit >> 20) << " MiB";
  if (plan.options.maxSplit != unlimited) words << ", max split " << (plan.options.maxSplit >> 20) << " MiB";
  if (plan.options.collectAbove > 0) words << ", collects above " << plan.options.collectAbove;
  if (!plan.fault.empty()) words << ", " << plan.fault << " fails the " << plan.nth << "th time";
  return words.str();
}

}  // namespace braid::test
