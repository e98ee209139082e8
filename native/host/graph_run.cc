#include "host/graph_run.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "host/context.h"
#include "host/host_driver.h"

namespace braid::host {
namespace {

thread_local GraphLaunch* running = nullptr;
thread_local Scratch scratch;

}  // namespace

// One execution of an image, on the stack of the thread that launched it.
struct GraphEngine::Run {
  Run(GraphLaunch* launched, const Image& nodes, Time start)
      : launch(launched), image(nodes), end(start), left(nodes.nodes.size()) {
    waitsFor.reserve(left);
    for (const ImageNode& node : nodes.nodes)
      waitsFor.push_back(static_cast<std::uint32_t>(node.dependencies.size()));
    readyAt.assign(left, start);
    for (std::uint32_t i = 0; i < left; ++i)
      if (waitsFor[i] == 0) ready.push_back(i);
  }

  GraphLaunch* const launch;
  const Image& image;
  Time end;
  std::size_t left;
  std::vector<std::uint32_t> waitsFor;  // dependencies that are not done
  std::vector<Time> readyAt;
  std::deque<std::uint32_t> ready;
  bool offered = false;
  std::condition_variable progress;
};

GraphEngine::GraphEngine(Context* context, Points* points)
    : context_(context),
      points_(points),
      most_(std::max<std::size_t>(8, 2 * std::thread::hardware_concurrency())) {}

GraphEngine::~GraphEngine() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  work_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void GraphEngine::offer(Run& run) {
  if (run.ready.empty() || run.offered) return;
  run.offered = true;
  offered_.push_back(&run);
}

// Called by each thread that takes a node while others are ready: so one thread more is always on its way.
void GraphEngine::assist() {
  if (offered_.empty()) return;
  if (idle_ > 0) {
    work_.notify_one();
  } else if (threads_.size() < most_) {
    try {
      threads_.emplace_back([this] { serve(); });
    } catch (const std::system_error&) {
      // The system has no more threads; those that there are do the work.
    }
  }
}

void GraphEngine::withdraw(Run& run) {
  if (!run.offered) return;
  run.offered = false;
  offered_.erase(std::find(offered_.begin(), offered_.end(), &run));
}

void GraphEngine::step(Run& run, std::unique_lock<std::mutex>& lock) {
  const std::uint32_t index = run.ready.front();
  run.ready.pop_front();
  if (run.ready.empty()) withdraw(run);
  assist();
  const ImageNode& node = run.image.nodes[index];
  const Time ready = run.readyAt[index];
  lock.unlock();
  const Time done = run.launch->perform(node, ready);
  lock.lock();
  run.end = std::max(run.end, done);
  for (const std::uint32_t dependent : node.dependents) {
    run.readyAt[dependent] = std::max(run.readyAt[dependent], done);
    if (--run.waitsFor[dependent] == 0) run.ready.push_back(dependent);
  }
  --run.left;
  offer(run);
  // Last: once no node is left, the run goes as soon as the lock is given up.
  if (run.left == 0 || !run.ready.empty()) run.progress.notify_all();
}

Time GraphEngine::run(GraphLaunch& launch, const Image& image, Time ready) {
  Run run(&launch, image, ready);
  std::unique_lock lock(mutex_);
  offer(run);
  while (run.left > 0) {
    if (run.ready.empty())
      run.progress.wait(lock);
    else
      step(run, lock);
  }
  return run.end;
}

void GraphEngine::serve() {
  std::unique_lock lock(mutex_);
  for (;;) {
    if (!offered_.empty()) {
      step(*offered_.front(), lock);
      continue;
    }
    if (stopping_) return;
    ++idle_;
    work_.wait(lock);
    --idle_;
  }
}

Mark Points::take() {
  std::lock_guard lock(mutex_);
  if (free_.empty()) {
    made_.push_back(std::make_unique<Progress>());
    return Mark{made_.back().get(), 1};
  }
  const auto [progress, done] = free_.back();
  free_.pop_back();
  return Mark{progress, done + 1};
}

void Points::reach(const Mark& point, Time time) {
  point.stream->advance(time);
  std::lock_guard lock(mutex_);
  free_.emplace_back(point.stream, point.pieces);
}

GraphLaunch::GraphLaunch(GraphEngine* engine, std::shared_ptr<const Image> image,
                         std::shared_ptr<const UserReferences> users,
                         std::shared_ptr<std::atomic<std::uint64_t>> flights)
    : engine_(engine), image_(std::move(image)), users_(std::move(users)), flights_(std::move(flights)) {
  flights_->fetch_add(1, std::memory_order_relaxed);
  for (const Image::Initial& initial : image_->conditions)
    conditions_[initial.condition] = initial.assign ? initial.value : 0;
}

GraphLaunch* GraphLaunch::current() { return running; }

void GraphLaunch::setCondition(Condition condition, std::uint32_t value) {
  std::lock_guard lock(mutex_);
  conditions_[condition] = value;
}

std::uint32_t GraphLaunch::condition(Condition condition) {
  std::lock_guard lock(mutex_);
  return conditions_[condition];
}

Time GraphLaunch::run(Time ready) {
  for (const Mark& mark : previous) ready = std::max(ready, mark.stream->await(mark.pieces));
  return engine_->run(*this, *image_, ready);
}

Time GraphLaunch::performBodies(const ImageNode& node, Time ready) {
  if (node.kind == NodeKind::child) return engine_->run(*this, *node.bodies[0], ready);
  const Context& context = engine_->context();
  const auto run = [&](std::size_t body) { ready = engine_->run(*this, *node.bodies[body], ready); };
  switch (node.conditional) {
    case ConditionalKind::branch: {
      const std::size_t body = condition(node.condition) != 0 ? 0 : 1;
      if (body < node.bodies.size()) run(body);
      break;
    }
    case ConditionalKind::loop:
      while (condition(node.condition) != 0 && context.failure() == Status::ok) run(0);
      break;
    case ConditionalKind::selection:
      if (const std::uint32_t body = condition(node.condition); body < node.bodies.size()) run(body);
      break;
  }
  return ready;
}

Time GraphLaunch::perform(const ImageNode& node, Time ready) {
  GraphLaunch* const before = std::exchange(running, this);
  struct Restore {
    GraphLaunch* before;
    ~Restore() { running = before; }
  } const restore{before};
  switch (node.kind) {
    case NodeKind::empty:
    case NodeKind::other: return ready;
    // A conditional node's bodies hold nothing that others wait for, so they are skipped on a failed device.
    case NodeKind::conditional:
      return engine_->context().failure() == Status::ok ? performBodies(node, ready) : ready;
    case NodeKind::child: return performBodies(node, ready);
    case NodeKind::memAllocate: node.memory->begin(); return ready;
    case NodeKind::memFree: node.memory->end(); return ready;
    case NodeKind::eventWait: {
      const auto found = points.find(&node);
      if (found == points.end() || !found->second.mark.stream) return ready;
      return std::max(ready, found->second.mark.stream->await(found->second.mark.pieces));
    }
    case NodeKind::eventRecord: {
      const auto found = points.find(&node);
      if (found == points.end()) return ready;
      const Point& point = found->second;
      {
        std::lock_guard lock(point.event->mutex);
        if (point.event->mark == point.mark) {
          point.event->stamped = true;
          point.event->at = engine_->context().slowed() ? ready : Clock::now();
        }
      }
      engine_->points().reach(point.mark, ready);
      return ready;
    }
    default: break;
  }
  if (!node.enabled) return ready;
  const auto fault = faults.empty() ? faults.end() : faults.find(&node);
  const std::uint64_t number = performed_.fetch_add(1, std::memory_order_relaxed) + 1;
  std::uint64_t state = jitter == 0 ? 0 : (jitter ^ number * 0xd1342543de82ef95u) | 1;
  const bool own = node.label.owner == label.owner;
  Context& context = node.device ? node.device->context() : engine_->context();
  return performWork(context, node.work, fault == faults.end() ? nullptr : fault->second,
                     {label.owner, label.tick, own ? node.label.step : label.step}, ready, &state, scratch);
}

}  // namespace braid::host
